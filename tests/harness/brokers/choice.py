"""Which broker the tests run on, and why."""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import Any

import pytest
from attrs import frozen

from tests.harness.brokers import jars

BOOTSTRAP_VARIABLE = "SAFECONSUMER_TEST_BOOTSTRAP"
REQUIRE_VARIABLE = "SAFECONSUMER_TEST_REQUIRE"


class Kind(StrEnum):
    """The kinds of brokers, in the order in which ``auto`` prefers them."""

    BOOTSTRAP = "bootstrap"
    JAVA = "java"
    EMBEDDED = "embedded"


@frozen
class Choice:
    """A kind, and the sentence for pytest's header."""

    kind: Kind
    reason: str


def choose(option: str) -> Choice:
    """Decide by ``--kafka`` and, for ``auto``, by what this machine has; start nothing."""
    if option != "auto":
        if option == Kind.BOOTSTRAP and not os.environ.get(BOOTSTRAP_VARIABLE):
            msg = f"--kafka=bootstrap needs {BOOTSTRAP_VARIABLE}=host:port"
            raise pytest.UsageError(msg)
        return Choice(Kind(option), f"by --kafka={option}")
    missing = []
    for kind, why_not in _PROBES.items():
        obstacle = why_not()
        if obstacle is None:
            reasons = "; ".join(missing) or "the first choice"
            return Choice(kind, f"auto: {reasons}")
        missing.append(obstacle)
    if os.environ.get(REQUIRE_VARIABLE) == "real":
        msg = f"{REQUIRE_VARIABLE}=real, but {'; '.join(missing)}"
        raise pytest.UsageError(msg)
    return Choice(Kind.EMBEDDED, f"auto: {'; '.join(missing)}")


def _why_no_bootstrap() -> str | None:
    is_set = os.environ.get(BOOTSTRAP_VARIABLE)
    return None if is_set else f"{BOOTSTRAP_VARIABLE} is not set"


def _why_no_java() -> str | None:
    if shutil.which("java") is None:
        return "no java in PATH"
    if jars.are_fetched():
        return None
    return (
        "Kafka's jars are not fetched (python -m tests.harness.brokers.jars does that)"
    )


_PROBES: dict[Kind, Callable[[], str | None]] = {
    Kind.BOOTSTRAP: _why_no_bootstrap,
    Kind.JAVA: _why_no_java,
}


def start(kind: Kind) -> AbstractContextManager[Any]:
    """Make the broker of one kind, a context manager; entering it starts the broker."""
    match kind:
        case Kind.BOOTSTRAP:
            from contextlib import nullcontext  # noqa: PLC0415

            from safeconsumer.testing import ExistingCluster  # noqa: PLC0415

            return nullcontext(ExistingCluster(os.environ[BOOTSTRAP_VARIABLE]))
        case Kind.JAVA:
            from tests.harness.brokers.java import JavaBroker  # noqa: PLC0415

            return JavaBroker()
        case Kind.EMBEDDED:
            from safeconsumer.testing import EmbeddedBroker  # noqa: PLC0415

            return EmbeddedBroker()
