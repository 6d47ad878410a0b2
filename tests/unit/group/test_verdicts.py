"""What is said of a partition: every verdict, and which of two comes first."""

from typing import Any

from attrs import evolve
from kafka import TopicPartition

from safeconsumer.group.facts import GroupFacts, MemberFacts, Standing
from safeconsumer.group.overview import view_of
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import Report
from safeconsumer.group.verdicts import Level, Verdict
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


def verdict(picture: Picture) -> Verdict:
    (one,) = view_of(picture).partitions
    return one.verdict


QUIET = report(quiet=THREE)
SILENT = evolve(FLOWING, reports=())
NOBODY = group(SILENT, members=())
BEHIND = {"ops": 6, "own": 2}


@each(
    ("picture", "level", "words"),
    [
        (NOBODY, Level.UNKNOWN, "no owner"),
        (held(NOBODY), Level.QUIET, "no owner"),
        (SILENT, Level.UNKNOWN, "unknown"),
        (held(SILENT), Level.UNKNOWN, "unknown"),
        (held(report(member_id="kafka-0")), Level.UNKNOWN, "unknown"),
        (held(report(assigned={})), Level.UNKNOWN, "unknown"),
        (held(report(quiet=THREE, is_partial=True)), Level.UNKNOWN, "unknown"),
        (held(evolve(QUIET, ends=None)), Level.UNKNOWN, "unknown"),
        (
            held(group(QUIET, state="PreparingRebalance")),
            Level.UNKNOWN,
            "unknown",
        ),
        (
            held(report(quiet=THREE, state="unavailable")),
            Level.UNKNOWN,
            "unknown",
        ),
        (held(report(quiet=THREE, applied=BEHIND)), Level.WAITING, "behind"),
        (held(report(applied=BEHIND)), Level.WAITING, "not quiet yet"),
        (held(report(busy=THREE)), Level.WAITING, "not quiet yet"),
        (held(report(state="unavailable")), Level.ALARM, "held but flowing"),
        (held(FLOWING), Level.ALARM, "held but flowing"),
        (held(QUIET), Level.QUIET, "quiet"),
        (report(quiet=THREE, gated=1), Level.WAITING, "waits"),
        (QUIET, Level.QUIET, "paused by its member"),
        (
            evolve(report(state="unavailable"), ends=None),
            Level.UNKNOWN,
            "unknown",
        ),
        (FLOWING, Level.FLOWS, "flows"),
        (evolve(FLOWING, lags={}), Level.FLOWS, "flows"),
        (evolve(FLOWING, lags={TP: 0}), Level.FLOWS, "nothing to read"),
    ],
)
def test_what_is_said_of_a_partition(
    picture: Picture, level: Level, words: str
) -> None:
    """Nothing that is unknown is quiet."""
    found = verdict(picture)
    assert (found.level, found.words) == (level, words)


def test_the_longest_hold_is_named() -> None:
    """Lifting another one changes nothing."""
    short = evolve(HELD, hold=ControlHold("2", "short", 1000), offset=5)
    found = verdict(evolve(QUIET, standing=(short, HELD)))
    assert found.sentence == "held by alice until somebody lifts it: db, and 1 more"
