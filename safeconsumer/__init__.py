"""
A drop-in ``KafkaConsumer`` whose ``pause()`` means what people think it means.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeconsumer._core.holds import Hold, Lifetime
    from safeconsumer._kafka.errors import (
        BlockingCallInListenerError,
        ConcurrentPollError,
        ForkedConsumerError,
        NotConsumedError,
    )
    from safeconsumer.consumer import KafkaConsumer, SafeConsumer
    from safeconsumer.errors import (
        ControlSettingError,
        ControlTopicError,
        ControlWriteError,
        HoldSettingError,
        MissingExtraError,
        SafeConsumerError,
        ScopeSyntaxError,
        TargetTypeError,
        UnsupportedKafkaPythonError,
    )
    from safeconsumer.group.settings import Control

# Where each public name stands. It is imported when it is first asked for: pytest loads
# our plugin, and with it this package, in every session of every project that has us
# installed, and must not import kafka-python there.
_HOMES = {
    "BlockingCallInListenerError": "_kafka.errors",
    "ConcurrentPollError": "_kafka.errors",
    "Control": "group.settings",
    "ControlSettingError": "errors",
    "ControlTopicError": "errors",
    "ControlWriteError": "errors",
    "ForkedConsumerError": "_kafka.errors",
    "Hold": "_core.holds",
    "HoldSettingError": "errors",
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
    "Control",
    "ControlSettingError",
    "ControlTopicError",
    "ControlWriteError",
    "ForkedConsumerError",
    "Hold",
    "HoldSettingError",
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
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
