"""Logs that were cut, or recreated, below positions and commits."""

from kafka.structs import TopicPartition

from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.outcomes import expect
from safeconsumer.testing.cases.quiet import Pause, take
from safeconsumer.testing.cases.team import Team, team

PART = "Over changed logs"
_DEFAULT_METADATA_AGE = 300.0
# Seconds, longer than a consumer pauses its work while its topic is recreated.
_SESSION = 60.0


def test_log_cut_while_away(lab: Lab) -> None:
    """
    A log is cut below the committed offset while no member reads: the next goes back.

    An unclean election cuts a log. Records that the new leader then writes at offsets
    below the committed one are new ones.

    kafka-python 3.0, 2.3, aiokafka and confluent-kafka continue at the committed
    number, and never give these. The Java client asks where the logs part.
    """
    tps, group = lab.topic_with(5, partitions=1), lab.name("g")
    lab.produce(tps, 5)  # in their own batches
    consumer = lab.consumer(group)
    consumer.subscribe(tps[0].topic)
    take(consumer, tps, 10)
    consumer.commit()
    consumer.close()
    lab.truncate(tps[0], 5)
    lab.produce(tps, 10)
    _next_member_reads(lab, group, tps, first=5)


def test_recreated_longer_while_paused(lab: Lab) -> None:
    """
    A paused topic is deleted and recreated, with more records: all of them come.

    A paused topic is not fetched, and no metadata was asked for meanwhile.

    kafka-python 3.0, 2.3, aiokafka and confluent-kafka continue at the number that was
    a position in the old log. With KIP-848 confluent-kafka passes: its broker revokes
    the topic that is gone.
    """
    here, paused = _recreated(lab, each=25)
    here.consumer.resume(here.tps)
    paused.expect_flows()


def test_recreated_shorter_while_paused(lab: Lab) -> None:
    """
    A paused topic is deleted and recreated, with fewer records: all of them come.

    A paused topic is not fetched, and no metadata was asked for meanwhile.

    kafka-python 3.0 goes to the end of the new log, and gives none of them. 2.3,
    aiokafka and confluent-kafka get the answer that the position is out of range, begin
    at the earliest record, and pass.
    """
    here, paused = _recreated(lab, each=3)
    here.consumer.resume(here.tps)
    paused.expect_flows()


def test_commit_after_recreation(lab: Lab) -> None:
    """
    A paused topic is deleted and recreated: no commit has positions in the old log.

    The next member reads all of the new one.

    kafka-python 3.0, 2.3 and aiokafka commit the old number to the new topic, and the
    next member goes on there. confluent-kafka passes.
    """
    here, paused = _recreated(lab, each=25)
    here.consumer.commit()
    paused.expect_nothing()
    here.consumer.close()
    _next_member_reads(lab, here.group, here.tps, first=0)


def _recreated(lab: Lab, each: int) -> tuple[Team, Pause]:
    """Recreate a paused topic while no client asks for its metadata."""
    here = team(lab, each=0, metadata_age=_DEFAULT_METADATA_AGE, session=_SESSION)
    paused = here.pause()
    # no fetch may be in flight: its error would make the client ask for metadata
    here.beat()
    lab.make_again(here.tps, each, here.group, here.consumer)
    here.beat()
    paused.expect_nothing()
    paused.taken = dict.fromkeys(here.tps, 0)
    return here, paused


def _next_member_reads(
    lab: Lab, group: str, tps: list[TopicPartition], first: int
) -> None:
    """Fail unless another member reads one topic from this offset on to its end."""
    successor = lab.consumer(group)
    successor.subscribe(tps[0].topic)
    successor.owns(tps, "the next member owns everything")
    for tp in tps:
        # The consumer has read all records before this offset.
        lab.beat(successor, tp, times=1)
        came, wanted = successor.offsets(tp), range(first, lab.end(tp))
        expect(came[:1] == [first], f"went on at {came[0]} instead of {first}")
        expect(came == list(wanted), f"{len(came)} of {len(wanted)} records came")
