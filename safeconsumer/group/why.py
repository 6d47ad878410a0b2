"""Explains why one partition is quiet or flows, with the first answer that applies."""

from collections.abc import Callable, Iterator
from enum import StrEnum

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.group import judging
from safeconsumer.group.facts import Standing
from safeconsumer.group.judging import Judge, Place, Seat
from safeconsumer.holds.explain import utc

# Seconds; a group that works commits at least so often.
_STANDS_STILL = 30.0
_BUSY = frozenset({judging.IN_HAND, judging.IN_BATCH})


class Level(StrEnum):
    """How much an answer matters; the first is the worst."""

    ALARM = "alarm"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    QUIET = "quiet"
    FLOWS = "flows"


LEVELS = tuple(Level)

OVER = "just over"
"""
The short text for an expired hold that members may not have lifted yet.
"""


@frozen
class Answer:
    """
    The answer to why a partition is quiet or flows.

    Attributes:
        level: its importance for an operator.
        words: a text of two or three words.
        sentence: the full text.
        number: which of :data:`QUESTIONS` it answers, from 0; if it answers none of
            them, because records flow, their number.
    """

    level: Level
    words: str
    sentence: str
    number: int


@frozen(kw_only=True)
class Sight:
    """
    What is known of one partition.

    Attributes:
        tp: the partition.
        place: whether its owner delivers it, as every command judges it.
        seat: its owner; None if no owner is known.
        holds: the holds in force that cover it.
        lag: how many records wait; None if unknown.
        committed: the committed offset; None if there is none.
        stands_for: seconds for which the committed offset did not move; None if
            unknown.
        lifted_by: when members have lifted all of its holds, which have expired, by the
            broker's clock; None if one has not expired.
    """

    tp: TopicPartition
    place: Place
    seat: Seat | None
    holds: tuple[Standing, ...]
    lag: int | None
    committed: int | None
    stands_for: float | None = None
    lifted_by: float | None = None

    @property
    def owner(self) -> str:
        """The client id of its owner; empty if no owner is known."""
        return self.place.member or (self.seat.name if self.seat else "")

    @property
    def is_ready(self) -> bool:
        """Whether its owner reads the control topics."""
        report = self.seat.report if self.seat else None
        return report is not None and report.state == "ready"


def sights(
    judge: Judge, stands_for: Callable[[TopicPartition], float | None]
) -> Iterator[Sight]:
    """Return what is known of each partition of a group, in order."""
    picture = judge.picture
    seats = {
        tp: one
        for one in (*judge.others, *judge.members)
        for tp in (
            one.facts.assigned
            if one.facts
            else judging.assigned([one.report] if one.report else [])
        )
    }
    for tp in sorted({*picture.facts.partitions, *judge.owned()}):
        holds = tuple(one for one in picture.standing if one.covers(tp))
        yield Sight(
            tp=tp,
            place=judge.place(tp),
            seat=seats.get(tp),
            holds=holds,
            lifted_by=picture.lifted_by(holds),
            lag=picture.lags.get(tp),
            committed=picture.facts.committed.get(tp),
            stands_for=stands_for(tp),
        )


def why(sight: Sight) -> Answer:
    """Return the first answer that applies."""
    for number, (_, ask) in enumerate(_ASKED):
        answer = ask(sight)
        if answer is not None:
            return Answer(*answer, number)
    said = f"Not held, and {sight.owner} has not paused it"
    return Answer(Level.FLOWS, "flows", said, len(_ASKED))


_Found = tuple[Level, str, str] | None


def _unowned(sight: Sight) -> _Found:
    if sight.place.answer is not judging.Answer.UNOWNED:
        return None
    if sight.holds:
        said = "Nobody of the group owns it; a new owner reads the holds first"
        return Level.QUIET, "no owner", said
    return Level.UNKNOWN, "no owner", "Nobody of the group owns it"


def _unknown(sight: Sight) -> _Found:
    if sight.place.answer is not judging.Answer.UNKNOWN:
        return None
    said = f"{sight.owner} {sight.place.why}".strip()
    if not sight.owner:
        said = said[:1].upper() + said[1:]
    is_behind = sight.is_ready and sight.seat is not None and sight.seat.obeys is False
    return (Level.WAITING if is_behind else Level.UNKNOWN), "cannot tell", said


def _over(sight: Sight) -> _Found:
    if sight.lifted_by is None:
        return None
    said = f"Its hold is over; members lift it until {utc(sight.lifted_by)}, late by "
    return Level.WAITING, OVER, f"{said}the clock skew that they allow for"


def _not_yet(sight: Sight) -> _Found:
    if not sight.holds or not _flows(sight) or not sight.place.why:
        return None
    if not sight.is_ready and sight.place.why not in _BUSY:
        return None
    said = f"It is held, but {sight.owner} still delivers it: {sight.place.why}"
    return Level.WAITING, "not quiet yet", said


def _flows_though_held(sight: Sight) -> _Found:
    if not sight.holds or not _flows(sight):
        return None
    why = f" ({sight.place.why})" if sight.place.why else ", who has read the hold,"
    said = f"It is held, and {sight.owner}{why} delivers it all the same"
    return Level.ALARM, "held but flowing", said


def _held(sight: Sight) -> _Found:
    if not sight.holds:
        return None
    last = max(sight.holds, key=_ends_at)
    more = f", and {len(sight.holds) - 1} more" if len(sight.holds) > 1 else ""
    reason = f": {last.hold.reason}" if last.hold and last.hold.reason else ""
    until = (
        "until somebody lifts it"
        if last.expires_at is None
        else f"until {utc(last.expires_at)}"
    )
    return Level.QUIET, "quiet", f"Held by {last.key.owner} {until}{reason}{more}"


def _gated(sight: Sight) -> _Found:
    report = sight.seat.report if sight.seat else None
    if _flows(sight) or report is None or not report.gated:
        return None
    said = f"{sight.owner} just got it, or paused it by itself, and reads the holds"
    return Level.WAITING, "waits", said


def _by_member(sight: Sight) -> _Found:
    if _flows(sight):
        return None
    said = f"{sight.owner} paused it by itself; no hold covers it"
    return Level.QUIET, "paused by its member", said


def _stuck(sight: Sight) -> _Found:
    if not sight.lag or sight.stands_for is None or sight.stands_for < _STANDS_STILL:
        return None
    said = (
        f"Records wait, and nothing was committed for {sight.stands_for:.0f} s; no "
        f"hold is in its way: look at {sight.owner}"
    )
    return Level.WAITING, "stands still", said


def _idle(sight: Sight) -> _Found:
    if sight.lag != 0:
        return None
    return Level.FLOWS, "nothing to read", "Everything is read and committed"


def _flows(sight: Sight) -> bool:
    return sight.place.answer is judging.Answer.FLOWING


def _ends_at(one: Standing) -> float:
    return float("inf") if one.expires_at is None else one.expires_at


_ASKED: tuple[tuple[str, Callable[[Sight], _Found]], ...] = (
    ("Does nobody own it?", _unowned),
    ("Can nobody tell what its owner does?", _unknown),
    ("Was it held, and that is over?", _over),
    ("Is it held, and its owner has not got there yet?", _not_yet),
    ("Is it held, and flows all the same?", _flows_though_held),
    ("Is it held?", _held),
    ("Was it just assigned, and waits for the control topics?", _gated),
    ("Has its member paused it by itself?", _by_member),
    ("Do records wait, and nothing is committed?", _stuck),
    ("Is there nothing to read?", _idle),
)

QUESTIONS = tuple(question for question, _ in _ASKED)
"""
The questions about a partition, in order.
"""
