"""``poll_until`` and the ghost: what they take, and what they say."""

import pytest
from kafka import KafkaConsumer

from safeconsumer.testing import (
    Clients,
    EmbeddedBroker,
    Ghost,
    PollTimeoutError,
    poll_until,
)
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


def test_a_ghost_that_cannot_settle_says_what_it_waited_for(
    broker: EmbeddedBroker, clients: Clients
) -> None:
    """More members than partitions: the ghost gets none, and the error says so."""
    name = clients.topic(partitions=1)
    # Partitions are dealt out by the members' names.
    member = clients.consumer(KafkaConsumer, name, group="g", client_id="a")
    poll_until([member], member.assignment)
    stranger = clients.consumer(KafkaConsumer, group="g", client_id="b")
    ghost = Ghost(stranger, [name], [member], 8.0)
    with pytest.raises(PollTimeoutError, match="the ghost member to get a partition"):
        ghost.join()
    assert len(broker.members("g")) == 2  # it is a member for all that
