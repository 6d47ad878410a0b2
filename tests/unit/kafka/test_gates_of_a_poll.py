"""What is gained during a poll that began all paused: gated for that poll, and no longer."""

import threading
from collections.abc import Callable

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker

A, B = TopicPartition("orders", 0), TopicPartition("audit", 0)


class Joins:
    """Assigns in the middle of a fetch wait, as a join does, and tells how long it was."""

    def __init__(
        self, consumer: SafeConsumer, *assignments: list[TopicPartition]
    ) -> None:
        self.consumer, self.left = consumer, list(assignments)
        self.waits: list[float] = []
        self.quiet: list[set[TopicPartition]] = []
        self.then: Callable[[], object] = int
        self._fetch = consumer._fetcher.fetch_records
        consumer._fetcher.fetch_records = self

    def __call__(
        self, max_records: int, *, update_offsets: bool, timeout_ms: float
    ) -> object:
        self.waits.append(timeout_ms)
        if self.left:
            subscription = self.consumer._subscription
            subscription._apply_assignment(self.left.pop(0))
            for tp in subscription.assignment:
                self.consumer.seek(tp, 0)
                answer(self.consumer, tp, 0, batch(0, 2))
            self.quiet.append(self.consumer.paused())
            self.then()
            timeout_ms = 0
        return self._fetch(max_records, update_offsets, min(timeout_ms, 1))


def _all_paused(safe: Maker, **configs: object) -> SafeConsumer:
    consumer = safe(**configs)
    assigned(consumer, A)
    consumer.pause(*consumer.assignment())
    consumer.poll(0)
    return consumer


@pytest.mark.timeout(120)
def test_an_iteration_goes_on_after_a_lost_membership(safe: Maker) -> None:
    """
    What is gained with nothing assigned is gated for half a second, not for ever.

    1. All is paused. 2. The membership is lost. 3. It comes back with more, in the
    middle of a step that has no time limit of its own.
    """
    consumer = _all_paused(safe)
    consumer._subscription._apply_assignment([])
    joins = Joins(consumer, [A, B])
    record = next(consumer)
    assert (record.topic, record.offset) == ("audit", 0)
    assert joins.quiet == [{A, B}]
    assert joins.waits[0] <= 500


@pytest.mark.timeout(120)
def test_a_pause_just_before_a_step_is_seen_by_it(safe: Maker) -> None:
    """How long a step waits and whether it gates is one decision."""
    consumer = safe()
    assigned(consumer, A)
    consumer.poll(0)
    joins = Joins(consumer, [A, B])
    poll = consumer.poll

    def paused_first(**more: object) -> object:
        del consumer.poll
        consumer.pause(A)
        return poll(**more)

    consumer.poll = paused_first  # type: ignore[assignment,method-assign]  # once
    assert next(consumer).topic == "audit"
    assert joins.waits[0] <= 500


def test_another_subscription_is_not_gated(safe: Maker) -> None:
    """Its partitions come with the poll that gains them: nobody paused any of it."""
    consumer = _all_paused(safe)
    consumer.unsubscribe()
    consumer.subscribe(["audit"])
    joins = Joins(consumer, [B])
    assert offsets(consumer.poll(0)) == {0: [0, 1]}
    assert joins.quiet == [{A}]  # held, and not assigned any more


@pytest.mark.timeout(120)
def test_a_resume_from_another_thread_opens_the_gate(safe: Maker) -> None:
    """The poll that gated it returns with its records, however long it would wait (P10)."""
    consumer = safe(start_paused=True)
    assigned(consumer, A)
    consumer.poll(0)
    consumer._subscription._apply_assignment([])
    joins = Joins(consumer, [A])

    def resume() -> None:
        other = threading.Thread(target=consumer.resume_all)
        other.start()
        other.join(20)

    joins.then = resume
    assert offsets(consumer.poll(20_000)) == {0: [0, 1]}
    assert joins.quiet == [{A}]
    assert len(joins.waits) == 1
