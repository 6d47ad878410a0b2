"""
A drop-in ``KafkaConsumer`` whose ``pause()`` means what people think it means.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeconsumer._kafka.errors import (
        BlockingCallInListenerError,
        ConcurrentPollError,
        ForkedConsumerError,
        IllegalTargetError,
        NotConsumedError,
    )
    from safeconsumer.consumer import KafkaConsumer, SafeConsumer
    from safeconsumer.errors import (
        ControlSettingError,
        ControlTopicError,
        ControlWriteError,
        DecoderSettingError,
        HoldSettingError,
        HookTypeError,
        JournalError,
        MetricsSourceError,
        MissingExtraError,
        SafeConsumerError,
        ScopeSyntaxError,
        TargetTypeError,
        UnansweredBatchError,
        UnsupportedKafkaPythonError,
        WorkerSettingError,
        WorkerStateError,
    )
    from safeconsumer.group.settings import Control
    from safeconsumer.holds.hold import Hold, Lifetime
    from safeconsumer.holds.scope import ALL
    from safeconsumer.worker import (
        Batch,
        BatchFailure,
        Breaker,
        Commit,
        Context,
        DeadLetter,
        DeadLetterLimitError,
        DeserializationError,
        Drain,
        HandlerCancelledError,
        HandlersFailError,
        HandlerTimeoutError,
        LifespanError,
        Limits,
        NoHandlerError,
        Pause,
        ProcessDiedError,
        Pump,
        Record,
        RecordFailedError,
        Reject,
        Retry,
        RetryLater,
        StopWorker,
        Tracing,
        UnsendableError,
        Worker,
    )

__version__ = "0.1.0"

# Where each public name stands. It is imported when it is first asked for: pytest loads
# our plugin, and with it this package, in every session of every project that has us
# installed, and must not import kafka-python there.
_HOMES = {
    "ALL": "holds.scope",
    "Batch": "worker",
    "BatchFailure": "worker",
    "BlockingCallInListenerError": "_kafka.errors",
    "Breaker": "worker",
    "Commit": "worker",
    "ConcurrentPollError": "_kafka.errors",
    "Context": "worker",
    "Control": "group.settings",
    "ControlSettingError": "errors",
    "ControlTopicError": "errors",
    "ControlWriteError": "errors",
    "DeadLetter": "worker",
    "DeadLetterLimitError": "worker",
    "DecoderSettingError": "errors",
    "DeserializationError": "worker",
    "Drain": "worker",
    "ForkedConsumerError": "_kafka.errors",
    "HandlerCancelledError": "worker",
    "HandlerTimeoutError": "worker",
    "HandlersFailError": "worker",
    "Hold": "holds.hold",
    "HoldSettingError": "errors",
    "HookTypeError": "errors",
    "IllegalTargetError": "_kafka.errors",
    "JournalError": "errors",
    "MetricsSourceError": "errors",
    "KafkaConsumer": "consumer",
    "LifespanError": "worker",
    "Lifetime": "holds.hold",
    "Limits": "worker",
    "MissingExtraError": "errors",
    "NoHandlerError": "worker",
    "NotConsumedError": "_kafka.errors",
    "ProcessDiedError": "worker",
    "Pause": "worker",
    "Pump": "worker",
    "Record": "worker",
    "RecordFailedError": "worker",
    "Reject": "worker",
    "Retry": "worker",
    "RetryLater": "worker",
    "SafeConsumer": "consumer",
    "SafeConsumerError": "errors",
    "ScopeSyntaxError": "errors",
    "StopWorker": "worker",
    "TargetTypeError": "errors",
    "Tracing": "worker",
    "UnansweredBatchError": "errors",
    "UnsendableError": "worker",
    "UnsupportedKafkaPythonError": "errors",
    "Worker": "worker",
    "WorkerSettingError": "errors",
    "WorkerStateError": "errors",
}

__all__ = [
    "ALL",
    "Batch",
    "BatchFailure",
    "BlockingCallInListenerError",
    "Breaker",
    "Commit",
    "ConcurrentPollError",
    "Context",
    "Control",
    "ControlSettingError",
    "ControlTopicError",
    "ControlWriteError",
    "DeadLetter",
    "DeadLetterLimitError",
    "DecoderSettingError",
    "DeserializationError",
    "Drain",
    "ForkedConsumerError",
    "HandlerCancelledError",
    "HandlerTimeoutError",
    "HandlersFailError",
    "Hold",
    "HoldSettingError",
    "HookTypeError",
    "IllegalTargetError",
    "JournalError",
    "KafkaConsumer",
    "LifespanError",
    "Lifetime",
    "Limits",
    "MetricsSourceError",
    "MissingExtraError",
    "NoHandlerError",
    "NotConsumedError",
    "Pause",
    "ProcessDiedError",
    "Pump",
    "Record",
    "RecordFailedError",
    "Reject",
    "Retry",
    "RetryLater",
    "SafeConsumer",
    "SafeConsumerError",
    "ScopeSyntaxError",
    "StopWorker",
    "TargetTypeError",
    "Tracing",
    "UnansweredBatchError",
    "UnsendableError",
    "UnsupportedKafkaPythonError",
    "Worker",
    "WorkerSettingError",
    "WorkerStateError",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(_home(_HOMES[name]), name)
    globals()[name] = value
    return value


def _home(module: str) -> ModuleType:
    try:
        return import_module(f"{__name__}.{module}")
    except (ImportError, AttributeError) as error:
        from safeconsumer._kafka.installed import (  # noqa: PLC0415 - imports kafka
            explain_failed_import,
        )

        explained = explain_failed_import(error)
        if explained is None:
            raise
        raise explained from error
