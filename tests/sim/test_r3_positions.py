"""P16: a position beyond the end goes where kafka-python's goes; with an epoch it does not."""

from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.reading import Reader


@pytest.mark.parametrize("kind", [SafeConsumer, KafkaConsumer])
@pytest.mark.parametrize("epoch", [0, -1])
@simulated(seeds=1)
def test_a_committed_position_beyond_the_end_goes_where_kafka_pythons_goes(
    lab: Lab, kind: type, epoch: int
) -> None:
    """P16 and pause-and-resume.md; no log was cut here, and the policy is earliest."""
    (tp,) = lab.topic("t", records=10)
    first = Reader(lab, kind, "t")
    first.owns([tp])
    first.consumer.commit({tp: OffsetAndMetadata(1000, "", epoch)})
    first.consumer.close()
    second = Reader(lab, kind, "t", auto_offset_reset="earliest")
    second.owns([tp])
    for _ in range(20):
        second.poll(0.5)
    assert [one.offset for one in second.log] == [*range(10)]


@pytest.mark.parametrize("kind", [SafeConsumer, KafkaConsumer])
@simulated(seeds=1)
def test_a_topic_made_again_shorter_under_a_commit(lab: Lab, kind: type) -> None:
    """A member that lives over the recreation commits; the next one reads, by earliest."""
    (tp,) = lab.topic("t", records=10)
    told: list[Any] = []
    first = Reader(lab, kind, "t")
    first.take(10)
    lab.cluster.delete_topic("t")
    lab.topic("t", records=3)
    first.consumer.commit()
    first.consumer.close()
    more = {"hooks": [told.append]} if kind is SafeConsumer else {}
    second = Reader(lab, kind, "t", auto_offset_reset="earliest", **more)
    second.owns([tp])
    for _ in range(20):
        second.poll(0.5)
    assert [one.offset for one in second.log] == [0, 1, 2]
