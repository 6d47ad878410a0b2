"""Chooses the broker for a test run."""

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
    """Return the kind of broker that ``--kafka`` names; do not start a broker."""
    if option == Kind.BOOTSTRAP and not os.environ.get(BOOTSTRAP_VARIABLE):
        msg = f"--kafka=bootstrap needs {BOOTSTRAP_VARIABLE}=host:port"
        raise pytest.UsageError(msg)
    return Kind(option)


def why_no_java():
    """Return why this machine cannot start a Java broker; None if it can."""
    if shutil.which("java") is None:
        return "no java in PATH"
    if jars.jars_folder().is_dir():
        return None
    return (
        "Kafka's jars are not fetched (python -m tests.harness.brokers.jars does that)"
    )


def start(kind):
    """Return a context manager that starts and yields a broker of this kind."""
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
