"""Defines errors that are also children of kafka-python's, so that old handlers fit."""

from kafka.errors import CommitFailedError, CorruptRecordError, IllegalStateError
from kafka.structs import TopicPartition

from safeconsumer.errors.base import (
    HandlersCannotRunError,
    SafeConsumerError,
    ScopeSyntaxError,
)
from safeconsumer.holds.scope import partition_text


class NotConsumedError(SafeConsumerError, IllegalStateError):
    """
    A target cannot belong to this consumer: not subscribed, not assigned, unknown.

    Subscribe to its topic or assign it first, or correct the name in the message;
    nothing was applied. It is a child of ``IllegalStateError``, which kafka-python
    raises for such partitions.
    """


class IllegalTargetError(NotConsumedError, ScopeSyntaxError):
    """
    A topic name or partition number is not legal in Kafka, so no consumer can have it.

    Correct the name in the message; nothing was applied.
    """


class ConcurrentPollError(SafeConsumerError, IllegalStateError):
    """
    A second ``poll`` or step of an iteration began in the middle of another.

    Poll on one thread only. Another thread made the second call, or a hook or signal
    handler that runs inside of the first one, which continues undisturbed. While a
    ``Worker`` or ``Pump`` has the consumer, every poll but its own is refused, between
    its polls, too.
    """


class ForkedConsumerError(SafeConsumerError, IllegalStateError):
    """
    A child process polled, committed with or closed a consumer of its parent.

    Make the consumer in the process that uses it: the consumer's threads are not in the
    child. Every call that needs the network raises this error there, and so does a
    worker of the parent.
    """


class ConsumerClosedError(SafeConsumerError, IllegalStateError, RuntimeError):
    """
    A call that needs the network was made of a closed consumer.

    Make a new consumer, or call before ``close``. It is a child of
    ``IllegalStateError``, which kafka-python's ``poll`` raises then, and of
    ``RuntimeError``, which its other calls raise.
    """


class BlockingCallInListenerError(SafeConsumerError, RuntimeError):
    """
    A rebalance listener made a call that waits for the thread it runs on.

    Make the call after ``poll`` has returned, or use the one that the message names,
    such as ``commit_async()``. It is a child of ``RuntimeError``, which kafka-python
    raises there.
    """


class BlockingCallInSignalHandlerError(SafeConsumerError, RuntimeError):
    """
    A signal handler made a call that waits for the call that it has interrupted.

    Remember the signal in the handler, or call ``wakeup()``, and make the call after
    ``poll`` has returned. In a handler that interrupts another place the call works;
    kafka-python's waits for ever where this error is raised.
    """


class NotOwnedError(SafeConsumerError, CommitFailedError):
    """
    A commit names a partition that this member of the group does not own.

    Leave the partition out: its next owner reads its records again from the last
    commit. The message names the partition; nothing was sent, and nothing committed.
    """


class CommitRefusedError(HandlersCannotRunError, CommitFailedError):
    """
    A commit was requested while a ``Worker`` or ``Pump`` has the consumer and commits.

    Remove the call: finished records are committed without it. Nothing was sent. Raised
    in a handler it stops the worker, which would otherwise try the record again.
    """


class ConsumerInUseError(HandlersCannotRunError, IllegalStateError):
    """
    ``close``, ``unsubscribe`` or ``assign`` of a consumer that a ``Worker`` or ``Pump`` has.

    Call ``worker.stop()``, or leave the block of the ``Pump``: the call would end the
    consumer with finished work uncommitted, which would be done again. Nothing was
    changed. Raised in a handler it stops the worker.
    """


class CorruptBatchError(SafeConsumerError, CorruptRecordError):
    """
    A batch of records cannot be read: its checksum is wrong, or it is truncated.

    ``seek`` past it, or pause the partition: each later ``poll`` raises this again until
    then. All earlier records were returned, and the position stays at the batch.

    Attributes:
        partition: the partition.
        offset: the first offset that cannot be read.
        is_of_broker: whether the broker reports that about its log, which it may be
            able to read later; otherwise the broker's answer cannot be read.
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
        why = error.args[0] if error.args else error.description
        message = (
            f"{partition_text(*partition)} cannot be read at offset {offset}: {why}; "
            "seek() past it, or pause the partition"
        )
        located = cls(message)
        located.partition, located.offset, located.__cause__ = partition, offset, error
        located.is_of_broker = is_of_broker
        return located
