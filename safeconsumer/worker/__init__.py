"""Backpressure for your program: ``Worker`` calls a handler, ``Pump`` feeds a loop."""

from safeconsumer.worker.batches import Batch
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.durations import Histogram
from safeconsumer.worker.handlers import (
    BatchFailure,
    Context,
    Failure,
    Pause,
    Reject,
    RetryLater,
    StopWorker,
    WorkerControl,
)
from safeconsumer.worker.health import Health, Report, Stats
from safeconsumer.worker.pump import Pump
from safeconsumer.worker.records import Record
from safeconsumer.worker.settings import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Retry,
    Tracing,
)
from safeconsumer.worker.worker import Worker

__all__ = [
    "Batch",
    "BatchFailure",
    "Breaker",
    "Commit",
    "Context",
    "DeadLetter",
    "Drain",
    "Failure",
    "Health",
    "Histogram",
    "Limits",
    "Pause",
    "Pump",
    "Record",
    "Reject",
    "Report",
    "Retry",
    "RetryLater",
    "Stats",
    "StopWorker",
    "Tracing",
    "Worker",
    "WorkerControl",
]
