"""A partition is paused in the middle of a batch and resumed later."""

from kafka import TopicPartition

from safeconsumer.demo.member import Member
from safeconsumer.demo.stage import Stage

RECORDS = 300
FIRST_BATCH = 10
PACE_SECONDS = 0.1


def resume_starvation(stage: Stage) -> None:
    """
    Pause a partition in mid-batch, read another to its end, resume the first.

    Needs no group. While the resumed partition is awaited, the other one goes on
    delivering: that proves that fetches work and only the resumed one is forgotten.
    """
    topic = stage.topic("orders", partitions=2, records=RECORDS)
    member = Member(stage, is_member=False)
    member.consumer.assign([TopicPartition(topic, number) for number in (0, 1)])
    member.say("reading the first ten records")
    paused, other = _read_first_batch(stage, member)
    member.pause(paused)
    member.say(f"{stage.label(paused)} paused in mid-batch, the other read to its end")
    missing = stage.tally.missing
    member.until(lambda: missing(other) == 0, "the end of the other partition")
    member.say(f"{stage.label(paused)} resumed, the other goes on delivering")
    member.resume(paused)

    def feed_the_other() -> None:
        if missing(paused):
            stage.produce([other])
            stage.rest(PACE_SECONDS)

    member.drain(also=feed_the_other)


def _read_first_batch(
    stage: Stage, member: Member
) -> tuple[TopicPartition, TopicPartition]:
    member.until(
        lambda: any(row.delivered for row in stage.tally.rows()),
        "a first batch",
        lambda: member.poll(max_records=FIRST_BATCH),
    )
    begun, other = sorted(stage.tally.rows(), key=lambda row: -row.delivered)
    return begun.tp, other.tp
