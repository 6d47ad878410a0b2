"""Which broker the tests run on, and why."""

import os
import shutil
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import pytest
from attrs import frozen

from tests.harness.brokers import jars
from tests.harness.brokers.settings import IMAGE

BOOTSTRAP_VARIABLE = "SAFECONSUMER_TEST_BOOTSTRAP"
PULL_VARIABLE = "SAFECONSUMER_TEST_PULL"
REQUIRE_VARIABLE = "SAFECONSUMER_TEST_REQUIRE"
_SOCKET = Path("/var/run/docker.sock")


class Kind(StrEnum):
    """The kinds of brokers, in the order in which ``auto`` prefers them."""

    BOOTSTRAP = "bootstrap"
    DOCKER = "docker"
    JAVA = "java"
    EMBEDDED = "embedded"


@frozen
class Choice:
    """A kind, and the sentence for pytest's header."""

    kind: Kind
    reason: str


def choose(option: str) -> Choice:
    """
    Decide by ``--kafka`` and, for ``auto``, by what this machine has; start nothing.

    Raises:
        pytest.UsageError: ``bootstrap`` without an address, or only the embedded broker
            is to be had and ``SAFECONSUMER_TEST_REQUIRE=real`` forbids it.

    """
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


def _why_no_docker() -> str | None:
    # Importing docker and testcontainers takes half a second: only if there is hope.
    if "DOCKER_HOST" not in os.environ and not _SOCKET.exists():
        return "no Docker engine"
    import docker  # noqa: PLC0415  see above

    try:
        client = docker.from_env(timeout=5)
    except docker.errors.DockerException:
        return "no Docker engine answers"
    try:
        return _why_no_image(client)
    finally:
        client.close()


def _why_no_image(client: "object") -> str | None:
    import docker  # noqa: PLC0415  see above

    if os.environ.get(PULL_VARIABLE) == "1":
        return None
    try:
        client.images.get(IMAGE)
    except docker.errors.ImageNotFound:
        return f"Docker has no image {IMAGE}"
    return None


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
    Kind.DOCKER: _why_no_docker,
    Kind.JAVA: _why_no_java,
}


def start(kind: Kind) -> "object":
    """Make the broker of one kind, a context manager; entering it starts the broker."""
    match kind:
        case Kind.BOOTSTRAP:
            from contextlib import nullcontext  # noqa: PLC0415

            from safeconsumer.testing import ExistingCluster  # noqa: PLC0415

            return nullcontext(ExistingCluster(os.environ[BOOTSTRAP_VARIABLE]))
        case Kind.DOCKER:
            from tests.harness.brokers.container import ContainerBroker  # noqa: PLC0415

            return ContainerBroker()
        case Kind.JAVA:
            from tests.harness.brokers.java import JavaBroker  # noqa: PLC0415

            return JavaBroker()
        case Kind.EMBEDDED:
            from safeconsumer.testing import EmbeddedBroker  # noqa: PLC0415

            return EmbeddedBroker()
