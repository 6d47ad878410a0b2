"""Pausing and asking in a signal handler of a whole consumer: none of upstream's locks."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from kafka import TopicPartition

from safeconsumer import Lifetime, SafeConsumer
from safeconsumer.errors import NotConsumedError
from safeconsumer.events.consumer import HoldsPlaced
from tests.harness.holds.lab import Told, is_locked
from tests.harness.kafka.fetches import assigned
from tests.harness.kafka.fixtures import Maker
from tests.harness.signals import handled_by, send

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

# A handler that waits for a lock would wait this long, and then be found out.
LONG = 60.0


@contextmanager
def _locks_taken(consumer: SafeConsumer) -> Iterator[threading.Event]:
    # By another thread, as the IO thread takes them while a join is applied.
    inside, release, released = (threading.Event() for _ in range(3))

    def take() -> None:
        with ExitStack() as stack:
            for part in (
                consumer._coordinator,
                consumer._subscription,
                consumer._cluster,
            ):
                stack.enter_context(part._lock)
            inside.set()
            release.wait(LONG)
            released.set()

    other = threading.Thread(target=take)
    other.start()
    assert inside.wait(20)
    try:
        yield released
    finally:
        release.set()
        other.join(20)


def _by_names(consumer: SafeConsumer) -> None:
    consumer.subscribe(["orders"])


def _by_pattern(consumer: SafeConsumer) -> None:
    consumer.subscribe(pattern="ord.*")


def _by_hand(consumer: SafeConsumer) -> None:
    assigned(consumer, A)


def _refused(consumer: SafeConsumer) -> None:
    with pytest.raises(NotConsumedError, match="audit"):
        consumer.pause("audit")


CONSUMED = {"topics": _by_names, "pattern": _by_pattern, "assigned": _by_hand}
CALLS: dict[str, Callable[[SafeConsumer], object]] = {
    "pause a partition": lambda consumer: consumer.pause(A),
    "pause a topic": lambda consumer: consumer.pause("orders"),
    "pause a pattern": lambda consumer: consumer.pause(re.compile("ord.*")),
    "pause all": lambda consumer: consumer.pause_all(),
    "pause what is not consumed": _refused,
    "resume": lambda consumer: consumer.resume(A, "orders", re.compile("ord.*")),
    "resume all": lambda consumer: consumer.resume_all(),
    "ask": lambda consumer: (consumer.paused(), consumer.holds(), consumer.explain(A)),
}


@pytest.mark.parametrize("consumes", CONSUMED.values(), ids=CONSUMED)
@pytest.mark.parametrize("handover", ["off", "assignor"])
def test_a_handler_waits_for_no_lock_of_upstreams(
    safe: Maker, consumes: Callable[[SafeConsumer], None], handover: str
) -> None:
    """It returns while another thread has every lock of upstream's there is."""
    consumer = safe(group_id="g", pause_handover=handover)
    consumes(consumer)
    with _locks_taken(consumer) as released:
        for name, call in CALLS.items():
            with handled_by(lambda *_, call=call: call(consumer)):
                send()
            assert not released.is_set(), name


def test_a_handler_inside_the_ledgers_lock_while_a_join_is_applied(
    safe: Maker, told: Told
) -> None:
    """
    No deadlock, and no hold is lost.

    1. The main thread places a hold and has the ledger's lock. 2. The IO thread has
    upstream's subscription lock and wants the ledger's. 3. A signal interrupts the
    main thread, and its handler pauses a topic.
    """
    consumer = safe(group_id="g")
    consumer.subscribe(["orders"])
    ledger, subscription = consumer._safe_ledger, consumer._subscription
    clock, inside, done = ledger._clock, threading.Event(), threading.Event()

    def join() -> None:
        with subscription._lock:
            inside.set()
            subscription._apply_assignment([A])
        done.set()

    other = threading.Thread(target=join)

    def look() -> float:
        if is_locked(ledger) and threading.current_thread() is not other:
            ledger._clock = clock
            other.start()
            assert inside.wait(20)
            send()
        return float(clock())

    with handled_by(lambda *_: consumer.pause("orders", owner="signal")):
        ledger._clock = look
        consumer.pause(B, lifetime=Lifetime.UNTIL_RESUMED)
    assert ledger._clock is clock  # it did come
    assert done.wait(20)
    other.join(20)
    assert consumer.paused() == {A}
    assert len(consumer.holds()) == 2  # B's, though it is not assigned
    consumer.poll(0)
    owners = [hold.owner for event in told.of(HoldsPlaced) for hold in event.holds]
    assert sorted(owners) == ["app", "signal"]
