"""Defines the suite's brokers, options and markers."""

# ruff: noqa: E402 - no module may import threads and clocks before they can be
# simulated
from tests.sim import threads

threads.install()

import gc
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

import pytest

from safeconsumer.testing import _sockets, polling, workers
from tests.harness import chance
from tests.harness.brokers import choice, markers, shared
from tests.harness.brokers.results import ResultsFile
from tests.harness.brokers.settings import KAFKA_VERSION
from tests.harness.spark import options as spark_options

pytest_plugins = ["safeconsumer.testing.fixtures", "tests.harness.timeouts"]

# Makes assertions in ``tests.sim.reading`` report the compared values.
pytest.register_assert_rewrite("tests.sim.reading")

# Before 3.13 Python uses its parser to place the carets in a traceback. The parser
# fails if several threads use it at a time (SystemError: AST constructor recursion depth
# mismatch). pytest lets that error propagate from the logging call, so a warning kills
# a client's thread. Only a command-line option would prevent this. Remove these lines
# when 3.12 is no longer supported.
if sys.version_info < (3, 13):
    traceback._extract_caret_anchors_from_line_segment = lambda _: None

# xdist's workers must all iterate over a set of strings in the same order.
os.environ.setdefault("PYTHONHASHSEED", "0")

# The user may have set these variables for the ``safeconsumer`` commands.
for one in ("BOOTSTRAP", "CONFIG", "OWNER", "TOPIC_PREFIX"):
    os.environ.pop(f"SAFECONSUMER_{one}", None)

# The package's own time limits suit waiting users. They must not stop a test on a busy
# machine, so they exceed pytest's limit. A simulated test has a limit above these.
_sockets._COMMAND_TIMEOUT = workers._PATIENCE = polling._LONGEST_POLL = 10_000.0

chance.make_repeatable()  # before Hypothesis's plugin applies --hypothesis-profile

KIND = pytest.StashKey[choice.Kind]()


def pytest_addoption(parser):
    """Add the options of the whole suite, including those of its parts."""
    group = parser.getgroup("kafka")
    group.addoption(
        "--kafka",
        default="embedded",
        choices=[*choice.Kind],
        help="the broker to test against (default: embedded)",
    )
    group.addoption(
        "--results-file",
        type=Path,
        default=None,
        help="write each test's outcome to this file, for "
        "tests.harness.brokers.results",
    )


def pytest_configure(config):
    """Choose the broker; the first test that uses the broker starts it."""
    markers.register(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # pytest runs as a background job of a shell, so its child processes would
        # ignore SIGINT as well.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    spark_options.pytest_configure(config)
    config.stash[KIND] = kind = choice.choose(config.option.kafka)
    if kind is choice.Kind.JAVA and not shared.is_worker(config):
        config.pluginmanager.register(shared.BrokerForWorkers(kind))
    if config.option.results_file is not None and not shared.is_worker(config):
        results = ResultsFile(config.option.results_file)
        config.pluginmanager.register(results, "safeconsumer-results")


def pytest_report_header(config):
    """Report which broker was chosen."""
    kind = config.stash[KIND]
    version = f", Apache Kafka {KAFKA_VERSION}" * (kind is choice.Kind.JAVA)
    return f"kafka broker: {kind}{version}"


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Disable garbage collection, which would free nothing and take a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """Skip tests that do not fit the broker."""
    markers.apply(items, config.stash[KIND])
    spark_options.pytest_collection_modifyitems(config, items)


def pytest_collection_finish():
    """Exempt modules and tests from garbage collection, to make ``gc.collect()`` fast."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def caplog(caplog):
    """Provide pytest's own fixture, without the lines that threads of earlier tests log."""
    main = threading.main_thread()
    earlier = {one.ident for one in threading.enumerate() if one is not main}

    def is_own(record):
        return record.thread not in earlier

    caplog.handler.addFilter(is_own)
    yield caplog
    caplog.handler.removeFilter(is_own)


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig):
    """Provide the chosen broker for the whole session."""
    kind = pytestconfig.stash[KIND]
    lent = shared.lent_to(pytestconfig, kind)
    if lent is not None:
        yield lent
        return
    with choice.start(kind) as broker:
        yield broker
