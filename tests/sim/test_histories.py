"""In random histories of one consumer, each call has the effect that it promises."""

import pytest

from safeconsumer.holds.table import Table
from tests.sim.churn.planted import commits_include_a_record_that_is_not_delivered
from tests.sim.histories import History
from tests.sim.lab import play
from tests.sim.meddled_histories import MeddledHistory
from tests.sim.playing import simulated

pytestmark = pytest.mark.contract("P1", "P3", "P8", "P10")


@simulated(seeds=3, nightly=100)
def test_consumer_keeps_its_promises_in_a_random_history_on_one_broker(lab):
    """The history mixes polls, pauses, seeks, commits, transactions and truncations."""
    History(lab).play(steps=120)


@simulated(seeds=3, nightly=100, nodes=3)
def test_consumer_keeps_its_promises_in_a_random_history_on_three_brokers(lab):
    """In this history leaders also move, and brokers fail."""
    History(lab).play(steps=120)


@simulated(seeds=3, nightly=100)
def test_overlapping_calls_keep_promises_in_a_random_history_on_one_broker(lab):
    """Calls start during polls, handlers raise, and members join and leave."""
    MeddledHistory(lab).play(steps=120)


@simulated(seeds=3, nightly=50, nodes=3, preempt=0.05)
def test_overlapping_calls_keep_promises_in_a_random_history_on_three_brokers(lab):
    """In this history threads also switch when they acquire locks."""
    MeddledHistory(lab).play(steps=120)


def nothing_is_quiet(patch):
    view = Table.view
    patch.setattr(Table, "view", lambda it: view(it)._replace(quiet=frozenset()))


def pauses_end_with_each_join(patch):
    patch.setattr(Table, "ends", lambda *_: True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("plant", "promise"),
    [
        (nothing_is_quiet, "P1"),
        (commits_include_a_record_that_is_not_delivered, "P8"),
        (pauses_end_with_each_join, "P1"),
    ],
)
def test_planted_fault_is_found_within_a_hundred_histories(plant, promise, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=promise):
        play_many(100)


def play_many(count):
    for seed in range(count):
        play(lambda lab: History(lab).play(steps=120), seed)
