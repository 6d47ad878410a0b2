"""Tests the topic to which a member writes reports, with a producer of any library."""

import time
from functools import partial

import pytest

from safeconsumer.group.control_clients import StatusTopic


class Producers:
    """Producers that write or raise; ``closed`` counts closed producers."""

    def __init__(self):
        self.made, self.closed, self.error = 0, 0, None

    def __call__(self):
        self.made += 1
        return self

    def write(self, *_):
        if self.error is not None:
            raise self.error
        return 7

    def close(self):
        self.closed += 1


def topic_of(producers):
    return StatusTopic(producers, bool, bool)


def is_a(kind, error):
    return isinstance(error, kind)


def sent(topic):
    return topic.send(b"k", b"v", 1)


def test_report_is_acknowledged_with_the_time_when_it_was_sent(monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    producers = Producers()
    topic = topic_of(producers)
    assert sent(topic) == sent(topic) == (7, 5.0)
    assert (producers.made, producers.closed) == (1, 0)


def test_failed_producer_is_closed_and_the_next_report_creates_another():
    producers = Producers()
    topic = topic_of(producers)
    producers.error = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        sent(topic)
    producers.error = None
    sent(topic)
    assert (producers.made, producers.closed) == (2, 1)


@pytest.mark.parametrize(("error", "made"), [(OSError(), 1), (KeyError(), 2)])
def test_long_lived_producer_is_replaced_only_if_its_topic_is_missing(error, made):
    """Otherwise, while replicas are missing, each report would cause a reconnection."""
    producers = Producers()
    topic = StatusTopic(producers, partial(is_a, KeyError), bool, is_lasting=True)
    producers.error = error
    with pytest.raises(type(error)):
        sent(topic)
    producers.error = None
    sent(topic)
    assert producers.made == made


def test_report_after_close_does_not_create_a_producer():
    producers = Producers()
    topic = topic_of(producers)
    topic.close()
    with pytest.raises(ValueError, match="closed"):
        sent(topic)
    assert producers.made == 0


def test_producer_created_while_the_topic_closes_is_closed():
    producers = Producers()

    def connect():
        topic.close()
        return producers()

    topic = topic_of(connect)
    with pytest.raises(ValueError, match="closed"):
        sent(topic)
    assert (producers.made, producers.closed) == (1, 1)
