"""
Every error this package raises by itself.

Errors that must also be children of kafka-python's classes, so that code which
already catches those keeps working, stand in ``safeconsumer._kafka.errors``.
"""

from collections.abc import Sequence
from typing import Any


class SafeConsumerError(Exception):
    """
    Parent of every error that this package raises by itself.
    """


class ScopeSyntaxError(SafeConsumerError, ValueError):
    """
    A scope, topic name, partition number or pattern is not a legal one.

    The message names the text; nothing was applied.
    """


class TargetTypeError(SafeConsumerError, TypeError):
    """
    A target is neither a partition, nor a topic name, nor a compiled pattern.
    """


class HookTypeError(SafeConsumerError, TypeError):
    """
    A hook is not callable, or ``hooks`` is no sequence of hooks.
    """


class DecoderSettingError(SafeConsumerError, ValueError):
    """
    ``decoder`` is none of the choices.
    """


class HoldSettingError(SafeConsumerError, ValueError):
    """
    An owner, reason, duration or lifetime of a hold is not acceptable.

    Nothing was applied.
    """


class MissingExtraError(SafeConsumerError, ImportError):
    """
    A feature needs packages that only an extra installs; the message names it.
    """


class UnsupportedKafkaPythonError(SafeConsumerError, ImportError):
    """
    The installed kafka-python is not one this package was written against.

    Raised at construction, before any thread is started or socket is opened; by the
    import of our class already if kafka-python lacks a module it is made from.
    """


class WorkerSettingError(SafeConsumerError, ValueError):
    """
    A setting of a ``Worker`` or ``Pump`` is impossible; the message says why.

    Nothing was started.
    """


class WorkerStateError(SafeConsumerError, RuntimeError):
    """
    A ``Worker`` or ``Pump`` was used after its end, run twice, or beside another one.
    """


class UnansweredBatchError(SafeConsumerError, RuntimeError):
    """
    A batch of a ``Pump`` was let go of before each of its records had an answer.

    Nothing was committed past them; they come again after a restart.
    """


class ControlSettingError(SafeConsumerError, ValueError):
    """
    A setting of group control is not acceptable, or it is off where it is needed.
    """


class ControlTopicError(SafeConsumerError, RuntimeError):
    """
    A control topic would not keep holds for good; the message says what to change.
    """


class ControlWriteError(SafeConsumerError, RuntimeError):
    """
    A group hold was not acknowledged; the message says of each what is known.

    What was acknowledged is in force. Doing it again is safe.

    Attributes:
        acknowledged: what was, one item for each hold.
    """

    acknowledged: Sequence[Any] = ()


class ClientPropertyError(SafeConsumerError, ValueError):
    """
    A Java client property cannot be carried over to kafka-python; the message names it.
    """


class SparkSettingError(SafeConsumerError, ValueError):
    """
    An option of the Spark source is missing, unknown or contradicts another.

    The message names the option and what to do; it never has a secret in it.
    """


class SparkSetupError(SafeConsumerError, RuntimeError):
    """
    A Spark session lacks what ``safekafka`` needs; says what, and where it is had.
    """


class SparkRunError(SafeConsumerError, RuntimeError):
    """
    A run on Spark failed; the message says why, and Spark's log says more.
    """


class NotQuietError(SafeConsumerError, TimeoutError):
    """
    Streams still read, or may read, what they were to leave alone; says which and why.
    """


class HoldsUnreadableError(SafeConsumerError, RuntimeError):
    """
    What is held cannot be told now, so everything is; the message says why.
    """


class MetricsSourceError(SafeConsumerError, TypeError):
    """
    Metrics were asked of what is no ``SafeConsumer``, ``Worker`` or Spark listener.
    """


class HeldDataLostError(SafeConsumerError, RuntimeError):
    """
    The next records of held partitions are gone; the message names the partitions.
    """


class JournalError(SafeConsumerError, ValueError):
    """
    A delivery journal cannot be read; names the file and the line.
    """
