import logging

import pytest
import structlog
from structlog.testing import LogCapture

from safeconsumer import events
from safeconsumer.events.log import log_event
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold
from tests.harness.processes import ran_python

PLACED = events.HoldsPlaced(
    at=1.0,
    client_id="c",
    holds=(Hold(scope=scopes.topic("orders"), owner="ops", reason="deploy"),),
    quiet=(("orders", 0),),
)
HELD = events.AssignedWhileHeld(partitions=(("orders", 0),), holds=())


@pytest.fixture(autouse=True)
def _as_installed():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_unconfigured_structlog_writes_one_line_to_the_standard_logger(caplog, capsys):
    with caplog.at_level(logging.INFO, logger="safeconsumer"):
        log_event(PLACED)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("safeconsumer", logging.INFO)
    line = record.getMessage()
    for part in ("safeconsumer.hold_placed", "orders:0", "ops", "deploy", "client_id"):
        assert part in line
    assert "\n" not in line
    assert capsys.readouterr() == ("", "")


def test_line_has_the_events_level_and_is_filtered_by_it(caplog):
    with caplog.at_level(logging.WARNING, logger="safeconsumer"):
        log_event(PLACED)
        log_event(HELD)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "assigned_while_held" in caplog.text


def test_line_names_the_first_few_partitions_and_the_number_of_others(caplog):
    """Ten pauses a second of 200 partitions would write 680 KB a second."""
    many = tuple(("orders", number) for number in range(200))
    holds = tuple(Hold(scope=scopes.partition(*tp)) for tp in many)
    with caplog.at_level(logging.DEBUG, logger="safeconsumer"):
        log_event(events.HoldsPlaced(holds=holds, quiet=many))
        log_event(events.HeldPartitionUncommitted(partitions=many))
    for record in caplog.records:
        assert "... 195 more" in record.getMessage()
        assert len(record.getMessage()) < 1500


def test_configured_structlog_gets_the_fields(caplog):
    capture = LogCapture()
    structlog.configure(processors=[capture])
    log_event(PLACED)
    (entry,) = capture.entries
    assert entry["event"] == "safeconsumer.hold_placed"
    assert entry["log_level"] == "info"
    assert entry["quiet"] == ["orders:0"]
    assert "at" not in entry
    assert "group_id" not in entry
    assert caplog.records == []


_PROGRAM = """
import sys
import safeconsumer
from safeconsumer.events.consumer import GatesChanged, AssignedWhileHeld
from safeconsumer.events.log import log_event
assert "structlog" not in sys.modules, "imported too early"
from safeconsumer.events.dispatch import Dispatcher
from tests.harness.processes import ran_python
dispatcher = Dispatcher([log_event])
quiet_one = GatesChanged(flowing=(("orders", 0),), reason="")
dispatcher.dispatch(quiet_one)
assert "structlog" not in sys.modules, "imported for a line that nobody sees"
dispatcher.dispatch(AssignedWhileHeld(partitions=(), holds=()))
assert "structlog" in sys.modules
assert not dispatcher.failures, dispatcher.failures
"""


def test_program_without_configuration_prints_nothing_to_stdout():
    """Structlog is imported when the first line is written."""
    done = ran_python("-c", _PROGRAM)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
