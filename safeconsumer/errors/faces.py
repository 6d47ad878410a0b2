"""Defines errors that are also children of kafka-python's, so that old handlers fit."""

from kafka.errors import CommitFailedError, CorruptRecordError, IllegalStateError
from kafka.structs import TopicPartition

from safeconsumer.errors.base import (
    HandlersCannotRunError,
    SafeConsumerError,
    ScopeSyntaxError,
)


class NotConsumedError(SafeConsumerError, IllegalStateError):
    """
    A target cannot belong to this consumer: not subscribed, not assigned, unknown.

    The message names the target; nothing was applied.
    """


class IllegalTargetError(NotConsumedError, ScopeSyntaxError):
    """
    A topic name or partition number is not legal in Kafka, so no consumer can have it.

    The message names the target; nothing was applied.
    """


class ConcurrentPollError(SafeConsumerError, IllegalStateError):
    """
    A second ``poll`` or step of an iteration began in the middle of another.

    Another thread made the second call, or a hook or signal handler that runs inside of
    the first one. The first call goes on undisturbed. While a ``Worker`` or ``Pump``
    has the consumer, every poll but its own is refused so, between its polls too.
    """


class ForkedConsumerError(SafeConsumerError, IllegalStateError):
    """
    A child process polled, iterated or closed a consumer of its parent, or ran its worker.

    The consumer's threads are not in the child. Other calls are not refused there, and
    one that needs the network never returns. Make the consumer in the process that uses
    it.
    """


class ConsumerClosedError(SafeConsumerError, IllegalStateError, RuntimeError):
    """
    A call that needs the network was made of a closed consumer.

    It is a child of ``IllegalStateError``, which kafka-python's ``poll`` raises then, and
    of ``RuntimeError``, which its other calls raise.
    """


class BlockingCallInListenerError(SafeConsumerError, RuntimeError):
    """
    A rebalance listener made a call that waits for the thread it runs on.

    It is a child of ``RuntimeError``, which kafka-python raises there.
    """


class NotOwnedError(SafeConsumerError, CommitFailedError):
    """
    A commit names a partition that this member of the group does not own.

    The message names the partition; nothing was sent, and nothing committed.
    """


class CommitRefusedError(HandlersCannotRunError, CommitFailedError):
    """
    A commit was asked for while a ``Worker`` or ``Pump`` has the consumer and commits.

    Nothing was sent. Raised in a handler it stops the worker, which would otherwise try
    the record again.
    """


class ConsumerInUseError(HandlersCannotRunError, IllegalStateError):
    """
    ``close``, ``unsubscribe`` or ``assign`` of a consumer that a ``Worker`` or ``Pump`` has.

    It would end the consumer with finished work uncommitted, which would be done again.
    Nothing was changed: call ``worker.stop()``, or leave the block of the ``Pump``.
    Raised in a handler it stops the worker.
    """


class CorruptBatchError(SafeConsumerError, CorruptRecordError):
    """
    A batch of records cannot be read: its checksum is wrong, say, or it is cut off.

    Everything before it was returned, and the position stays at it: each later ``poll``
    raises this again, until a ``seek`` leads past it or the partition is paused.

    Attributes:
        partition: where.
        offset: the first offset that cannot be read.
        is_of_broker: whether the broker says so of its log, which it may read again
            later; otherwise its answer is what cannot be read.
    """

    partition: TopicPartition
    offset: int
    is_of_broker: bool

    @classmethod
    def of(
        cls,
        error: CorruptRecordError,
        partition: TopicPartition,
        offset: int,
        *,
        is_of_broker: bool,
    ) -> "CorruptBatchError":
        """Return kafka-python's error with its partition and offset added."""
        topic, number = partition
        why = error.args[0] if error.args else error.description
        message = (
            f"{topic}:{number} cannot be read at offset {offset}: {why}; seek() past it, "
            "or pause the partition"
        )
        located = cls(message)
        located.partition, located.offset, located.__cause__ = partition, offset, error
        located.is_of_broker = is_of_broker
        return located
