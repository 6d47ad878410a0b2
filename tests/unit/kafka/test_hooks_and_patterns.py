"""Foreign code inside the consumer: hooks that raise, patterns that are slow, signals."""

import re
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from kafka import TopicPartition

from safeconsumer import ConcurrentPollError, SafeConsumer
from safeconsumer.events.consumer import (
    Event,
    HoldsPlaced,
    PatternFailed,
    PatternIsSlow,
    StaleJoinDropped,
)
from tests.harness.holds.lab import Told
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker
from tests.unit.holds.signals import handled_by, send

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class HookError(Exception):
    """Raised by a hook."""


def _raise(event: Event) -> None:
    raise HookError(event)


def test_a_hook_that_raises_breaks_no_call(safe: Maker) -> None:
    """Everything happens as without it, and nothing is lost."""
    consumer = safe(hooks=(_raise,))
    assigned(consumer, A, B)
    consumer.pause(A)
    answer(consumer, A, 0, batch(0, 2))
    answer(consumer, B, 0, batch(0, 2))
    assert offsets(consumer.poll(0)) == {1: [0, 1]}
    consumer.resume(A)
    assert offsets(consumer.poll(0)) == {0: [0, 1]}
    assert consumer._safe_ledger.dispatcher.failures[repr(_raise)] >= 3


def test_a_hook_may_pause_and_resume(safe: Maker) -> None:
    """It is called under no lock."""
    consumer: SafeConsumer

    def follow(event: Event) -> None:
        if isinstance(event, HoldsPlaced) and event.holds[0].owner == "app":
            consumer.pause(B, owner="hook")

    consumer = safe(hooks=(follow,))
    assigned(consumer, A, B)
    consumer.pause(A)
    assert consumer.paused() == {A, B}


@pytest.mark.parametrize(
    "configs",
    [{}, {"client_id": "mine", "group_id": "g"}, {"client_id": None}],
    ids=str,
)
def test_events_name_the_consumer_as_kafka_knows_it(
    safe: Maker, told: Told, configs: dict[str, Any]
) -> None:
    """Also where the name is upstream's own."""
    consumer = safe(**configs)
    consumer.pause("orders")
    (placed,) = told.of(HoldsPlaced)
    ids = consumer.config["client_id"], consumer.config["group_id"]
    assert (placed.client_id, placed.group_id) == ids


def test_a_hook_that_polls_is_told_so(safe: Maker) -> None:
    """At either end of a poll, and in an iteration: a typed error that names the case."""
    refused: list[str] = []
    consumer: SafeConsumer

    def poll(event: Event) -> None:
        if not isinstance(event, StaleJoinDropped):
            return
        try:
            consumer.poll(0)
        except ConcurrentPollError as error:
            refused.append(str(error))

    consumer = safe(hooks=(poll,), consumer_timeout_ms=50)
    assigned(consumer, A)
    for step in (consumer.poll, lambda: next(consumer, None)):
        consumer._safe_ledger.emit(StaleJoinDropped, generation=1)
        step()
        (refusal,) = refused
        assert "hook" in refusal
        refused.clear()


def test_a_pause_while_a_hook_takes_its_time_is_obeyed(safe: Maker) -> None:
    """
    The final check comes after the hooks: nothing comes once ``pause()`` has returned.

    1. A poll has taken A's records, and its hook is told of something. 2. While the
    hook runs another thread pauses A, and its ``pause()`` returns. 3. The poll returns.
    """

    def slow(event: Event) -> None:
        if isinstance(event, StaleJoinDropped):
            other = threading.Thread(target=consumer.pause, args=(A,))
            other.start()
            other.join(20)

    consumer = safe(hooks=(slow,))
    assigned(consumer, A, B)
    answer(consumer, A, 0, batch(0, 3))
    answer(consumer, B, 0, batch(0, 3))
    drain = consumer._fetcher.fetch_records

    def told_late(*args: object, **more: object) -> object:
        found = drain(*args, **more)
        consumer._safe_ledger.emit(StaleJoinDropped, generation=1)
        return found

    consumer._fetcher.fetch_records = told_late
    assert offsets(consumer.poll(0)) == {1: [0, 1, 2]}
    consumer._fetcher.fetch_records = drain
    assert consumer.position(A) == 0
    consumer.resume(A)
    assert offsets(consumer.poll(0)) == {0: [0, 1, 2]}


class SlowPattern:
    """An expression that takes its time, as a nested repetition does."""

    pattern = "(x+)+y|orders"
    asked = 0

    def fullmatch(self, string: str, /) -> object | None:
        self.asked += 1
        time.sleep(0.12)
        return re.fullmatch("orders", string)


def test_a_slow_pattern_is_reported_once_per_name(safe: Maker, told: Told) -> None:
    """By name; then its answer is remembered, and no look-up pays for it."""
    consumer = safe()
    assigned(consumer, A)
    pattern = SlowPattern()
    consumer.pause(pattern)
    (slow,) = told.of(PatternIsSlow)
    assert (slow.pattern, slow.topic) == ("re:(x+)+y|orders", "orders")
    assert slow.seconds >= 0.12
    asked = pattern.asked
    for _ in range(20):
        consumer.poll(0)
    assert consumer.paused() == {A}
    assert pattern.asked == asked
    assert len(told.of(PatternIsSlow)) == 1


def test_a_slow_pattern_is_reported_where_it_must_cover_something(
    safe: Maker, told: Told
) -> None:
    """``strict_pause`` asks it first."""
    consumer = safe(strict_pause=True)
    assigned(consumer, A)
    consumer.pause(SlowPattern())
    assert [event.topic for event in told.of(PatternIsSlow)] == ["orders"]


def test_a_slow_pattern_is_reported_at_assignment(safe: Maker, told: Told) -> None:
    """For names that were not known when it was placed."""
    consumer = safe()
    consumer.pause(SlowPattern())
    assert told.of(PatternIsSlow) == []
    assigned(consumer, A)
    assert [event.topic for event in told.of(PatternIsSlow)] == ["orders"]


class PatternError(Exception):
    """Raised by an expression."""


class RaisingPattern:
    """An expression of another library that fails to match at all."""

    pattern = "raises"

    def fullmatch(self, string: str, /) -> object | None:
        raise PatternError(string)


def test_a_pattern_that_raises_is_not_placed(safe: Maker) -> None:
    """Its error goes to whoever placed it, and nothing was applied."""
    consumer = safe()
    assigned(consumer, A)
    with pytest.raises(PatternError):
        consumer.pause(A, RaisingPattern())
    assert consumer.holds() == ()
    answer(consumer, A, 0, batch(0, 1))
    assert offsets(consumer.poll(0)) == {0: [0]}


@pytest.mark.timeout(120)
def test_a_signal_handler_may_pause_and_resume(safe: Maker, told: Told) -> None:
    """No lock is taken there; the next poll obeys it and tells it."""
    consumer = safe()
    assigned(consumer, A, B)
    told.events.clear()
    seen: list[object] = []

    def handler(_: int, __: FrameType | None) -> None:
        consumer.pause(A, reason="signal")
        consumer.pause("orders", owner="signal")
        seen.append(consumer.paused())
        seen.append(consumer.resume("orders", owner="signal"))
        seen.append(consumer.explain(A))
        seen.append(len(consumer.holds()))

    with handled_by(handler):
        send()
    paused, still, lines, holds = seen
    assert paused == {A, B}
    (left,) = still  # type: ignore[misc]  # the first pause, of a part of the topic
    assert str(left.scope) == "orders:0"
    assert (len(lines), holds) == (1, 1)  # type: ignore[arg-type]  # explain's
    assert told.events == []
    answer(consumer, A, 0, batch(0, 1))
    answer(consumer, B, 0, batch(0, 1))
    assert offsets(consumer.poll(0)) == {1: [0]}
    assert told.names() == ["hold_placed", "hold_placed", "hold_removed"]


def _failing_later() -> re.Pattern[str]:
    # A pattern that knew no name when it was placed, and raises at the first.
    class Failing:
        pattern = "fail.*"
        flags = 0

        def fullmatch(self, topic: str) -> None:
            raise HookError(topic)

    return Failing()  # type: ignore[return-value]  # as google-re2's is none


CALLS: dict[str, Callable[[SafeConsumer], object]] = {
    "explain": lambda consumer: consumer.explain("orders:0"),
    "resume": lambda consumer: consumer.resume("orders:0"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_pattern_that_fails_is_told_before_the_call_returns(
    safe: Maker, told: Told, call: Callable[[SafeConsumer], object]
) -> None:
    """The answer says that it covers the partition; the event says why."""
    consumer = safe()
    consumer.pause(_failing_later())
    assert told.of(PatternFailed) == []
    call(consumer)
    (failed,) = told.of(PatternFailed)
    assert failed.topic == "orders"
