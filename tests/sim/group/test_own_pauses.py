"""A program that pauses what it lets flow, while operators hold and gates are closed."""

import pytest

from safeconsumer import SafeConsumer
from tests.sim.group.operating import CONTROL, Operator
from tests.sim.playing import simulated

PAUSES = {
    "the rest": lambda it: it.pause(*(it.assignment() - it.paused())),
    "the rest, listed": lambda it: it.pause(
        *[tp for tp in it.assignment() if tp not in it.paused()]
    ),
    "unless paused": lambda it: None if it.paused() else it.pause(*it.assignment()),
}


def member(lab, name):
    return lab.member(SafeConsumer, "t", name=name, control=CONTROL)


def gains_nothing(lab, mine, other):
    """Let the other member go; what this one gains by it, and has, stays quiet."""
    before = len(mine.records)
    other.stop()
    mine.owns(4)
    for tp in lab.partitions("t"):
        lab.append(tp, 5, first=5)
    lab.sleep(10)
    assert len(mine.records) == before


@pytest.mark.contract("P3", "P7", "G1")
@pytest.mark.parametrize(
    ("pause", "held"),
    [
        ("the rest", "one"),
        ("the rest, listed", "topic"),
        pytest.param("unless paused", "one", marks=pytest.mark.nightly),
    ],
)
@simulated(seeds=1, nightly=3)
def test_an_operators_hold_opens_no_leak_in_the_programs_pause(lab, pause, held):
    """25 records came of each partition that was gained."""
    operator = Operator(lab)
    lab.topic("t", 4, records=5)
    a, b = member(lab, "a"), member(lab, "b")
    a.owns(2)
    b.owns(2)
    lab.until(lambda: len(a.records) + len(b.records) >= 20)
    first = min(a.consumer.assignment())
    scope = f"t:{first.partition}" if held == "one" else "t"
    operator.hold(scope)
    lab.until(lambda: first in a.consumer.quiet())
    assert a.consumer.paused() == set()
    a.call(PAUSES[pause])
    gains_nothing(lab, a, b)
    operator.lift(scope)
    lab.sleep(10)
    assert a.consumer.quiet() == a.consumer.paused() == set(lab.partitions("t"))
    before = len(a.records)
    a.call(lambda consumer: consumer.resume(*consumer.paused()))
    lab.until(lambda: len(a.records) >= before + 20)
    assert a.consumer.quiet() == set()
    a.stop()


@pytest.mark.contract("P3", "P7", "G2")
@simulated(seeds=1, nightly=3)
def test_a_program_can_pause_before_the_control_topics_are_read(lab):
    """A closed gate is no pause of the program: it names all that it owns."""
    Operator(lab)
    lab.topic("t", 4, records=5)
    b = member(lab, "b")
    lab.until(lambda: len(b.records) == 20)
    away = [
        lab.cluster.fail(api, is_held=True, client_id="a-control")
        for api in ("ListOffsets", "Fetch")
    ]
    a = member(lab, "a")
    a.owns(2)
    assert a.consumer.quiet() == a.consumer.assignment()
    assert a.consumer.paused() == set()
    a.call(PAUSES["the rest"])
    for one in away:
        one.end()
    lab.until(lambda: not a.consumer._safe_ledger.control_gates())
    gains_nothing(lab, a, b)
    a.call(lambda consumer: consumer.resume(*consumer.paused()))
    lab.until(lambda: len(a.records) >= 20)
    a.stop()
