"""
Working under backpressure: ``Worker`` runs your handler, ``Pump`` feeds your loop.
"""

from safeconsumer.worker.context import Context
from safeconsumer.worker.control import (
    BatchFailure,
    DeadLetterLimitError,
    DeserializationError,
    HandlersFailError,
    ProcessDiedError,
    RecordFailedError,
    Reject,
    RetryLater,
    StopWorker,
)
from safeconsumer.worker.dead_letter import Failure
from safeconsumer.worker.health import Health
from safeconsumer.worker.pump import Batch, Pump
from safeconsumer.worker.settings import Commit, DeadLetter, Drain, Limits, Retry
from safeconsumer.worker.stats import Report, Stats
from safeconsumer.worker.worker import Worker

__all__ = [
    "Batch",
    "BatchFailure",
    "Commit",
    "Context",
    "DeadLetter",
    "DeadLetterLimitError",
    "DeserializationError",
    "Drain",
    "Failure",
    "HandlersFailError",
    "Health",
    "Limits",
    "ProcessDiedError",
    "Pump",
    "RecordFailedError",
    "Reject",
    "Report",
    "Retry",
    "RetryLater",
    "Stats",
    "StopWorker",
    "Worker",
]
