"""Tests kafka-python programs in which only the import line was changed (P13)."""

import json
import warnings

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.serializer import Deserializer

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, batch
from tests.harness.kafka.offline import offline

A = TopicPartition("orders", 0)


class Lazy(SafeConsumer):
    """A consumer with a ``poll`` that polls twice and returns iterators."""

    def poll(self, *args, **kwargs):
        found = super().poll(*args, **kwargs) or super().poll(*args, **kwargs)
        return {tp: iter(records) for tp, records in found.items()}


def test_overridden_poll_that_returns_iterators_feeds_iteration():
    with offline(Lazy, consumer_timeout_ms=100, log=False) as consumer:
        assigned(consumer, A)
        answer(consumer, A, 0, batch(0, 3))
        got = [record.offset for record in consumer]
    assert got == [0, 1, 2]


class Listening(SafeConsumer):
    """A consumer whose ``subscribe`` uses an attribute set at the end of ``__init__``."""

    def __init__(self, *topics, **configs):
        super().__init__(*topics, **configs)
        self.mine = object()

    def subscribe(self, *args, **kwargs):
        assert self.mine
        super().subscribe(*args, **kwargs)


def test_constructor_does_not_call_methods_that_a_subclass_overrides():
    with offline(Listening, "orders", start_paused=True, log=False) as consumer:
        assert consumer.subscription() == {"orders"}


def test_our_private_names_begin_with_safe(safe, tmp_path):
    """Subclasses may use any private name without this prefix."""
    for consumer in (safe(), safe(journal=tmp_path)):
        ours = {name for one in type(consumer).__mro__ for name in vars(one)}
        ours |= vars(consumer).keys()
        with offline(KafkaConsumer) as upstreams:
            ours -= vars(upstreams).keys() | set(dir(upstreams))
        private = {name for name in ours if name.startswith("_")}
        assert {one for one in private if not one.startswith(("_safe_", "__"))} == set()


def test_subclass_may_have_its_own_decoder_attribute(safe):
    class Decoding(SafeConsumer):
        def __init__(self, **configs):
            super().__init__(**configs)
            self.decoder = json.loads

    consumer = Decoding(bootstrap_servers="127.0.0.1:1", api_version=(2, 3))
    assert consumer.decoder is json.loads
    consumer.close(autocommit=False, timeout_ms=0)
    assert safe(decoder="python").decoder == "python"


class OfOld:
    """A deserializer for kafka-python 2, without headers."""

    def deserialize(self, topic, data):
        del topic
        return data


class OfOldAsChild(OfOld, Deserializer):
    """A subclass of ``Deserializer`` whose method does not accept headers."""


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
        assigned(consumer, A)
        consumer.seek(A, 0)
        answer(consumer, A, 0, batch(0, 1))
        assert [one.value for one in consumer.poll(0)[A]] == [b"value"]


def _one(key, value):
    return lambda kind: _made(kind, **{key: value})


WAYS = {
    "a function for values": _one("value_deserializer", bytes.decode),
    "a function for keys": _one("key_deserializer", bytes.decode),
    "an object that is not a Deserializer": _one("value_deserializer", OfOld()),
    "in a subclass": _made_by_a_subclass,
    "a record is read": _read,
}


@pytest.mark.contract("P13")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_warning_points_to_the_same_line_as_upstreams(way):
    """Python's warning filters therefore treat both warnings alike."""
    found = []
    for kind in (KafkaConsumer, SafeConsumer):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            way(kind)
        found.append(
            [
                (one.category, str(one.message), one.filename)
                for one in caught
                if "_deserializer" in str(one.message)
                or "deserialize" in str(one.message)
            ]
        )
    stock, ours = found
    assert stock
    assert ours == stock


def test_config_keeps_the_given_function_as_the_deserializer():
    given = bytes.decode
    with (
        pytest.warns(DeprecationWarning, match="value_deserializer"),
        offline(SafeConsumer, value_deserializer=given) as consumer,
    ):
        assert consumer.config["value_deserializer"] is given
