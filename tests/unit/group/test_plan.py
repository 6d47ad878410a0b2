"""Tests the plans for placing, extending and lifting holds and for moving offsets."""

from collections.abc import Mapping
from types import SimpleNamespace

import pytest
from attrs import evolve, frozen
from kafka import TopicPartition
from kafka.admin import OffsetSpec

from safeconsumer.errors import ScopeSyntaxError
from safeconsumer.group import scopes
from safeconsumer.group.carry_out import Done
from safeconsumer.group.facts import NO_GROUP, GroupFacts, HoldRecord
from safeconsumer.group.plan import (
    LACKED,
    Consent,
    Extend,
    Lift,
    NamedHold,
    flowing,
    place_action,
    plan_of,
    warnings,
)
from safeconsumer.group.publisher import new_hold
from safeconsumer.group.report_wire import STREAM, KeptHold, Report
from safeconsumer.group.reset_to import (
    PartitionMove,
    ResetTo,
    parse_target,
    reset_action,
)
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.view import Times
from safeconsumer.group.wire import ControlHold, ControlKey, Reset
from safeconsumer.holds.scope import Partition
from tests.harness.group.views import ENDS, PLAIN, facts, report, viewed
from tests.harness.listing import short

ZERO, ONE, TWO = (TopicPartition("orders", number) for number in range(3))
ODERS = TopicPartition("oders", 0)
NOW = 1_800_000_000.0


@frozen
class Asked:
    """A cluster with fixed answers."""

    kept: Mapping[str, float | None] = {}

    def groups(self):
        return ("billing", "shipping")

    def topics(self):
        return ("orders", "orders-eu", "payments")

    def retention(self, names):
        return {name: self.kept[name] for name in names if name in self.kept}


VIEW = evolve(
    viewed(
        facts("a", ZERO, ONE), report("a", assigned={"orders": ((0, 1),)}, quiet={})
    ),
    group="billing",
    times=Times(NOW),
    skew=30.0,
)


def record(scope, owner="alice", for_=None):
    key, hold = ControlKey("billing", owner, scope), new_hold("x", for_)
    return HoldRecord(key=key, hold=hold, at=NOW, offset=0)


HOLD, GONE = record("orders:0"), record("orders:1")


def placed(*texts, view=VIEW, asked=None, replaces=False, **changed):
    given = {"owner": "alice", "reason": "x", "for_": None, **changed}
    action = place_action(texts=texts, **{"group": view.group, **given})
    return plan_of(view, evolve(action, replaces=replaces), asked or Asked())


def seen(one, asked=None):
    topics = sorted({tp.topic for tp in one.covers})
    return evolve(one, limits=(asked or Asked()).retention(topics))


def texts(one, asked=None):
    return [text for _, text in seen(one, asked).points]


def needs(one):
    return [(each.consent, each.why) for each in one.needs]


def test_plan_that_requires_no_consent_describes_its_effect():
    asked = Asked({"orders": None})
    waiting = evolve(VIEW, lags={ZERO: 2, ONE: 3})
    assert texts(placed("orders", for_="2h", view=waiting), asked) == [
        "would cover 2 partitions: orders:0-1",
        "5 records wait there already",
        "would last 2h, until 2027-01-15 10:00:00Z, or 30s longer",
    ]
    assert seen(placed("orders"), asked).to_agree is None
    assert seen(placed("@all")).to_agree == "Hold all 2 partitions of billing"


def test_unknown_parts_of_an_effect_are_named():
    view = evolve(VIEW, lags={ZERO: 2}, unread=("no status topic",))
    plan = seen(placed("orders", view=view))
    assert [text for level, text in plan.points if level == "unknown"] == [
        "how many records wait there already is unknown",
        "unknown: no status topic",
        "how long records are kept is unknown for orders",
    ]
    assert plan.document()["waiting"] is None


@pytest.mark.parametrize(
    ("for_", "is_loss"), [(None, True), ("1h", True), ("3571s", True), ("3569s", False)]
)
def test_plan_warns_if_records_may_be_deleted_before_the_hold_ends(for_, *, is_loss):
    """Members may lift the hold late, by up to the skew; records may be deleted by then."""
    read = evolve(VIEW, lags={ZERO: 0, ONE: 0})
    plan = seen(placed("orders", for_=for_, view=read), Asked({"orders": 3600}))
    ends = "ends BEFORE the hold does" if is_loss else "by age ends later"
    assert plan.points[-1][1] == f"retention {ends}: orders deletes records after 1h"


def test_comma_between_scopes_is_refused_with_the_correct_notation():
    with pytest.raises(ScopeSyntaxError, match=r"between them: orders:0 payments$"):
        placed("orders:0,payments")


@pytest.mark.parametrize(
    ("scope", "point"),
    [
        ("orders", ("note", "would cover 2 partitions: orders:0-1")),
        ("payments", ("waiting", "would cover 0 partitions: nothing yet")),
    ],
)
def test_plan_begins_with_the_partitions_that_it_covers(scope, point):
    assert placed(scope).points[0] == point


def test_members_that_would_not_obey_are_named_with_their_partitions():
    """A member without partitions may own some partitions later."""
    members = (*VIEW.facts.members, facts("old", TWO), facts("idle"))
    view = evolve(VIEW, facts=evolve(VIEW.facts, members=members))
    points = seen(placed("orders", view=view)).points
    assert [one for one in points if "would not obey" in one[1]] == [
        ("alarm", f"would not obey: old {PLAIN}; orders:2 may go on flowing"),
        ("waiting", f"would not obey: idle {PLAIN}"),
    ]


def test_warning_about_many_disobeying_members_names_only_five_of_them():
    plain = [facts(f"p{n}", TopicPartition("orders", 2 + n)) for n in range(7)]
    view = evolve(VIEW, facts=evolve(VIEW.facts, members=(*VIEW.facts.members, *plain)))
    assert warnings(placed("orders", view=view)) == [
        f"each of p0, p1, p2, p3, p4 and 2 more {PLAIN}",
        "orders:2-8 may go on flowing",
    ]
    assert warnings(placed("orders")) == warnings(placed("payments", view=view)) == []
    rebalancing = evolve(view, facts=evolve(view.facts, state="CompletingRebalance"))
    assert warnings(placed("orders", view=rebalancing))[-1] == (
        "which members obey is unknown: the group rebalances (CompletingRebalance)"
    )


def test_member_that_lags_on_the_control_topics_obeys_later():
    behind = report(
        "a", assigned={"orders": ((0, 1),)}, quiet={}, applied={**ENDS, "ops": 2}
    )
    points = placed("orders", view=evolve(VIEW, reports=(behind,))).points
    assert [one for one in points if "obey" in one[1]] == [
        ("waiting", "would obey later: a is 1 record behind")
    ]


def test_plan_during_a_rebalance_uses_the_partitions_that_members_report():
    nobody = GroupFacts(state="PreparingRebalance", members=(), committed={})
    plan = placed("orders:0", view=evolve(VIEW, facts=nobody))
    assert (plan.covers, needs(plan)) == ((ZERO,), [])


@pytest.mark.parametrize(
    ("scopes", "changed", "why"),
    [
        (
            ("orders", "oders"),
            {},
            "oders covers nothing that billing consumes; did you mean orders?",
        ),
        (
            ("orders", "orders:7-8", "orders:9"),
            {},
            "orders:7-9 cover nothing that billing consumes: it has orders:0-1",
        ),
        (
            ("orders",),
            {"group": "biling", "facts": NO_GROUP, "reports": ()},
            "unknown group 'biling'; did you mean billing?",
        ),
    ],
    ids=["topic", "partitions", "group"],
)
def test_scope_that_covers_nothing_yet_requires_consent(scopes, changed, why):
    plan = placed(*scopes, view=evolve(VIEW, **changed))
    assert needs(plan) == [(Consent.FUTURE, why)]


def test_only_shown_scopes_are_compared_with_names(monkeypatch):
    """The plan shows only five of a thousand scopes."""
    searched, looked = [], []
    monkeypatch.setattr(scopes, "suggestion", lambda *one: searched.append(one) or "?")

    class Consumed(tuple):
        __slots__ = ()

        def __iter__(self):
            looked.append(1)
            return super().__iter__()

    owned = Consumed((ZERO, ONE))
    view = SimpleNamespace(group="billing", consumed=owned, unsettled="")
    few, many = (scopes_of(map("t{}".format, range(n)), "billing") for n in (9, 900))
    counts = []
    for several in (few, many):
        text = scopes.mistakes(view, several, tuple)
        assert text.endswith(f"and {len(several) - 5} more scopes")
        counts.append((len(searched), len(looked)))
        searched.clear()
        looked.clear()
    assert counts[0] == counts[1]


def test_replacing_another_hold_of_the_same_owner_requires_consent():
    view = evolve(
        VIEW,
        holds=(
            record("orders:0"),
            record("orders:1", for_=60),
            record("@all", "bob"),
        ),
    )
    one = placed("orders:0-1", view=view)
    assert [each.key.scope for each in one.unchanged] == ["orders:0"]
    assert [each.key.scope for each in one.replaced] == ["orders:1"]
    assert [each.key.owner for each in one.others] == ["bob"]
    ((consent, what),) = needs(one)
    assert (consent, what.startswith("held already: orders:1 ")) == (
        Consent.REPLACE,
        True,
    )
    assert [each.key.scope for each in one.changes] == ["orders:1"]


@pytest.mark.parametrize(
    ("for_", "reason", "becomes"),
    [
        ("10m", "x", "unchanged"),
        ("10m", "y", "replaced"),
        ("30m", "x", "replaced"),
        (None, "x", "replaced"),
    ],
    ids=["longer", "another reason", "shorter", "with an end"],
)
def test_longer_hold_for_the_same_reason_is_unchanged(for_, reason, becomes):
    """A job may repeat its command after an operator has extended the job's hold."""
    own = record("orders:0", for_=1200)
    view = evolve(VIEW, holds=(own,))
    one = placed("orders:0-1", view=view, for_=for_, reason=reason)
    is_replaced = becomes == "replaced"
    assert one.unchanged == (() if is_replaced else (own,))
    assert [consent for consent, _ in needs(one)] == [Consent.REPLACE] * is_replaced
    scopes = [str(each.key.scope) for each in one.changes]
    assert scopes == ["orders:0", "orders:1"][not is_replaced :]


def test_longer_hold_is_replaced_if_requested():
    own = record("orders:0", for_=1200)
    view = evolve(VIEW, holds=(own,))
    shorter = placed("orders:0", view=view, for_="10m", replaces=True)
    assert (shorter.unchanged, shorter.replaced) == ((), (own,))
    assert placed("orders:0", view=view, for_="20m", replaces=True).is_done


@pytest.mark.parametrize(
    ("at", "now", "wall", "becomes"),
    [
        (NOW - 10, NOW, 0.0, "unchanged"),
        (NOW - 59, NOW, 0.0, "unchanged"),  # ends in a second
        (NOW - 70, NOW, 0.0, "renewed"),
        (NOW - 10, None, NOW, "unchanged"),
        (NOW - 10, None, NOW + 49, "unchanged"),
        (NOW - 10, None, NOW + 60, "renewed"),
    ],
    ids=short,
)
def test_hold_placed_again_is_unchanged_until_it_ends(at, now, wall, becomes):
    """A hold that has ended by any clock is renewed without consent."""
    own = evolve(record("orders:0", for_=60), at=at)
    view = evolve(VIEW, holds=(own,), times=Times(now, at, wall))
    one = placed("orders:0", view=view, for_="60s")
    assert one.unchanged == ((own,) if becomes == "unchanged" else ())
    assert one.renewed == ((own,) if becomes == "renewed" else ())
    assert (bool(one.changes), one.is_done) == (
        becomes == "renewed",
        becomes == "unchanged",
    )
    assert needs(one) == []


def test_replacing_an_expired_hold_does_not_require_consent():
    """Without a report of the time, the hold may still be in force."""
    own = evolve(record("orders:0", for_=60), at=NOW - 61)
    over = placed("orders:0", view=evolve(VIEW, holds=(own,)))
    assert (needs(over), len(over.changes)) == ([], 1)
    unknown = placed(
        "orders:0", view=evolve(VIEW, holds=(own,), times=Times(None, own.at))
    )
    assert [consent for consent, _ in needs(unknown)] == [Consent.REPLACE]


# ---------------------------------------------------------------- lifting


def lifted(view, *holds, by=None):
    return plan_of(view, Lift(group=view.group, holds=holds, by=by), Asked())


def named(one, **changed):
    offset = changed.pop("offset", one.offset)
    return evolve(
        NamedHold(scope=one.key.scope, owner=one.key.owner, offset=offset), **changed
    )


def test_lift_counts_the_partitions_that_it_releases_and_those_that_stay_held():
    all_, one = record("@all"), record("orders:1", "bob")
    view = evolve(VIEW, holds=(all_, one), lags={ZERO: 7, ONE: 1})
    plan = lifted(view, named(all_))
    assert (flowing(plan), plan.others) == ((ZERO,), (one,))
    assert [text for _, text in plan.points] == [
        "1 partition flows again: orders:0",
        "7 records arrive immediately",
        "1 partition stays held by others",
    ]
    assert lifted(view, named(one)).points == (
        ("waiting", "no partition starts to flow now"),
        ("waiting", "1 partition stays held by others"),
    )
    alone = evolve(view, holds=(one,))
    assert lifted(alone, named(one)).points[1] == (
        "note",
        "1 record arrives immediately",
    )


def test_lift_of_a_scope_without_a_hold_does_not_release_any_partition():
    view = evolve(VIEW, holds=(HOLD,), lags={ZERO: 7, ONE: 1})
    plan = lifted(view, NamedHold(scope="orders", owner="alice"))
    assert (flowing(plan), plan.document()["covers"]) == ((), [])
    assert plan.points == (
        ("waiting", "no partition starts to flow now"),
        ("waiting", "1 partition stays held by others"),
    )
    both = lifted(view, named(HOLD), NamedHold(scope="orders:1", owner="alice"))
    assert flowing(both) == (ZERO,)


@pytest.mark.parametrize(
    ("holds", "wanted", "is_done", "why"),
    [
        ((), [named(HOLD)], True, []),
        ((), [named(HOLD, offset=None)], False, ["not held: orders:0 of alice"]),
        ((HOLD,), [named(HOLD)], False, []),
        (
            (evolve(HOLD, offset=7),),
            [named(HOLD)],
            False,
            ["the hold on orders:0 has changed"],
        ),
        (
            (HOLD,),
            [named(HOLD), named(GONE)],
            False,
            ["not held: orders:1 of alice"],
        ),
        (
            (HOLD,),
            [named(HOLD, owner="bob")],
            False,
            ["not held: orders:0 of bob"],
        ),
    ],
    ids=["gone", "never shown", "there", "changed", "one of two", "of another owner"],
)
def test_lift_counts_as_done_if_the_holds_that_were_shown_are_gone(
    holds, wanted, is_done, why
):
    """A hold that was replaced after the preview was shown is not lifted."""
    plan = lifted(evolve(VIEW, holds=holds), *wanted, by=wanted[0].owner)
    assert (plan.is_done, [one.why for one in plan.needs]) == (is_done, why)


def test_repeated_lift_counts_as_done_for_a_group_that_does_not_exist_yet():
    nobody = evolve(VIEW, group="tomorrow", facts=NO_GROUP, reports=())
    assert lifted(nobody, named(HOLD)).is_done
    assert not lifted(nobody, named(HOLD, offset=None)).is_done


def test_holds_of_other_owners_are_lifted_once_their_scopes_are_typed():
    bobs, own = record("orders:1", "bob"), record("orders:0")
    plan = lifted(evolve(VIEW, holds=(bobs, own)), named(bobs), named(own), by="alice")
    ((consent, why, ask),) = [(one.consent, one.why, one.ask) for one in plan.needs]
    assert consent is Consent.TYPED
    assert (why, ask) == ("orders:1 is held by bob", "type orders:1 to lift it")
    carols = record("orders:0", "carol")
    both = evolve(VIEW, holds=(bobs, carols))
    (need,) = lifted(both, named(bobs), named(carols), by="alice").needs
    assert need.why == "orders:1 orders:0 are held by bob, carol"


KEPT = KeptHold(owner="operator:bob", scope="orders:0", line="orders:0 of bob")


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (None, []),
        ("bob", []),
        ("alice", [(Consent.TYPED, "orders:0 is held by bob")]),
    ],
)
def test_hold_that_only_members_still_obey_is_lifted_like_any_other_hold(by, expected):
    view = evolve(VIEW, reports=(evolve(VIEW.reports[0], kept=(KEPT,)),))
    plan = lifted(view, NamedHold(scope="orders:0", owner="bob"), by=by)
    assert (plan.kept, plan.is_done, needs(plan)) == ((KEPT,), False, expected)
    assert texts(plan)[:2] == [
        "kept by members, as the holds topic has lost it: orders:0 of bob",
        "1 partition flows again: orders:0",
    ]


# ---------------------------------------------------------------- later versions

V2 = {"key": ControlKey("billing", "alice", "orders", ("x",), 2)}


@pytest.mark.parametrize(
    "changed", [V2, {"hold": ControlHold(version=2)}], ids=["key", "value"]
)
def test_hold_written_by_a_later_version_is_not_extended(changed):
    (need,) = extended(evolve(VIEW, holds=(evolve(record("orders"), **changed),))).needs
    assert (need.why, need.ask) == ("a later version holds orders", "upgrade first")


def test_reset_is_not_written_into_a_hold_from_a_later_version():
    later = evolve(record("orders"), hold=ControlHold(version=2))
    ((consent, why),) = needs(
        moved({ZERO: 5}, view=evolve(MOVER, holds=(later,)), holds=())
    )
    assert (consent, why) == (Consent.NONE, "a later version holds orders")
    unknown = evolve(record("orders"), **V2)
    ((_, why),) = needs(
        moved({ZERO: 5}, view=evolve(MOVER, holds=(unknown,)), holds=())
    )
    assert why == "orders:0 is not held by alice"


# ---------------------------------------------------------------- a thousand holds


def test_holds_on_a_thousand_partitions_are_shown_as_one_range():
    many = [f"orders:{number}" for number in range(1000)]
    view = evolve(
        VIEW,
        holds=tuple(map(record, many)),
        facts=evolve(
            VIEW.facts, committed={TopicPartition("orders", n): 0 for n in range(1000)}
        ),
    )
    (need,) = placed("orders:0-999", view=view, for_="2h").needs
    assert need.why.startswith("held already: orders:0-999 operator:alice since 2027")
    assert need.ask == "Replace what you hold already: orders:0-999"
    same = [one for one in texts(placed("orders:0-999", view=view)) if "stays" in one]
    assert [one.split()[5] for one in same] == ["orders:0-999"]


def test_json_of_a_lift_looks_up_the_former_holds_once(monkeypatch):
    """``resume --all -o json`` of 4,000 holds took 41 s."""
    view = evolve(VIEW, holds=tuple(record(f"orders:{n}") for n in range(9)))
    named = tuple(NamedHold(scope=one.key.scope, owner="alice") for one in view.holds)
    plan = plan_of(view, Lift(group="billing", holds=named), Asked())
    gone = tuple(evolve(one, hold=None) for one in view.holds)
    looked = []
    was_held = Done.was_held.fget
    monkeypatch.setattr(
        Done, "was_held", property(lambda done: looked.append(0) or was_held(done))
    )
    lifted = Done(plan=plan, acknowledged=gone).document()["lifted"]
    assert [one["was_held"] for one in lifted] == [True] * 9
    assert len(looked) == 1


def test_reset_does_not_compare_each_hold_with_each_partition(monkeypatch):
    many = range(40)
    asked = []
    covers = Partition.covers
    monkeypatch.setattr(
        Partition, "covers", lambda one, tp: asked.append(tp) or covers(one, tp)
    )
    to = {TopicPartition("orders", n): 5 for n in many}
    plan = moved(to, view=MOVER, holds=[f"orders:{n}" for n in many])
    assert len(plan.changes) == len(many)
    assert len(asked) <= 4 * len(many)


# ---------------------------------------------------------------- done already


def stands(one, *changes, at=NOW, offset=20):
    """Return the view after these changes were written."""
    holds = (
        HoldRecord(key=each.key, hold=each.hold, at=at, offset=offset)
        for each in changes
    )
    keys = {each.key for each in changes}
    left = (hold for hold in one.view.holds if hold.key not in keys)
    return evolve(one.view, holds=(*left, *holds))


def test_holds_that_would_not_change_require_neither_consent_nor_a_write():
    """The plan replaces a hold, holds a scope without partitions, and holds ``@all``."""
    view = evolve(VIEW, holds=(record("orders", for_=60),))
    once = placed("orders", "later", "@all", view=view, for_="2h")
    assert len(once.needs) == 3
    again = placed(
        "orders", "later", "@all", view=stands(once, *once.changes), for_="2h"
    )
    assert (again.is_done, again.changes, again.needs) == (True, (), ())
    assert len(again.unchanged) == 3
    stays = "held already, and stays unchanged: "
    assert [text.partition(stays)[:2] for text in texts(again)] == [
        ("covers 2 partitions: orders:0-1", ""),
        ("how many records wait there already is unknown", ""),
        *[("", stays)] * 3,
    ]


def extended(view, seconds=7200.0, offset=None):
    scopes = place_action(
        group="billing", owner="alice", texts=["orders"], reason="x", for_=None
    ).scopes
    action = Extend(
        group="billing", owner="alice", scopes=scopes, seconds=seconds, offset=offset
    )
    return plan_of(view, action, Asked())


def test_form_that_extends_a_hold_takes_effect_only_once():
    view = evolve(VIEW, holds=(record("orders", for_=60),))
    once = extended(view, offset=0)
    assert len(once.changes) == 1
    after = stands(once, *once.changes)
    again = extended(after, offset=0)
    assert (again.is_done, again.changes, again.needs) == (True, (), ())
    assert again.points[0][1].startswith(
        "extended already: orders operator:alice since"
    )
    other = extended(after, seconds=9000.0, offset=0)
    assert (other.is_done, [one.why for one in other.needs]) == (
        False,
        ["the hold has changed"],
    )
    # If the same form is submitted an hour later, it requests a later end.
    late = evolve(after, times=Times(after.times.here + 3600))
    plan = extended(late, offset=0)
    assert (plan.is_done, [one.why for one in plan.needs]) == (
        False,
        ["the hold has changed"],
    )
    # A form without an offset does not tell which hold was shown, so the hold is extended.
    assert len(extended(after).changes) == 1


# ---------------------------------------------------------------- the digest


def test_digest_ignores_new_ids_times_and_offsets():
    view = evolve(VIEW, holds=(record("@all", "bob"),))
    later = evolve(
        view,
        times=Times(NOW + 60),
        lags={ZERO: 1, ONE: 2},
        facts=evolve(view.facts, committed={TWO: 5}),
    )
    one, again = placed("@all", view=view), placed("@all", view=later)
    assert one.covers != again.covers
    assert one.digest == again.digest


@pytest.mark.parametrize(("group", "scope"), [("billing", "payment"), ("biling", "x")])
def test_digest_does_not_depend_on_suggested_names(group, scope):
    """A page requests names within a time limit, so suggestions may be missing."""

    class Silent:
        groups = topics = staticmethod(lambda: ())

    view = VIEW if group == VIEW.group else evolve(VIEW, facts=NO_GROUP, reports=())
    view = evolve(view, group=group)
    one, other = placed(scope, view=view), placed(scope, view=view, asked=Silent())
    assert needs(one) != needs(other)
    assert one.digest == other.digest


BEFORE = evolve(VIEW, holds=(record("orders", for_=60),))


def agreed(**changed):
    return placed("orders", "oders", **{"view": BEFORE, "for_": "8h", **changed})


def seen_before(**changed):
    return agreed(view=evolve(BEFORE, **changed))


OTHERS = {
    "duration": agreed(for_="9h"),
    "scope": placed("orders", "paments", view=BEFORE, for_="8h"),
    "reason": agreed(reason="y"),
    "owner": agreed(owner="bob"),
    "nothing replaced": agreed(view=VIEW),
    "offset": seen_before(holds=(evolve(BEFORE.holds[0], offset=1),)),
    "id": seen_before(holds=(record("orders", for_=60),)),
    "no consumer": seen_before(facts=NO_GROUP, reports=()),
    "everything is consumed": seen_before(
        facts=evolve(VIEW.facts, committed={ODERS: 1})
    ),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=list(OTHERS))
def test_digest_changes_with_each_fact_that_the_user_agrees_to(other):
    assert agreed().digest == agreed().digest != other.digest


def test_group_that_only_streams_use_is_known():
    stream = Report(
        group="billing",
        member="s",
        applied={},
        assigned={"orders": ((0, 3),)},
        quiet={},
        kind=STREAM,
    )
    for reports in ({"reports": (stream,)}, {"lost_streams": (stream,)}):
        nobody = evolve(VIEW, facts=NO_GROUP, reports=(), holds=())
        view = evolve(nobody, **reports)
        assert view.is_known
        whys = [why for _, why in needs(placed("orders:0", view=view))]
        assert not any("unknown group" in one for one in whys)


# ---------------------------------------------------------------- moving offsets


def moved(to, *, view=VIEW, owner="alice", holds=("orders",), topic="orders"):
    """Return the plan of a reset of partitions in a topic that has offsets 0 to 100."""
    held = tuple(record(one) for one in holds)
    action = ResetTo(
        group="billing",
        owner=owner,
        scopes=scopes_of([topic], "billing"),
        asked="x",
        places={
            tp: PartitionMove(start=0, end=100, committed=None, offset=at)
            for tp, at in to.items()
        },
        topic_ids={topic: "id"},
    )
    return plan_of(evolve(view, holds=(*view.holds, *held)), action, Asked())


MOVER = viewed(
    facts("a", ZERO, ONE),
    report("a", assigned={"orders": ((0, 1),)}, quiet={}, resets=()),
)
MOVER = evolve(MOVER, group="billing", times=Times(NOW))


def test_reset_is_written_into_the_hold_that_covers_its_partitions():
    plan = moved({ZERO: 5, ONE: 7}, view=MOVER)
    ((change,), (hold,)) = plan.changes, plan.own
    assert change.key == hold.key
    assert change.hold.reset == Reset(
        (("orders", 0, 5), ("orders", 1, 7)), (("orders", "id"),), "x"
    )
    assert (change.hold.hold_id, plan.needs) == (hold.hold.hold_id, ())


def test_reset_that_a_member_would_not_carry_out_requires_force():
    plan = moved({ZERO: 5}, view=evolve(VIEW, holds=()))
    assert [consent for consent, _ in needs(plan)] == [Consent.FORCE]
    assert "orders:0 would not be moved: a moves nothing" in needs(plan)[0][1]


IDLE = {"assigned": {}, "quiet": {}, "member_id": None, "generation": None}
MUTE, ABLE = report("c", **IDLE), report("d", resets=(), **IDLE)


@pytest.mark.parametrize(
    ("seen", "consents"),
    [
        ([MUTE], [Consent.FORCE]),
        ([facts("p"), MUTE], [Consent.FORCE]),
        ([MUTE, ABLE], []),
        ([], []),
    ],
    ids=["mute", "mute and plain", "mute and able", "none"],
)
def test_unowned_partitions_require_force_if_no_member_can_carry_out_the_reset(
    seen, consents
):
    view = evolve(viewed(*seen), group="billing", times=Times(NOW))
    there = evolve(view.facts, committed={ZERO: 9, ONE: 9})
    view = evolve(view, facts=there)
    plan = moved({ZERO: 5, ONE: 5}, view=view)
    assert [consent for consent, _ in needs(plan)] == consents
    for _, why in needs(plan):
        assert why.startswith("orders:0-1 would not be moved: no member owns it")
        assert "c moves nothing" in why


@pytest.mark.parametrize(
    ("scopes", "names"),
    [
        (["@all"], {"orders"}),
        (["re:o.*"], {"orders"}),
        (["re:o.*", "old:0"], {"orders", "old"}),
        (["old"], {"old"}),
    ],
)
def test_topic_that_no_member_reads_is_reset_only_if_a_scope_names_it(scopes, names):
    facts_now = evolve(MOVER.facts, committed={TopicPartition("old", 0): 5, ZERO: 5})
    view = evolve(MOVER, facts=facts_now, holds=(record("@all"),))
    admin = SimpleNamespace(
        list_partition_offsets=lambda asked, *_, **__: {
            tp: SimpleNamespace(offset=9) for tp in asked
        },
        describe_topics=lambda _: [],
    )
    action = reset_action(
        admin,
        view,
        owner="alice",
        scopes=scopes_of(scopes, "billing"),
        to=parse_target("earliest"),
    )
    assert {tp.topic for tp in action.places} == names
    points = [text for _, text in action.points(plan_of(view, action, Asked()))]
    left = "no member of the group reads old: it stays where it is, unless it is named"
    assert (left in points) == ("old" not in names)


def test_reset_of_more_partitions_than_fit_into_a_record_is_refused():
    few, many = (
        {TopicPartition("orders", number): 50 for number in range(count)}
        for count in (3000, 9000)
    )
    assert moved(few, view=MOVER).needs == ()
    ((consent, why),) = needs(moved(many, view=MOVER))
    assert (consent, "do not fit" in why) == (Consent.NONE, True)


FOUR = [TopicPartition("orders", number) for number in range(4)]


def test_reset_is_refused_for_partitions_that_another_owner_is_still_resetting():
    (change,) = moved(dict.fromkeys(FOUR, 5), view=MOVER).changes
    standing = HoldRecord(
        key=evolve(change.key, owner="bob"), hold=change.hold, at=NOW, offset=7
    )
    view = evolve(MOVER, holds=(standing,))
    plan = moved(dict.fromkeys(FOUR, 6), view=view)
    ((consent, why),) = needs(plan)
    assert consent is Consent.NONE
    assert why.startswith("orders:0-1 are still moved by operator:bob: a has not read")
    assert "; orders:2-3 are still moved by operator:bob: no member owns it" in why


def outside(ends):
    """Return the reason why partitions with these log ends cannot be moved to 101."""
    here = [TopicPartition("orders", number) for number in ends]
    known = {"committed": dict.fromkeys(here, 1)}
    view = evolve(MOVER, facts=evolve(MOVER.facts, **known))
    plan = moved(dict.fromkeys(here, 101), view=view)
    places = {
        tp: evolve(at, end=ends[tp.partition]) for tp, at in plan.action.places.items()
    }
    action = evolve(plan.action, places=places)
    (need,) = plan_of(plan.view, action, Asked()).needs
    assert need.consent is Consent.NONE
    return need.why


def test_partition_without_a_committed_offset_cannot_be_moved_back_by_n_offsets():
    """Each of the other partitions is moved back by the given number of offsets."""
    facts_now = evolve(MOVER.facts, committed={ZERO: 50})
    view = evolve(MOVER, facts=facts_now, holds=(record("orders"),))
    admin = SimpleNamespace(
        list_partition_offsets=lambda asked, *_, **__: {
            tp: SimpleNamespace(offset=0 if asked[tp] == OffsetSpec.EARLIEST else 60)
            for tp in asked
        },
        describe_topics=lambda _: [],
    )
    action = reset_action(
        admin,
        view,
        owner="alice",
        scopes=scopes_of(["orders:0-1"], "billing"),
        to=parse_target("-20"),
    )
    assert {tp: at.offset for tp, at in action.places.items()} == {ZERO: 30, ONE: None}
    why = "nothing is committed for orders:1 to count from"
    assert needs(plan_of(view, action, Asked())) == [(Consent.NONE, why)]


def test_targets_outside_the_log_are_refused_with_the_offset_ranges():
    assert outside({0: 100}) == (
        "orders:0 has offsets 0 to 100, so it cannot move to 101"
    )
    assert outside({0: 100, 1: 100, 2: 7}) == (
        "orders:0-1 have offsets 0 to 100, so they cannot move to 101; "
        "orders:2 has offsets 0 to 7, so it cannot move to 101"
    )


def test_refused_reset_lists_the_offset_ranges_of_at_most_five_logs():
    *_, last = outside(dict(enumerate(range(50, 60)))).split("; ")
    assert last == "orders:5-9 are outside their logs, too"


def test_digest_of_a_reset_depends_on_its_targets():
    first, again = moved({ZERO: 5}, view=MOVER), moved({ZERO: 6}, view=MOVER)
    assert first.digest != again.digest


def test_lift_of_a_hold_with_an_unfinished_reset_requires_force():
    (change,) = moved({ZERO: 5}, view=MOVER).changes
    standing = HoldRecord(key=change.key, hold=change.hold, at=NOW, offset=7)
    view = evolve(MOVER, holds=(standing,))
    ((consent, why),) = needs(lifted(view, named(standing)))
    assert (consent, why.startswith("orders:0 is not moved yet: ")) == (
        Consent.FORCE,
        True,
    )
    done = evolve(
        view,
        facts=evolve(view.facts, committed={ZERO: 5}),
        reports=tuple(
            evolve(one, applied=dict.fromkeys(ENDS, 8)) for one in view.reports
        ),
    )
    assert needs(lifted(done, named(standing))) == []


# ---------------------------------------------------------------- recreated holds topics


def outlived(*holds):
    """Return a view in which the recreated holds topic lacks the records of these holds."""
    return evolve(VIEW, holds=holds, incarnation=1)


def extended_of_lost(for_, seconds=7200.0):
    return extended(outlived(record("orders", for_=for_)), seconds)


@pytest.mark.parametrize(
    "plan",
    [
        placed("orders", view=outlived(record("orders"))),
        placed("orders", view=outlived(record("orders", for_=3600)), for_="1h"),
        extended_of_lost(60),
    ],
    ids=["the same, no end", "the same, an end", "an extension"],
)
def test_hold_missing_from_the_recreated_topic_is_written_again(plan):
    assert (plan.is_done, plan.unchanged, plan.renewed) == (False, (), plan.own)
    assert [one.key for one in plan.changes] == [one.key for one in plan.own]
    says = f"would be renewed, as {LACKED}: orders "
    assert [one.startswith(says) for one in texts(plan)].count(True) == 1


def test_hold_whose_record_is_on_the_recreated_topic_is_unchanged():
    again = evolve(record("orders"), incarnation=1)
    assert placed("orders", view=outlived(again)).is_done


def test_pause_requires_consent_if_it_shortens_a_hold_missing_from_the_topic():
    """The shorter hold's record would end the longer hold, which members still obey."""
    own = record("orders", for_=7200)
    plan = placed("orders", view=outlived(own), for_="1h")
    assert [consent for consent, _ in needs(plan)] == [Consent.REPLACE]
    assert (plan.unchanged, plan.renewed) == ((), ())


def test_extension_whose_record_is_missing_from_the_topic_does_not_count_as_done():
    later = evolve(record("orders", for_=3600), offset=9)
    assert extended(evolve(VIEW, holds=(later,)), 3600.0, offset=8).is_done
    assert not extended(outlived(later), 3600.0, offset=8).is_done


@pytest.mark.parametrize("for_", [None, 7200], ids=["no end", "a later end"])
def test_hold_missing_from_the_topic_is_not_written_again_with_an_earlier_end(for_):
    (need,) = extended_of_lost(for_, 3600.0).needs
    assert need.why == f"orders would end earlier, and {LACKED}"
    assert need.ask == "pause places it again"


def test_hold_missing_from_the_recreated_topic_is_lifted_by_a_tombstone():
    plan = lifted(outlived(HOLD), named(HOLD))
    assert (plan.is_done, len(plan.changes), needs(plan)) == (False, 1, [])


def test_lift_is_not_done_while_members_obey_a_hold_missing_from_the_topic():
    assert lifted(VIEW, named(HOLD)).is_done
    kept = evolve(KEPT, owner="operator:alice")
    view = evolve(VIEW, reports=(evolve(VIEW.reports[0], kept=(kept,)),))
    assert not lifted(view, named(HOLD)).is_done
