"""``poll_until``: what it takes."""

import pytest
from kafka import KafkaConsumer

from safeconsumer.testing import Clients, poll_until
from tests.harness.producing import produce


def test_one_consumer_needs_no_list(clients: Clients) -> None:
    """It is an iterator of its records, and is not taken for a list of consumers."""
    topic = clients.topic(partitions=1)
    produce(clients.producer(), topic, 3)
    consumer = clients.consumer(KafkaConsumer, topic, group="g")
    quiet = clients.consumer(KafkaConsumer, topic, group="other")
    records = poll_until(
        consumer,
        lambda: quiet.assignment() and consumer.assignment(),
        silently=quiet,
    )
    (tp,) = consumer.assignment()
    records += poll_until(consumer, lambda: consumer.position(tp) == 3)
    assert [record.offset for record in records] == [0, 1, 2]


@pytest.mark.parametrize("given", [None, 3, "orders", KafkaConsumer, [KafkaConsumer]])
def test_what_is_no_consumer_is_refused_at_once(given: object) -> None:
    """The error says what it takes."""
    with pytest.raises(TypeError, match="polls a consumer, or a list of them, not"):
        poll_until(given, lambda: True)
    with pytest.raises(TypeError, match="polls a consumer, or a list of them, not"):
        poll_until([], lambda: True, silently=given)


def test_a_condition_that_cannot_be_asked_is_refused_at_once() -> None:
    """A value would be the same for ever."""
    with pytest.raises(TypeError, match="the condition is a function"):
        poll_until([], set())  # type: ignore[arg-type]  # the mistake
