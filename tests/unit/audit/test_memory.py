"""What an audit keeps in memory."""

import tracemalloc

from tests.harness.audit.bad import TP
from tests.harness.audit.telling import Telling, check

COUNT, POLL = 20_000, 500


def test_a_transaction_of_one_record_takes_less_than_a_hundred_bytes():
    """Each leaves an offset without a record."""
    told = Telling().assigned(TP).then("transactional", tp=TP)
    for start in range(0, 2 * COUNT, 2 * POLL):
        end = start + 2 * POLL
        gaps = [[one, one + 1] for one in range(start + 1, end - 1, 2)]
        told.deliver(TP, start, end, last=end - 2, count=POLL, gaps=gaps)
    journal = told.journal()
    check([journal])  # what is made once, by imports and decoders, is no part of it
    tracemalloc.start()
    (result,) = check([journal]).values()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.unrecorded == COUNT
    assert peak / COUNT < 100, f"{peak / COUNT:.0f} bytes for each transaction"
