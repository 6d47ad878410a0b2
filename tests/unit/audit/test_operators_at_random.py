"""Operators whose commands overlap, and whose answers are lost, against what was so."""

import random
from collections.abc import Iterator, Sequence

import pytest
from attrs import define, evolve

from safeconsumer.audit.checker import Settings, check
from tests.harness.audit.telling import Telling

TP = "orders:0"
SAID = {"scope": "orders", "owner": "eve", "group": "g", "source": "operator"}
HEARD = {"scope": "orders", "owner": "operator:eve"}
FAR = 1e9

Entry = tuple[float, str, dict[str, object]]


@define(frozen=True)
class Call:
    """One command: when it asks, its record is there, and it is answered."""

    asked: float
    written: float
    answered: float
    is_hold: bool
    ttl: float
    journal: int
    is_lost: bool
    offset: int = 0

    def entries(self, number: int, clock: float, told: set[str]) -> Iterator[Entry]:
        said: dict[str, object] = {**SAID, "id": f"call-{number}"}
        known = {"offset": self.offset, "written": round(self.written, 3)}
        first, second = "group-lift", "group-lifted"
        if self.is_hold:
            first, second = "group-asked", "group-hold"
        yield self.asked + clock, first, {**said, **self.until(self.asked + clock)}
        if not self.is_lost:
            said |= {name: known[name] for name in told}
            until = self.until(self.written)
            yield self.answered + clock, second, {**said, **until}

    def until(self, at: float) -> dict[str, float]:
        return {"until": at + self.ttl} if self.ttl < FAR else {}


def calls_of(draw: random.Random) -> list[Call]:
    found, at = [], 1000.0
    for _ in range(draw.randint(1, 6)):
        at += draw.choice([0.3, 1, 5, 50]) * draw.random()
        written = at + draw.choice([0.05, 0.5, 3]) * draw.random() + 0.01
        is_hold = draw.random() < 0.5
        found.append(
            Call(
                asked=at,
                written=written,
                answered=written + draw.choice([0.05, 0.5, 8]) * draw.random() + 0.01,
                is_hold=is_hold,
                ttl=20.0 if is_hold and draw.random() < 0.3 else FAR,
                journal=draw.randint(0, 1),
                is_lost=draw.random() < 0.1,
            )
        )
    found.sort(key=lambda one: one.written)
    return [evolve(one, offset=offset) for offset, one in enumerate(found)]


def held(calls: Sequence[Call]) -> list[list[float]]:
    """Return from when until when it was held, by the records."""
    found: list[list[float]] = []
    for one in calls:
        if found:
            found[-1][1] = min(found[-1][1], one.written)
        if one.is_hold:
            found.append([one.written, min(FAR, one.written + one.ttl)])
    return found


def surely_held(calls: Sequence[Call], since: float, until: float) -> bool:
    """Tell whether a hold was acknowledged before, and nobody asked for its end."""
    return any(
        one.is_hold
        and one.answered < since
        and all(
            until < (other.written + other.ttl if other.is_hold else other.asked)
            for other in calls[number:]
        )
        for number, one in enumerate(calls)
    )


def journals_of(
    draw: random.Random, calls: Sequence[Call], told: set[str], skew: float
) -> list[Telling]:
    found = []
    for journal in (0, 1):
        clock = draw.uniform(-skew / 2, skew / 2)
        one = Telling(f"ops-{journal}", group="", at=900)
        entries = [
            entry
            for number, call in enumerate(calls)
            if call.journal == journal
            for entry in call.entries(number, clock, told)
        ]
        for at, event, fields in sorted(entries, key=lambda entry: entry[0]):
            one.until(at - 0.1).then(event, **fields)
        found.append(one)
    return found


def hearing(stood: Sequence[Sequence[float]], lag: float) -> Telling:
    one = Telling("b", at=990).assigned(TP)
    for start, end in stood:
        one.until(max(one.at, start + lag)).then("hold", **HEARD)
        if end < FAR:
            one.until(max(one.at, end + lag)).then("lift", **HEARD)
    return one.revoked(TP)


@pytest.mark.parametrize("skew", [0.0, 0.5])
@pytest.mark.parametrize("told", [set(), {"written"}, {"offset", "written"}], ids=len)
def test_who_obeys_is_never_called_wrong_and_who_does_not_never_right(
    told: set[str], skew: float
) -> None:
    """Whatever overlaps, and whoever does not hear what came of it."""
    found = set()
    for seed in range(300):
        draw = random.Random(seed)  # noqa: S311 - for a test
        calls = calls_of(draw)
        fleet = journals_of(draw, calls, told, skew)
        stood = held(calls)
        if draw.random() < 0.5:
            fleet.append(hearing(stood, draw.choice([0.05, 0.3, 2.0])))
        since = draw.uniform(1000, max(one.answered for one in calls) + 30)
        came = since + 0.3 + draw.random()
        one = Telling("c", at=since - 0.1).assigned(TP)
        one.at = came - 0.2
        fleet.append(one.poll(TP, 0, 1))
        settings = Settings(clock_skew=skew + 0.002 if skew else 0.0)
        (verdict,) = check([one.journal() for one in fleet], settings).values()
        is_wrong = any(one.check == "G2" for one in verdict.findings)
        if not any(start < came + 0.1 and came - 0.3 < end for start, end in stood):
            assert not is_wrong, seed
            found.add("obeyed")
        elif surely_held(calls, since - 2 * skew - 0.01, came + 2 * skew + 0.1):
            assert is_wrong or "G2" in verdict.unjudged, seed
            found.add("found" if is_wrong else "not told")
    assert found == {"obeyed", "found", "not told"}
