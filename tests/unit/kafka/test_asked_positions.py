"""
What a broker is asked about positions belongs to the ownership it was asked in.

The answers are given by hand, on the IO thread, when the test says so.
"""

from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaConnectionError
from kafka.future import Future
from kafka.protocol.consumer import OffsetResetStrategy
from kafka.structs import OffsetAndTimestamp

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import assigned
from tests.harness.kafka.fixtures import Maker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
EARLIEST, LATEST = OffsetResetStrategy.EARLIEST, OffsetResetStrategy.LATEST


class Asked:
    """Questions for offsets that wait for their answers."""

    def __init__(self, consumer: SafeConsumer) -> None:
        self._net: Any = consumer._net
        self._fetcher: Any = consumer._fetcher
        self._futures: list[Future] = []
        self._fetcher._send_list_offsets_request = self._send

    async def _send(self, _node: int, _asked: object) -> object:
        future = Future()
        self._futures.append(future)
        return await future

    def ask(self, strategies: dict[TopicPartition, int]) -> Future:
        """Ask one broker for the offsets of some partitions; return when it is asked."""
        asked = {tp: (strategy, -1) for tp, strategy in strategies.items()}
        before = len(self._futures)
        task = self._fetcher._manager.call_soon(
            self._fetcher._reset_offsets_for_node, 0, asked, set(asked)
        )
        while len(self._futures) == before:
            self._net.run(self._nothing)
        return task

    async def _nothing(self) -> None:
        """Let the IO thread turn once."""

    def answer(
        self, task: Future, at: int, *offsets: tuple[TopicPartition, int]
    ) -> None:
        """Answer the question of this number; return when the answer was handled."""
        found = {tp: OffsetAndTimestamp(offset, -1, -1) for tp, offset in offsets}
        self._resolve(task, lambda: self._futures[at].success((found, set())))

    def fail(self, task: Future, at: int) -> None:
        """Let the connection break instead."""
        error = KafkaConnectionError("broken by the test")
        self._resolve(task, lambda: self._futures[at].failure(error))

    def _resolve(self, task: Future, resolve: Callable[[], object]) -> None:
        self._net.call_soon_threadsafe(resolve)
        self._net.run(self._fetcher._manager.wait_for, task, 5000)


@pytest.fixture
def consumer(safe: Maker) -> SafeConsumer:
    """With A and B at offset 0."""
    made = safe()
    assigned(made, A, B)
    return made


def _offset(consumer: SafeConsumer, tp: TopicPartition) -> int | None:
    position = consumer._subscription.assignment[tp].position
    return None if position is None else int(position.offset)


def test_an_answer_sets_the_position(consumer: SafeConsumer) -> None:
    """In the ownership it was asked in."""
    asked = Asked(consumer)
    consumer._subscription.request_offset_reset(A, EARLIEST)
    asked.answer(asked.ask({A: EARLIEST}), 0, (A, 3))
    assert _offset(consumer, A) == 3


@pytest.mark.parametrize("strategy", [EARLIEST, LATEST])
def test_an_answer_of_an_ended_ownership_sets_nothing(
    consumer: SafeConsumer, strategy: int
) -> None:
    """
    What it says may be behind a commit.

    1. A waits for where to begin. 2. It is lost; another member commits. 3. It is back
    and waits again. 4. The answer of before comes.
    """
    asked = Asked(consumer)
    consumer._subscription.request_offset_reset(A, strategy)
    task = asked.ask({A: strategy})
    consumer._subscription.assign_from_user([B])
    consumer._subscription.assign_from_user([A, B])
    consumer._subscription.request_offset_reset(A, strategy)
    asked.answer(task, 0, (A, 3))
    assert _offset(consumer, A) is None
    asked.answer(asked.ask({A: strategy}), 1, (A, 8))
    assert _offset(consumer, A) == 8


def test_an_answer_that_a_seek_has_overtaken_sets_nothing(
    consumer: SafeConsumer,
) -> None:
    """As upstream has it."""
    asked = Asked(consumer)
    consumer._subscription.request_offset_reset(A, EARLIEST)
    task = asked.ask({A: EARLIEST})
    consumer.seek(A, 7)
    asked.answer(task, 0, (A, 3))
    assert _offset(consumer, A) == 7


def test_an_answer_from_before_a_seek_is_not_one_to_a_later_reset(
    consumer: SafeConsumer,
) -> None:
    """To the end, to 5, to the end again: where the end was at first is over."""
    asked = Asked(consumer)
    consumer.seek_to_end(A)
    task = asked.ask({A: LATEST})
    consumer.seek(A, 5)
    consumer.seek_to_end(A)
    asked.answer(task, 0, (A, 3))
    assert _offset(consumer, A) is None


def test_to_ask_for_the_same_again_starves_nobody(consumer: SafeConsumer) -> None:
    """A program that seeks to the end in front of every poll gets there."""
    asked = Asked(consumer)
    consumer.seek_to_end(A)
    task = asked.ask({A: LATEST})
    consumer.seek_to_end(A)
    asked.answer(task, 0, (A, 9))
    assert _offset(consumer, A) == 9


def test_one_answer_for_what_stayed_and_what_did_not(consumer: SafeConsumer) -> None:
    """Partition by partition."""
    asked = Asked(consumer)
    for tp in (A, B):
        consumer._subscription.request_offset_reset(tp, EARLIEST)
    task = asked.ask({A: EARLIEST, B: EARLIEST})
    consumer._subscription.assign_from_user([B])
    consumer._subscription.assign_from_user([A, B])
    consumer._subscription.request_offset_reset(A, EARLIEST)
    asked.answer(task, 0, (A, 3), (B, 4))
    assert (_offset(consumer, A), _offset(consumer, B)) == (None, 4)


def test_a_failure_of_what_has_departed_delays_nobody(consumer: SafeConsumer) -> None:
    """Upstream raises ``KeyError`` for what is gone, and the others wait 30 s."""
    asked = Asked(consumer)
    subscription = consumer._subscription
    for tp in (A, B):
        subscription.request_offset_reset(tp, EARLIEST)
    task = asked.ask({A: EARLIEST, B: EARLIEST})
    subscription.set_reset_pending({A, B}, 1e12)  # as upstream, until the time limit
    subscription.assign_from_user([B])
    asked.fail(task, 0)
    assert subscription.assignment[B].next_allowed_retry_time < 1e12


def test_what_has_departed_can_be_named(consumer: SafeConsumer) -> None:
    """By everything that answers of before it departed may come to."""
    subscription = consumer._subscription
    subscription.assign_from_user([B])
    for call in (
        subscription.set_reset_pending,
        subscription.reset_failed,
        subscription.set_validation_pending,
        subscription.validation_failed,
    ):
        call({A, B}, 5.0)
        assert subscription.assignment[B].next_allowed_retry_time == 5.0
        subscription.assignment[B].next_allowed_retry_time = None
