"""Chooses the broker of a test run."""

import os
import shutil
from contextlib import nullcontext
from enum import StrEnum

import pytest

from tests.harness.brokers import jars

BOOTSTRAP_VARIABLE = "SAFECONSUMER_TEST_BOOTSTRAP"


class Kind(StrEnum):
    BOOTSTRAP = "bootstrap"
    JAVA = "java"
    EMBEDDED = "embedded"


def choose(option):
    """Return the kind that ``--kafka`` names; start no broker."""
    if option == Kind.BOOTSTRAP and not os.environ.get(BOOTSTRAP_VARIABLE):
        msg = f"--kafka=bootstrap needs {BOOTSTRAP_VARIABLE}=host:port"
        raise pytest.UsageError(msg)
    return Kind(option)


def why_no_java():
    """Return the reason why no Java broker can be started here; None if one can."""
    if shutil.which("java") is None:
        return "no java in PATH"
    if jars.jars_folder().is_dir():
        return None
    return (
        "Kafka's jars are not fetched (python -m tests.harness.brokers.jars does that)"
    )


def start(kind):
    """Make the broker of one kind, a context manager; entering it starts the broker."""
    match kind:
        case Kind.BOOTSTRAP:
            from safeconsumer.testing import ExistingCluster  # noqa: PLC0415

            return nullcontext(ExistingCluster(os.environ[BOOTSTRAP_VARIABLE]))
        case Kind.JAVA:
            from tests.harness.brokers.java import JavaBroker  # noqa: PLC0415

            return JavaBroker()
        case Kind.EMBEDDED:
            from safeconsumer.testing import EmbeddedBroker  # noqa: PLC0415

            return EmbeddedBroker()
