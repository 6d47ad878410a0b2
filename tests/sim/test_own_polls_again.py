# ruff: noqa: ARG002 - an application's own poll()
"""
An own ``poll()`` that polls several times in one step of an iteration, or leaves out.

Each record that such a method returns is yielded once, as by kafka-python.
"""

import pytest
from kafka import KafkaConsumer

from safeconsumer import SafeConsumer
from tests.sim.meddling import both_steps
from tests.sim.reading import Reader

__all__ = ["both_steps"]
pytestmark = pytest.mark.usefixtures("both_steps")


def merging(base):
    class Merging(base):
        """Makes bigger batches: polls three times, and returns all of it at once."""

        def poll(self, timeout_ms=0, max_records=None, **_):
            found = {}
            for _ in range(3):
                for tp, batch in super().poll(timeout_ms, 3).items():
                    found.setdefault(tp, []).extend(batch)
            return found

    return Merging


def choosing(base):
    class Choosing(base):
        """Leaves records out, and polls again where nothing is left."""

        polls = 0

        def poll(self, timeout_ms=0, max_records=None, **_):
            while True:
                self.polls += 1
                assert self.polls < 200, "it polls for ever"
                got = super().poll(timeout_ms, 3)
                kept = {
                    tp: [one for one in batch if int(one.value) % 5 == 4]
                    for tp, batch in got.items()
                }
                kept = {tp: batch for tp, batch in kept.items() if batch}
                if kept or not got:
                    return kept

    return Choosing


both = pytest.mark.parametrize(
    "base", [SafeConsumer, KafkaConsumer], ids=["ours", "stock"]
)


@pytest.mark.contract("P8", "P13")
@both
def test_a_step_that_polls_several_times_yields_each_record_once(lab, base):
    (tp,) = lab.topic("t", 1, records=20)
    reader = Reader(lab, merging(base), tps=[tp], how="iterate")
    reader.until(lambda: 19 in reader.offsets(tp))
    assert reader.offsets(tp) == [*range(20)]


@pytest.mark.contract("P8", "P13")
@both
def test_a_step_that_leaves_out_a_whole_poll_goes_on(lab, base):
    (tp,) = lab.topic("t", 1, records=20)
    reader = Reader(lab, choosing(base), tps=[tp], how="iterate")
    reader.until(lambda: 19 in reader.offsets(tp))
    assert reader.offsets(tp) == [4, 9, 14, 19]


def filtering(base):
    class Filtering(base):
        """Leaves records out that nobody wants."""

        def poll(self, timeout_ms=0, max_records=None, **_):
            got = super().poll(timeout_ms, max_records)
            kept = {
                tp: [one for one in batch if int(one.value) >= 10]
                for tp, batch in got.items()
            }
            return {tp: batch for tp, batch in kept.items() if batch}

    return Filtering


@pytest.mark.contract("P8", "P13")
@both
def test_a_step_whose_poll_leaves_all_out_goes_on(lab, base):
    (tp,) = lab.topic("t", 1, records=20)
    reader = Reader(lab, filtering(base), tps=[tp], how="iterate", max_poll_records=5)
    reader.until(lambda: 19 in reader.offsets(tp))
    assert reader.offsets(tp) == [*range(10, 20)]
