"""Waiting for what a stream does in its own time."""

import time

from tests.harness.spark.lake import LIMIT
from tests.harness.waiting import looks


def until(is_so, query=None, limit=LIMIT):
    """Return once it is so; fail when time is over or the query has died."""

    def last():
        return "no query" if query is None else str(query.lastProgress)

    for _ in looks(is_so, "what a stream does", limit, seen=last):
        if query is not None and query.exception() is not None:
            raise query.exception()
        time.sleep(0.05)
