"""
Exports the errors of this package; all of them derive from ``SafeConsumerError``.

This module is for users; no other module of the package imports it. Some errors are
also subclasses of kafka-python's errors, so that code that already catches
kafka-python's errors keeps working. Such errors are imported at their first use,
because they need kafka-python.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safeconsumer.errors.base import (
    CheckpointError,
    ClientPropertyError,
    ControlSettingError,
    ControlTopicError,
    ControlWriteError,
    DataLostError,
    DeadLetterLimitError,
    DecoderSettingError,
    HandlerCancelledError,
    HandlersCannotRunError,
    HandlerTimeoutError,
    HeldDataLostError,
    HoldSettingError,
    HoldsUnreadableError,
    HookTypeError,
    JournalError,
    LifespanError,
    MemberClosedError,
    MetricsSourceError,
    MissingExtraError,
    NotQuietError,
    ProcessDiedError,
    RecordFailedError,
    SafeConsumerError,
    ScopeSyntaxError,
    SparkSettingError,
    SparkSetupError,
    StreamStalledError,
    TargetTypeError,
    TimestampError,
    UnansweredBatchError,
    UnsupportedAiokafkaError,
    UnsupportedKafkaPythonError,
    WorkerSettingError,
    WorkerStateError,
)

if TYPE_CHECKING:
    from safeconsumer.errors.kafka_python import (
        BlockingCallInListenerError,
        BlockingCallInSignalHandlerError,
        CommitRefusedError,
        ConcurrentPollError,
        ConsumerClosedError,
        ConsumerInUseError,
        CorruptBatchError,
        ForkedConsumerError,
        IllegalTargetError,
        NotConsumedError,
        NotOwnedError,
    )
    from safeconsumer.worker.handlers import DeserializationError

__all__ = [
    "BlockingCallInListenerError",
    "BlockingCallInSignalHandlerError",
    "CheckpointError",
    "ClientPropertyError",
    "CommitRefusedError",
    "ConcurrentPollError",
    "ConsumerClosedError",
    "ConsumerInUseError",
    "ControlSettingError",
    "ControlTopicError",
    "ControlWriteError",
    "CorruptBatchError",
    "DataLostError",
    "DeadLetterLimitError",
    "DecoderSettingError",
    "DeserializationError",
    "ForkedConsumerError",
    "HandlerCancelledError",
    "HandlerTimeoutError",
    "HandlersCannotRunError",
    "HeldDataLostError",
    "HoldSettingError",
    "HoldsUnreadableError",
    "HookTypeError",
    "IllegalTargetError",
    "JournalError",
    "LifespanError",
    "MemberClosedError",
    "MetricsSourceError",
    "MissingExtraError",
    "NotConsumedError",
    "NotOwnedError",
    "NotQuietError",
    "ProcessDiedError",
    "RecordFailedError",
    "SafeConsumerError",
    "ScopeSyntaxError",
    "SparkSettingError",
    "SparkSetupError",
    "StreamStalledError",
    "TargetTypeError",
    "TimestampError",
    "UnansweredBatchError",
    "UnsupportedAiokafkaError",
    "UnsupportedKafkaPythonError",
    "WorkerSettingError",
    "WorkerStateError",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of any type
    if name in __all__:
        is_of_worker = name == "DeserializationError"  # from worker, like Reject
        room = "worker.handlers" if is_of_worker else "errors.kafka_python"
        globals()[name] = value = getattr(import_module(f"safeconsumer.{room}"), name)
        return value
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
