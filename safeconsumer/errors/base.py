"""
Defines the errors that need nothing else: no kafka-python, and no other module of ours.

Modules of this package import them from here; users get them from ``safeconsumer.errors``.
"""

from collections.abc import Sequence
from typing import Any

# Where users import the errors from, so what tracebacks call them.
_PUBLIC = "safeconsumer.errors"


class SafeConsumerError(Exception):
    """Parent of every error that this package raises by itself."""

    __module__ = _PUBLIC

    def __str__(self) -> str:
        """Return the message; kafka-python's errors put the name of their class before it."""
        return Exception.__str__(self)

    def __init_subclass__(cls) -> None:
        if cls.__module__ in {__name__, f"{_PUBLIC}.kafka_python"}:
            cls.__module__ = _PUBLIC


class ScopeSyntaxError(SafeConsumerError, ValueError):
    """
    A scope, topic name, partition number or pattern is not a legal one.

    The message names the text; nothing was applied.
    """


class TargetTypeError(SafeConsumerError, TypeError):
    """A target is neither a partition, nor a topic name, nor a compiled pattern."""


class HookTypeError(SafeConsumerError, TypeError):
    """A hook is not callable, or ``hooks`` is no sequence of hooks."""


class DecoderSettingError(SafeConsumerError, ValueError):
    """The value of ``decoder`` is not one of ``auto``, ``python`` and ``compiled``."""


class HoldSettingError(SafeConsumerError, ValueError):
    """
    An owner, reason, duration or lifetime of a hold is not acceptable.

    Nothing was applied.
    """


class MissingExtraError(SafeConsumerError, ImportError):
    """
    A feature needs what is not installed; the message says how to install it.

    Packages that only an extra installs, or the compiled decoder, which is missing
    where the package was built without a C compiler.
    """


class UnsupportedKafkaPythonError(SafeConsumerError, ImportError):
    """
    The installed kafka-python is not a version that this package supports.

    It is raised when a consumer is constructed, before any thread is started or socket
    is opened; if kafka-python lacks a module that our class is made from, the import of
    the class raises it.
    """


class UnsupportedAiokafkaError(SafeConsumerError, ImportError):
    """
    The installed aiokafka is not a version that this package supports.

    It is raised when a consumer is constructed, before any thread is started or socket
    is opened.
    """


class TimestampError(SafeConsumerError, ValueError):
    """
    A time to look offsets up for is not a number of milliseconds that Kafka knows.

    The message names the partition; nothing was asked.
    """


class WorkerSettingError(SafeConsumerError, ValueError):
    """
    A setting of a ``Worker`` or ``Pump`` is impossible; the message says why.

    Nothing was started.
    """


class WorkerStateError(SafeConsumerError, RuntimeError):
    """A ``Worker`` or ``Pump`` was used after its end, run twice, or beside another one."""


class UnansweredBatchError(SafeConsumerError, RuntimeError):
    """
    A batch of a ``Pump`` was discarded before each of its records had an answer.

    Nothing was committed past the unanswered records; they come again after a restart.
    """


class ControlSettingError(SafeConsumerError, ValueError):
    """A setting of group control is not acceptable, or it is off where it is needed."""


class ControlTopicError(SafeConsumerError, RuntimeError):
    """
    The settings of a control topic would let Kafka delete holds.

    The message says what to change.
    """


class ControlWriteError(SafeConsumerError, RuntimeError):
    """
    A group hold was not acknowledged; the message says what is known of each.

    The holds that were acknowledged are in force. It is safe to repeat the call.

    Attributes:
        acknowledged: the acknowledged ones, one item for each hold.
        refused: those that certainly were not written, one item for each hold.
    """

    acknowledged: Sequence[Any] = ()
    refused: Sequence[Any] = ()


class ClientPropertyError(SafeConsumerError, ValueError):
    """A Java client property cannot be carried over to kafka-python; the message names it."""


class SparkSettingError(SafeConsumerError, ValueError):
    """
    An option of the Spark source is missing, unknown or contradicts another option.

    The message names the option and what to do; it never contains a secret.
    """


class SparkSetupError(SafeConsumerError, RuntimeError):
    """A Spark session lacks what ``safekafka`` needs; the message says where to get it."""


class NotQuietError(SafeConsumerError, TimeoutError):
    """Streams still read, or may read, held partitions; the message says which and why."""


class HoldsUnreadableError(SafeConsumerError, RuntimeError):
    """The holds cannot be read now, so everything counts as held; the message says why."""


class MetricsSourceError(SafeConsumerError, TypeError):
    """
    Metrics were asked of an object that has none, or that this exporter cannot show.

    The message says which objects it takes.
    """


class DataLostError(SafeConsumerError, RuntimeError):
    """Records that a stream was to read are gone; the message says which."""


class HeldDataLostError(DataLostError):
    """The next records of held partitions are gone; the message names the partitions."""


class StreamStalledError(SafeConsumerError, TimeoutError):
    """Records that a batch was planned with did not come; the message says from where."""


class JournalError(SafeConsumerError, ValueError):
    """A delivery journal cannot be kept or read; the message says which, and why."""


class CheckpointError(SafeConsumerError, ValueError):
    """A stream's checkpoint cannot be read or understood; the message says which, and why."""


class RecordFailedError(SafeConsumerError):
    """
    A record failed for good and the worker stopped: nothing was committed past it.

    ``run()`` raises it; its cause is the handler's exception.
    """


class DeadLetterLimitError(SafeConsumerError):
    """
    Too many records failed for good: ``DeadLetter.max_ratio`` is exceeded.

    Nothing was committed past the record that exceeded it.
    """


class HandlersCannotRunError(SafeConsumerError):
    """
    Handlers cannot be run at all, so the worker stops; no record has failed.

    A process does not start, a handler returned a coroutine that nothing awaits, or
    it asked for a commit (``CommitRefusedError``) or the consumer's end
    (``ConsumerInUseError``). ``run()`` raises it.
    """


class LifespanError(HandlersCannotRunError):
    """
    The context manager of ``lifespan`` could not be entered or left; the worker stops.

    ``run()`` raises it; its cause is the original exception.
    """


class ProcessDiedError(SafeConsumerError):
    """A process of the process executor ended while it worked on this record."""


class HandlerTimeoutError(SafeConsumerError, TimeoutError):
    """A handler took longer than ``handler_timeout`` for this record, and was ended."""


class HandlerCancelledError(SafeConsumerError):
    """
    A handler was cancelled, but not by its worker; its cause shows where.

    It awaited a task that was cancelled, or its own task was.
    """
