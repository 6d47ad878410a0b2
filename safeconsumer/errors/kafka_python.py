"""Defines errors that subclass kafka-python's, so that existing ``except`` clauses work."""

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
    A target cannot belong to this consumer: not subscribed, not assigned, or unknown.

    Subscribe to the topic or assign the partition first, or correct the name in the
    message; nothing was applied. This is a subclass of ``IllegalStateError``, which
    kafka-python raises for such partitions.
    """


class IllegalTargetError(NotConsumedError, ScopeSyntaxError):
    """
    A topic name or partition number is not valid in Kafka, so no consumer can have it.

    Correct the name in the message; nothing was applied.
    """


class ConcurrentPollError(SafeConsumerError, IllegalStateError):
    """
    A ``poll`` or a step of an iteration was started during another one.

    Poll on one thread only. The second call came from another thread, or from a hook or
    signal handler inside the first call. The first call is not affected. While a
    ``Worker`` or ``Pump`` is using the consumer, every other poll is refused, even
    between its polls.
    """


class ForkedConsumerError(SafeConsumerError, IllegalStateError):
    """
    A child process polled, closed or committed with a consumer of its parent.

    Create the consumer in the process that uses it, because a forked child does not
    have the consumer's threads. In the child, every call that needs the network raises
    this error, and so does a worker that was created in the parent.
    """


class ConsumerClosedError(SafeConsumerError, IllegalStateError, RuntimeError):
    """
    A call that needs the network was made on a closed consumer.

    Create a new consumer, or make the call before ``close``. This is a subclass of
    ``IllegalStateError``, which kafka-python's ``poll`` raises in that case, and of
    ``RuntimeError``, which kafka-python's other calls raise.
    """


class BlockingCallInListenerError(SafeConsumerError, RuntimeError):
    """
    A rebalance listener made a call that waits for the listener's own thread.

    Make the call after ``poll`` has returned, or use the call that the message names,
    such as ``commit_async()``. This is a subclass of ``RuntimeError``, which
    kafka-python raises in that case.
    """


class BlockingCallInSignalHandlerError(SafeConsumerError, RuntimeError):
    """
    A signal handler made a call that would wait for the call that it interrupted.

    kafka-python's own call would wait forever. Record the signal in the handler, or call
    ``wakeup()``, and make the call after ``poll`` has returned. A handler that interrupts
    other code can make the call.
    """


class NotOwnedError(SafeConsumerError, CommitFailedError):
    """
    A commit includes a partition that this member of the group does not own.

    Leave the partition out of the commit; its next owner reads the records again, from
    the last commit on. The message names the partition; nothing was sent or committed.
    """


class CommitRefusedError(HandlersCannotRunError, CommitFailedError):
    """
    A commit was requested while a ``Worker`` or ``Pump`` makes all of the commits.

    Remove the call; finished records are committed without it. Nothing was sent. If a
    handler raises this error, the worker stops and does not retry.
    """


class ConsumerInUseError(HandlersCannotRunError, IllegalStateError):
    """
    The consumer cannot be closed or reassigned while a ``Worker`` or ``Pump`` uses it.

    Call ``worker.stop()``, or leave the ``with`` block of the ``Pump``. A ``close``,
    ``unsubscribe`` or ``assign`` call would leave finished work uncommitted, and that
    work would be repeated. Nothing was changed. If a handler raises this error, the
    worker stops.
    """


class CorruptBatchError(SafeConsumerError, CorruptRecordError):
    """
    A batch of records cannot be read, because its checksum is wrong or it is truncated.

    Call ``seek()`` to skip the batch, or pause the partition. Until then each ``poll``
    raises this error again. All earlier records were returned, and the position stays
    at the batch.

    Attributes:
        partition: the partition.
        offset: the first offset that cannot be read.
        is_of_broker: whether the broker has reported that it cannot read its log; it
            may be able to read the log later. If not, the consumer cannot read the
            broker's response.
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
        """Return kafka-python's error, with the partition and offset added."""
        why = error.args[0] if error.args else error.description
        message = (
            f"{partition_text(*partition)} cannot be read at offset {offset}: {why}; "
            "seek() past it, or pause the partition"
        )
        located = cls(message)
        located.partition, located.offset, located.__cause__ = partition, offset, error
        located.is_of_broker = is_of_broker
        return located
