"""
What a handler is told beside its record.
"""

import threading
from collections.abc import Callable
from typing import Any

import structlog
from kafka.structs import TopicPartition


class Context:
    """
    Circumstances of one call of a handler; shared by the calls of one hand-over.

    Attributes:
        partition: where the records come from.
        attempt: of the record, from 1.
        assignment_epoch: grows each time this member gains the partition.
        revoked: an event, set once the partition is being taken away: what is done
            from then on may be done again elsewhere. Never set in the process
            executor, nor in a foreign one that runs other processes.
    """

    __slots__ = ("_deadline", "assignment_epoch", "attempt", "partition", "revoked")

    def __init__(
        self,
        partition: TopicPartition,
        attempt: int,
        assignment_epoch: int,
        revoked: threading.Event,
        deadline: Callable[[], float | None],
    ) -> None:
        self.partition = partition
        self.attempt = attempt
        self.assignment_epoch = assignment_epoch
        self.revoked = revoked
        self._deadline = deadline

    @property
    def deadline(self) -> float | None:
        """
        When running handlers are no longer waited for, by ``time.monotonic()``.

        None while nobody waits; also always in another process.
        """
        return self._deadline()

    @property
    def log(self) -> Any:  # noqa: ANN401 - structlog's bound loggers have many classes
        """
        A structlog logger that names topic, partition and attempt.
        """
        return structlog.get_logger("safeconsumer.worker").bind(
            topic=self.partition.topic,
            partition=self.partition.partition,
            attempt=self.attempt,
        )

    def __repr__(self) -> str:
        return (
            f"Context({self.partition.topic}:{self.partition.partition}, "
            f"attempt={self.attempt})"
        )
