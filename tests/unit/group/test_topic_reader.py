"""When a reader of topics takes the brokers for silent."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from safeconsumer.group import topic_reader
from safeconsumer.group.topic_reader import TopicReader

_TP = TopicPartition("ops", 0)


class Brokers:
    """A consumer, its fetches, and a clock: how long polls take, and what they return."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.heard_at = 0.0
        self.records: dict[Any, list[object]] = {}
        self.is_answering = True
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(topic_reader, "time", clock)
        monkeypatch.setattr(topic_reader, "topic_ids", lambda *_: {})

    def reader(self) -> TopicReader:
        made: Any = TopicReader({})
        made._consumer = made._client = self
        return made  # type: ignore[no-any-return]

    def poll(self, wait_ms: float) -> dict[Any, list[object]]:
        self.now += wait_ms / 1000
        if self.is_answering:
            self.heard_at = self.now
        return self.records

    def positions(self) -> dict[Any, int]:
        return {}

    def silence(self) -> float:
        return self.now - self.heard_at


def test_time_spent_on_records_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer may hold records for many polls: meanwhile nothing is fetched."""
    brokers = Brokers(monkeypatch)
    reader = brokers.reader()
    brokers.is_answering, brokers.records = False, {_TP: [object()]}
    for _ in range(10):
        reader.turn(10)
        brokers.now += 2.0
    brokers.records = {}
    brokers.now += 60.0  # its caller was stopped, say
    reader.turn(500)


def test_brokers_that_do_not_answer_are_silent_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch)
    reader = brokers.reader()
    for _ in range(100):
        reader.turn(500)
    brokers.is_answering = False
    for _ in range(11):
        reader.turn(500)
    with pytest.raises(KafkaTimeoutError, match="no answer to a fetch for 5 s"):
        reader.turn(500)
