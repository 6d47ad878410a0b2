"""A drop-in ``KafkaConsumer`` whose pauses survive rebalances."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeconsumer.consumer import KafkaConsumer, SafeConsumer
    from safeconsumer.errors.base import SafeConsumerError
    from safeconsumer.group.operator import Operator
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
        Drain,
        Limits,
        Pause,
        Pump,
        Record,
        Reject,
        Retry,
        RetryLater,
        StopWorker,
        Worker,
    )

__version__ = "0.10.0"

# The names that most programs use; ``errors``, ``holds`` and ``worker`` export more.
__all__ = [
    "ALL",
    "Batch",
    "BatchFailure",
    "Breaker",
    "Commit",
    "Context",
    "Control",
    "DeadLetter",
    "Drain",
    "Hold",
    "KafkaConsumer",
    "Lifetime",
    "Limits",
    "Operator",
    "Pause",
    "Pump",
    "Record",
    "Reject",
    "Retry",
    "RetryLater",
    "SafeConsumer",
    "SafeConsumerError",
    "StopWorker",
    "Worker",
]


# Maps each public name outside ``worker`` to its module. A module is imported only when
# a name from it is first used: in every project that has safeconsumer installed, pytest
# loads our plugin, and with it this package, and the plugin must not import
# kafka-python.
_HOMES = {
    "ALL": "holds.scope",
    "Control": "group.settings",
    "Hold": "holds.hold",
    "KafkaConsumer": "consumer",
    "Lifetime": "holds.hold",
    "Operator": "group.operator",
    "SafeConsumer": "consumer",
    "SafeConsumerError": "errors.base",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of any type
    if name in __all__:
        home = _home(_HOMES.get(name, "worker"))
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
