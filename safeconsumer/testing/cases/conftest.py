"""Defines the cases' fixtures: a broker, and processes with the class under test."""

import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.testing.cases import options, test_one_consumer
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.outcomes import (
    AbsentError,
    DiffersError,
    NotOnThisBrokerError,
    NotReachedError,
)
from safeconsumer.testing.cases.process import ClientError, HangsError, launch_of
from safeconsumer.testing.embedded import EmbeddedBroker
from safeconsumer.testing.existing import ExistingCluster

ASSIGNORS = ("range", "cooperative-sticky")
"""An eager and a cooperative assignor."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the cases that use a group with an eager and with a cooperative assignor."""
    if "assignor" in metafunc.fixturenames:
        without_group = metafunc.module.PART == test_one_consumer.PART
        some = ASSIGNORS[:1] if without_group else ASSIGNORS
        metafunc.parametrize("assignor", some)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip a case that the class or broker does not support; report failures in one line."""
    __tracebackhide__ = True
    try:
        return (yield)
    except AbsentError as error:
        pytest.skip(f"this class has no such call: {error}")
    except NotOnThisBrokerError as error:
        pytest.skip(f"not on this broker: {error}")
    except NotReachedError as error:
        raise _failed(error, "could not be tried: ") from None
    except (DiffersError, ClientError, HangsError) as error:
        raise _failed(error) from None


def _failed(error: Exception, before: str = "") -> BaseException:
    # For other exception classes, pytest shows the module name and cuts off the rest of
    # the line.
    failed = pytest.fail.Exception(f"{before}{error}")
    for note in getattr(error, "__notes__", ()):
        failed.add_note(note)
    return failed.with_traceback(error.__traceback__)


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> Iterator[Any]:
    """Provide the broker at ``--bootstrap``, or, without that option, an embedded broker."""
    bootstrap = pytestconfig.getoption("--bootstrap", None)
    if bootstrap is not None:
        yield ExistingCluster(bootstrap)
        return
    with EmbeddedBroker() as embedded:
        yield embedded


@pytest.fixture(scope="session")
def labs(
    broker: Any,  # noqa: ANN401  one of two classes
    pytestconfig: pytest.Config,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, tuple[Lab, Path]]]:
    """Provide a lab for each assignor; its processes are reused from case to case."""
    launch = launch_of(options.consumer_of(pytestconfig))
    folder = tmp_path_factory.mktemp("cases")
    with ExitStack() as stack:
        made = {}
        for assignor in ASSIGNORS:
            log = folder / f"{assignor}.log"
            log.touch()
            lab = stack.enter_context(Lab(broker, launch, assignor, log))
            made[assignor] = (lab, log)
        yield made


@pytest.fixture
def lab(
    assignor: str,
    labs: dict[str, tuple[Lab, Path]],
) -> Iterator[Lab]:
    """Provide topics and consumers to a case, and show the consumers' stderr."""
    made, log = labs[assignor]
    start = log.stat().st_size
    yield made
    made.end_case()
    sys.stderr.write(log.read_bytes()[start:].decode(errors="replace"))
