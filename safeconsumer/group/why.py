"""
Says of one partition why it is quiet or flows: the first answer that fits.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.group.facts import MemberFacts, Standing
from safeconsumer.group.judging import assigned, has_applied
from safeconsumer.group.picture import Picture
from safeconsumer.group.report_wire import Report
from safeconsumer.holds.explain import utc

# A group that works commits at least so often, seconds.
_STANDS_STILL = 30.0


class Level(StrEnum):
    """
    How much an answer matters; the first is the worst.
    """

    ALARM = "alarm"
    UNKNOWN = "unknown"
    WAITING = "waiting"
    QUIET = "quiet"
    FLOWS = "flows"


LEVELS = tuple(Level)


@frozen
class Answer:
    """
    Why a partition is as it is.

    Attributes:
        level: what it means for an operator.
        words: two or three of them.
        sentence: all of it.
        number: which of :data:`QUESTIONS` it answers, from 0; as many as there are if
            it is none of them: records flow.
    """

    level: Level
    words: str
    sentence: str
    number: int


@frozen(kw_only=True)
class Sight:
    """
    What a picture has of one partition.

    Attributes:
        tp: which.
        picture: what is known of its group.
        owner: who owns it, by the cluster's word; None if nobody does.
        report: what the owner says; None if it does not.
        holds: those in force that cover it.
        stands_for: seconds for which the committed offset did not move; None if
            that is unknown.
    """

    tp: TopicPartition
    picture: Picture
    owner: MemberFacts | None
    report: Report | None
    holds: tuple[Standing, ...]
    stands_for: float | None = None

    @property
    def who(self) -> str:
        """
        The owner, for people.
        """
        return "nobody" if self.owner is None else self.owner.client_id

    @property
    def is_quiet(self) -> bool:
        """
        Whether the owner reports that it delivers nothing of it.
        """
        ranges = () if self.report is None else self.report.quiet.get(self.tp.topic, ())
        return any(first <= self.tp.partition <= last for first, last in ranges)

    @property
    def lag(self) -> int | None:
        """
        How many records wait; None if unknown.
        """
        return self.picture.lags.get(self.tp)


def reports_of(picture: Picture) -> dict[str, Report]:
    """
    Return what members report, by Kafka's id of each; those that do not are left out.
    """
    named: dict[str, list[Report]] = {}
    for report in picture.reports:
        named.setdefault(report.client_id, []).append(report)
    found = {}
    for member in picture.facts.members:
        fitting = [
            one
            for one in named.get(member.client_id, ())
            if one.is_partial or assigned((one,)) == member.assigned
        ]
        if fitting:
            found[member.member_id] = max(fitting, key=lambda one: one.at_ms)
    return found


def sights(
    picture: Picture, stands_for: Callable[[TopicPartition], float | None]
) -> Iterator[Sight]:
    """
    Return what a picture has of each partition of its group, in order.
    """
    owners = {tp: one for one in picture.facts.members for tp in one.assigned}
    reports = reports_of(picture)
    for tp in picture.facts.partitions:
        owner = owners.get(tp)
        yield Sight(
            tp=tp,
            picture=picture,
            owner=owner,
            report=None if owner is None else reports.get(owner.member_id),
            holds=tuple(one for one in picture.standing if one.covers(tp)),
            stands_for=stands_for(tp),
        )


def why(sight: Sight) -> Answer:
    """
    Return the first answer that fits.
    """
    for number, (_, ask) in enumerate(_ASKED):
        answer = ask(sight)
        if answer is not None:
            return Answer(*answer, number)
    said = (
        f"{sight.who} takes records of it"
        if sight.lag is not None
        else f"No hold covers it, and {sight.who} reports that it is not paused"
    )
    return Answer(Level.FLOWS, "flows", said, len(_ASKED))


_Found = tuple[Level, str, str] | None


def _unowned(sight: Sight) -> _Found:
    if sight.owner is not None:
        return None
    if sight.picture.facts.state not in {"Stable", "Empty"}:
        state = sight.picture.facts.state
        return (
            Level.UNKNOWN,
            "rebalancing",
            f"The group rebalances ({state}); who owns it is not settled",
        )
    if sight.holds:
        said = (
            "Nobody owns it; a member that gets it reads the holds before it delivers"
        )
        return Level.WAITING, "no owner", said
    return Level.UNKNOWN, "no owner", "Nobody owns it, so nobody reads it"


def _silent(sight: Sight) -> _Found:
    if sight.report is not None:
        return None
    said = (
        f"{sight.who} does not report: it is a plain client, which obeys no hold, or "
        "it cannot write the status topic"
    )
    return Level.UNKNOWN, "owner is silent", said


def _unavailable(sight: Sight) -> _Found:
    if sight.report is None or sight.report.state == "ready":
        return None
    kept = "quiet" if sight.is_quiet else "flowing"
    said = (
        f"{sight.who} cannot read the control topics and keeps its last state: {kept}"
    )
    level = Level.ALARM if sight.holds and not sight.is_quiet else Level.UNKNOWN
    return level, "keeps its last state", said


def _partial(sight: Sight) -> _Found:
    if sight.report is None or not sight.report.is_partial:
        return None
    said = f"{sight.who} owns more than fits into a report, so it cannot say"
    return Level.UNKNOWN, "cannot tell", said


def _gated(sight: Sight) -> _Found:
    # A report counts its gates and does not name them: quiet, and not by a hold.
    report = sight.report
    if report is None or not report.gated or not sight.is_quiet or sight.holds:
        return None
    return Level.WAITING, "waits", f"{sight.who} got it and reads the holds first"


def _behind(sight: Sight) -> _Found:
    ends = sight.picture.ends
    if ends is None:
        said = "Where the control topics end is unknown, so nobody can tell who obeys"
        return Level.UNKNOWN, "cannot tell", said
    if sight.report is None or has_applied(sight.report, ends):
        return None
    said = f"{sight.who} has not read everything on the control topics yet"
    return Level.WAITING, "behind", said


def _flows_though_held(sight: Sight) -> _Found:
    if not sight.holds or sight.is_quiet:
        return None
    said = f"{sight.who} has read the hold and delivers it all the same"
    return Level.ALARM, "held but flowing", said


def _held(sight: Sight) -> _Found:
    if not sight.holds:
        return None
    first = max(sight.holds, key=_ends_at)
    more = f", and {len(sight.holds) - 1} more" if len(sight.holds) > 1 else ""
    reason = f": {first.hold.reason}" if first.hold and first.hold.reason else ""
    until = (
        "until somebody lifts it"
        if first.expires_at is None
        else f"until {utc(first.expires_at)}"
    )
    said = f"Held by {first.key.owner} {until}{reason}{more}"
    return Level.QUIET, "quiet", said


def _by_application(sight: Sight) -> _Found:
    if not sight.is_quiet:
        return None
    said = f"{sight.who} has paused it by itself; no hold of an operator covers it"
    return Level.QUIET, "paused by its member", said


def _stuck(sight: Sight) -> _Found:
    if not sight.lag or sight.stands_for is None or sight.stands_for < _STANDS_STILL:
        return None
    said = (
        f"Records wait, and nothing was committed for {sight.stands_for:.0f} s; no "
        f"hold is in its way: look at {sight.who}"
    )
    return Level.WAITING, "stands still", said


def _idle(sight: Sight) -> _Found:
    if sight.lag != 0:
        return None
    return Level.FLOWS, "nothing to read", "Everything is read and committed"


def _ends_at(one: Standing) -> float:
    return float("inf") if one.expires_at is None else one.expires_at


_ASKED: tuple[tuple[str, Callable[[Sight], _Found]], ...] = (
    ("Does nobody own it?", _unowned),
    ("Does its owner not report?", _silent),
    ("Can its owner not read the control topics?", _unavailable),
    ("Does its owner have too many partitions to name them?", _partial),
    ("Was it just assigned, and waits for the control topics?", _gated),
    ("Has its owner not read all of the control topics?", _behind),
    ("Is it held, and flows all the same?", _flows_though_held),
    ("Is it held?", _held),
    ("Has its member paused it by itself?", _by_application),
    ("Do records wait, and nothing is committed?", _stuck),
    ("Is there nothing to read?", _idle),
)

QUESTIONS = tuple(question for question, _ in _ASKED)
"""
What is asked of a partition, in order.
"""
