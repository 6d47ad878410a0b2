"""What ``status``, ``doctor`` and pages say of members, from one view."""

from types import SimpleNamespace

import pytest
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.cli import group_text, waiting, watching
from safeconsumer.cli.output import Output
from safeconsumer.console import pages
from safeconsumer.group import findings, plan, scopes, wire
from safeconsumer.group.documents import group_document, status_document
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.fold import Fold, RawRecord
from safeconsumer.group.report_wire import decode_report, encode_report
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.verdicts import BAD, GOOD, NOTE
from safeconsumer.group.view import NO_TIMES, Times, skew_of, urgency
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.harness.group.lab import ControlLab
from tests.harness.listing import short
from tests.unit.group.test_situations import KEEPS, LINE, QUIET, commits, hold, of_a
from tests.unit.group.test_view import ONE, ZERO, A, B, facts, report, viewed

PLAIN = facts("plain", ZERO)
KILLED = report("a", 0)


def held(*seen, scope="@all", state="Stable"):
    return evolve(viewed(*seen, state=state), holds=(hold(scope),))


def found(seen):
    return [(one.rank, one.what) for one in findings.member_findings(seen)]


def status(seen):
    return group_text.status_lines(seen)


# ---------------------------------------------------------------- groups


def test_the_longest_hold_is_named():
    several = (hold(ttl_ms=1000), hold("t"))
    (found,) = evolve(of_a(quiet=QUIET), holds=several).partitions
    assert found.verdict.sentence == (
        "held by alice until somebody lifts it: r, and 1 more"
    )


def test_reports_are_counted_as_members_have_them():
    """A killed member's last one stood in for its plain successor's."""
    seen = held(PLAIN, KILLED)
    assert group_document(seen)["reporting"] == 0
    (heading, *_) = status(seen)
    assert heading == "group g: Stable, 1 member, 0 of them report"


@pytest.mark.contract("G8")
def test_members_that_nobody_lists_are_no_number():
    """That there are none is not known."""
    seen = held(state="Unknown")
    (heading, *_) = status(seen)
    assert heading == "group g: Unknown, members unknown"
    assert watching._group_row(seen)[2] == "unknown"
    assert status_document(seen)["members"] is None


@pytest.mark.contract("G8")
def test_holds_that_cannot_be_read_are_not_none_at_all():
    """A script that counts them must not take an unreadable topic for an empty one."""
    read = viewed(A, report("a", 0))
    names = ("hold_count", "held", "quiet", "flowing")
    assert [group_document(read)[name] for name in names] == [0, 0, 0, []]
    assert (status_document(read)["holds"], status_document(read)["by_partition"]) == (
        [],
        [],
    )
    unread = evolve(read, ends=None, unread=("no holds topic",))
    assert [group_document(unread)[name] for name in names] == [None] * 4
    told = status_document(unread)
    assert [told[name] for name in (*names, "holds", "by_partition")] == [None] * 6
    before = group_document(evolve(held(A, PLAIN), ends=None))
    assert [before[name] for name in names] == [None, None, None, []]


def test_names_forge_no_lines(capsys):
    """A client id and a group's name may have line ends; a table's lines are ours."""
    forged = "m\nbilling-9  vm  obeys all"
    seen = evolve(held(facts(forged, ZERO)), group="g\nholds: none")
    lines = status(seen)
    Output().lines(lines)
    assert len(capsys.readouterr().out.splitlines()) == len(lines)
    assert any(r"m\nbilling-9" in one for one in lines)


@pytest.mark.contract("G8")
def test_of_a_member_that_is_not_known_nothing_is_counted():
    """What it reported of an earlier generation was shown as a number."""
    seen = held(A, B, report("a", 0), report("b", 1, generation=6))
    rows = {one.name: one for one in seen.members}
    assert (rows["a"].quiet_count, rows["b"].quiet_count) == (1, None)
    (line,) = [one for one in status(seen) if one.startswith("  b ")]
    assert "unknown of 1 quiet" in line


@pytest.mark.contract("G8")
def test_of_a_group_that_is_not_known_nothing_is_counted():
    """JSON had 0 reporting of null members, and nothing held and quiet."""
    lost = held(state="Unknown")
    lost = evolve(lost, facts=evolve(lost.facts, has_committed=False), ends={})
    told = status_document(lost)
    names = ("reporting", "held", "quiet", "by_partition")
    assert [told[name] for name in names] == [None] * 4
    assert told["hold_count"] == 1


@pytest.mark.contract("G8")
def test_scopes_are_no_mistake_while_nobody_knows_who_owns_what():
    """In a rebalance `pause` said that the group consumes nothing."""
    seen = held(state="PreparingRebalance")
    told = scopes.mistakes(seen, scopes_of(["orders", "t:3"], "g"), lambda: ("orders",))
    assert told == (
        "whether g consumes orders, t:3 is not known: "
        "the group rebalances (PreparingRebalance)"
    )


def test_a_partition_whose_end_is_unknown_is_not_called_uncommitted():
    lines = status(commits(held(A, report("a", 0)), ZERO))
    assert any(one.startswith("  t:0 ") and "lag unknown" in one for one in lines)
    seen = held(A, report("a", 0))
    assert any("  nothing committed" in one for one in status(seen))
    unread = evolve(seen, facts=evolve(seen.facts, has_committed=False))
    assert not any("nothing committed" in one for one in status(unread))


# ---------------------------------------------------------------- flowing


LOUD = report("a", 0, quiet={})
OLD = TopicPartition("old", 0)
READS = commits(viewed(A, LOUD), ZERO, OLD)
UNOWNED = "nobody of the group owns it"


@pytest.mark.parametrize(
    ("seen", "scopes", "still", "why"),
    [
        # A topic that nobody reads is named; asked for by its name, it is waited for.
        (READS, ["old"], "old:0", UNOWNED),
        (commits(READS, ZERO, ONE, OLD), [], "t:1", UNOWNED),
        (commits(viewed(state="Empty"), ZERO, OLD), [], "old:0 t:0", UNOWNED),
        (
            # Its last report is up to 15 s old, and nobody is in the group.
            commits(viewed(LOUD, state="Empty"), ZERO),
            [],
            "t:0",
            "not held; a is not in the group any more, and may still deliver it",
        ),
        (
            viewed(A, KEEPS),
            [],
            "t:0",
            f"a keeps what its control topic has lost, until resume lifts it: {LINE}",
        ),
        (
            viewed(A, report("a", 0)),
            [],
            "t:0",
            "a paused it by itself; no hold covers it",
        ),
    ],
    ids=short,
)
def test_what_does_not_flow_yet(seen, scopes, still, why):
    found = waiting.is_flowing(seen, scopes_of(scopes, "g"))
    assert found == (False, f"not flowing: {still}; {why}")


def test_what_flows():
    """A topic that the group no longer reads is named, and a hold on it counts."""
    one = commits(viewed(A, LOUD), ZERO)
    assert waiting.is_flowing(one, ()) == (True, "flowing: t:0")
    said = "flowing: t:0; nobody of the group reads old"
    assert waiting.is_flowing(READS, ()) == (True, said)
    held_there = evolve(READS, holds=(hold("old"),))
    assert waiting.is_flowing(held_there, ()) == (False, "held: old by alice")


# ---------------------------------------------------------------- quiet


EMPTY = commits(viewed(state="Empty"), ZERO, ONE)


@pytest.mark.parametrize(
    ("seen", "is_reached"),
    [
        (EMPTY, False),
        (evolve(EMPTY, holds=(hold("t:0"),)), False),
        (evolve(EMPTY, holds=(hold("t"),)), True),
        (commits(viewed(A, B, report("a", 0), report("b", 1)), ZERO), True),
    ],
    ids=short,
)
def test_a_group_without_members_is_quiet_only_where_a_hold_waits_for_them(
    seen, *, is_reached
):
    """A member that starts would deliver what nothing holds."""
    reached, said = watching._is_quiet(seen, scopes_of(["t"], "g"))
    assert reached is is_reached
    assert ("no hold covers" in said) is not is_reached


# ---------------------------------------------------------------- doctor


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        # It said nothing at all, and its page was green.
        (commits(held(state="Unknown"), ZERO), [(BAD, "does not tell who is in")]),
        (
            commits(held(state="PreparingRebalance"), ZERO),
            [(NOTE, "the group rebalances")],
        ),
        (commits(held(state="Empty"), ZERO), [(NOTE, "nobody is in g")]),
        (
            evolve(held(A, report("a", 0, holds=1)), unread=("no right",)),
            [(BAD, "unknown: no right"), (GOOD, "obeys everything")],
        ),
        # It goes by members and not by reports.
        (
            held(PLAIN, KILLED),
            [(BAD, "does not report"), (NOTE, "is not in the group any more")],
        ),
        (
            held(A, B, report("a", 0, holds=1), report("b", 1, generation=8, holds=1)),
            [(NOTE, "has reported for generation 7"), (GOOD, "obeys everything")],
        ),
        # A member that has read all and obeys fewer than stand is no better.
        (held(A, report("a", 0, holds=0)), [(BAD, "has read all, and obeys 0 holds")]),
        (held(A, report("a", 0, holds=1)), [(GOOD, "obeys everything")]),
        (held(A, report("a", 0, holds=2)), [(BAD, "obeys 2 holds, the topics have 1")]),
    ],
    ids=short,
)
def test_what_doctor_says_of_members(seen, told):
    for (rank, what), (expected, said) in zip(found(seen), told, strict=True):
        assert (rank, said in what) == (expected, True), what


# ---------------------------------------------------------------- versions to come


of_versions = pytest.mark.parametrize(
    "key",
    [
        ControlKey("g", "alice", "t:0", ("x",), 2),
        ControlKey("g", "alice", "shape:round", (), 2),
        ControlKey("g", "alice", "t:0", (), 2),
        ControlKey("g", "alice", "t:0"),
    ],
    ids=short,
)


def heard(key):
    """Return what stands for an operator, and the scope that members obey."""
    written = RawRecord(wire.encode_key(key), wire.encode_hold(ControlHold()), 0, 1000)
    lab = ControlLab()
    lab.hear(written)
    fold = Fold("g")
    fold.take([written])
    (record,) = fold.holds()
    ((scope, _),) = lab.held()
    return record, scope


@of_versions
def test_an_operator_is_told_of_what_members_obey(key):
    """Members obeyed a key of a later version as @all; status and doctor did not say."""
    record, scope = heard(key)
    assert record.covers(ONE) == (scope == "@all")
    assert record.covers(ZERO)
    board = SimpleNamespace(times=NO_TIMES, holds=lambda _: (record,))
    told = [one for one in findings._holds(board, "g") if one.rank == BAD]
    assert ["@all" in one.do for one in told] == [True] * (scope == "@all")


# ---------------------------------------------------------------- just over


def over(*seen):
    """Return a view of a hold that was over five seconds ago; members allow for 30."""
    made = commits(held(*seen), ZERO)
    return evolve(made, holds=(hold(ttl_ms=10_000),), times=Times(115.0), skew=30.0)


@pytest.mark.parametrize("quiet", [{}, {"t": ((0, 0),)}])
def test_a_hold_whose_time_is_over_is_no_alarm(quiet):
    """Members lift it some time within the skew, each by what it knows of the clock."""
    seen = over(A, report("a", 0, holds=1, quiet=quiet))
    lines = status(seen)
    assert sum("members lift it until" in one for one in lines) == 1
    assert sum("hold ended" in one for one in lines) == 3
    for holds in (0, 1):
        assert found(over(A, report("a", 0, holds=holds))) == [
            (GOOD, "member a on  obeys everything")
        ]


@pytest.mark.parametrize(
    "besides", [(), (hold("t:1"),)], ids=["alone", "beside a lasting hold"]
)
def test_that_holds_may_have_ended_is_explained_once(besides):
    """Each of them is marked; a list of groups has the words alone."""
    several = tuple(hold(f"t:{n}", ttl_ms=10_000) for n in (0, 2, 3))
    seen = evolve(over(A, report("a", 0)), times=Times(None, 105.0, 111.0))
    seen = evolve(seen, holds=(*several, *besides))
    lines = status(seen)
    assert sum("so it counts as in force" in one for one in lines) == 1
    assert sum(one.endswith("  may have ended") for one in lines) == 3
    if not besides:
        assert watching._group_row(seen)[-1] == "may have ended"


def test_the_largest_skew_counts():
    """By what members report: most commands have no option for it."""
    several = [report("a", 0, skew=30.0), report("b", 1, skew=0.5)]
    assert skew_of(0.5, several) == 30.0
    assert skew_of(30.0, [report("a", 0, skew=0.5)]) == 0.5
    assert skew_of(5.0, []) == 5.0


def test_a_report_tells_the_skew():
    for skew in (None, 0.0, 30.0):
        made = report("a", 0, skew=skew)
        assert decode_report(encode_report(made)) == made
    foreign = encode_report(report("a", 0, skew=30.0)).replace(b"30.0", b"-3.0")
    decoded = decode_report(foreign)
    assert decoded is not None
    assert decoded.skew is None


# ---------------------------------------------------------------- what waits


def test_a_sum_without_one_of_its_parts_is_unknown():
    seen = evolve(commits(held(A), ZERO, ONE), lags={ZERO: 5})
    assert status(seen)[-1] == "lag unknown: t:1 cannot be asked"
    assert status_document(seen)["whole_lag"] is None
    known = evolve(seen, lags={ZERO: 5, ONE: 1})
    assert status(known)[-1] == "lag 6"
    assert status_document(known)["whole_lag"] == 6


def test_a_partition_without_a_committed_offset_is_no_lag_of_zero():
    """It said ``lag 0`` where 15 records of such a partition waited."""
    owner = facts("a", ZERO, ONE)
    seen = evolve(commits(viewed(owner), ZERO), lags={ZERO: 0})
    assert status(seen)[-1] == "lag unknown: nothing committed for t:1"
    assert watching._group_row(seen)[5] == "nothing committed for 1 partition"
    assert status_document(seen)["whole_lag"] is None
    unread = evolve(seen, facts=evolve(seen.facts, has_committed=False))
    assert unread.uncommitted == ()
    assert commits(seen, ZERO, ONE).uncommitted == ()


def test_groups_are_sorted_by_the_lag_that_is_known():
    """One of whose lag a part is unknown came behind all others."""
    much = evolve(commits(viewed(facts("a", ZERO, ONE)), ZERO), lags={ZERO: 9})
    less = evolve(commits(viewed(facts("a", ZERO)), ZERO), lags={ZERO: 5}, group="a")
    assert sorted((less, much), key=pages._most_lag) == [much, less]
    assert sorted((less, much), key=urgency) == [much, less]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        pytest.param(commits(held(A), ZERO), "unknown", id="nobody was asked"),
        pytest.param(
            evolve(commits(held(A), ZERO), lags={ZERO: 5_000}), "5,000", id="5,000"
        ),
        pytest.param(held(A), "nothing committed", id="nothing is committed"),
    ],
)
def test_a_lag_that_is_unknown_is_not_none(seen, said):
    assert watching._group_row(seen)[5] == said


# ---------------------------------------------------------------- placing


def test_a_preview_of_a_group_whose_members_nobody_knows():
    """A dry run said nothing of who would not obey."""
    seen = commits(viewed(state="Unknown"), ZERO)
    (said,) = plan._disobeying(seen, [ZERO])
    assert said[0] == "unknown"
    assert "does not tell who is in the group" in said[1]


# ---------------------------------------------------------------- many holds


def test_many_holds_of_single_partitions_are_one_line():
    """A group of 1,000 printed 1,000 lines."""
    several = [
        evolve(hold(), key=evolve(hold().key, scope=f"t:{number}"))
        for number in range(1_000)
    ]
    other = evolve(hold(), key=evolve(hold().key, scope="orders"))
    seen = evolve(viewed(A, report("a", 0)), holds=(*several, other))
    lines = status(seen)
    assert len([one for one in lines if one.startswith("  t:0-999 ")]) == 1
    assert len([one for one in lines if one.startswith("  orders ")]) == 1
    owners = [evolve(one, key=evolve(one.key, owner=f"o-{n}")) for n, one in
              enumerate(several)]  # fmt: skip
    lines = status(evolve(seen, holds=tuple(owners)))
    assert "  and 900 more: -o json shows all" in lines
    assert len(lines) < 120


class Walked(tuple[HoldRecord, ...]):  # noqa: SLOT001 - it counts
    """Holds that count how often all of them are walked."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def held_often(count, times):
    several = (
        evolve(hold(ttl_ms=3_600_000), key=evolve(hold().key, owner=f"owner-{n}"))
        for n in range(count)
    )
    return evolve(viewed(A, report("a", 0)), holds=Walked(several), times=times)


@pytest.mark.parametrize(
    "show",
    [
        pytest.param(group_text.status_lines, id="text"),
        pytest.param(status_document, id="json"),
    ],
)
@pytest.mark.parametrize(
    "times",
    [
        pytest.param(Times(200.0), id="known time"),
        pytest.param(Times(None, 100.0, 9e9), id="own clock"),
    ],
)
def test_holds_are_walked_equally_often_however_many_they_are(show, times):
    walks = []
    for count in (5, 40):
        seen = held_often(count, times)
        show(seen)
        assert isinstance(seen.holds, Walked)
        walks.append(seen.holds.walks)
    few, many = walks
    assert few == many
