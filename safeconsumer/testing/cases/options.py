"""Defines pytest options that exist only if the cases are run."""

import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

import pytest

from safeconsumer.testing.cases.member import found
from safeconsumer.testing.errors import BrokerTypeError
from safeconsumer.testing.existing import broker_of

PACKAGE = __package__ or ""
EXAMPLE = "safeconsumer:SafeConsumer"

_ANSWERS_WITHIN_MS = 10_000


def are_asked_for(arguments: Iterable[str], folder: Path) -> bool:
    """
    Return whether a pytest command line names the cases, by package or by path.

    Args:
        arguments: the command-line arguments that are not options.
        folder: the folder in which pytest was started.
    """
    here = Path(__file__).parent
    for argument in arguments:
        name = argument.partition("::")[0]
        if f"{name}.".startswith(f"{PACKAGE}."):
            return True
        if here in ((path := (folder / name).resolve()), *path.parents):
            return True
    return False


def add(parser: pytest.Parser) -> None:
    """Add the options ``--consumer`` and ``--bootstrap``."""
    group = parser.getgroup("safeconsumer", "safeconsumer's cases")
    group.addoption(
        "--consumer",
        metavar="MODULE:CLASS",
        help="the class to try, or a function that takes the same keys",
    )
    group.addoption(
        "--bootstrap",
        metavar="HOST:PORT",
        help="a running broker (default: the embedded one, in this process)",
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Return a header with the class under test and the broker."""
    broker = config.getoption("--bootstrap") or "the embedded one"
    return f"consumer: {config.getoption('--consumer')}, broker: {broker}"


def pytest_sessionstart(session: pytest.Session) -> None:
    """
    Check the options before the first case.

    Raises:
        pytest.UsageError: the class is not given or cannot be imported, or no broker
            answers.
    """
    config = session.config
    folder = str(config.invocation_params.dir)
    if folder not in sys.path:  # as python -m pytest does
        sys.path.insert(0, folder)
    bootstrap = config.getoption("--bootstrap")
    with warnings.catch_warnings():  # ignore kafka-python's warnings
        warnings.simplefilter("ignore")
        check_consumer(config.getoption("--consumer"))
        if bootstrap is not None and not config.option.collectonly:
            check_broker(bootstrap)


def consumer_of(config: pytest.Config) -> str:
    """
    Return the value of ``--consumer``.

    Raises:
        pytest.UsageError: the cases were collected without being named on the command
            line.
    """
    spec: str | None = config.getoption("--consumer", None)
    if spec is None:
        message = f"run the cases by pytest --pyargs {PACKAGE} --consumer MODULE:CLASS"
        raise pytest.UsageError(message)
    return spec


def check_consumer(spec: str | None) -> None:
    """
    Check that a class or function can be imported by its name.

    Raises:
        pytest.UsageError: the import fails; the message gives the reason.
    """
    if spec is None:
        message = (
            f"--consumer MODULE:CLASS is missing: the class to try, such as {EXAMPLE}"
        )
        raise pytest.UsageError(message)
    try:
        made = found(spec)
    except Exception as error:
        message = (
            f"--consumer {spec}: it is MODULE:CLASS, such as {EXAMPLE}, and importing "
            f"it raised {type(error).__name__}: {error}"
        )
        raise pytest.UsageError(message) from error
    if not callable(made):
        message = f"--consumer {spec}: that is neither a class nor a function"
        raise pytest.UsageError(message)


def check_broker(bootstrap: str) -> None:
    """
    Check that a Kafka broker answers at one of these addresses.

    Raises:
        pytest.UsageError: no broker answers within ten seconds, or the text is not an
            address.
    """
    from kafka.admin import KafkaAdminClient  # noqa: PLC0415  0.2 s, when needed
    from kafka.errors import KafkaError  # noqa: PLC0415  likewise

    from safeconsumer._kafka.fixes.construction import constructed  # noqa: PLC0415  likewise

    try:
        config = broker_of(bootstrap).client_config
    except BrokerTypeError as error:
        message = f"--bootstrap {bootstrap!r}: write HOST:PORT"
        raise pytest.UsageError(message) from error
    try:
        constructed(
            KafkaAdminClient, **config, bootstrap_timeout_ms=_ANSWERS_WITHIN_MS
        ).close()
    except (KafkaError, OSError, ValueError) as error:
        message = (
            f"--bootstrap {bootstrap}: no Kafka broker answers there within "
            f"{_ANSWERS_WITHIN_MS // 1000} s ({type(error).__name__})"
        )
        raise pytest.UsageError(message) from error
