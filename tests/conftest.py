"""The suite's brokers, options and markers."""

# ruff: noqa: E402 - nothing may take threads and clocks before they can be simulated
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

# Its assertions report what they compared.
pytest.register_assert_rewrite("tests.sim.reading")

# Before 3.13 Python finds the carets of a traceback with its parser, which fails if
# threads use it in turns (SystemError: AST constructor recursion depth mismatch), and
# pytest lets that out of the call that logs: a client's thread dies of a warning. There
# is no setting but one of the command line; it goes with 3.12.
if sys.version_info < (3, 13):
    traceback._extract_caret_anchors_from_line_segment = lambda _: None

# For xdist's workers: sets of texts have the same order in all of them.
os.environ.setdefault("PYTHONHASHSEED", "0")

# The user may have set these for commands.
for one in ("BOOTSTRAP", "CONFIG", "OWNER", "TOPIC_PREFIX"):
    os.environ.pop(f"SAFECONSUMER_{one}", None)

# Its own limits are for users, who wait; tests on a busy machine end by pytest's limit.
# A simulated world ends later than these.
_sockets._COMMAND_TIMEOUT = workers._PATIENCE = polling._LONGEST_POLL = 10_000.0

chance.make_repeatable()  # before the plugin of Hypothesis takes --hypothesis-profile

KIND = pytest.StashKey[choice.Kind]()


def pytest_addoption(parser):
    """Add the options of the whole suite, those of its parts included."""
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
    """Choose the broker; it is started by the first test that uses it."""
    markers.register(config)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # In a shell's background; programs of tests would not receive a SIGINT either.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    spark_options.pytest_configure(config)
    config.stash[KIND] = kind = choice.choose(config.option.kafka)
    if kind is choice.Kind.JAVA and not shared.is_worker(config):
        config.pluginmanager.register(shared.BrokerForWorkers(kind))
    if config.option.results_file is not None and not shared.is_worker(config):
        results = ResultsFile(config.option.results_file)
        config.pluginmanager.register(results, "safeconsumer-results")


def pytest_report_header(config):
    """Tell which broker was chosen."""
    kind = config.stash[KIND]
    version = f", Apache Kafka {KAFKA_VERSION}" * (kind is choice.Kind.JAVA)
    return f"kafka broker: {kind}{version}"


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Let the collector rest meanwhile: all that is made stays, and it would take a sixth."""
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
    """Take modules and tests out of later collections: a test that asks for one waits."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def caplog(caplog):
    """Lend pytest's own fixture, without lines that threads of earlier tests still log."""
    main = threading.main_thread()
    earlier = {one.ident for one in threading.enumerate() if one is not main}

    def is_own(record):
        return record.thread not in earlier

    caplog.handler.addFilter(is_own)
    yield caplog
    caplog.handler.removeFilter(is_own)


@pytest.fixture(scope="session")
def kafka_broker(pytestconfig):
    """Lend the broker that was chosen, for the whole session."""
    kind = pytestconfig.stash[KIND]
    lent = shared.lent_to(pytestconfig, kind)
    if lent is not None:
        yield lent
        return
    with choice.start(kind) as broker:
        yield broker
