"""Programs as people write them for kafka-python, with one import line changed (P13)."""

import json
import warnings

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.serializer import Deserializer

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, batch
from tests.harness.kafka.offline import offline
from tests.unit.kafka.test_forks import Listening

A = TopicPartition("orders", 0)


def test_a_wrapper_of_upstreams_next_sees_every_record(safe, monkeypatch):
    """As tracing does: one span for each record, not for each batch."""
    consumer = safe(consumer_timeout_ms=50)
    assigned(consumer, A)
    answer(consumer, A, 0, batch(0, 5))
    seen = []
    own = KafkaConsumer.__next__

    def traced(self):
        record = own(self)
        seen.append(record.offset)
        return record

    monkeypatch.setattr(KafkaConsumer, "__next__", traced)
    assert [next(consumer).offset for _ in range(5)] == [0, 1, 2, 3, 4] == seen


class Lazy(SafeConsumer):
    """Asks twice, and returns what can be gone through once."""

    def poll(self, *args, **kwargs):
        found = super().poll(*args, **kwargs) or super().poll(*args, **kwargs)
        return {tp: iter(records) for tp, records in found.items()}


class Forgetful(SafeConsumer):
    """Passes on what it knows of, and not that positions are moved record by record."""

    def poll(self, timeout_ms=0, max_records=None, **_):
        return super().poll(timeout_ms, max_records)


@pytest.mark.parametrize("kind", [Lazy, Forgetful])
def test_a_poll_of_the_applications_own_feeds_iteration(kind):
    """Upstream's iteration calls it, too."""
    with offline(kind, consumer_timeout_ms=100, log=False) as consumer:
        assigned(consumer, A)
        answer(consumer, A, 0, batch(0, 3))
        got = [record.offset for record in consumer]
    assert got == [0, 1, 2]


def test_the_constructor_calls_nothing_that_a_subclass_overrides():
    """As upstream's."""
    with offline(Listening, "orders", start_paused=True, log=False) as consumer:
        assert consumer.subscription() == {"orders"}


def test_our_private_names_are_not_those_of_a_subclass(safe, tmp_path):
    """A subclass keeps its orders, its ledger and its decoder under whatever name."""
    for consumer in (safe(), safe(journal=tmp_path)):
        ours = {name for one in type(consumer).__mro__ for name in vars(one)}
        ours |= vars(consumer).keys()
        with offline(KafkaConsumer) as upstreams:
            ours -= vars(upstreams).keys() | set(dir(upstreams))
        private = {name for name in ours if name.startswith("_")}
        assert {one for one in private if not one.startswith(("_safe_", "__"))} == set()


def test_a_subclass_may_have_a_decoder_of_its_own(safe):
    """Set before or after ours is made, and the subclass's counts."""

    class Decoding(SafeConsumer):
        def __init__(self, **configs):
            super().__init__(**configs)
            self.decoder = json.loads

    consumer = Decoding(bootstrap_servers="127.0.0.1:1", api_version=(2, 3))
    assert consumer.decoder is json.loads
    consumer.close(autocommit=False, timeout_ms=0)
    assert safe(decoder="python").decoder == "python"


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
        assigned(consumer, A)
        consumer.seek(A, 0)
        answer(consumer, A, 0, batch(0, 1))
        assert [one.value for one in consumer.poll(0)[A]] == [b"value"]


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
