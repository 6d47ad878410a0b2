"""A signal handler that pauses or reads does not acquire upstream's locks (P12)."""

import re
import threading
from contextlib import ExitStack, contextmanager

import pytest
from kafka import TopicPartition

from safeconsumer.errors import NotConsumedError
from tests.harness.kafka.fetches import assigned
from tests.harness.signals import handled_by, send
from tests.harness.waiting import end_of, wait_for

A = TopicPartition("orders", 0)

# A handler that waited for a lock would wait this long, and the test would fail.
LONG = 60.0


@contextmanager
def _locks_taken(consumer):
    # Another thread holds the locks, as the IO thread does while it applies a join.
    inside, release, released = (threading.Event() for _ in range(3))

    def take():
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
    wait_for(inside.is_set, "the locks to be taken")
    try:
        yield released
    finally:
        release.set()
        end_of(other)


def _by_names(consumer):
    consumer.subscribe(["orders"])


def _by_pattern(consumer):
    consumer.subscribe(pattern="ord.*")


def _by_hand(consumer):
    assigned(consumer, A)


def _refused(consumer):
    with pytest.raises(NotConsumedError, match="audit"):
        consumer.pause("audit")


CONSUMED = {"topics": _by_names, "pattern": _by_pattern, "assigned": _by_hand}
CALLS = {
    "pause a partition": lambda consumer: consumer.pause(A),
    "pause a topic": lambda consumer: consumer.pause("orders"),
    "pause a pattern": lambda consumer: consumer.pause(re.compile("ord.*")),
    "pause all": lambda consumer: consumer.pause_all(),
    "pause an unconsumed topic": _refused,
    "resume": lambda consumer: consumer.resume(A, "orders", re.compile("ord.*")),
    "resume all": lambda consumer: consumer.resume_all(),
    "holds and explain": lambda consumer: (consumer.holds(), consumer.explain(A)),
    "paused and quiet": lambda consumer: (consumer.paused(), consumer.quiet()),
}


@pytest.mark.parametrize("consumes", CONSUMED.values(), ids=CONSUMED)
@pytest.mark.parametrize("handover", ["off", "assignor"])
def test_handler_returns_while_another_thread_holds_upstreams_locks(
    safe, consumes, handover
):
    consumer = safe(group_id="g", pause_handover=handover)
    consumes(consumer)
    with _locks_taken(consumer) as released:
        for name, call in CALLS.items():
            with handled_by(lambda *_, call=call: call(consumer)):
                send()
            assert not released.is_set(), name
