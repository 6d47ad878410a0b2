"""
Waiting for what a stream does in its own time.
"""

import time
from collections.abc import Callable
from typing import Any

from tests.spark.lake import LIMIT


def until(is_so: Callable[[], bool], query: Any = None, limit: float = LIMIT) -> None:  # noqa: ANN401 - a StreamingQuery
    """
    Return once it is so; fail when time is over or the query has died.
    """
    deadline = time.monotonic() + limit
    while not is_so():
        if query is not None and query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < deadline, "it did not come to be so"
        time.sleep(0.05)
