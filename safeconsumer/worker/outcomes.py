"""
What becomes of work, and what is to become of it.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

from attrs import field, frozen

from safeconsumer.worker.lanes import Indexes, Lane, Task
from safeconsumer.worker.progress import Chunk
from safeconsumer.worker.retry import Retry

# One hand-over: as many records as take about this long, and no more than these.
QUANTUM = 256
LANE_SECONDS = 0.005

OnExhausted = Literal["stop", "skip", "block"]


@frozen(kw_only=True)
class Outcome:
    """
    What became of a task.

    Attributes:
        task: which.
        finished: indexes that are done, and marked so.
        failed: indexes with what is wrong.
        left: indexes that were not begun.
        seconds: how long the others took.
        is_suspect: whether several records failed together and any of them, but not
            all, may be to blame: they are tried one by one, and none has failed yet.
    """

    task: Task
    finished: Indexes = ()
    failed: Sequence[tuple[int, BaseException]] = ()
    left: Indexes = ()
    seconds: float = 0.0
    is_suspect: bool = False


@frozen(kw_only=True)
class Letter:
    """
    A record that failed for good, on its way to the dead letters.
    """

    lane: Lane
    chunk: Chunk
    index: int
    record: Any
    attempt: int
    error: BaseException


@frozen(kw_only=True)
class Policy:
    """
    How failures are handled, and how work is cut.

    Attributes:
        post: takes a letter without waiting; None without dead letters.
        quantum: most records of one hand-over.
    """

    retry: Retry
    on_exhausted: OnExhausted = "stop"
    post: Callable[[Letter], None] | None = None
    max_ratio: float | None = None
    max_consecutive: int | None = None
    span: int = 50_000
    quantum: int = QUANTUM
    lane_seconds: float = LANE_SECONDS
    is_batch: bool = False
    draw: Callable[[], float] = field(default=random.random)
