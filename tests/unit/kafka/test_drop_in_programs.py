"""Programs as people write them for kafka-python, with one import line changed (P13)."""

import json

import kafka
import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, batch
from tests.harness.kafka.offline import offline
from tests.unit.kafka.test_forks import Listening

A = TopicPartition("orders", 0)


def test_who_wraps_upstreams_next_sees_every_record(safe, monkeypatch):
    """As tracing does: one span for each record, not for each batch."""
    consumer = safe(consumer_timeout_ms=50)
    assigned(consumer, A)
    answer(consumer, A, 0, batch(0, 5))
    seen = []
    own = kafka.KafkaConsumer.__next__

    def traced(self):
        record = own(self)
        seen.append(record.offset)
        return record

    monkeypatch.setattr(kafka.KafkaConsumer, "__next__", traced)
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
        with offline(kafka.KafkaConsumer) as upstreams:
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
