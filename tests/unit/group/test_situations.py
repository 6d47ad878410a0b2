"""A table of group situations, with the verdicts that commands and pages print."""

from collections import Counter

import pytest
from attrs import evolve, frozen

from safeconsumer.cli import group_text, watching
from safeconsumer.console.figures import _all
from safeconsumer.group import verdicts
from safeconsumer.group.documents import group_document, status_document
from safeconsumer.group.view import Times, View
from safeconsumer.metrics import table
from tests.harness.console.harness import console_of
from tests.harness.console.synthetic import Limited, alone
from tests.harness.group.views import (
    KEEPS,
    LINE,
    LOUD,
    NOTHING,
    PLAIN,
    QUIET,
    REBALANCES,
    TWO,
    ZERO,
    A,
    B,
    commits,
    hold,
    moved_by_silent,
    of_a,
    report,
    stream,
    viewed,
)

READ_TO = {"ops": 2}
ALONE = report("m", 0, member_id="", generation=-1)
HANDLES = report("a", 0, busy={"t": ((1, 1),)})
GONE = report("z", 0, quiet={}, member_id="z-1", generation=6)


def held(view, *, state=None, scope="@all", **changed):
    known = view.facts if state is None else evolve(view.facts, state=state)
    return evolve(view, facts=known, **{"holds": (hold(scope),), **changed})


SILENT = evolve(of_a(), reports=())
NOBODY = evolve(SILENT, facts=evolve(SILENT.facts, members=()))
EMPTY = held(NOBODY, state="Empty")
ENDED = (hold(ttl_ms=10_000),)
BATCH = stream(quiet={}, busy=QUIET)
PARTIAL = evolve(ALONE, is_partial=True, **NOTHING)


@frozen
class Situation:
    """
    A view of a group, and the levels and words of its verdicts.

    Attributes:
        view: the view of the group.
        group: the verdict on the group.
        partitions: the verdicts on the partitions, the worst first.
        members: the verdicts on the members, the worst first.
        sentence: a part of the sentence in the group's verdict.
    """

    view: View
    group: str
    partitions: str
    members: str = "good obeys"
    sentence: str = ""


UNKNOWN = "unknown unknown"
FLOWS = "held but flowing"
NOT_YET = "waiting not quiet yet"
FREE = {
    "nothing is held": Situation(of_a(), "flows nothing held", "flows flows"),
    "no lag is known": Situation(
        evolve(of_a(), lags={}), "flows nothing held", "flows flows"
    ),
    "everything is read": Situation(
        evolve(of_a(), lags={ZERO: 0}), "flows nothing held", "flows nothing to read"
    ),
    "nobody owns a partition": Situation(
        NOBODY, "flows nothing held", "unknown no owner", ""
    ),
    "a plain client": Situation(
        SILENT, "flows nothing held", UNKNOWN, "unknown does not report"
    ),
    "a member waits for the holds": Situation(
        of_a(quiet=QUIET, gated=1), "flows nothing held", "waiting waits"
    ),
    "a member paused a partition with pause()": Situation(
        of_a(quiet=QUIET), "flows nothing held", "quiet paused by its member"
    ),
    "members keep a hold that the topic has lost": Situation(
        commits(viewed(A, KEEPS), ZERO),
        "waiting kept by members",
        "waiting kept by its member",
        sentence=f"place each hold again, or resume it, by scope and owner: {LINE}",
    ),
    "the holds topic cannot be read": Situation(
        evolve(of_a(), ends=None),
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        "so the holds are unknown",
    ),
}
HELD = {
    "quiet": Situation(
        held(of_a(quiet=QUIET)),
        "quiet quiet",
        "quiet quiet",
        sentence="1 of 1 members quiet",
    ),
    "a member delivers": Situation(
        held(of_a()), f"alarm {FLOWS}", f"alarm {FLOWS}", "alarm does not obey"
    ),
    "a member is behind, and quiet": Situation(
        held(of_a(quiet=QUIET, applied=READ_TO)),
        NOT_YET,
        "waiting behind",
        "waiting behind",
        "a is 1 record behind",
    ),
    "a member is behind, and delivers": Situation(
        held(of_a(applied=READ_TO)), NOT_YET, NOT_YET, "waiting behind"
    ),
    "a handler works": Situation(held(of_a(busy=QUIET)), NOT_YET, NOT_YET),
    "a handler works on a revoked partition": Situation(
        held(viewed(A, B, HANDLES, report("b", 1))),
        NOT_YET,
        f"{NOT_YET}, quiet quiet",
        "good obeys, good obeys",
        "1 of 2 members quiet; a is still working on records that it received before; "
        "flowing: t:1",
    ),
    "a thread works on an unowned partition": Situation(
        held(viewed(A, report("a", 0, busy={"u": ((0, 0),)}))),
        NOT_YET,
        f"{NOT_YET}, quiet quiet",
    ),
    "a member without the holds is quiet": Situation(
        held(of_a(quiet=QUIET, state="unavailable")),
        UNKNOWN,
        UNKNOWN,
        "unknown unavailable",
    ),
    "a member without the holds delivers": Situation(
        held(of_a(state="unavailable")),
        f"alarm {FLOWS}",
        f"alarm {FLOWS}",
        "unknown unavailable",
    ),
    "a plain client, held": Situation(
        held(SILENT), UNKNOWN, UNKNOWN, "unknown does not report"
    ),
    "a plain client continues to commit": Situation(
        held(moved_by_silent()),
        f"alarm {FLOWS}",
        f"alarm {FLOWS}, quiet quiet",
        "alarm does not report, good obeys",
        f"1 of 2 members quiet; b {PLAIN}; flowing: t:1",
    ),
    "a member that reports may commit earlier records": Situation(
        held(moved_by_silent(report("b", 1))),
        "quiet quiet",
        "quiet quiet, quiet quiet",
        "good obeys, good obeys",
    ),
    "a member that commits while reports are unreadable may obey": Situation(
        held(moved_by_silent(), reports_are_read=False),
        UNKNOWN,
        f"{UNKNOWN}, quiet quiet",
        "unknown unknown, good obeys",
    ),
    "reports cannot be read": Situation(
        held(SILENT, reports_are_read=False), UNKNOWN, UNKNOWN, UNKNOWN
    ),
    "a report of another member id": Situation(
        held(of_a(quiet=QUIET, member_id="another")),
        UNKNOWN,
        UNKNOWN,
        "unknown does not report, unknown left the group",
    ),
    "a report of an earlier generation": Situation(
        held(viewed(A, B, report("a", 0), report("b", 1, generation=6))),
        UNKNOWN,
        f"{UNKNOWN}, quiet quiet",
        "unknown unknown, good obeys",
        "b has reported for generation 6",
    ),
    "a report without the partition": Situation(
        held(of_a(assigned={})), UNKNOWN, UNKNOWN
    ),
    "a partial report": Situation(
        held(of_a(quiet=QUIET, is_partial=True)), UNKNOWN, UNKNOWN
    ),
    "the end of the control topics is unknown": Situation(
        held(of_a(quiet=QUIET), ends=None),
        UNKNOWN,
        UNKNOWN,
        UNKNOWN,
        "so the holds are unknown",
    ),
    "a rebalance": Situation(
        held(of_a(quiet=QUIET), state="PreparingRebalance"), UNKNOWN, UNKNOWN
    ),
    "a partition flows in a rebalance": Situation(
        held(viewed(evolve(A, assigned=frozenset()), LOUD, state=REBALANCES)),
        f"alarm {FLOWS}",
        f"alarm {FLOWS}",
        "alarm does not obey",
        "flowing: t:0",
    ),
    "a cooperative member has joined but not yet revoked": Situation(
        held(viewed(A, report("a", None, assigned=TWO, quiet=QUIET))),
        f"alarm {FLOWS}",
        f"alarm {FLOWS}, quiet quiet",
        "alarm does not obey",
    ),
    "a removed member delivers": Situation(
        held(viewed(A, report("a", 0), GONE)),
        f"alarm {FLOWS}",
        f"alarm {FLOWS}",
        "alarm does not obey, unknown left the group",
        "z is not in the group any more, and may still deliver it",
    ),
    "the cluster lists no members": Situation(
        held(NOBODY, state="Unknown"),
        UNKNOWN,
        UNKNOWN,
        "",
        "the cluster does not list the group's members",
    ),
    "no members": Situation(
        EMPTY,
        "quiet no members",
        "quiet no owner",
        "",
        "no members: a consumer that assigns partitions itself and does not report "
        "is not seen",
    ),
    "no members, and offsets that cannot be read": Situation(
        held(evolve(EMPTY, facts=evolve(EMPTY.facts, has_committed=False))),
        UNKNOWN,
        UNKNOWN,
        "",
        "the group's committed offsets cannot be read",
    ),
    "a member with a manual assignment": Situation(
        held(viewed(ALONE, state="Empty")), "quiet quiet", "quiet quiet"
    ),
    "a member with a manual assignment delivers": Situation(
        held(evolve(NOBODY, reports=of_a(member_id="").reports), state="Dead"),
        f"alarm {FLOWS}",
        f"alarm {FLOWS}",
        "alarm does not obey",
        "0 of 1 members quiet; flowing: t:0",
    ),
    "a member cannot list its manual assignment": Situation(
        evolve(EMPTY, reports=(PARTIAL,)),
        UNKNOWN,
        UNKNOWN,
        sentence="m has too many partitions to report them",
    ),
    "a stream beside a member": Situation(
        held(viewed(A, report("a", 0), stream())),
        "quiet quiet",
        "quiet quiet",
        "good obeys, good obeys",
    ),
    "a batch was planned before the hold": Situation(
        held(viewed(BATCH, state="Dead")),
        NOT_YET,
        NOT_YET,
        sentence="stream nightly still reads it in a batch that was planned before",
    ),
    **{
        f"a stream is {state}": Situation(
            held(viewed(stream(state=state), state="Dead")),
            UNKNOWN,
            UNKNOWN,
            "unknown unavailable",
            why,
        )
        for state, why in verdicts.STREAM_STATES.items()
    },
    "a hold of another topic": Situation(
        held(of_a(), scope="other"),
        "waiting covers nothing",
        "flows flows",
        sentence="the scopes cover no partition that the group owns or has committed for",
    ),
    "a hold that has ended": Situation(
        held(of_a(), holds=ENDED, times=Times(115.0), skew=30.0),
        "waiting hold ended",
        "waiting hold ended",
        sentence="members lift it until 1970-01-01 00:02:20Z",
    ),
    "a hold that may have ended": Situation(
        held(of_a(quiet=QUIET), holds=ENDED, times=Times(None, 105.0, 111.0)),
        "unknown may have ended",
        "unknown may have ended",
        sentence="so it counts as in force",
    ),
}
situations = pytest.mark.parametrize(
    "one", [pytest.param(one, id=name) for name, one in (FREE | HELD).items()]
)


def shown(verdict):
    return f"{verdict.level} {verdict.words}"


@pytest.mark.contract("G8")
@situations
def test_view_of_each_situation_has_the_verdicts_of_the_table(one):
    """A partition in an unknown state never counts as quiet."""
    view = one.view
    assert shown(view.verdict) == one.group
    assert ", ".join(shown(each.verdict) for each in view.partitions) == one.partitions
    assert ", ".join(shown(each.verdict) for each in view.members) == one.members
    assert one.sentence in group_text.verdict_text(view.verdict)


@situations
def test_commands_print_the_verdicts(one):
    view = one.view
    lines = group_text.status_lines(view)
    assert group_text.verdict_text(view.verdict) in lines
    assert sum(line.count("no members") for line in lines) <= 1
    assert view.verdict.words in watching._group_row(view)[-1]
    for each in view.members:
        assert any(f"  {each.verdict.words}  " in line for line in lines)
    for row in view.partitions:
        starts = f"  {row.name}  {row.verdict.words}  "
        is_shown = any(line.startswith(starts) for line in lines)
        assert is_shown is bool(row.holds)


@situations
def test_documents_contain_the_verdicts(one):
    view = one.view
    found = status_document(view)
    assert found | verdict_of(view) == found
    assert found | group_document(view) == found
    assert [verdict_of(each) for each in view.members] == [
        {name: member[name] for name in ("level", "words", "sentence")}
        for member in found["by_member"]
    ]
    assert [each["words"] for each in found["by_partition"] or ()] == [
        row.verdict.words for row in view.partitions if row.holds
    ]


def verdict_of(one):
    verdict = one.verdict
    return {
        "level": verdict.level,
        "words": verdict.words,
        "sentence": verdict.sentence,
    }


@situations
def test_metrics_count_the_verdicts(one):
    view = one.view
    state = console_of(alone(view), Limited).state
    figures = [*_all(state, state.snapshot())]
    quiet = [each.value for name, each in figures if name == "group_quiet"]
    figures = [(name, each) for name, each in figures if "state" in each.labels]
    found = {
        (name, each.labels["state"]): each.value for name, each in figures if each.value
    }
    is_counted = view.holds or view.reports
    partitions = Counter(_state_of(view, row) for row in view.partitions)
    members = Counter(_one_word(each.verdict.words) for each in view.present)
    assert found == {
        (f"group_{name}", state): count
        for name, several in (("partitions", partitions), ("members", members))
        for state, count in several.items()
        if is_counted
    }
    # The "quiet" figure is not exported if the group's holds do not cover any partition.
    is_promised = view.holds and one.group != "waiting covers nothing"
    assert quiet == ([one.group.startswith("quiet")] if is_promised else [])


def _state_of(view, row):
    if view.ends is not None and not row.holds:
        return "flowing"
    return {"quiet": "quiet", "alarm": "held_flowing"}.get(row.verdict.level, "unknown")


def _one_word(words):
    return "silent" if words == "does not report" else words


@situations
def test_pages_show_the_verdicts(one):
    served = console_of(alone(one.view), Limited)
    with served.client() as client:
        text = client.get("/group", params={"group": "g"}).text
    for each in (one.view, *one.view.partitions, *one.view.members):
        level, words = each.verdict.level, each.verdict.words
        assert f'<span class="pill {level}">{words}</span>' in text


def test_metrics_and_verdicts_use_the_same_names_for_member_states():
    rows = (
        verdicts.OBEYS, verdicts.BEHIND, verdicts.UNAVAILABLE, verdicts.SILENT,
        verdicts.LOST, verdicts.STOPPED, verdicts.REPORTS_UNREAD, verdicts.UNMEASURED,
        verdicts.OUT_OF_DATE,
    )  # fmt: skip
    assert {_one_word(one.words) for one in rows} == {*table.MEMBER_STATES}
