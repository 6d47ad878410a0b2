"""Rebalance listeners: what they may do, what they must not, and what if they raise."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from kafka import (
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    TopicPartition,
)
from kafka.errors import KafkaError

from safeconsumer import BlockingCallInListenerError, SafeConsumer
from tests.harness.polling import poll_until
from tests.harness.producing import produce

pytestmark = pytest.mark.any_broker

Act = Callable[[set[TopicPartition]], object]


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # upstream is untyped
    """
    Does what a test gives it to do, once there is something to do it with.

    A first join may bring nothing: the leader does not know the topic yet.
    """

    def __init__(self, assigned: Act | None = None, revoked: Act | None = None) -> None:
        self.assigned, self.revoked = assigned, revoked
        self.calls: list[str] = []

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append("assigned")
        if self.assigned is not None and assigned:
            self.assigned(assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append("revoked")
        if self.revoked is not None and revoked:
            self.revoked(revoked)


@pytest.fixture
def topic(kafka_topic: Callable[..., str], make_producer: Callable[..., Any]) -> str:
    """Two partitions with ten records each."""
    name = kafka_topic(partitions=2)
    produce(make_producer(), name, 10, 10)
    return name


@pytest.fixture
def consumer(make_consumer: Callable[..., SafeConsumer]) -> SafeConsumer:
    """Make a member of a group of its own, subscribed to nothing yet."""
    return make_consumer(SafeConsumer, group=f"group-{uuid4().hex[:8]}")


Got = dict[TopicPartition, list[int]]


def _read_all(consumer: SafeConsumer, topic: str, got: Got | None = None) -> None:
    ends = {TopicPartition(topic, number): 10 for number in range(2)}
    poll_until(
        consumer,
        lambda: (
            set(ends) <= consumer.assignment()
            and {tp: consumer.position(tp) for tp in ends} == ends
        ),
        got=got,
    )


BLOCKING: dict[str, Callable[[SafeConsumer, TopicPartition], object]] = {
    "commit": lambda consumer, _: consumer.commit(),
    "poll": lambda consumer, _: consumer.poll(0),
    "next": lambda consumer, _: next(consumer),
    "position": lambda consumer, tp: consumer.position(tp),
    "committed": lambda consumer, tp: consumer.committed(tp),
    "topics": lambda consumer, _: consumer.topics(),
    "end_offsets": lambda consumer, tp: consumer.end_offsets([tp]),
    "offsets_for_times": lambda consumer, tp: consumer.offsets_for_times({tp: 1}),
    "unsubscribe": lambda consumer, _: consumer.unsubscribe(),
    "close": lambda consumer, _: consumer.close(autocommit=False),
}


@pytest.mark.parametrize("call", BLOCKING)
def test_a_blocking_call_in_a_listener_is_a_typed_error(
    consumer: SafeConsumer, topic: str, call: str
) -> None:
    """It says what works instead; caught by the listener, the join goes on (P12)."""
    caught: list[BaseException] = []

    def block(assigned: set[TopicPartition]) -> None:
        try:
            BLOCKING[call](consumer, min(assigned))
        except RuntimeError as error:  # what upstream raises there
            caught.append(error)

    consumer.subscribe([topic], listener=Listener(assigned=block))
    got = poll_until(consumer, lambda: bool(caught))
    (error,) = caught
    assert isinstance(error, BlockingCallInListenerError)
    assert "commit_async" in str(error)
    _read_all(consumer, topic, got)
    assert {0: [*range(10)], 1: [*range(10)]} == {
        tp.partition: numbers for tp, numbers in got.items()
    }


def test_a_listener_saves_positions_somewhere_else(
    consumer: SafeConsumer, topic: str, kafka_topic: Callable[..., str]
) -> None:
    """What upstream answers without waiting works: the documented pattern (P12)."""
    saved: dict[TopicPartition, int | None] = {}
    numbers: list[set[int]] = []

    def assigned(_: set[TopicPartition]) -> None:
        numbers.append(consumer.partitions_for_topic(topic))

    def revoked(partitions: set[TopicPartition]) -> None:
        saved.update({tp: consumer.position(tp) for tp in partitions})

    listener = Listener(assigned=assigned, revoked=revoked)
    consumer.subscribe([topic], listener=listener)
    _read_all(consumer, topic)
    consumer.subscribe([topic, kafka_topic()], listener=listener)
    poll_until(consumer, lambda: len(numbers) > 1)
    listener.revoked = None  # at the end there may be no position to save
    assert saved == {TopicPartition(topic, number): 10 for number in range(2)}
    assert numbers[0] == {0, 1}


def test_metadata_that_is_not_here_is_refused_in_a_listener(
    consumer: SafeConsumer, topic: str
) -> None:
    """It would have to be asked for."""
    caught: list[BaseException] = []

    def ask(_: set[TopicPartition]) -> None:
        try:
            consumer.partitions_for_topic("never-heard-of")
        except BlockingCallInListenerError as error:
            caught.append(error)

    consumer.subscribe([topic], listener=Listener(assigned=ask))
    poll_until(consumer, lambda: bool(caught))


def test_a_blocking_call_that_the_listener_lets_through(
    consumer: SafeConsumer, topic: str
) -> None:
    """``poll`` raises what upstream raises for a listener, with ours as the cause."""
    consumer.subscribe([topic], listener=Listener(lambda _: consumer.commit()))
    with pytest.raises(KafkaError, match="callback") as caught:
        poll_until(consumer, lambda: False)
    assert isinstance(caught.value.__cause__, BlockingCallInListenerError)


class ListenerError(Exception):
    """Raised by a listener."""


def _raise(_: set[TopicPartition]) -> None:
    raise ListenerError


def test_a_listener_that_raises_on_assignment_loses_nothing(
    consumer: SafeConsumer, topic: str
) -> None:
    """``poll`` raises as upstream's; holds hold, and all records come afterwards."""
    held, flowing = TopicPartition(topic, 0), TopicPartition(topic, 1)
    listener = Listener(assigned=_raise)
    consumer.subscribe([topic], listener=listener)
    consumer.pause(held)
    with pytest.raises(KafkaError, match="callback") as caught:
        poll_until(consumer, lambda: False)
    assert isinstance(caught.value.__cause__, ListenerError)
    listener.assigned = None
    got = poll_until(
        consumer,
        lambda: flowing in consumer.assignment() and consumer.position(flowing) == 10,
    )
    assert got == {flowing: [*range(10)]}
    assert consumer.paused() == {held}
    consumer.resume(held)
    got = poll_until(consumer, lambda: consumer.position(held) == 10)
    assert got == {held: [*range(10)]}


def test_a_listener_that_raises_on_revocation_loses_nothing(
    consumer: SafeConsumer, topic: str, kafka_topic: Callable[..., str]
) -> None:
    """The rebalance goes on with the next polls."""
    other = kafka_topic(partitions=1)
    held = TopicPartition(topic, 0)
    listener = Listener()
    consumer.subscribe([topic], listener=listener)
    consumer.pause(held)
    flowing = TopicPartition(topic, 1)
    poll_until(
        consumer,
        lambda: flowing in consumer.assignment() and consumer.position(flowing) == 10,
    )
    listener.revoked = _raise
    consumer.subscribe([topic, other], listener=listener)
    with pytest.raises(KafkaError, match="callback"):
        poll_until(consumer, lambda: False)
    listener.revoked = None
    new = TopicPartition(other, 0)
    got = poll_until(consumer, lambda: new in consumer.assignment())
    assert held not in got
    assert consumer.paused() == {held}


def test_what_a_listener_pauses_and_seeks_stands(
    consumer: SafeConsumer, topic: str
) -> None:
    """Nothing of it is delivered, nor overwritten by a committed offset."""
    held, sought = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def steer(_: set[TopicPartition]) -> None:
        consumer.pause(held, reason="listener")
        consumer.seek(sought, 7)

    consumer.subscribe([topic], listener=Listener(assigned=steer))
    got = poll_until(
        consumer,
        lambda: sought in consumer.assignment() and consumer.position(sought) == 10,
    )
    assert got == {sought: [7, 8, 9]}
    assert consumer.paused() == {held}


def test_what_a_listener_resumes_stands(consumer: SafeConsumer, topic: str) -> None:
    """A hold placed before the first poll, lifted by the listener."""
    consumer.subscribe([topic], listener=Listener(lambda _: consumer.resume(topic)))
    consumer.pause(topic)
    _read_all(consumer, topic)
    assert consumer.holds() == ()


@pytest.mark.parametrize("call", ["paused", "holds", "explain"])
def test_a_listener_may_ask(consumer: SafeConsumer, topic: str, call: str) -> None:
    """A topic's hold covers its partitions before the listener runs (P7)."""
    tp, answers = TopicPartition(topic, 0), []

    def ask(_: set[TopicPartition]) -> None:
        arguments = [tp] if call == "explain" else []
        answers.append(getattr(consumer, call)(*arguments))

    consumer.subscribe([topic], listener=Listener(assigned=ask))
    consumer.pause(tp)
    poll_until(consumer, lambda: bool(answers))
    assert len(answers[0]) == 1


def test_commit_async_in_a_listener_is_in_time(
    consumer: SafeConsumer,
    topic: str,
    force_rebalance: Callable[..., list[Any]],
) -> None:
    """The recipe for baseline row 17: nothing that was read before comes twice."""
    listener = Listener(revoked=lambda _: consumer.commit_async())
    consumer.subscribe([topic], listener=listener)
    _read_all(consumer, topic)
    again = force_rebalance(consumer.config["group_id"], topic, consumer)
    assert again == []
    assert "revoked" in listener.calls
    for number in range(2):
        assert consumer.committed(TopicPartition(topic, number)) == 10


class AsyncListener(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    """Commits, and waits for the answer, before the member rejoins."""

    def __init__(self, consumer: SafeConsumer) -> None:
        self._consumer = consumer
        self.answered = 0

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        del revoked
        await self._consumer.commit_async()
        self.answered += 1

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Nothing to do."""


def test_an_async_listener_may_await_a_commit(
    consumer: SafeConsumer,
    topic: str,
    force_rebalance: Callable[..., list[Any]],
) -> None:
    """It is answered before the JoinGroup is sent."""
    listener = AsyncListener(consumer)
    consumer.subscribe([topic], listener=listener)
    _read_all(consumer, topic)
    assert force_rebalance(consumer.config["group_id"], topic, consumer) == []
    assert listener.answered
    for number in range(2):
        assert consumer.committed(TopicPartition(topic, number)) == 10
