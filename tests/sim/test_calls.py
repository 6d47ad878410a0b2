"""The calls themselves: what they accept, when, and what they answer."""

import re
from typing import Any

import pytest
from kafka import TopicPartition

from safeconsumer import ALL, SafeConsumer
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated
from tests.sim.reading import Reader, both_ways

LAYERS: dict[str, Any] = {
    "partition": TopicPartition("t", 0),
    "topic": "t",
    "pattern": re.compile("t"),
    "consumer": ALL,
}


@pytest.mark.contract("P2")
@both_ways
@pytest.mark.parametrize("first", range(4))
@simulated(seeds=1)
def test_layers_are_independent(lab: Lab, how: str, first: int) -> None:
    """P2: lifting one level leaves the others; the partition flows after the last."""
    (p0,) = lab.topic("t", 1, records=5)
    reader = Reader(lab, SafeConsumer, tps=[p0], how=how, group_id=GROUP)
    order = [*LAYERS.values()][first:] + [*LAYERS.values()][:first]
    for target in order:
        reader.consumer.pause(target)
    for number, target in enumerate(order):
        assert reader.consumer.paused() == {p0}
        assert len(reader.consumer.explain(p0)) == len(order) - number
        reader.is_silent(seconds=1)
        assert reader.consumer.position(p0) == 0
        reader.consumer.resume(target)
    assert reader.consumer.paused() == set()
    reader.reads(p0, range(5))
