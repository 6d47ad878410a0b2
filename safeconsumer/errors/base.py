"""
Defines the errors that depend neither on kafka-python nor on other modules.

Modules of this package import the errors from this module; users import them from
``safeconsumer.errors``.
"""

from collections.abc import Sequence
from typing import Any

# Users import the errors from this module, and tracebacks name it.
_PUBLIC = "safeconsumer.errors"


class SafeConsumerError(Exception):
    """
    The base class of all errors of this package.

    Catch this class to handle all of them. The message names the problem and the
    remedy.
    """

    __module__ = _PUBLIC

    def __str__(self) -> str:
        """Return the message, without the class name that kafka-python's errors prepend."""
        return Exception.__str__(self)

    def __init_subclass__(cls) -> None:
        if cls.__module__ in {__name__, f"{_PUBLIC}.kafka_python"}:
            cls.__module__ = _PUBLIC


class ScopeSyntaxError(SafeConsumerError, ValueError):
    """
    A scope, topic name, partition number or pattern is not valid.

    Correct the text that the message quotes; nothing was applied. This is a subclass of
    ``ValueError``, like every error of this package about a value.
    """


class TargetTypeError(SafeConsumerError, TypeError):
    """
    A target is not a partition, text, a compiled pattern or a scope.

    Pass a ``TopicPartition``, or text such as ``orders:3``; nothing was applied.
    """


class HookTypeError(SafeConsumerError, TypeError):
    """
    A hook is not callable, or ``hooks`` is not a sequence of hooks.

    Pass a list of functions that each take one event. Nothing was started.
    """


class DecoderSettingError(SafeConsumerError, ValueError):
    """
    The value of ``decoder`` is unknown.

    Use ``auto``, ``python`` or ``compiled``. Nothing was started.
    """


class HoldSettingError(SafeConsumerError, ValueError):
    """
    An owner, reason, duration or lifetime of a hold is not valid.

    Correct the value that the message names; nothing was applied.
    """


class MissingExtraError(SafeConsumerError, ImportError):
    """
    A feature needs a package that is not installed.

    Run the install command in the message. The command installs an extra of this
    package, or the compiled decoder, which is missing if the package was built without
    a C compiler.
    """


class UnsupportedKafkaPythonError(SafeConsumerError, ImportError):
    """
    The installed kafka-python is not a version that this package supports.

    Install a version that the message names. The constructor of a consumer raises this
    error before it starts a thread or opens a socket. If kafka-python lacks a module
    that ``SafeConsumer`` depends on, importing the class raises this error.
    """


class UnsupportedAiokafkaError(SafeConsumerError, ImportError):
    """
    The installed aiokafka is not a version that this package supports.

    Install a version that the message names. The constructor of a consumer raises this
    error before it starts a thread or opens a socket.
    """


class MemberClosedError(SafeConsumerError, RuntimeError):
    """
    A hold was placed on a closed consumer of another library, which has no effect.

    Place holds before ``close`` or ``stop``, or on a new consumer. This is a subclass
    of ``RuntimeError``, which confluent-kafka's own calls raise in that case.
    """


class TimestampError(SafeConsumerError, ValueError):
    """
    A timestamp for an offset lookup is not a number of milliseconds that Kafka accepts.

    Correct the timestamp for the partition that the message names; no request was sent.
    """


class WorkerSettingError(SafeConsumerError, ValueError):
    """
    A setting of a ``Worker`` or ``Pump`` is not valid.

    Correct the setting as the message says; nothing was started.
    """


class WorkerStateError(SafeConsumerError, RuntimeError):
    """
    A ``Worker`` or ``Pump`` was used twice, after its end, or alongside another one.

    Create a new object for each run, and only one for each consumer.
    """


class UnansweredBatchError(SafeConsumerError, RuntimeError):
    """
    A batch of a ``Pump`` was discarded before all of its records were answered.

    Keep each batch until ``done`` or ``fail`` has been called for all of its records.
    The committed offset stays before the unanswered records, which are delivered again
    after a restart.
    """


class ControlSettingError(SafeConsumerError, ValueError):
    """
    A setting of group control is not valid, or group control is off but needed.

    Correct the setting as the message says; nothing was started.
    """


class ControlTopicError(SafeConsumerError, RuntimeError):
    """
    The settings of a control topic would let Kafka delete holds.

    Change the topic as the message says, or create it with ``safeconsumer control
    init``.
    """


class ControlWriteError(SafeConsumerError, RuntimeError):
    """
    A group hold was not acknowledged; the message describes the state of each hold.

    The call can be repeated safely. The acknowledged holds are in force.

    Attributes:
        acknowledged: the acknowledged holds, one item for each hold.
        refused: the holds that were definitely not written, one item for each hold.
    """

    acknowledged: Sequence[Any] = ()
    refused: Sequence[Any] = ()


class ClientPropertyError(SafeConsumerError, ValueError):
    """
    A Java client property cannot be translated to a kafka-python setting.

    Remove the property that the message names, or set kafka-python's own setting.
    """


class SparkSettingError(SafeConsumerError, ValueError):
    """
    An option for the Spark source is missing or unknown, or contradicts another one.

    The message names the option and says what to do; it never contains a secret.
    """


class SparkSetupError(SafeConsumerError, RuntimeError):
    """
    A Spark session lacks a part that ``safekafka`` needs.

    Add the missing part as the message says, and start the session again.
    """


class NotQuietError(SafeConsumerError, TimeoutError):
    """
    Streams still read, or may read, held partitions; the message gives the reasons.

    Wait longer, or stop the streams; until then treat no partition as quiet.
    """


class HoldsUnreadableError(SafeConsumerError, RuntimeError):
    """
    The holds cannot be read at the moment, so everything counts as held.

    Remove the cause that the message names. Reading then continues automatically, or
    after a restart of the query.
    """


class MetricsSourceError(SafeConsumerError, TypeError):
    """
    An object has no metrics, or this exporter cannot export them.

    Pass one of the objects that the message lists.
    """


class DataLostError(SafeConsumerError, RuntimeError):
    """
    Records that a stream had to read were deleted; the message names them.

    Decide whether the stream may continue without these records; if it may, set
    ``failOnDataLoss=false``.
    """


class HeldDataLostError(DataLostError):
    """
    The next records of held partitions were deleted; the message names the partitions.

    Start a new checkpoint, skip to an offset that exists (``Controller.skip``), or set
    ``failOnDataLoss=false``, so that the stream continues without the records.
    """


class StreamStalledError(SafeConsumerError, TimeoutError):
    """
    Records of a planned batch have not arrived; the message names the partition.

    Restart the query when its brokers respond again; the whole batch is then read
    again.
    """


class JournalError(SafeConsumerError, ValueError):
    """
    A delivery journal cannot be written or read; the message has its name and a reason.

    Remove the cause, which may be a missing folder or permission, a full disk, or a
    file that is not a journal. Records that arrive while a journal cannot be written
    will be missing from it.
    """


class CheckpointError(SafeConsumerError, ValueError):
    """
    A stream's checkpoint cannot be read or parsed; the message gives the reason.

    Pass the folder that is the query's ``checkpointLocation``.
    """


class RecordFailedError(SafeConsumerError):
    """
    A record failed for good, and the worker stopped; no later offset was committed.

    ``run()`` raises this error; its cause is the handler's exception. Fix the handler
    and start the program again; the record is then delivered again. Configure a
    ``DeadLetter`` if the worker should continue without such records.
    """


class DeadLetterLimitError(SafeConsumerError):
    """
    Too many records failed for good: ``DeadLetter.max_ratio`` is exceeded.

    Fix the cause of the failures, and start the program again. Nothing was committed
    past the record that exceeded the limit.
    """


class HandlersCannotRunError(SafeConsumerError):
    """
    Handlers cannot run at all, so the worker stops; no record has failed.

    A process did not start; or a handler returned a coroutine that nothing awaits,
    requested a commit (``CommitRefusedError``), or tried to close or reassign the
    consumer (``ConsumerInUseError``). ``run()`` raises this error. Fix the program as
    the message says.
    """


class LifespanError(HandlersCannotRunError):
    """
    The context manager of ``lifespan`` could not be entered or left; the worker stops.

    ``run()`` raises this error. Its cause is the original exception, which shows what
    to fix.
    """


class ProcessDiedError(SafeConsumerError):
    """
    A process of the process executor exited while it was processing this record.

    Look for a crash, or for a kill by the operating system, for example because memory
    ran out.
    """


class HandlerTimeoutError(SafeConsumerError, TimeoutError):
    """
    A handler took longer than ``handler_timeout`` for this record, and was stopped.

    Make the handler faster, or give it more time.
    """


class HandlerCancelledError(SafeConsumerError):
    """
    A handler was cancelled, but not by its worker; this error's cause shows where.

    The handler awaited a cancelled task, or its own task was cancelled. Catch the
    cancellation of tasks that the handler awaits.
    """
