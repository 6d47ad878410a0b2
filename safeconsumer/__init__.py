"""A drop-in ``KafkaConsumer`` whose pauses hold through rebalances."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeconsumer._kafka.errors import (
        BlockingCallInListenerError,
        ConcurrentPollError,
        ConsumerClosedError,
        ForkedConsumerError,
        IllegalTargetError,
        NotConsumedError,
        NotOwnedError,
    )
    from safeconsumer.consumer import KafkaConsumer, SafeConsumer
    from safeconsumer.errors import (
        ClientPropertyError,
        ControlSettingError,
        ControlTopicError,
        ControlWriteError,
        DecoderSettingError,
        HeldDataLostError,
        HoldSettingError,
        HoldsUnreadableError,
        HookTypeError,
        JournalError,
        MetricsSourceError,
        MissingExtraError,
        NotQuietError,
        SafeConsumerError,
        ScopeSyntaxError,
        SparkRunError,
        SparkSettingError,
        SparkSetupError,
        TargetTypeError,
        TimestampError,
        UnansweredBatchError,
        UnsupportedKafkaPythonError,
        WorkerSettingError,
        WorkerStateError,
    )
    from safeconsumer.group.settings import Control
    from safeconsumer.holds.hold import Hold, Lifetime
    from safeconsumer.holds.scope import ALL, Everything, Partition, Pattern, Topic
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
        Failure,
        HandlerCancelledError,
        HandlersFailError,
        HandlerTimeoutError,
        Health,
        Histogram,
        LifespanError,
        Limits,
        NoHandlerError,
        Pause,
        ProcessDiedError,
        Pump,
        Record,
        RecordFailedError,
        Reject,
        Report,
        Retry,
        RetryLater,
        Stats,
        StopWorker,
        Tracing,
        UnsendableError,
        Worker,
        WorkerControl,
    )

__version__ = "0.1.0"

# The module of each public name. It is imported when it is first used: pytest loads
# our plugin, and with it this package, in every session of every project that has us
# installed, and must not import kafka-python there.
_HOMES = {
    "ALL": "holds.scope",
    "Batch": "worker",
    "BatchFailure": "worker",
    "BlockingCallInListenerError": "_kafka.errors",
    "Breaker": "worker",
    "ClientPropertyError": "errors",
    "Commit": "worker",
    "ConcurrentPollError": "_kafka.errors",
    "ConsumerClosedError": "_kafka.errors",
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
    "Everything": "holds.scope",
    "Failure": "worker",
    "ForkedConsumerError": "_kafka.errors",
    "HandlerCancelledError": "worker",
    "HandlerTimeoutError": "worker",
    "HandlersFailError": "worker",
    "Health": "worker",
    "HeldDataLostError": "errors",
    "Histogram": "worker",
    "Hold": "holds.hold",
    "HoldSettingError": "errors",
    "HoldsUnreadableError": "errors",
    "HookTypeError": "errors",
    "IllegalTargetError": "_kafka.errors",
    "JournalError": "errors",
    "KafkaConsumer": "consumer",
    "LifespanError": "worker",
    "Lifetime": "holds.hold",
    "Limits": "worker",
    "MetricsSourceError": "errors",
    "MissingExtraError": "errors",
    "NoHandlerError": "worker",
    "NotConsumedError": "_kafka.errors",
    "NotOwnedError": "_kafka.errors",
    "NotQuietError": "errors",
    "Partition": "holds.scope",
    "Pattern": "holds.scope",
    "Pause": "worker",
    "ProcessDiedError": "worker",
    "Pump": "worker",
    "Record": "worker",
    "RecordFailedError": "worker",
    "Reject": "worker",
    "Report": "worker",
    "Retry": "worker",
    "RetryLater": "worker",
    "SafeConsumer": "consumer",
    "SafeConsumerError": "errors",
    "ScopeSyntaxError": "errors",
    "SparkRunError": "errors",
    "SparkSettingError": "errors",
    "SparkSetupError": "errors",
    "Stats": "worker",
    "StopWorker": "worker",
    "TargetTypeError": "errors",
    "TimestampError": "errors",
    "Topic": "holds.scope",
    "Tracing": "worker",
    "UnansweredBatchError": "errors",
    "UnsendableError": "worker",
    "UnsupportedKafkaPythonError": "errors",
    "Worker": "worker",
    "WorkerControl": "worker",
    "WorkerSettingError": "errors",
    "WorkerStateError": "errors",
}

__all__ = [
    "ALL",
    "Batch",
    "BatchFailure",
    "BlockingCallInListenerError",
    "Breaker",
    "ClientPropertyError",
    "Commit",
    "ConcurrentPollError",
    "ConsumerClosedError",
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
    "Everything",
    "Failure",
    "ForkedConsumerError",
    "HandlerCancelledError",
    "HandlerTimeoutError",
    "HandlersFailError",
    "Health",
    "HeldDataLostError",
    "Histogram",
    "Hold",
    "HoldSettingError",
    "HoldsUnreadableError",
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
    "NotOwnedError",
    "NotQuietError",
    "Partition",
    "Pattern",
    "Pause",
    "ProcessDiedError",
    "Pump",
    "Record",
    "RecordFailedError",
    "Reject",
    "Report",
    "Retry",
    "RetryLater",
    "SafeConsumer",
    "SafeConsumerError",
    "ScopeSyntaxError",
    "SparkRunError",
    "SparkSettingError",
    "SparkSetupError",
    "Stats",
    "StopWorker",
    "TargetTypeError",
    "TimestampError",
    "Topic",
    "Tracing",
    "UnansweredBatchError",
    "UnsendableError",
    "UnsupportedKafkaPythonError",
    "Worker",
    "WorkerControl",
    "WorkerSettingError",
    "WorkerStateError",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name == "profiles":  # a module: for who imports only the package
        return import_module(f"{__name__}.profiles")
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
