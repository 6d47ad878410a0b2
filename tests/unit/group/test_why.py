"""Why a partition is quiet or flows: every answer, and which of two comes first."""

from typing import Any

from attrs import evolve
from kafka import TopicPartition

from safeconsumer.group.facts import GroupFacts, MemberFacts, Standing
from safeconsumer.group.judging import Judge
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import Report
from safeconsumer.group.why import QUESTIONS, Answer, Level, sights, why
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.harness.listing import each

TP = TopicPartition("orders", 3)
THREE = {"orders": ((3, 3),)}
ENDS = {"ops": 7, "own": 2}
HELD = Standing(
    source="operator",
    key=ControlKey("g", "alice", "orders"),
    hold=ControlHold("id", "db", None),
    at=0.0,
    offset=6,
)
REPORT = Report(
    group="g",
    member="m",
    member_id="kafka-1",
    generation=1,
    client_id="billing-1",
    applied=ENDS,
    assigned=THREE,
    quiet={},
)
OWNER = MemberFacts(
    member_id="kafka-1", client_id="billing-1", host="/h", assigned=frozenset({TP})
)
FLOWING = Picture(
    group="g",
    facts=GroupFacts(state="Stable", members=(OWNER,), committed={TP: 5}),
    standing=(),
    reports=(REPORT,),
    ends=ENDS,
    lags={TP: 4},
    now=100.0,
    taken_at=0.0,
)


def report(**changed: Any) -> Picture:  # noqa: ANN401 - of a report
    return evolve(FLOWING, reports=(evolve(REPORT, **changed),))


def held(picture: Picture) -> Picture:
    return evolve(picture, standing=(HELD,))


def group(picture: Picture, **changed: Any) -> Picture:  # noqa: ANN401 - of its facts
    return evolve(picture, facts=evolve(picture.facts, **changed))


def asked(picture: Picture, stands_for: float | None = 0.0) -> Answer:
    (one,) = sights(Judge(picture), lambda _: stands_for)
    return why(one)


QUIET = report(quiet=THREE)
SILENT = evolve(FLOWING, reports=())
NOBODY = group(SILENT, members=())
BEHIND = {"ops": 6, "own": 2}


@each(
    ("picture", "level", "words"),
    [
        (NOBODY, Level.UNKNOWN, "no owner"),
        (held(NOBODY), Level.QUIET, "no owner"),
        (SILENT, Level.UNKNOWN, "cannot tell"),
        (held(SILENT), Level.UNKNOWN, "cannot tell"),
        (held(report(member_id="kafka-0")), Level.UNKNOWN, "cannot tell"),
        (held(report(assigned={})), Level.UNKNOWN, "cannot tell"),
        (held(report(quiet=THREE, is_partial=True)), Level.UNKNOWN, "cannot tell"),
        (held(evolve(QUIET, ends=None)), Level.UNKNOWN, "cannot tell"),
        (
            held(group(QUIET, state="PreparingRebalance")),
            Level.UNKNOWN,
            "cannot tell",
        ),
        (
            held(report(quiet=THREE, state="unavailable")),
            Level.UNKNOWN,
            "cannot tell",
        ),
        (held(report(quiet=THREE, applied=BEHIND)), Level.WAITING, "cannot tell"),
        (held(report(applied=BEHIND)), Level.WAITING, "not quiet yet"),
        (held(report(busy=THREE)), Level.WAITING, "not quiet yet"),
        (held(report(state="unavailable")), Level.ALARM, "held but flowing"),
        (held(FLOWING), Level.ALARM, "held but flowing"),
        (held(QUIET), Level.QUIET, "quiet"),
        (report(quiet=THREE, gated=1), Level.WAITING, "waits"),
        (QUIET, Level.QUIET, "paused by its member"),
        (FLOWING, Level.FLOWS, "flows"),
        (evolve(FLOWING, lags={}), Level.FLOWS, "flows"),
        (evolve(FLOWING, lags={TP: 0}), Level.FLOWS, "nothing to read"),
    ],
)
def test_the_first_answer_that_fits(picture: Picture, level: Level, words: str) -> None:
    """Nothing that is unknown is quiet."""
    found = asked(picture)
    assert (found.level, found.words) == (level, words)


def test_records_wait_and_nothing_is_committed() -> None:
    """And it is not taken for that while nobody knows for how long."""
    assert asked(FLOWING, 31.0).words == "stands still"
    assert asked(FLOWING, None).words == "flows"
    assert asked(held(QUIET), 31.0).words == "quiet"


def test_the_answer_names_the_question() -> None:
    """A page shows what was asked before."""
    assert QUESTIONS[asked(held(QUIET)).number] == "Is it held?"
    assert asked(FLOWING).number == len(QUESTIONS)


def test_the_longest_hold_is_named() -> None:
    """Lifting another one changes nothing."""
    short = evolve(HELD, hold=ControlHold("2", "short", 1000), offset=5)
    found = asked(evolve(QUIET, standing=(short, HELD)))
    assert found.sentence == "Held by alice until somebody lifts it: db, and 1 more"
