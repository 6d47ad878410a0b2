"""A consumer that a program drops without ``close()`` is freed, as kafka-python's is."""

import gc
import weakref

import pytest
from kafka import KafkaConsumer

from safeconsumer import SafeConsumer
from tests.sim.group.operating import CONTROL, Operator
from tests.sim.reading import Reader

WAYS = {
    "stock": (KafkaConsumer, {}),
    "plain": (SafeConsumer, {}),
    "handover": (SafeConsumer, {"pause_handover": "assignor"}),
    "journal": (SafeConsumer, {"journal": "journal"}),
    "control": (SafeConsumer, {"control": CONTROL}),
}


@pytest.mark.contract("P13")
@pytest.mark.parametrize("how", ["poll", "iterate"])
@pytest.mark.parametrize("way", WAYS)
def test_a_consumer_that_is_dropped_is_collected(lab, way, how, tmp_path):
    """Its thread and its sockets stay, and keep nothing of what the program had of it."""
    Operator(lab)
    tps = lab.topic("t", 2, records=20)
    kind, settings = WAYS[way]
    if "journal" in settings:
        settings = {"journal": tmp_path}
    reader = Reader(lab, kind, "t", how=how, **settings)
    reader.take(15)  # in the middle of an iteration
    reader.consumer.pause(tps[0])
    dropped = weakref.ref(reader.consumer)
    del reader
    gc.collect()
    assert dropped() is None
