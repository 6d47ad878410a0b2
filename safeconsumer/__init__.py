"""A drop-in ``KafkaConsumer`` whose pauses hold through rebalances."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeconsumer._kafka.errors import (
        BlockingCallInListenerError,
        ConcurrentPollError,
        ConsumerClosedError,
        CorruptBatchError,
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
        Worker,
        WorkerControl,
    )

__version__ = "0.1.0"

# The modules in which a public name is looked for, in this order, and those that would be
# imported in vain for most names. They are imported when a name is first used: pytest
# loads our plugin, and with it this package, in every session of every project that has
# us installed, and must not import kafka-python there.
_HOMES = ("errors", "holds.scope", "holds.hold", "_kafka.errors", "worker")
_OWN_HOMES = {
    "Control": "group.settings",
    "KafkaConsumer": "consumer",
    "SafeConsumer": "consumer",
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
    "CorruptBatchError",
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
    "SparkSettingError",
    "SparkSetupError",
    "Stats",
    "StopWorker",
    "TargetTypeError",
    "TimestampError",
    "Topic",
    "Tracing",
    "UnansweredBatchError",
    "UnsupportedKafkaPythonError",
    "Worker",
    "WorkerControl",
    "WorkerSettingError",
    "WorkerStateError",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name in __all__:
        own = _OWN_HOMES.get(name)
        for home in map(_home, _HOMES if own is None else [own]):
            if hasattr(home, name):
                globals()[name] = value = getattr(home, name)
                return value
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


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
