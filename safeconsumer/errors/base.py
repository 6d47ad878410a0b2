"""
Defines the errors that need nothing else: no kafka-python, and no other module of ours.

Modules of this package import them from here; users import them from
``safeconsumer.errors``.
"""

from collections.abc import Sequence
from typing import Any

# The module from which users import the errors, and which tracebacks name.
_PUBLIC = "safeconsumer.errors"


class SafeConsumerError(Exception):
    """
    Parent of every error that this package raises by itself.

    Catch it to handle all of them; the message names the problem and the remedy.
    """

    __module__ = _PUBLIC

    def __str__(self) -> str:
        """Return the message; kafka-python's errors put the name of their class before it."""
        return Exception.__str__(self)

    def __init_subclass__(cls) -> None:
        if cls.__module__ in {__name__, f"{_PUBLIC}.kafka_python"}:
            cls.__module__ = _PUBLIC


class ScopeSyntaxError(SafeConsumerError, ValueError):
    """
    A scope, topic name, partition number or pattern is not legal.

    Correct the text that the message quotes; nothing was applied. It is a child of
    ``ValueError``, like every error of ours about a value.
    """


class TargetTypeError(SafeConsumerError, TypeError):
    """
    A target is neither a partition, nor text, nor a compiled pattern, nor a scope.

    Pass a ``TopicPartition``, or text such as ``orders:3``; nothing was applied.
    """


class HookTypeError(SafeConsumerError, TypeError):
    """
    A hook is not callable, or ``hooks`` is no sequence of hooks.

    Pass a list of functions that each take one event. Nothing was started.
    """


class DecoderSettingError(SafeConsumerError, ValueError):
    """
    The value of ``decoder`` is unknown.

    Use ``auto``, ``python`` or ``compiled``. Nothing was started.
    """


class HoldSettingError(SafeConsumerError, ValueError):
    """
    An owner, reason, duration or lifetime of a hold is not acceptable.

    Correct the value that the message names; nothing was applied.
    """


class MissingExtraError(SafeConsumerError, ImportError):
    """
    A feature needs a package that is not installed.

    Run the install command in the message. It names an extra of this package, or
    describes how to get the compiled decoder, which is missing if the package was built
    without a C compiler.
    """


class UnsupportedKafkaPythonError(SafeConsumerError, ImportError):
    """
    The installed kafka-python is not a version that this package supports.

    Install one that the message names. The constructor of a consumer raises this before
    it starts a thread or opens a socket; if kafka-python lacks a module that our class
    is made from, the import of the class raises it.
    """


class UnsupportedAiokafkaError(SafeConsumerError, ImportError):
    """
    The installed aiokafka is not a version that this package supports.

    Install one that the message names. The constructor of a consumer raises this before
    it starts a thread or opens a socket.
    """


class MemberClosedError(SafeConsumerError, RuntimeError):
    """
    A hold was placed on a closed consumer of another library, which delivers nothing.

    Place holds before ``close`` or ``stop``, or on a new consumer. It is a child of
    ``RuntimeError``, which confluent-kafka's own calls raise then.
    """


class TimestampError(SafeConsumerError, ValueError):
    """
    A time to look offsets up for is not a number of milliseconds that Kafka knows.

    Correct the time of the partition that the message names; no broker was asked.
    """


class WorkerSettingError(SafeConsumerError, ValueError):
    """
    A setting of a ``Worker`` or ``Pump`` is impossible.

    Correct it as the message says; nothing was started.
    """


class WorkerStateError(SafeConsumerError, RuntimeError):
    """
    A ``Worker`` or ``Pump`` was used after its end, run twice, or beside another one.

    Make a new one for each run, and one for each consumer.
    """


class UnansweredBatchError(SafeConsumerError, RuntimeError):
    """
    A batch of a ``Pump`` was discarded before each of its records had an answer.

    Keep each batch until ``done`` or ``fail`` has been called for all of its records.
    The commit stays before the unanswered records, which are delivered again after a
    restart.
    """


class ControlSettingError(SafeConsumerError, ValueError):
    """
    A setting of group control is not acceptable, or it is off where it is needed.

    Correct it as the message says; nothing was started.
    """


class ControlTopicError(SafeConsumerError, RuntimeError):
    """
    The settings of a control topic would let Kafka delete holds.

    Change the topic as the message says, or make it by ``safeconsumer control init``.
    """


class ControlWriteError(SafeConsumerError, RuntimeError):
    """
    A group hold was not acknowledged; the message describes the state of each.

    Repeat the call: that is safe. The holds that were acknowledged are in force.

    Attributes:
        acknowledged: the acknowledged ones, one item for each hold.
        refused: those that certainly were not written, one item for each hold.
    """

    acknowledged: Sequence[Any] = ()
    refused: Sequence[Any] = ()


class ClientPropertyError(SafeConsumerError, ValueError):
    """
    A Java client property cannot be carried over to kafka-python.

    Remove the property that the message names, or set kafka-python's own setting.
    """


class SparkSettingError(SafeConsumerError, ValueError):
    """
    An option of the Spark source is missing, unknown or contradicts another option.

    The message names the option and what to do; it never contains a secret.
    """


class SparkSetupError(SafeConsumerError, RuntimeError):
    """
    A Spark session lacks a part that ``safekafka`` needs.

    Get it from the place that the message names, and start the session again.
    """


class NotQuietError(SafeConsumerError, TimeoutError):
    """
    Streams still read, or may read, held partitions; the message has the reasons.

    Wait longer, or end the streams; until then treat no partition as quiet.
    """


class HoldsUnreadableError(SafeConsumerError, RuntimeError):
    """
    The holds cannot be read now, so everything counts as held.

    Remove the cause that the message names; then reading continues automatically, or
    after a restart of the query.
    """


class MetricsSourceError(SafeConsumerError, TypeError):
    """
    An object has no metrics, or this exporter cannot show them.

    Pass one of the objects that the message lists.
    """


class DataLostError(SafeConsumerError, RuntimeError):
    """
    Records that a stream had to read are gone; the message names them.

    Decide whether the stream may continue without them: ``failOnDataLoss=false`` lets
    it.
    """


class HeldDataLostError(DataLostError):
    """
    The next records of held partitions are gone; the message names the partitions.

    Start a new checkpoint, skip to an offset that exists (``Controller.skip``), or let
    the stream continue without them: ``failOnDataLoss=false``.
    """


class StreamStalledError(SafeConsumerError, TimeoutError):
    """
    Records of a planned batch did not come; the message names the partition.

    Restart the query once its brokers answer: the whole batch is read again.
    """


class JournalError(SafeConsumerError, ValueError):
    """
    A delivery journal cannot be kept or read; the message has its name and the reason.

    Remove the cause: a missing folder or right, a full disk, or a file that is not a
    journal. Records that come while a journal cannot be kept are in no journal.
    """


class CheckpointError(SafeConsumerError, ValueError):
    """
    A stream's checkpoint cannot be read or understood; the message has the reason.

    Pass the folder that the query has as its ``checkpointLocation``.
    """


class RecordFailedError(SafeConsumerError):
    """
    A record failed for good and the worker stopped: nothing was committed past it.

    ``run()`` raises it; its cause is the handler's exception. Mend the handler and
    start the program again: the record is delivered again. Configure a ``DeadLetter``
    if the worker should continue without such records.
    """


class DeadLetterLimitError(SafeConsumerError):
    """
    Too many records failed for good: ``DeadLetter.max_ratio`` is exceeded.

    Mend the cause of the failures, and start the program again. Nothing was committed
    past the record that exceeded the limit.
    """


class HandlersCannotRunError(SafeConsumerError):
    """
    Handlers cannot be run at all, so the worker stops; no record has failed.

    A process does not start, a handler returned a coroutine that no code awaits, or
    it asked for a commit (``CommitRefusedError``) or the consumer's end
    (``ConsumerInUseError``). ``run()`` raises it: mend the program as the message says.
    """


class LifespanError(HandlersCannotRunError):
    """
    The context manager of ``lifespan`` could not be entered or left; the worker stops.

    ``run()`` raises it; its cause is the original exception, which shows the place to
    mend.
    """


class ProcessDiedError(SafeConsumerError):
    """
    A process of the process executor ended while it worked on this record.

    Look for a crash or for a kill by the system, such as one for lack of memory.
    """


class HandlerTimeoutError(SafeConsumerError, TimeoutError):
    """
    A handler took longer than ``handler_timeout`` for this record, and was ended.

    Make the handler faster, or allow it more time.
    """


class HandlerCancelledError(SafeConsumerError):
    """
    A handler was cancelled, but not by its worker; its cause shows where.

    The handler awaited a cancelled task, or its own task was cancelled. Catch the
    cancellation of tasks that the handler awaits.
    """
