"""Tests logs that are truncated or recreated after a consumer has read further."""

from kafka.structs import TopicPartition

from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.outcomes import expect
from safeconsumer.testing.cases.quiet import Pause, take
from safeconsumer.testing.cases.team import Team, team

PART = "Over changed logs"
_DEFAULT_METADATA_AGE = 300.0
# A session timeout in seconds that is longer than it takes to recreate a topic.
_SESSION = 60.0


def test_log_truncated_while_no_member_reads(lab: Lab) -> None:
    """
    If a log was truncated below the committed offset, the next member goes back.

    The log is truncated while no member reads, as in an unclean leader election. The
    new leader then writes new records at offsets below the committed offset.

    kafka-python (3.0, 2.3), aiokafka and confluent-kafka continue at the committed
    offset, and never deliver these new records. The Java client checks where the logs
    diverge.
    """
    tps, group = lab.topic_with(5, partitions=1), lab.name("g")
    lab.produce(tps, 5)  # in separate batches
    consumer = lab.consumer(group)
    consumer.subscribe(tps[0].topic)
    take(consumer, tps, 10)
    consumer.commit()
    consumer.close()
    lab.truncate(tps[0], 5)
    lab.produce(tps, 10)
    _next_member_reads(lab, group, tps, first=5)


def test_paused_topic_recreated_with_more_records(lab: Lab) -> None:
    """
    All new records are delivered if a paused topic is recreated with more records.

    While the topic is paused, the client does not fetch it or request its metadata.

    kafka-python (3.0, 2.3), aiokafka and confluent-kafka continue at the position in
    the old log. With KIP-848 confluent-kafka passes, because the broker revokes the
    deleted topic.
    """
    here, paused = _recreated(lab, each=25)
    here.consumer.resume(here.tps)
    paused.expect_flows()


def test_paused_topic_recreated_with_fewer_records(lab: Lab) -> None:
    """
    All new records are delivered if a paused topic is recreated with fewer records.

    While the topic is paused, the client does not fetch it or request its metadata.

    kafka-python 3.0 skips to the end of the new log, and does not deliver any of its
    records. 2.3, aiokafka and confluent-kafka learn that their position is out of
    range, start at the earliest record, and pass.
    """
    here, paused = _recreated(lab, each=3)
    here.consumer.resume(here.tps)
    paused.expect_flows()


def test_commit_after_paused_topic_was_recreated(lab: Lab) -> None:
    """
    After a paused topic is recreated, positions in the old log are not committed.

    The next member reads all of the new log.

    kafka-python (3.0, 2.3) and aiokafka commit the old position for the new topic, so
    the next member starts there. confluent-kafka passes.
    """
    here, paused = _recreated(lab, each=25)
    here.consumer.commit()
    paused.expect_nothing()
    here.consumer.close()
    _next_member_reads(lab, here.group, here.tps, first=0)


def _recreated(lab: Lab, each: int) -> tuple[Team, Pause]:
    """Recreate a paused topic while no client requests its metadata."""
    here = team(lab, each=0, metadata_age=_DEFAULT_METADATA_AGE, session=_SESSION)
    paused = here.pause()
    # a fetch in flight would fail and make the client request metadata
    here.beat()
    lab.make_again(here.tps, each, here.group, here.consumer)
    here.beat()
    paused.expect_nothing()
    paused.taken = dict.fromkeys(here.tps, 0)
    return here, paused


def _next_member_reads(
    lab: Lab, group: str, tps: list[TopicPartition], first: int
) -> None:
    """Fail unless another member reads the topic from ``first`` to its end."""
    successor = lab.consumer(group)
    successor.subscribe(tps[0].topic)
    successor.owns(tps, "the next member owns everything")
    for tp in tps:
        # When this record arrives, all earlier records of the partition have been read.
        lab.beat(successor, tp, times=1)
        came, wanted = successor.offsets(tp), range(first, lab.end(tp))
        expect(came[:1] == [first], f"went on at {came[0]} instead of {first}")
        expect(came == list(wanted), f"{len(came)} of {len(wanted)} records came")
