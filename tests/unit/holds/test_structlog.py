import logging
import sys
from types import ModuleType

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


def test_line_has_the_level_of_its_event_and_is_filtered_by_that_level(caplog):
    with caplog.at_level(logging.WARNING, logger="safeconsumer"):
        log_event(PLACED)
        log_event(HELD)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "assigned_while_held" in caplog.text


def test_line_names_a_few_partitions_and_the_number_of_others(caplog):
    """Otherwise ten pauses a second, each of 200 partitions, would log 680 KB a second."""
    many = tuple(("orders", number) for number in range(200))
    holds = tuple(Hold(scope=scopes.partition(*tp)) for tp in many)
    with caplog.at_level(logging.DEBUG, logger="safeconsumer"):
        log_event(events.HoldsPlaced(holds=holds, quiet=many))
        log_event(events.HeldPartitionUncommitted(partitions=many))
    for record in caplog.records:
        assert "... 195 more" in record.getMessage()
        assert len(record.getMessage()) < 1500


def test_configured_structlog_receives_the_fields(caplog):
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
import logging, sys

class NoStructlog:
    def find_spec(self, name, path=None, target=None):
        if name == "structlog":
            raise ImportError("the thread that hands out events waited for an import")

sys.meta_path.insert(0, NoStructlog())
logging.getLogger("safeconsumer").setLevel(sys.argv[1])
from safeconsumer.events.consumer import AssignedWhileHeld
from safeconsumer.events.dispatch import Dispatcher
from safeconsumer.events.log import log_event

dispatcher = Dispatcher([log_event])
dispatcher.dispatch(AssignedWhileHeld(partitions=(("orders", 0),), holds=()))
assert not dispatcher.failures, dispatcher.failures
"""


@pytest.mark.parametrize("level", ["WARNING", "INFO"])
def test_program_without_structlog_gets_log_lines_without_an_import(level):
    """
    On a busy machine, importing structlog in the call that delivers an event took 10 s.

    That call may be the program's own ``pause()`` or ``resume()``.
    All other threads' events, and the journal's entries about holds, had to wait for it.
    """
    done = ran_python("-c", _PROGRAM, level)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr == (
        "event='safeconsumer.assigned_while_held' holds=[] partitions=['orders:0'] "
        "is_left_alone=False lost=[]\n"
    )


def test_line_without_structlog_equals_the_line_that_structlog_would_write(caplog):
    """A program may import and configure structlog after the first line was logged."""
    with caplog.at_level(logging.INFO, logger="safeconsumer"):
        log_event(PLACED)
    name, fields = PLACED.as_log_line()
    render = structlog.processors.KeyValueRenderer(key_order=["event"])
    line = render(None, "info", {**fields, "event": name})
    assert [record.getMessage() for record in caplog.records] == [line]


def test_partly_imported_structlog_does_not_count_as_configured(caplog, monkeypatch):
    """Another thread may be importing structlog at that time."""
    monkeypatch.setitem(sys.modules, "structlog", ModuleType("structlog"))
    with caplog.at_level(logging.INFO, logger="safeconsumer"):
        log_event(PLACED)
    assert "safeconsumer.hold_placed" in caplog.text
