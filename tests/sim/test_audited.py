"""
Groups of random programs, which only the audit judges.

Correct programs fail no check, whatever happens to them, and the audit finds a planted
defect of the library.
"""

import gc

import pytest
from kafka import KafkaProducer

from safeconsumer.holds.table import Table
from tests.harness.audit.journals import verdict_in
from tests.sim.audited import Group
from tests.sim.churn.planted import commits_include_a_record_that_is_not_delivered
from tests.sim.lab import play
from tests.sim.playing import simulated

pytestmark = pytest.mark.contract("S5")


@pytest.fixture(autouse=True)
def _quiet_producers(monkeypatch):
    # A killed member's producer has unsent reports, and blocks when it is
    # garbage-collected.
    monkeypatch.setattr(KafkaProducer, "__del__", lambda _: None)
    yield
    gc.collect()


@simulated(seeds=2, nightly=100, nodes=2, preempt=0.05)
def test_random_correct_programs_fail_no_check(lab, tmp_path):
    """The programs seek in listeners and during polls, are interrupted, and unsubscribe."""
    assert found_in(lab, tmp_path) == []


def found_in(lab, folder):
    group = Group(lab, folder)
    group.play(events=14)
    found, _ = verdict_in(folder, control=group.control)
    if group.settings["auto_offset_reset"] == "latest":
        # Without a committed offset, ``latest`` skips records, and A2 reports them.
        found = [one for one in found if one[0] != "A2"]
    return found


def nothing_is_quiet(patch):
    view = Table.view
    patch.setattr(Table, "view", lambda it: view(it)._replace(quiet=frozenset()))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (nothing_is_quiet, "A1"),
        (commits_include_a_record_that_is_not_delivered, "A5"),
    ],
)
def test_planted_fault_is_found_within_twenty_seeds(
    plant, check, monkeypatch, tmp_path
):
    plant(monkeypatch)
    for seed in range(20):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found = play(found_in, seed, nodes=2, folder=folder)
        if check in {one for one, _ in found}:
            return
    pytest.fail(f"no seed shows {check}")
