"""
Polls a consumer in this thread until a condition holds, with a bound.

Several consumers at once, each in its own thread, are polled by :func:`poll_all_until`, or
in the background by :class:`tests.harness.members.Polled`.
"""

import math

from safeconsumer import testing
from tests.harness.waiting import LIMIT, Bound, NotReachedError, repeat_until


def poll_until(consumer, condition, *, got=None, limit=LIMIT):
    """
    Poll until the condition holds, and return the offsets that came, by partition.

    A given ``got`` gets the offsets, too.
    """
    got = {} if got is None else got
    for _ in repeat_until(condition, "the expected records", limit, seen=lambda: got):
        collect(got, consumer.poll(100))
    return got


def poll_all_until(consumers, condition, *, limit=LIMIT):
    """
    Poll consumers, each in its own thread, until the condition holds; return the records.

    The kit's own call has a limit in seconds of real time, which a busy machine exceeds.
    """
    bound = Bound(limit)

    def is_so():
        holds = condition()
        if not holds and bound.is_over():
            message = f"the condition of a poll: not within {bound}"
            raise NotReachedError(message)
        return holds

    return testing.poll_until(consumers, is_so, timeout=math.inf)


def collect(got, polled):
    """Add the offsets of the records that a ``poll`` returned."""
    for tp, records in polled.items():
        got.setdefault(tp, []).extend(record.offset for record in records)


def read(consumer, count, limit=20.0):
    """Poll until at least this many records have come, and return them."""
    records = []

    def are_there():
        return len(records) >= count

    what = f"{count} records"
    for _ in repeat_until(are_there, what, limit, seen=lambda: len(records)):
        # The wait is long, as kafka-python forgets a join that outlasts its poll.
        for batch in consumer.poll(5_000).values():
            records.extend(batch)
    return records
