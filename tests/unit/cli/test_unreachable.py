"""Commands that read topics, at a cluster that does not answer."""

import pytest
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import against, letters
from safeconsumer.group.clients import BOOTSTRAP_MS


class _Asked:
    def __init__(self):
        self.waits = []

    def __call__(self, **configs):
        self.waits.append(configs.get("bootstrap_timeout_ms"))
        raise KafkaTimeoutError


def test_letters_wait_no_longer_than_other_commands(monkeypatch):
    """By kafka-python's default it was half a minute, for a mistyped address."""
    asked = _Asked()
    monkeypatch.setattr(letters, "KafkaConsumer", asked)
    with pytest.raises(KafkaTimeoutError):
        letters.Letters({"bootstrap_servers": ["localhost:1"]}, "orders.dlq")
    assert asked.waits == [BOOTSTRAP_MS]


def test_an_audit_against_topics_waits_no_longer(monkeypatch):
    """A wait that was chosen counts more."""
    asked = _Asked()
    monkeypatch.setattr(against, "KafkaConsumer", asked)
    for base in ({}, {"bootstrap_timeout_ms": 60_000}):
        with pytest.raises(KafkaTimeoutError):
            against.topic_journal(base, [])
    assert asked.waits == [BOOTSTRAP_MS, 60_000]
