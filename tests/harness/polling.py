"""
Polls a consumer on the calling thread until a condition holds or a time limit passes.

:func:`poll_all_until` polls several consumers, each on its own thread.
:class:`tests.harness.members.Polled` polls in the background.
"""

import math

from safeconsumer import testing
from tests.harness.waiting import LIMIT, Bound, NotReachedError, repeat_until


def poll_until(consumer, condition, *, got=None, limit=LIMIT):
    """
    Poll until the condition holds; return the received offsets by partition.

    If the caller passes ``got``, the function adds the offsets to ``got``.
    """
    got = {} if got is None else got
    for _ in repeat_until(condition, "the expected records", limit, seen=lambda: got):
        collect(got, consumer.poll(100))
    return got


def poll_all_until(consumers, condition, *, limit=LIMIT):
    """
    Poll consumers, each on its own thread, until a condition holds; return the records.

    The test kit's own ``poll_all_until`` has a limit in real seconds, which a busy
    machine would exceed.
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
    """Poll until at least this many records have arrived, and return them."""
    records = []

    def are_there():
        return len(records) >= count

    what = f"{count} records"
    for _ in repeat_until(are_there, what, limit, seen=lambda: len(records)):
        # The timeout is long, because kafka-python forgets a join that takes longer
        # than the poll.
        for batch in consumer.poll(5_000).values():
            records.extend(batch)
    return records
