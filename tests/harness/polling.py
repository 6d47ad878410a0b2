"""
Polls a consumer in this thread until a condition holds, with a bound.

Several consumers at once, each in its own thread, are polled by
:func:`safeconsumer.testing.poll_until`, or in the background by
:class:`tests.harness.members.Polled`.
"""

from tests.harness.waiting import LIMIT, repeat_until


def poll_until(consumer, condition, *, got=None, limit=LIMIT):
    """
    Poll until the condition holds, and return the offsets that came, by partition.

    A given ``got`` gets the offsets, too.
    """
    got = {} if got is None else got
    for _ in repeat_until(condition, "the expected records", limit, seen=lambda: got):
        collect(got, consumer.poll(100))
    return got


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
