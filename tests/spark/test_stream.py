"""
What a stream answers to the shim's questions, without Spark.
"""

from collections.abc import Callable
from typing import Any

import pytest

from safeconsumer.errors import HoldsUnreadableError
from safeconsumer.events.consumer import Event
from safeconsumer.holds.state import LedgerState
from safeconsumer.spark import offsets
from safeconsumer.spark.controller import Controller, ledger
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.stream import Stream
from safeconsumer.spark.watch import HeldWatch


class Elsewhere:
    """
    Holds that are kept elsewhere, and may be out of reach.
    """

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.is_late = False
        self.on_fresh: Any = None
        self.closed = False

    def state(self) -> LedgerState:
        if self.trouble is not None:
            raise HoldsUnreadableError(self.trouble)
        return LedgerState()

    def fresh(self) -> LedgerState:
        if self.on_fresh is not None:
            self.on_fresh()
        if self.is_late:
            message = "not in time"
            raise HoldsUnreadableError(message)
        return self.state()

    def close(self) -> None:
        self.closed = True


class Lab:
    """
    A controller with one stream, asked as the shim asks.
    """

    def __init__(self, *, fails_on_loss: bool = True) -> None:
        self.events: list[Event] = []
        own = ledger((self.events.append,))
        self.elsewhere = Elsewhere()
        made = SourceOptions(fails_on_loss=fails_on_loss)
        self.controller = Controller(
            lambda name, _: Stream(
                name, made, ledgers=(own,), followers=(self.elsewhere,)
            ),
            own,
        )
        opened = {"options": ""}
        assert self.ask("open", opened) == ""
        self.name = opened["stream"]

    def ask(self, question: str, facts: dict[str, str]) -> str:
        return self.controller.bridge.apply(question, facts)

    def batch(
        self,
        start: dict[Any, int],
        latest: dict[Any, int],
        between: Callable[[], object] = tuple,
        end: dict[Any, int] | None = None,
    ) -> dict[str, str]:
        facts = {
            "stream": self.name,
            "start": offsets.render(start),
            "latest": offsets.render(latest),
        }
        refusal = self.ask("plan", facts)
        if refusal:
            return {"refusal": refusal}
        between()
        facts["end"] = offsets.render(latest if end is None else end)
        assert self.ask("freeze", facts) == ""
        return facts

    def named(self, name: str) -> list[Event]:
        return [event for event in self.events if event.name == name]


START = {("orders", 0): 5, ("returns", 0): 5}
LATEST = {("orders", 0): 9, ("returns", 0): 8}


def test_a_pause_rules_the_next_batch_and_a_resume_the_one_after() -> None:
    """
    S1, S2: what was held goes on where it stood.
    """
    lab = Lab()
    lab.controller.pause("orders", reason="migration")
    facts = lab.batch(START, LATEST)
    assert offsets.parse(facts["end"]) == {("orders", 0): 5, ("returns", 0): 8}
    assert facts["metric.held"] == "orders:0"
    assert facts["metric.heldLag"] == "4"
    assert lab.controller.resume("orders") == ()
    facts = lab.batch(offsets.parse(facts["end"]), LATEST)
    assert offsets.parse(facts["end"]) == LATEST
    assert facts["metric.held"] == ""


def test_a_pause_while_a_batch_is_planned_is_obeyed() -> None:
    """
    The last look comes after the last wait.
    """
    lab = Lab()
    facts = lab.batch(START, LATEST, lambda: lab.controller.pause("orders:0"))
    assert offsets.parse(facts["end"])["orders", 0] == 5


@pytest.mark.parametrize("why", ["hold", "trouble", "late"])
def test_a_partition_that_only_the_limiter_saw_is_held(why: str) -> None:
    """
    S1, S4: the official source looks partitions up anew for a rate limit.
    """
    lab = Lab()
    if why == "hold":
        lab.controller.pause("orders")
    elif why == "trouble":
        lab.elsewhere.trouble = "no broker"
    lab.elsewhere.is_late = why == "late"
    new = ("orders", 1)
    facts = lab.batch(START, LATEST, end={**LATEST, new: 70})
    assert offsets.parse(facts["end"])[new] == 0
    assert offsets.parse(facts["end"])["orders", 0] == 5


def test_trouble_is_told_when_everything_was_held_already() -> None:
    """
    Somebody who looks for the reason finds all of it.
    """
    lab = Lab()
    lab.controller.pause("@all")
    lab.batch(START, LATEST)
    lab.elsewhere.trouble = "no broker"
    lab.batch(START, LATEST)
    lab.batch(START, LATEST)
    (event,) = lab.named("spark_holds_unreadable")
    assert event.as_dict()["reasons"] == ["no broker"]
    lab.elsewhere.trouble = "no right to read"
    lab.batch(START, LATEST)
    assert len(lab.named("spark_holds_unreadable")) == 2


def test_a_resume_while_a_batch_is_planned_waits_for_the_next() -> None:
    """
    The limiter was told that there is nothing to read: half of a plan is no plan.
    """
    lab = Lab()
    lab.controller.pause("orders")
    facts = lab.batch(START, LATEST, lambda: lab.controller.resume("orders"))
    assert offsets.parse(facts["end"])["orders", 0] == 5


def test_a_pause_while_holds_elsewhere_are_awaited_is_obeyed() -> None:
    """
    What is near is looked at after what is far.
    """
    lab = Lab()
    lab.elsewhere.on_fresh = lambda: lab.controller.pause("orders")
    facts = lab.batch(START, LATEST)
    assert offsets.parse(facts["from"])["orders", 0] == 9


def test_what_cannot_be_told_holds_everything_and_says_so() -> None:
    """
    S4; it ends when it can be told again.
    """
    lab = Lab()
    lab.elsewhere.trouble = "no broker"
    facts = lab.batch(START, LATEST)
    assert offsets.parse(facts["end"]) == START
    assert facts["metric.heldBecause"] == "no broker"
    (event,) = lab.named("spark_holds_unreadable")
    assert event.as_dict()["reasons"] == ["no broker"]
    lab.elsewhere.trouble = None
    facts = lab.batch(START, LATEST)
    assert offsets.parse(facts["end"]) == LATEST
    assert "metric.heldBecause" not in facts


def test_trouble_that_comes_while_planning_holds_everything_too() -> None:
    """
    The second look fails closed as the first.
    """
    lab = Lab()

    def lose() -> None:
        lab.elsewhere.trouble = "lost meanwhile"

    facts = lab.batch(START, LATEST, lose)
    assert offsets.parse(facts["end"]) == START


def test_one_line_per_changed_plan() -> None:
    """
    It says who holds what, and nothing while nothing changes.
    """
    lab = Lab()
    lab.batch(START, LATEST)
    lab.controller.pause("orders", owner="alice", reason="migration")
    lab.batch(START, LATEST)
    lab.batch(START, LATEST)
    lab.controller.resume("orders", owner="alice")
    lab.batch(START, LATEST)
    held, free = lab.named("spark_plan_changed")
    assert held.as_dict()["held"] == ["orders:0"]
    assert "orders held by alice" in str(held.as_dict()["because"])
    assert free.as_dict()["held"] == []


def test_a_held_topic_that_is_gone_fails_the_query() -> None:
    """
    Data loss is data loss while it is held, too.
    """
    lab = Lab()
    lab.controller.pause("orders")
    facts = lab.batch(START, {("returns", 0): 8})
    assert "orders:0: it is gone" in facts["refusal"]
    assert "failOnDataLoss=false" in facts["refusal"]
    assert len(lab.named("spark_held_data_lost")) == 1


def test_without_fail_on_data_loss_it_is_only_told() -> None:
    """
    Once, not with every batch.
    """
    lab = Lab(fails_on_loss=False)
    lab.controller.pause("orders")
    for _ in range(2):
        facts = lab.batch(START, {("returns", 0): 8})
        assert offsets.parse(facts["end"]) == {("returns", 0): 8}
    assert len(lab.named("spark_held_data_lost")) == 1


def test_a_bad_option_is_an_answer_and_a_defect_is_raised() -> None:
    """
    The shim refuses on the one and holds everything on the other.
    """
    lab = Lab()
    assert "holds.foo" in lab.ask("complete", {"options": "holds.foo=1"})
    with pytest.raises(KeyError):
        lab.ask("plan", {"stream": "unknown"})


def test_the_handle_explains_and_lists() -> None:
    """
    As a consumer does.
    """
    lab = Lab()
    with lab.controller.held("re:ord.*", reason="by hand"):
        (line,) = lab.controller.explain("orders:0")
        assert "re:ord.* held by block-1" in line
        assert [str(hold.scope) for hold in lab.controller.holds()] == ["re:ord.*"]
    assert lab.controller.explain("orders") == ()


def test_two_owners_do_not_lift_each_others_holds() -> None:
    """
    resume() says what still covers its targets.
    """
    lab = Lab()
    lab.controller.pause("orders", owner="alice")
    lab.controller.pause("@all", owner="bob")
    left = lab.controller.resume("orders", owner="alice")
    assert [hold.owner for hold in left] == ["bob"]


def test_a_stream_that_stopped_is_forgotten() -> None:
    """
    Its followers are closed; its lag counts no longer.
    """
    lab = Lab()
    lab.controller.pause("@all")
    lab.batch(START, LATEST)
    assert lab.controller.lag() == {("orders", 0): 4, ("returns", 0): 3}
    assert lab.ask("close", {"stream": lab.name}) == ""
    assert (lab.elsewhere.closed, lab.controller.lag()) == (True, {})


def test_a_topics_identity_is_forgotten_with_its_hold() -> None:
    """
    What was made again between two holds was lost to neither of them.
    """
    watch = HeldWatch("stream", SourceOptions(), ledger(()))
    watch.close()  # its thread ends as soon as it begins
    watch.look_at({("orders", 0): 5, ("returns", 0): 5})
    watch._identities.update(orders=1, returns=2)
    watch.look_at({("returns", 0): 5})
    assert watch._identities == {"returns": 2}


def test_options_come_as_they_were_given() -> None:
    """
    Blank ones, and characters that mean something to whoever writes them down.
    """
    seen: list[SourceOptions] = []

    def opened(name: str, made: SourceOptions) -> Stream:
        seen.append(made)
        return Stream(name, made, ledgers=(ledger(()),))

    facts = {"options": "kafka.a=%26+%3D%2B%25%C3%A9&kafka.b=&holds=orders%3A3"}
    assert Controller(opened, ledger(())).bridge.apply("open", facts) == ""
    assert seen[0].client == {"a": "& =+%é", "b": ""}
    assert list(map(str, seen[0].scopes)) == ["orders:3"]
