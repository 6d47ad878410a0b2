"""``paused()`` returns one owner's paused partitions, ``quiet()`` all quiet partitions."""

import re

import pytest
from kafka import TopicPartition

from safeconsumer.errors import HoldSettingError
from safeconsumer.holds.hold import OPERATOR, WORKER, Hold, WorkerOwner
from safeconsumer.holds.scope import Topic
from tests.harness.kafka.fetches import assigned

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
AUDIT = TopicPartition("audit", 0)
EVERYTHING = {A, B, AUDIT}

OPERATORS = f"{OPERATOR}alice"
WORKERS = f"{WORKER}retry"


@pytest.fixture
def consumer(safe):
    """Return a consumer with three assigned partitions."""
    made = safe()
    assigned(made, A, B, AUDIT)
    return made


def _operator_holds(consumer):
    hold = Hold(scope=Topic("orders"), owner=OPERATORS)
    consumer._safe_ledger.follow([hold], ())


def _block_holds(consumer):
    block = consumer.held(A)
    block.__enter__()
    # The block would end when the last reference to it is dropped.
    vars(consumer)["block"] = block


def _gate_closes(consumer):
    consumer._safe_ledger.watch(lambda _: None)
    assigned(consumer)
    assigned(consumer, A, B, AUDIT)


OTHERS = {
    "another owner's partition": (lambda it: it.pause(A, owner="ops"), {A}),
    "another owner's topic": (lambda it: it.pause("orders", owner="ops"), {A, B}),
    "another owner's everything": (lambda it: it.pause_all(owner="ops"), EVERYTHING),
    "a worker's": (lambda it: it.pause(B, owner=WorkerOwner(WORKERS)), {B}),
    "a block's": (_block_holds, {A}),
    "an operator's": (_operator_holds, {A, B}),
    "a gate": (_gate_closes, EVERYTHING),
}
OWN = {
    "a partition": (lambda it: it.pause(A), {A}),
    "a topic": (lambda it: it.pause("orders"), {A, B}),
    "a pattern": (lambda it: it.pause(re.compile("ord.*")), {A, B}),
    "everything": (lambda it: it.pause_all(), EVERYTHING),
    "all that is assigned": (lambda it: it.pause(*it.assignment()), EVERYTHING),
    "handed over": (
        lambda it: it._safe_ledger.take_over(
            {A: it._safe_ledger.owned()[A]}, "handed over"
        ),
        {A},
    ),
}


@pytest.mark.contract("P3")
@pytest.mark.parametrize(("held", "covered"), OTHERS.values(), ids=OTHERS)
def test_partition_held_by_another_owner_is_quiet_and_not_paused(
    consumer, held, covered
):
    held(consumer)
    assert (consumer.paused(), consumer.quiet()) == (set(), covered)
    assert consumer._subscription.paused_partitions() == set()
    assert {tp for tp in EVERYTHING if consumer._subscription.is_paused(tp)} == covered


@pytest.mark.contract("P3")
@pytest.mark.parametrize(("held", "covered"), OWN.values(), ids=OWN)
@pytest.mark.parametrize("other", ["nobody", "an operator's", "a gate"])
def test_paused_lists_the_applications_pauses_even_under_holds_of_other_owners(
    consumer, other, held, covered
):
    beside = set()
    if other != "nobody":
        place, beside = OTHERS[other]
        place(consumer)
    held(consumer)
    consumer.paused().clear()  # changes only the caller's copy
    assert (consumer.paused(), consumer.quiet()) == (covered, covered | beside)
    assert consumer._subscription.paused_partitions() == covered


@pytest.mark.contract("P3")
@pytest.mark.parametrize(
    ("owner", "covered"),
    [
        ("app", {A}),
        ("ops", {B}),
        (OPERATORS, {A, B}),
        (WORKERS, {AUDIT}),
        ("nobody", set()),
    ],
)
def test_paused_accepts_any_owner_of_a_hold(consumer, owner, covered):
    consumer.pause(A)
    consumer.pause(B, owner="ops")
    consumer.pause(AUDIT, owner=WorkerOwner(WORKERS))
    _operator_holds(consumer)
    assert consumer.paused(owner=owner) == covered
    by_owner = {
        hold.owner: consumer.paused(owner=hold.owner) for hold in consumer.holds()
    }
    assert set().union(*by_owner.values()) == consumer.quiet()


def test_whole_pause_has_its_own_owner(consumer):
    consumer.pause(*(tp for tp in consumer.assignment() if tp.topic == "orders"))
    consumer.pause(AUDIT)
    assert consumer.paused() == EVERYTHING
    assert consumer.paused(owner="app (all)") == {A, B}


@pytest.mark.parametrize("owner", ["", " ", "a\n", 5, None])
def test_invalid_owner_name_is_refused(consumer, owner):
    with pytest.raises(HoldSettingError, match="owner must be"):
        consumer.paused(owner=owner)


PAUSES = {
    "paused": lambda it: it.paused(),
    "paused, of an owner": lambda it: it.paused(owner="ops"),
    "quiet": lambda it: it.quiet(),
    "assignment and quiet": lambda it: it.assignment() & it.quiet(),
    "quiet and assignment": lambda it: it.quiet() & it.assignment(),
}


@pytest.mark.contract("P3")
@pytest.mark.parametrize("asked", PAUSES.values(), ids=PAUSES)
def test_each_returned_set_contains_the_objects_of_the_assignment(consumer, asked):
    """So pausing all partitions of a topic from any of these sets is a whole pause."""
    consumer.pause("orders", owner="ops")
    consumer.pause("orders")
    named = asked(consumer)
    consumer.resume("orders")
    consumer.pause(*named)
    holds = {(str(hold.scope), hold.owner) for hold in consumer.holds()}
    assert ("orders", "app (all)") in holds
    consumer.resume_all("ops")
    assert consumer.quiet() == consumer.paused() == {A, B}


@pytest.mark.contract("P3")
def test_resume_of_all_quiet_partitions_lifts_the_applications_holds(consumer):
    """``resume`` returns the holds that still cover the partitions."""
    consumer.pause(A, B)
    consumer.pause(B, AUDIT, owner="ops")
    still = consumer.resume(*consumer.quiet())
    assert {str(hold.scope) for hold in still} == {"orders:1", "audit:0"}
    assert {hold.owner for hold in still} == {"ops"}
    assert (consumer.paused(), consumer.quiet()) == (set(), {B, AUDIT})
