"""kafka-python's DeprecationWarnings point where they do with its own consumer."""

import warnings

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.serializer import Deserializer

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, batch
from tests.harness.kafka.offline import offline

TP = TopicPartition("orders", 0)


class OfOld:
    """A deserializer as of kafka-python 2, which knows no headers."""

    def deserialize(self, topic, data):
        del topic
        return data


class OfOldAsChild(OfOld, Deserializer):
    """One of which only the call shows its age."""


def _mine(kind):
    class Mine(kind):
        def __init__(self, *topics, **configs):
            super().__init__(*topics, **configs)

    return Mine


def _made(kind, **configs):
    with offline(kind, **configs):
        pass


def _made_by_a_subclass(kind):
    _made(_mine(kind), value_deserializer=bytes.decode)


def _read(kind):
    with offline(kind, value_deserializer=OfOldAsChild()) as consumer:
        assigned(consumer, TP)
        consumer.seek(TP, 0)
        answer(consumer, TP, 0, batch(0, 1))
        assert [one.value for one in consumer.poll(0)[TP]] == [b"value"]


def _one(key, value):
    return lambda kind: _made(kind, **{key: value})


WAYS = {
    "a function for values": _one("value_deserializer", bytes.decode),
    "a function for keys": _one("key_deserializer", bytes.decode),
    "an object that is no Deserializer": _one("value_deserializer", OfOld()),
    "in a subclass": _made_by_a_subclass,
    "a record is read": _read,
}


@pytest.mark.contract("P13")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_warning_points_where_upstreams_does(way):
    """So Python's own filter shows it in a program, or hides it, as with kafka-python."""
    said = []
    for kind in (KafkaConsumer, SafeConsumer):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            way(kind)
        said.append(
            [
                (one.category, str(one.message), one.filename)
                for one in caught
                if "_deserializer" in str(one.message)
                or "deserialize" in str(one.message)
            ]
        )
    stock, ours = said
    assert stock
    assert ours == stock


def test_the_consumers_setting_stays_what_was_given():
    given = bytes.decode
    with (
        pytest.warns(DeprecationWarning, match="value_deserializer"),
        offline(SafeConsumer, value_deserializer=given) as consumer,
    ):
        assert consumer.config["value_deserializer"] is given
