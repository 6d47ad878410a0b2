"""One table of situations: their verdicts, and that each face prints these."""

from collections import Counter

import pytest
from attrs import evolve, frozen

from safeconsumer.cli import group_text, watching
from safeconsumer.console.figures import _all
from safeconsumer.group import verdicts
from safeconsumer.group.documents import group_document, status_document
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.report_wire import Kept
from safeconsumer.group.view import Times, View
from safeconsumer.group.wire import ControlHold, ControlKey
from safeconsumer.metrics import table
from tests.harness.console.harness import console_of
from tests.harness.console.synthetic import Limited, alone
from tests.unit.group.test_view import ZERO, A, report, viewed

READ_TO = {"ops": 2}
QUIET = {"t": ((0, 0),)}
LINE = "t held by operator:alice"
LOST = Kept(owner="operator:alice", scope="t", line=LINE)
KEEPS = report("a", 0, kept=(LOST,), holds=1)


def hold(scope="@all", ttl_ms=None):
    return HoldRecord(
        key=ControlKey("g", "alice", scope),
        hold=ControlHold("id", "r", ttl_ms),
        at=100.0,
        offset=2,
    )


def commits(view, *several):
    facts = evolve(view.facts, committed=dict.fromkeys(several, 5))
    return evolve(view, facts=facts)


def of_a(**said):
    """Return a group of one member, which owns one partition and reports this."""
    view = commits(viewed(A, report("a", 0, **{"quiet": {}, **said})), ZERO)
    return evolve(view, lags={ZERO: 4})


def held(view, *, state="Stable", scope="@all", **changed):
    facts = evolve(view.facts, state=state)
    return evolve(view, facts=facts, **{"holds": (hold(scope),), **changed})


SILENT = evolve(of_a(), reports=())
NOBODY = evolve(SILENT, facts=evolve(SILENT.facts, members=()))
EMPTY = held(NOBODY, state="Empty")


@frozen(kw_only=True)
class Situation:
    """A group, and the level and words of its verdict and its partition's."""

    view: View
    group: str
    partition: str
    members: str = "good obeys"
    metric: str  # of the partition
    said: str = ""


SITUATIONS = {
    "nothing is held": Situation(
        view=of_a(),
        group="flows nothing held",
        partition="flows flows",
        metric="flowing",
    ),
    "nothing is held, and no lag is known": Situation(
        view=evolve(of_a(), lags={}),
        group="flows nothing held",
        partition="flows flows",
        metric="flowing",
    ),
    "nothing is held, and everything is read": Situation(
        view=evolve(of_a(), lags={ZERO: 0}),
        group="flows nothing held",
        partition="flows nothing to read",
        metric="flowing",
    ),
    "nobody owns a partition": Situation(
        view=NOBODY,
        group="flows nothing held",
        partition="unknown no owner",
        members="",
        metric="none",
    ),
    "a plain client": Situation(
        view=SILENT,
        group="flows nothing held",
        partition="unknown unknown",
        members="unknown does not report",
        metric="none",
    ),
    "a member waits for the holds": Situation(
        view=of_a(quiet=QUIET, gated=1),
        group="flows nothing held",
        partition="waiting waits",
        metric="flowing",
    ),
    "a member paused a partition by itself": Situation(
        view=of_a(quiet=QUIET),
        group="flows nothing held",
        partition="quiet paused by its member",
        metric="flowing",
    ),
    "members keep what the topic has lost": Situation(
        view=commits(viewed(A, KEEPS), ZERO),
        group="waiting kept by members",
        partition="waiting kept by its member",
        metric="flowing",
        said=f"place it again, or resume it, by scope and owner: {LINE}",
    ),
    "the holds topic cannot be read": Situation(
        view=evolve(of_a(), ends=None),
        group="unknown unknown",
        partition="unknown unknown",
        members="unknown unknown",
        metric="unknown",
        said="so what is held is unknown",
    ),
    "quiet": Situation(
        view=held(of_a(quiet=QUIET)),
        group="quiet quiet",
        partition="quiet quiet",
        metric="quiet",
        said="1 of 1 members quiet",
    ),
    "a member delivers": Situation(
        view=held(of_a()),
        group="alarm held but flowing",
        partition="alarm held but flowing",
        members="alarm does not obey",
        metric="held_flowing",
    ),
    "a member is behind, and quiet": Situation(
        view=held(of_a(quiet=QUIET, applied=READ_TO)),
        group="waiting not quiet yet",
        partition="waiting behind",
        members="waiting behind",
        metric="unknown",
        said="a is 1 record behind",
    ),
    "a member is behind, and delivers": Situation(
        view=held(of_a(applied=READ_TO)),
        group="waiting not quiet yet",
        partition="waiting not quiet yet",
        members="waiting behind",
        metric="unknown",
    ),
    "a handler works": Situation(
        view=held(of_a(busy=QUIET)),
        group="waiting not quiet yet",
        partition="waiting not quiet yet",
        metric="unknown",
    ),
    "a member without the holds is quiet": Situation(
        view=held(of_a(quiet=QUIET, state="unavailable")),
        group="unknown unknown",
        partition="unknown unknown",
        members="unknown unavailable",
        metric="unknown",
    ),
    "a member without the holds delivers": Situation(
        view=held(of_a(state="unavailable")),
        group="alarm held but flowing",
        partition="alarm held but flowing",
        members="unknown unavailable",
        metric="held_flowing",
    ),
    "a plain client, held": Situation(
        view=held(SILENT),
        group="unknown unknown",
        partition="unknown unknown",
        members="unknown does not report",
        metric="unknown",
    ),
    "reports cannot be read": Situation(
        view=held(SILENT, is_heard=False),
        group="unknown unknown",
        partition="unknown unknown",
        members="unknown unknown",
        metric="unknown",
    ),
    "a report of another member id": Situation(
        view=held(of_a(quiet=QUIET, member_id="another")),
        group="unknown unknown",
        partition="unknown unknown",
        members="unknown does not report, unknown left the group",
        metric="unknown",
    ),
    "a report without the partition": Situation(
        view=held(of_a(assigned={})),
        group="unknown unknown",
        partition="unknown unknown",
        metric="unknown",
    ),
    "a report that cannot list everything": Situation(
        view=held(of_a(quiet=QUIET, is_partial=True)),
        group="unknown unknown",
        partition="unknown unknown",
        metric="unknown",
    ),
    "how far to read is unknown": Situation(
        view=held(of_a(quiet=QUIET), ends=None),
        group="unknown unknown",
        partition="unknown unknown",
        members="unknown unknown",
        metric="unknown",
        said="so what is held is unknown",
    ),
    "a rebalance": Situation(
        view=held(of_a(quiet=QUIET), state="PreparingRebalance"),
        group="unknown unknown",
        partition="unknown unknown",
        metric="unknown",
    ),
    "the cluster lists no members": Situation(
        view=held(NOBODY, state="Unknown"),
        group="unknown unknown",
        partition="unknown unknown",
        members="",
        metric="unknown",
        said="the cluster does not tell who is in the group",
    ),
    "no members": Situation(
        view=EMPTY,
        group="quiet no members",
        partition="quiet no owner",
        members="",
        metric="quiet",
        said="no members: a consumer that assigns partitions itself and does not report "
        "is not seen",
    ),
    "a member assigned itself, and delivers": Situation(
        view=held(evolve(NOBODY, reports=of_a(member_id="").reports), state="Dead"),
        group="alarm held but flowing",
        partition="alarm held but flowing",
        members="alarm does not obey",
        metric="held_flowing",
        said="0 of 1 members quiet; flowing: t:0",
    ),
    "a hold of something else": Situation(
        view=held(of_a(), scope="other"),
        group="waiting covers nothing",
        partition="flows flows",
        metric="flowing",
    ),
    "a hold that has ended": Situation(
        view=held(of_a(), holds=(hold(ttl_ms=10_000),), times=Times(115.0), skew=30.0),
        group="waiting hold ended",
        partition="waiting hold ended",
        metric="unknown",
    ),
    "a hold that may have ended": Situation(
        view=held(
            of_a(quiet=QUIET),
            holds=(hold(ttl_ms=10_000),),
            times=Times(None, 105.0, 111.0),
        ),
        group="unknown may have ended",
        partition="unknown may have ended",
        metric="unknown",
        said="so it counts as in force",
    ),
}
situations = pytest.mark.parametrize(
    "one", [pytest.param(one, id=name) for name, one in SITUATIONS.items()]
)


def shown(verdict):
    return f"{verdict.level} {verdict.words}"


@pytest.mark.contract("G8")
@situations
def test_verdicts(one):
    """Nothing that is unknown is quiet."""
    (row,) = one.view.partitions
    members = [shown(each.verdict) for each in one.view.members]
    assert shown(one.view.verdict) == one.group
    assert shown(row.verdict) == one.partition
    assert ", ".join(members) == one.members
    assert one.said in group_text.said(one.view.verdict)


@situations
def test_commands_print_them(one):
    view = one.view
    (row,), lines = view.partitions, group_text.status_lines(view)
    assert group_text.said(view.verdict) in lines
    assert sum(line.count("no members") for line in lines) <= 1
    assert view.verdict.words in watching._group_row(view)[-1]
    for each in view.members:
        assert any(f"  {each.verdict.words}  " in line for line in lines)
    is_shown = any(
        line.startswith(f"  {row.name}  {row.verdict.words}  ") for line in lines
    )
    assert is_shown is bool(row.holds)


@situations
def test_documents_have_them(one):
    view = one.view
    (row,), told = view.partitions, status_document(view)
    assert told | verdict_of(view) == told
    assert told | group_document(view) == told
    assert [verdict_of(each) for each in view.members] == [
        {name: member[name] for name in ("level", "words", "sentence")}
        for member in told["by_member"]
    ]
    assert [each["words"] for each in told["by_partition"] or ()] == (
        [row.verdict.words] if row.holds else []
    )


def verdict_of(one):
    verdict = one.verdict
    return {
        "level": verdict.level,
        "words": verdict.words,
        "sentence": verdict.sentence,
    }


@situations
def test_metrics_count_them(one):
    """Of members whatever each of those present obeys; of groups without any, nothing."""
    state = console_of(alone(one.view), Limited).state
    figures = [*_all(state, state.snapshot())]
    quiet = [each.value for each in figures if each.name == "group_quiet"]
    figures = [each for each in figures if "state" in each.labels]
    found = {
        (each.name, each.labels["state"]): each.value for each in figures if each.value
    }
    partitions = {} if one.metric == "none" else {("group_partitions", one.metric): 1}
    words = Counter(_one_word(each.verdict.words) for each in one.view.present)
    members = {("group_members", word): count for word, count in words.items()}
    assert found == partitions | (members if partitions else {})
    # A hold that covers nothing promises nothing.
    is_promised = one.view.holds and one.group != "waiting covers nothing"
    assert quiet == ([one.group.startswith("quiet")] if is_promised else [])


def _one_word(words):
    return "silent" if words == "does not report" else words


@situations
def test_pages_show_them(one):
    served = console_of(alone(one.view), Limited)
    with served.client() as client:
        text = client.get("/group", params={"group": "g"}).text
    for each in (one.view, *one.view.partitions, *one.view.members):
        level, words = each.verdict.level, each.verdict.words
        assert f'<span class="pill {level}">{words}</span>' in text


def test_metrics_have_the_words_for_members():
    rows = (
        verdicts.OBEYS, verdicts.BEHIND, verdicts.UNAVAILABLE, verdicts.SILENT,
        verdicts.LOST, verdicts.STOPPED, verdicts.UNHEARD, verdicts.UNMEASURED,
        verdicts.OUT_OF_DATE,
    )  # fmt: skip
    assert {_one_word(one.words) for one in rows} == {*table.MEMBER_STATES}
