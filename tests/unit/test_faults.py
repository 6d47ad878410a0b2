"""A planted fault changes the one function that its row names, or is refused."""

import functools
from collections import Counter

import pytest

from tests.faults import __main__ as faults
from tests.faults import table
from tests.faults.copies import ROOT, Result
from tests.faults.table import Fault, UnplantableError

TEXT = """\
def run():
    return 1

class Worker:
    def run(self):
        return 1

    def stop(self):
        return 1 + 1
"""


def fault(function="Worker.run", old="return 1", **more):
    row = {"file": "f.py", "new": "return 2", "tests": (), "suite": (), **more}
    return Fault(id="F1", function=function, old=old, **row)


def test_fault_is_planted_only_in_its_function():
    planted = fault().planted(TEXT)
    assert planted == TEXT.replace(
        "(self):\n        return 1\n", "(self):\n        return 2\n"
    )


@pytest.mark.parametrize(
    ("function", "old"),
    [
        pytest.param("Worker.close", "return 1", id="no such function"),
        pytest.param("Worker.run", "return 3", id="no such text"),
        pytest.param("Worker.stop", "1", id="text that occurs twice"),
    ],
)
def test_row_that_does_not_fit_the_code_is_refused(function, old):
    with pytest.raises(UnplantableError, match="F1"):
        fault(function, old).planted(TEXT)


@pytest.mark.parametrize(
    ("row", "result", "message", "is_good"),
    [
        pytest.param({}, Result(("t",)), "killed by t", True, id="killed"),
        pytest.param({}, Result(), "SURVIVES", False, id="survives"),
        pytest.param({}, Result(hangs=True), "HANGS", False, id="hangs"),
        pytest.param(
            {"hangs": True}, Result(hangs=True), "time limit", True, id="hang expected"
        ),
        pytest.param({}, Result(error="?"), "BREAKS", False, id="breaks pytest"),
        pytest.param(
            {"equivalent": "why"}, Result(), "EQUIVALENT: why", True, id="equivalent"
        ),
        pytest.param(
            {"equivalent": "why"}, Result(("t",)), "killed by t", False, id="killable"
        ),
    ],
)
def test_outcome_of_each_fault_is_reported(row, result, message, *, is_good):
    text, good = faults._judged(fault(**row), [result])
    assert (message in text, good) == (True, is_good)


def test_every_row_has_a_unique_id_and_names_existing_files():
    rows = table.faults(table.PACKAGES)
    assert max(Counter(one.id for one in rows).values()) == 1
    named = {test.split("::")[0] for one in rows for test in (*one.tests, *one.suite)}
    named |= {f"safeconsumer/{one.file}" for one in rows}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@functools.cache
def _source(file):
    return (ROOT / file).read_text()


def _is_defined(test):
    file, _, name = test.partition("[")[0].partition("::")
    return not name or f"def {name.rpartition('::')[2]}(" in _source(file)


def test_every_fault_names_existing_tests():
    """A missing test would end the run of a package before its first fault."""
    named = {test for one in table.faults(table.PACKAGES) for test in one.tests}
    assert [test for test in sorted(named) if not _is_defined(test)] == []


def test_every_fault_can_be_planted_in_the_current_code():
    """A row with an outdated text would silently test nothing."""
    for one in table.faults(table.PACKAGES):
        one.planted((ROOT / "safeconsumer" / one.file).read_text())
