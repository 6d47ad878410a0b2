"""The reference checker: rejects every bad fleet for its one fault, passes the good ones."""

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import pytest
from attrs import evolve

from safeconsumer.audit import checker, starts
from safeconsumer.audit import facts as facts_module
from safeconsumer.audit.checker import Settings, Trial, Verdict, check
from safeconsumer.audit.facts import Address, facts
from safeconsumer.audit.findings import Basis
from safeconsumer.audit.reading import covered, covering
from safeconsumer.audit.report import UNKNOWN, rows_of, status_of
from safeconsumer.cli.against import TopicJournal
from safeconsumer.errors import JournalError
from safeconsumer.holds import scope as scopes
from safeconsumer.journal.format import scope_text
from tests.harness.audit.bad import BAD, GOOD, TP, Fleet
from tests.harness.audit.control import control_in
from tests.harness.audit.telling import Telling
from tests.harness.listing import each


def broken(fleet: Fleet, settings: Settings | None = None) -> set[str]:
    found = judged(fleet, settings or Settings())
    return {one.check for verdict in found for one in verdict.findings}


def judged(fleet: Fleet, settings: Settings) -> list[Verdict]:
    """Return the verdicts on what a fleet's journals and its operators tell."""
    settings = evolve(settings, control=control_in(fleet))
    return list(check([one.journal() for one in fleet], settings).values())


def expected(make: Callable[[], Fleet]) -> str:
    return make.__name__.partition("_")[0].upper()


@pytest.mark.contract("S5")
@each("make", BAD)
def test_a_bad_fleet_is_rejected_for_its_one_fault(make: Callable[[], Fleet]) -> None:
    """No other check is touched by it."""
    assert broken(make()) == {expected(make)}


@pytest.mark.contract("S5")
@each("make", GOOD)
def test_a_good_fleet_passes(make: Callable[[], Fleet]) -> None:
    """Compaction, transactions, crashes, seeks and threads are no faults."""
    assert broken(make()) == set()


@pytest.mark.contract("S5")
def test_every_check_has_a_bad_fleet() -> None:
    """A check that nothing can fail is worth nothing."""
    assert {expected(make) for make in BAD} == set(checker.CHECKS)


def test_what_is_not_delivered_yet_is_lost_only_when_drained() -> None:
    """A held partition's records wait."""
    fleet = [
        Telling("producer").then("acked", tp=TP, first=0, last=9),
        Telling("a").assigned(TP).poll(TP, 0, 5),
    ]
    assert broken(fleet) == set()
    assert broken(fleet, Settings(is_drained=True)) == {"A2"}


def test_what_no_handler_completed_is_missing_once_drained() -> None:
    """W5: delivered is not enough where there are workers; members that are none, are."""
    fleet = [
        Telling("producer").then("acked", tp=TP, first=0, last=9),
        Telling("a").then("working", order="key").assigned(TP).poll(TP, 0, 9),
    ]
    fleet[1].handle(TP, 0, 1, 2, 3, 4, 6, 7, 8).commit(TP, 5).revoked(TP)
    fleet.append(Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 5, 10))
    assert broken(fleet, Settings(is_drained=True)) == set()
    fleet[-1] = Telling("b", at=2000).then("working", order="key")
    fleet[-1].assigned(TP, generation=2).poll(TP, 5, 10).handle(TP, 6, 7, 8, 9)
    assert broken(fleet, Settings(is_drained=True)) == {"W5"}
    assert broken(fleet) == set()


def test_what_came_and_no_handler_completed_is_missing_once_drained() -> None:
    """W5: what a poll returned is there, whatever producers tell."""
    told = Telling().then("working", order="key").assigned(TP).poll(TP, 0, 5)
    fleet = [told.handle(TP, 0, 1)]
    assert broken(fleet, Settings(is_drained=True)) == {"W5"}
    told.handle(TP, 2, 3, 4)
    assert broken(fleet, Settings(is_drained=True)) == set()


def test_partitions_do_not_touch_each_other() -> None:
    """Each is judged alone."""
    told = Telling().assigned(TP, "returns:1").pause("returns")
    told.poll(TP, 0, 5).poll("returns:1", 0, 3)
    judged = check([told.journal()])
    orders, returns = Address("g", "orders", 0), Address("g", "returns", 1)
    assert list(judged) == [orders, returns]
    assert judged[orders].findings == ()
    (found,) = judged[returns].findings
    assert (found.check, found.member, found.offset) == ("A1", "a", 0)
    assert "returns was held by app" in found.evidence


@each(
    ("scope", "covers"),
    [
        ("orders:0", True),
        ("orders:1", False),
        ("orders", True),
        ("order", False),
        ("re:ord", False),  # the whole name, or nothing
        ("re:ord.*", True),
        ("re:(?i)ORDERS", True),
        ("@all", True),
    ],
)
def test_scopes_are_read_by_the_judge_itself(scope: str, *, covers: bool) -> None:
    assert covering(scope)(("orders", 0)) is covers


def test_a_partition_of_a_topic_that_is_called_re() -> None:
    """A1: as a journal names it, it is no pattern."""
    scope = scope_text(scopes.of(("re", 0)))
    assert covering(scope)(("re", 0))
    assert not covering(scope)(("re", 1))
    assert covered([scope], [("re", 0), ("re", 1)]) == {("re", 0)}
    names = [scope_text(scopes.of(one)) for one in (("orders", 0), "re", "re:0")]
    assert names == ["orders:0", "re", "re:0"]
    told = Telling().assigned("re:0").pause(scope, assigned=["re:0"], paused=["re:0"])
    assert broken([told.poll("re:0", 0, 2)]) == {"A1"}


@each("scope", ["re:[[:alpha:]]+", "re:\\pL+", "re:(", "re:", "..", "a b", "orders:x"])
def test_what_cannot_be_read_is_said(scope: str) -> None:
    """A pattern that means something else to RE2 is not guessed at."""
    with pytest.raises(JournalError, match=r"scope|unknown (here )?what"):
        covering(scope)


def test_an_end_that_no_ownership_had_is_not_believed() -> None:
    """For as long as something is owned: it ends with that, whoever says otherwise."""

    def told(*gone: str) -> Telling:
        one = Telling().assigned(TP, "orders:1", "returns:0")
        one.call("pause", scopes=["orders"], owner="w", lifetime="while_assigned")
        if gone:
            one.revoked(*gone)
        one.then("lift", scope="orders", owner="w", since=one.at, why="ended")
        return one.poll(TP, 0, 2)

    assert broken([told("orders:1")]) == set()
    assert broken([told()]) == {"A1"}
    assert broken([told("returns:0")]) == {"A1"}


def unjudged(fleet: Fleet) -> set[str]:
    return {name for one in judged(fleet, Settings()) for name in one.unjudged}


def test_a_commit_at_a_position_that_nobody_tells_is_not_judged() -> None:
    """A5: perhaps it begins there, perhaps it passes over what was written."""
    told = Telling().assigned(TP)
    for fleet in (
        [told.commit(TP, 20)],
        [Telling().assigned(TP).call("seek", offsets={TP: None}).commit(TP, 20)],
    ):
        (verdict,) = check([one.journal() for one in fleet]).values()
        assert (verdict.findings, set(verdict.unjudged)) == ((), {"A5"})
    (verdict,) = check([told.poll(TP, 20, 22).journal()]).values()
    assert (verdict.findings, verdict.unjudged) == ((), {})


def test_what_another_may_have_had_between_is_proved_by_no_single_journal() -> None:
    """A4: with the other's journal missing it may be right; given back at once, not."""
    for generation, basis in ((2, Basis.ORDER), (3, Basis.GENERATIONS)):
        told = Telling().assigned(TP).poll(TP, 0, 5).commit(TP, 5).revoked(TP)
        told.assigned(TP, generation=generation).poll(TP, 20, 25)
        (verdict,) = check([told.journal()]).values()
        found = {one.basis for one in verdict.findings if one.check == "A4"}
        assert found == {basis}
    assert status_of(rows_of(verdict), is_complete=False) == UNKNOWN


def test_a_group_that_was_deleted_may_read_everything_again() -> None:
    """Its commits are gone with it: neither wrong, nor clean."""
    one = Telling("a").assigned(TP, generation=5).poll(TP, 0, 9).commit(TP, 9)
    one.revoked(TP, generation=5)
    two = Telling("b", at=2000).assigned(TP, generation=1).poll(TP, 0, 5)
    fleet = [one, two.commit(TP, 5).poll(TP, 5, 12).commit(TP, 12)]
    (verdict,) = check([told.journal() for told in fleet]).values()
    assert verdict.findings == ()
    assert set(verdict.unjudged) == {"A4", "A5", "A6"}


def test_what_was_delivered_is_of_a_call_under_way() -> None:
    """A1: naming a poll that had returned, or the journal's begin, excuses nothing."""
    told = Telling().assigned(TP).poll().pause("orders")
    assert broken([told.deliver(TP, 0, 2, poll=1)]) == {"A1"}
    told = Telling().assigned(TP).poll().pause("orders")
    assert broken([told.deliver(TP, 0, 2)]) == {"A1"}
    told = Telling().assigned(TP).pause("orders")
    assert broken([told.deliver(TP, 0, 2)]) == {"A1"}
    told = Telling().assigned(TP).poll(TP, 0, 2).pause("orders")
    told.deliver(TP, 2, 3, after=told.journal().entries[-1].number)
    found = check([told.deliver(TP, 3, 4, after=0).journal()])
    (verdict,) = found.values()
    assert [(one.check, one.offset) for one in verdict.findings] == [
        ("A1", 2),
        ("A1", 3),
    ]


def test_what_paused_returned_must_be_told_each_time() -> None:
    """A7: told once and then no more is not judged."""
    told = Telling().assigned(TP).pause("orders", assigned=[TP], paused=[TP])
    told.resume("orders", assigned=[TP], paused=[]).pause("orders")
    assert (broken([told]), unjudged([told])) == (set(), {"A7"})


def test_an_offset_that_none_can_follow_is_no_records() -> None:
    """The largest of 64 bits can be a position, and no record has it."""
    told = Telling("p", group="").then("acked", tp=TP, first=0, last=2**63 - 1)
    with pytest.raises(JournalError, match="last must be an offset"):
        told.journal()
    told = Telling("p", group="").then("acked", tp=TP, first=0, last=2**63 - 2)
    assert broken([told]) == set()


def test_another_threads_change_between_look_and_entry_is_no_fault() -> None:
    """A7: what paused() returned is compared if nothing changed meanwhile."""
    seen = {"assigned": [TP], "paused": [], "gated": []}
    told = Telling().assigned(TP)
    said = {"op": "pause", "id": 77, "scopes": ["orders"], "owner": "app"}
    told.then("call", **said).then("hold", scope=TP, owner="operator:eve")
    told.then("lift", scope=TP, owner="operator:eve")
    told.then("return", **said, **seen, seen=2, seen_at=told.at)
    assert broken([told]) == set()
    told = Telling().assigned(TP).then("call", **said)
    told.then("return", **said, **seen, seen=2, seen_at=told.at)
    assert broken([told]) == {"A7"}


def anew(at: float = 1000.0, **dated: float) -> Telling:
    """Tell of a member that read ten records from the first on, and committed."""
    told = Telling("a", at=at).assigned(TP).poll(TP, 0, 10, **dated)
    return told.commit(TP, 10).revoked(TP)


def again(at: float, **dated: float) -> Telling:
    """Tell of one that reads from the first on once more, and not all."""
    return Telling("b", at=at).assigned(TP, generation=2).poll(TP, 0, 5, **dated)


ANEW = {"A2", "A3", "A4", "A5", "A6", "W4", "W5", "W7"}


@pytest.mark.parametrize("kind", ["written", "created"])
def test_a_topic_that_was_made_anew_is_not_judged_by_offsets(kind: str) -> None:
    """
    The record at an offset has another time than the one that was there before.

    With the same it is the same topic, and read twice.
    """
    fleet = [anew(**{kind: 900.0}), again(2000, **{kind: 1900.0})]
    assert (broken(fleet), unjudged(fleet)) == (set(), ANEW)
    fleet = [anew(**{kind: 900.0}), again(2000, **{kind: 900.0})]
    assert (broken(fleet), unjudged(fleet)) == ({"A6"}, set())


def test_what_is_lost_of_a_new_topic_is_not_covered_by_the_old_one() -> None:
    """A2: a producer that is told of an offset twice was told of two records."""
    producer = Telling("p", group="").then("acked", tp=TP, first=0, last=9)
    producer.at = 1900.0
    fleet = [producer.then("acked", tp=TP, first=0, last=9), anew()]
    assert (broken(fleet), unjudged(fleet)) == (set(), ANEW)
    whole = Telling("p", group="").then("acked", tp=TP, first=5, last=9)
    whole.at = 1900.0  # answers may overtake each other
    fleet = [whole.then("acked", tp=TP, first=0, last=4), anew()]
    assert (broken(fleet), unjudged(fleet)) == (set(), set())


def test_a_log_is_written_in_the_order_of_its_offsets() -> None:
    """What the broker wrote later and stands before is of another topic."""
    one = Telling("a").assigned(TP).poll(TP, 500, 510, written=900.0)
    fleet = [one.commit(TP, 510).revoked(TP), again(2000, written=1900.0)]
    assert (broken(fleet), unjudged(fleet)) == (set(), ANEW)
    verdicts = check([one.journal() for one in fleet], Settings(clock_skew=1500.0))
    (verdict,) = verdicts.values()
    assert {one.check for one in verdict.findings} == {"A2", "A6"}
    assert not verdict.unjudged


def test_what_is_read_again_after_a_seek_is_compared_too() -> None:
    """And memory grows with what did not go on, not with polls."""
    told = Telling("a").assigned(TP)
    for number in range(5):
        start = 10 * number
        told.poll(TP, start, start + 10, created=900.0 + number)
    told.call("seek", offsets={TP: 20}).poll(TP, 20, 30, created=902.0)
    trial = Trial(Address("g", "orders", 0), Settings())
    for address, fact in facts(told.journal()):
        assert address.is_case
        trial.take(fact)
    assert [one.offset for one in trial._epochs()[0].dated] == [0, 40, 20]
    assert unjudged([told]) == set()
    told.call("seek", offsets={TP: 40}).poll(TP, 40, 50, created=1900.0)
    assert unjudged([told]) == ANEW


def test_a_topic_is_made_anew_while_its_owner_reads_it() -> None:
    """It begins again at the first offset, which is no step back."""
    told = Telling("a").assigned(TP).poll(TP, 0, 10, created=900.0).commit(TP, 10)
    fleet = [told.poll(TP, 0, 5, created=1900.0)]
    assert (broken(fleet), unjudged(fleet)) == (set(), ANEW)
    told = Telling("a").assigned(TP).poll(TP, 0, 10, created=900.0)
    assert broken([told.poll(TP, 0, 5, created=900.0)]) == {"A4"}


def test_what_was_wrong_before_a_topic_was_made_anew_is_wrong() -> None:
    """What came of the old topic was still to come, and nobody has forgotten it."""
    old = Telling("a", at=900).assigned(TP).poll(TP, 0, 5, created=800.0)
    old.poll(TP, 7, 10).revoked(TP)
    more = Telling("a2", at=1000).assigned(TP, generation=2).poll(TP, 10, 12)
    more.revoked(TP).assigned(TP, generation=3).poll(TP, 0, 2, created=800.0)
    fleet = [old, more, again(2000, created=1900.0)]
    assert ("A3" in broken(fleet), "A3" in unjudged(fleet)) == (True, True)


@each(("off", "skew"), [(0.1, 0.0), (-0.005, 0.0), (-0.005, 0.01)])
def test_what_one_ownership_shows_is_true_whatever_brokers_clocks_say(
    off: float, skew: float
) -> None:
    """A new leader's clock is behind: or is it another topic? A step back is one."""
    first = Telling("a").assigned(TP).poll(TP, 0, 10, written=999.0)
    first.poll(TP, 10, 20, written=999.5).revoked(TP)
    second = Telling("b", at=1010).assigned(TP, generation=2)
    second.poll(TP, 20, 30, written=999.5 + off)
    second.poll(TP, 28, 30, written=999.5 + off)
    told = [first.journal(), second.journal()]
    (verdict,) = check(told, Settings(clock_skew=skew)).values()
    assert [one.check for one in verdict.findings] == ["A4"]
    said = verdict.unjudged.get("A4", "")
    assert ("clocks of two brokers differ by 0.005 s" in said) is (off < -skew)


def test_a_topic_that_was_made_again_within_one_ownership_took_no_step_back() -> None:
    """Its own times say so: what is there now was written later."""
    one = Telling("a").assigned(TP).poll(TP, 10, 20, written=999.5)
    one.poll(TP, 20, 25, written=999.6).poll(TP, 0, 5, written=1000.0)
    assert broken([one]) == set()
    assert "A4" in unjudged([one])


def test_whether_everything_came_takes_who_tells_what_was_written() -> None:
    """A2: of what came alone nobody can tell; of an empty partition a producer can."""
    drained = Settings(is_drained=True)
    fleet = [Telling("a").assigned(TP).poll(TP, 0, 5).commit(TP, 5)]
    (verdict,) = check([one.journal() for one in fleet], drained).values()
    assert verdict.findings == ()
    assert "nothing says what was written" in verdict.unjudged["A2"]
    assert status_of(rows_of(verdict), is_complete=True) == UNKNOWN
    fleet.append(Telling("producer").then("acked", tp="orders:1", first=0, last=0))
    other = Telling("b").assigned("orders:1").poll("orders:1", 0, 1)
    judged = check([one.journal() for one in (*fleet, other)], drained)
    assert [one.unjudged for one in judged.values()] == [{}, {}]
    told = Telling("a").assigned(TP).poll(TP, 0, 5).revoked(TP)
    told.assigned(TP, generation=3).poll(TP, 7, 9)
    assert broken([told], drained) == {"A2"}  # a hole is one, whatever was written


def test_what_a_topic_has_deleted_is_not_excused_by_what_it_has_now() -> None:
    """A2: the topic that is read adds to what journals show, and takes nothing away."""
    told = Telling("a").assigned(TP).poll(TP, 10, 50).revoked(TP)
    told.assigned(TP, generation=3).poll(TP, 100, 150)
    topic = TopicJournal(2000.0)
    topic.add(("orders", 0), range(120, 150))
    topic.begins(("orders", 0), 120)
    for more in ((), (topic,)):
        (verdict,) = check([told.journal(), *more]).values()
        (found,) = verdict.findings
        assert found.evidence == "nobody delivered offsets 50 to 99"
    (verdict,) = check([told.journal(), topic], Settings(is_drained=True)).values()
    assert verdict.unjudged["A2"] == "what the topic had before offset 120 is deleted"
    whole = Telling("b").assigned(TP, generation=2).poll(TP, 0, 10)
    whole.revoked(TP, generation=2).assigned(TP, generation=4).poll(TP, 50, 100)
    journals = [told.journal(), whole.journal(), topic]
    (verdict,) = check(journals, Settings(is_drained=True)).values()
    assert (verdict.findings, verdict.unjudged) == ((), {})


def test_a_topic_that_is_empty_was_read_too() -> None:
    """A2: nothing was written, so nothing is missing."""
    topic = TopicJournal(2000.0)
    topic.begins(("orders", 0), 0)
    journals = [Telling("a").assigned(TP).poll().journal(), topic]
    (verdict,) = check(journals, Settings(is_drained=True)).values()
    assert (verdict.findings, verdict.unjudged) == ((), {})


def test_where_commits_are_unseen_nobody_calls_the_next_owner_wrong() -> None:
    """A4, A5, A6: what is committed unseen may lie anywhere; order is seen."""
    told = Telling("a").then("assigned", partitions=[TP], generation=1, commits=False)
    told.poll(TP, 0, 5).commit(TP, 5).poll(TP, 5, 20).revoked(TP)
    after = Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 20, 25)
    fleet = [told, after]
    assert (broken(fleet), unjudged(fleet)) == (set(), {"A4", "A5", "A6"})
    after.poll(TP, 22, 25).commit(TP, 90)
    assert broken(fleet) == {"A4", "A5"}


def test_time_grows_with_ownerships_not_with_their_square() -> None:
    """A group that rebalances for weeks has thousands of them of each partition."""
    for flows in (True, False):  # or it is held all the time
        spent = [_steps_for_starts(count, flows=flows) for count in (100, 400)]
        assert spent[1] < 5 * spent[0]


def test_time_grows_with_partitions_that_a_lift_is_about_not_with_their_square() -> (
    None
):
    """Each departure is looked at once for each lift, not once more for each partition."""
    spent = [_steps_for_lifts(count) for count in (50, 200)]
    assert spent[1] < 5 * spent[0]


def _steps_for_starts(count: int, *, flows: bool) -> int:
    fleet = [Telling(name) for name in ("abc" if flows else "a")]
    for number in range(count):
        one = fleet[number % len(fleet)]
        one.at = 1000.0 + 10 * number
        end = number + 1 if flows else 1
        one.assigned(TP, generation=2 * number)
        if flows or not number:
            one.poll(TP, end - 1, end)
        one.commit(TP, end).revoked(TP, generation=2 * number + 1)
    return _steps(starts, fleet)


def _steps_for_lifts(partitions: int) -> int:
    names = [f"orders:{number}" for number in range(partitions)]
    told = Telling().assigned(*names).then("hold", scope="orders", owner="floor")
    told.revoked(*names, generation=2).assigned(*names, generation=2)
    return _steps(facts_module, [told.then("lift", scope="orders", owner="floor")])


def _steps(module: ModuleType, fleet: Fleet) -> int:
    steps = 0

    def step(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - itself
        nonlocal steps
        if frame.f_code.co_filename != module.__file__:
            return None
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return step

    journals = [one.journal() for one in fleet]
    before = sys.gettrace()
    sys.settrace(step)
    try:
        found = check(journals)
    finally:
        sys.settrace(before)
    assert not any(one.findings or one.unjudged for one in found.values())
    return steps
