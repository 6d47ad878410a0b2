"""Provides brokers and checks for tests of Kafka consumers in any project."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from safeconsumer.testing._connections import Request
    from safeconsumer.testing.clients import Clients
    from safeconsumer.testing.embedded import EmbeddedBroker, HeldAnswers
    from safeconsumer.testing.errors import (
        BrokerCommandError,
        BrokerTypeError,
        EndlessRunError,
    )
    from safeconsumer.testing.existing import ExistingCluster, broker_of
    from safeconsumer.testing.ghost import Ghost
    from safeconsumer.testing.polling import PollTimeoutError, poll_until
    from safeconsumer.testing.workers import (
        Call,
        DeadRecord,
        WorkerRun,
        make_record,
        run_worker,
    )

__all__ = [
    "BrokerCommandError",
    "BrokerTypeError",
    "Call",
    "Clients",
    "DeadRecord",
    "EmbeddedBroker",
    "EndlessRunError",
    "ExistingCluster",
    "Ghost",
    "HeldAnswers",
    "PollTimeoutError",
    "Request",
    "WorkerRun",
    "broker_of",
    "make_record",
    "poll_until",
    "run_worker",
]

_WHERE = {
    "BrokerCommandError": "errors",
    "BrokerTypeError": "errors",
    "Call": "workers",
    "Clients": "clients",
    "DeadRecord": "workers",
    "EmbeddedBroker": "embedded",
    "EndlessRunError": "errors",
    "ExistingCluster": "existing",
    "Ghost": "ghost",
    "HeldAnswers": "embedded",
    "PollTimeoutError": "polling",
    "Request": "_connections",
    "WorkerRun": "workers",
    "broker_of": "existing",
    "make_record": "workers",
    "poll_until": "polling",
    "run_worker": "workers",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:  # noqa: ANN401  any public object of the package
    """
    Load a public name on its first use.

    pytest imports this package in every session because of the plugin, although most
    sessions have nothing to do with Kafka.
    """
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
