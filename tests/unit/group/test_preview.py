"""What placing and lifting would do, from one view: unknown is said."""

from collections.abc import Mapping

import pytest
from attrs import evolve, frozen
from kafka import TopicPartition

from safeconsumer.errors import ScopeSyntaxError
from safeconsumer.group.facts import NO_GROUP, GroupFacts, HoldRecord
from safeconsumer.group.operator import OPERATOR
from safeconsumer.group.preview import (
    Consent,
    lifting,
    objections,
    placing,
    preview,
    wish_of,
)
from safeconsumer.group.publisher import new_hold
from safeconsumer.group.report_wire import STREAM, Report
from safeconsumer.group.view import Times
from safeconsumer.group.wire import ControlKey
from tests.harness.listing import short
from tests.unit.group.test_view import facts, report, viewed

ZERO, ONE, TWO = (TopicPartition("orders", number) for number in range(3))
NOW = 1_800_000_000.0


@frozen
class Asked:
    """A cluster that is known by heart."""

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
)


def record(scope, owner="alice", for_=None):
    key, hold = ControlKey("billing", owner, scope), new_hold("x", for_)
    return HoldRecord(source=OPERATOR, key=key, hold=hold, at=NOW, offset=0)


def placed(*texts, view=VIEW, **changed):
    given = {"owner": "alice", "reason": "x", "for_": None, **changed}
    wish = wish_of(texts=texts, **{"group": view.group, **given})
    return placing(view, wish, skew=30.0)


def seen(one, asked=None):
    asked = asked or Asked()
    return preview(asked, one, objections(asked, one))


def said(one, asked=None):
    return [text for _, text in seen(one, asked).points]


def against(one):
    return [(each.consent, each.what) for each in objections(Asked(), one)]


def test_what_nobody_has_anything_against():
    asked = Asked({"orders": None})
    waiting = evolve(VIEW, lags={ZERO: 2, ONE: 3})
    assert said(placed("orders", for_="2h", view=waiting), asked) == [
        "would cover 2 partitions: orders:0-1",
        "5 records wait there already",
        "would last 2h, until 2027-01-15 10:00:00Z, or 30s longer",
    ]
    assert seen(placed("orders"), asked).to_agree is None


def test_unknown_is_said():
    view = evolve(VIEW, lags={ZERO: 2}, unread=("no status topic",))
    told = seen(placed("orders", view=view))
    assert [text for level, text in told.points if level == "unknown"] == [
        "how many records wait there already is unknown",
        "unknown: no status topic",
        "how long records are kept is unknown for orders",
    ]
    assert told.document()["waiting"] is None


@pytest.mark.parametrize(
    ("for_", "is_loss"), [(None, True), ("1h", True), ("3571s", True), ("3569s", False)]
)
def test_retention_that_ends_first(for_, *, is_loss):
    """Members may lift it later by the skew, and records are deleted meanwhile."""
    read = evolve(VIEW, lags={ZERO: 0, ONE: 0})
    one = placed("orders", for_=for_, view=read)
    told = seen(one, Asked({"orders": 3600}))
    ends = "ends BEFORE the hold does" if is_loss else "by age ends later"
    assert told.points[-1][1] == f"retention {ends}: orders deletes records after 1h"


def test_several_scopes_in_one_word_are_taken_apart():
    for typed, meant in (
        ("orders,payments", "orders payments"),
        ("orders:0,payments:1", "orders:0 payments:1"),
    ):
        with pytest.raises(ScopeSyntaxError, match=f"stand apart: {meant}$"):
            placed(typed)


def test_who_would_not_obey_and_what_may_flow():
    """Who owns nothing of it now may own it tomorrow."""
    members = (*VIEW.facts.members, facts("old", TWO), facts("idle"))
    view = evolve(VIEW, facts=evolve(VIEW.facts, members=members))
    why = (
        "does not report: a plain client, which obeys no hold, or one whose last "
        "report is over a minute old"
    )
    points = seen(placed("orders", view=view)).points
    assert [one for one in points if "would not obey" in one[1]] == [
        ("alarm", f"would not obey: old {why}; orders:2 may go on flowing"),
        ("waiting", f"would not obey: idle {why}"),
    ]


def test_in_a_rebalance_the_members_tell_what_they_own():
    nobody = GroupFacts(state="PreparingRebalance", members=(), committed={})
    one = placed("orders:0", view=evolve(VIEW, facts=nobody))
    assert (one.covers, against(one)) == ((ZERO,), [])


def test_what_covers_nothing_and_a_group_that_is_none():
    assert against(placed("orders", "oders")) == [
        (
            Consent.FUTURE,
            "oders covers nothing that billing consumes; did you mean orders?",
        )
    ]
    assert against(placed("orders", "orders:7-8", "orders:9")) == [
        (
            Consent.FUTURE,
            "orders:7-9 cover nothing that billing consumes: it has orders:0-1",
        )
    ]
    nobody = evolve(VIEW, group="biling", facts=NO_GROUP, reports=())
    assert against(placed("orders", view=nobody)) == [
        (Consent.FUTURE, "no group 'biling' here; did you mean billing?")
    ]


def test_everything_is_agreed_to():
    told = seen(placed("@all"))
    assert told.to_agree == "Hold all 2 partitions of billing"


def test_an_own_hold_is_replaced_only_if_that_is_said():
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
    assert [each.key.scope for each in one.replaces] == ["orders:1"]
    assert [each.key.owner for each in one.others] == ["bob"]
    ((consent, what),) = against(one)
    assert (consent, what.startswith("held already: orders:1 ")) == (
        Consent.REPLACE,
        True,
    )
    assert one.todo(is_replacing=False) == ()
    assert one.todo(is_replacing=True) == one.changes


@pytest.mark.parametrize(
    ("at", "now", "wall", "becomes"),
    [
        (NOW - 10, NOW, 0.0, "unchanged"),
        (NOW - 59, NOW, 0.0, "unchanged"),  # within the allowed skew
        (NOW - 70, NOW, 0.0, "renewed"),
        (NOW - 10, None, NOW, "unchanged"),
        (NOW - 10, None, NOW + 49, "unchanged"),
        (NOW - 10, None, NOW + 60, "renewed"),
    ],
    ids=short,
)
def test_the_same_hold_is_unchanged_while_no_clock_has_it_ended(at, now, wall, becomes):
    """Else it is placed again, which is harmless; to agree to is nothing."""
    own = evolve(record("orders:0", for_=60), at=at)
    view = evolve(VIEW, holds=(own,), times=Times(now, at, wall))
    one = placed("orders:0", view=view, for_="60s")
    assert one.unchanged == ((own,) if becomes == "unchanged" else ())
    assert bool(one.todo(is_replacing=False)) is (becomes == "renewed")
    assert against(one) == []


def test_another_hold_that_is_over_is_no_obstacle():
    """If that is known; where nobody reports the time it may still stand."""
    own = evolve(record("orders:0", for_=60), at=NOW - 61)
    over = placed("orders:0", view=evolve(VIEW, holds=(own,)))
    assert (against(over), over.todo(is_replacing=False)) == ([], over.changes)
    unknown = placed(
        "orders:0", view=evolve(VIEW, holds=(own,), times=Times(None, own.at))
    )
    assert [consent for consent, _ in against(unknown)] == [Consent.REPLACE]
    assert unknown.todo(is_replacing=False) == ()


def test_lifting_one_of_two():
    all_, one = record("@all"), record("orders:1", "bob")
    view = evolve(VIEW, holds=(all_, one), lags={ZERO: 7, ONE: 9})
    told = lifting(view, (all_,))
    assert (told.covers, told.kept, told.others) == ((ZERO,), (ONE,), (one,))
    assert [text for _, text in told.points] == [
        "1 partition flows again: orders:0",
        "7 records come at once",
        "1 partition stays held by others",
    ]
    assert lifting(view, (one,)).points == (
        ("waiting", "nothing begins to flow by it now"),
        ("waiting", "1 partition stays held by others"),
    )


def test_a_group_that_only_streams_obey_is_known():
    stream = Report(
        group="billing",
        member="s",
        applied={},
        assigned={"orders": ((0, 3),)},
        quiet={},
        kind=STREAM,
    )
    for reports in ({"reports": (stream,)}, {"gone": (stream,)}):
        view = evolve(VIEW, facts=NO_GROUP, reports=(), holds=())
        view = evolve(view, **reports)
        assert view.is_known
        said = [what for _, what in against(placed("orders:0", view=view))]
        assert not any("no group" in one for one in said)
