"""
Where handlers run: threads, processes, an event loop, or somebody else's executor.
"""

from safeconsumer.worker.executors.choice import (
    ExecutorName,
    check_kind,
    choose,
    cut,
)
from safeconsumer.worker.executors.threads import Calls, Runner

__all__ = [
    "Calls",
    "ExecutorName",
    "Runner",
    "check_kind",
    "choose",
    "cut",
]
