"""
A drop-in ``KafkaConsumer`` whose ``pause()`` means what people think it means.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeconsumer._core.holds import Hold, Lifetime
    from safeconsumer._kafka.errors import (
        BlockingCallInListenerError,
        ConcurrentPollError,
        ForkedConsumerError,
        IllegalTargetError,
        NotConsumedError,
    )
    from safeconsumer.consumer import KafkaConsumer, SafeConsumer
    from safeconsumer.errors import (
        HoldSettingError,
        MissingExtraError,
        SafeConsumerError,
        ScopeSyntaxError,
        TargetTypeError,
        UnsupportedKafkaPythonError,
    )

# Where each public name stands. It is imported when it is first asked for: pytest loads
# our plugin, and with it this package, in every session of every project that has us
# installed, and must not import kafka-python there.
_HOMES = {
    "BlockingCallInListenerError": "_kafka.errors",
    "ConcurrentPollError": "_kafka.errors",
    "ForkedConsumerError": "_kafka.errors",
    "Hold": "_core.holds",
    "HoldSettingError": "errors",
    "IllegalTargetError": "_kafka.errors",
    "KafkaConsumer": "consumer",
    "Lifetime": "_core.holds",
    "MissingExtraError": "errors",
    "NotConsumedError": "_kafka.errors",
    "SafeConsumer": "consumer",
    "SafeConsumerError": "errors",
    "ScopeSyntaxError": "errors",
    "TargetTypeError": "errors",
    "UnsupportedKafkaPythonError": "errors",
}

__all__ = [
    "BlockingCallInListenerError",
    "ConcurrentPollError",
    "ForkedConsumerError",
    "Hold",
    "HoldSettingError",
    "IllegalTargetError",
    "KafkaConsumer",
    "Lifetime",
    "MissingExtraError",
    "NotConsumedError",
    "SafeConsumer",
    "SafeConsumerError",
    "ScopeSyntaxError",
    "TargetTypeError",
    "UnsupportedKafkaPythonError",
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
