"""Judges what all members did with one partition together, and what that rests on."""

import math
from collections import ChainMap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain

from attrs import evolve, field, frozen

from safeconsumer.audit import fleet
from safeconsumer.audit.chain import wrong_starts
from safeconsumer.audit.clocks import Clock, Lags, clock_of
from safeconsumer.audit.control import Control, Span
from safeconsumer.audit.findings import Address, Basis, Finding
from safeconsumer.audit.group_holds import Bounds, Lacking, Readings, under_hold
from safeconsumer.audit.holding import Holds
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.reading import TopicPartition, covering
from safeconsumer.audit.spans import merged, uncovered
from safeconsumer.audit.tracks import Track
from safeconsumer.errors.base import JournalError

CHECKS = (
    *("A1", "A2", "A3", "A4", "A5", "A6", "G2"),
    *("W4", "W5", "W7", "W10"),
)

# Checks that need to know to which group each member belongs.
_OF_THE_GROUP = ("A2", "A4", "A6")

# Why A2 is not judged where everything that was written should have been delivered.
_UNTOLD = (
    "nothing says what was written: that takes producers' journals, or the topic "
    "(audit --against-topic)"
)

# Why A2 is not judged where a position went over what may have been records.
_UNRECORDED = (
    "had no record, in a topic that is not compacted and of which no transaction was "
    "read: "
)

# Why A2 is not judged where a position was out of range.
_UNKEPT = "only the topic says where its log begins (audit --against-topic)"

# What a clean result rests on; for A4, A6 and W10 this depends on what is known.
_BASES: Mapping[str, Basis] = {
    **dict.fromkeys(("A1", "A3", "A5", "W4", "W5", "W7", "W10"), Basis.ORDER),
    "A2": Basis.OFFSETS,
    "G2": Basis.CLOCKS,
}

# A check that cannot be judged, and why.
Unjudged = tuple[str, str]


@frozen(kw_only=True)
class Settings:
    """
    The assumptions of the checker.

    Attributes:
        patience: seconds within which a hold of the group reaches members that own
            the partition already (G2, W10).
        clock_skew: seconds by which two members' clocks may differ.
        is_drained: whether everything that was acknowledged should have been delivered,
            and handled where there are workers.
        control: what the control topics say; None if they were not read.
        uncompacted: topics whose settings say that they are not compacted, so that an
            offset without a record needs a reason.
    """

    patience: float = 5.0
    clock_skew: float = 0.0
    is_drained: bool = False
    control: Control | None = None
    uncompacted: frozenset[str] = frozenset()


@frozen(kw_only=True)
class Result:
    """
    What was found about one case.

    Attributes:
        case: the consumer group and the partition.
        findings: every broken promise; what a member did again is counted with it.
        group_holds: when the partition was held for the group.
        bases: the evidence on which each check rests here.
        unjudged: checks that could not be judged here, and why.
        unrecorded: how many offsets positions went over of which no member had a
            record, where nothing says what was written.
    """

    case: Address
    findings: tuple[Finding, ...]
    group_holds: tuple[Bounds, ...] = ()
    bases: Mapping[str, Basis] = field(factory=dict)
    unjudged: Mapping[str, str] = field(factory=dict)
    unrecorded: int = 0

    @property
    def every(self) -> Iterator[Finding]:
        """What was done again, too."""
        return chain.from_iterable(one.each for one in self.findings)


@frozen(slots=False)
class Group:
    """
    What is known of the members of one group, for all its cases.

    Attributes:
        name: the name of the group; None if nobody names it.
        settings: the assumptions.
        holds: what each member read of the group's holds.
        tracks: what members did with each partition.
    """

    name: str | None
    settings: Settings
    holds: Mapping[str, Holds]
    tracks: Mapping[TopicPartition, Mapping[str, Track]]

    @cached_property
    def readings(self) -> Readings:
        """When members read holds."""
        return Readings(self.holds)

    @cached_property
    def lacking(self) -> Sequence[Lacking]:
        """The holds that members read and that the holds topics do not have."""
        control = self.settings.control
        if control is None:
            return ()
        return [*self.readings.not_in(control, self.name)]

    @cached_property
    def clocks(self) -> dict[str, Clock]:
        """What is known of members' clocks by the holds that they read."""
        return {name: self.clock(name) for name in self.holds}

    def clock(self, name: str, *lags: Lags) -> Clock:
        """Return what is known of a member's clock, by other records that came too."""
        both = self.holds[name].lags, *lags
        return clock_of(name, both, self.settings.patience, self.settings.clock_skew)


@frozen(slots=False)
class Case:
    """
    Everything that is known about one case.

    Attributes:
        case: the group and the partition.
        group: what is known of the members of the group.
        acknowledged: what producers wrote.
    """

    case: Address
    group: Group
    acknowledged: fleet.Acknowledged
    _covers: dict[str, bool | None] = field(factory=dict, init=False)

    @property
    def settings(self) -> Settings:
        """The assumptions."""
        return self.group.settings

    @property
    def tracks(self) -> Mapping[str, Track]:
        """What members did with it."""
        return self.group.tracks.get(self.case.tp, {})

    @property
    def epochs(self) -> list[Epoch]:
        """The ownerships, those of each member in order."""
        return [epoch for one in self.tracks.values() for epoch in one.epochs]

    @property
    def basis(self) -> Basis:
        """The evidence for where ownerships were to begin."""
        is_alone = len({one.member for one in self.epochs}) <= 1
        return Basis.ORDER if is_alone else Basis.COMMITS

    @cached_property
    def unrecorded(self) -> fleet.Unrecorded:
        """Offsets of which no member had a record, where nothing says what was written."""
        return fleet.unrecorded(self.case, self.tracks, self.acknowledged)

    @property
    def of_group_holds(self) -> tuple[str, ...]:
        """The checks that depend on when the group was held."""
        is_working = any(one.is_working for one in self.tracks.values())
        return ("G2", "W10") if is_working else ("G2",)

    @cached_property
    def clocks(self) -> Mapping[str, Clock]:
        """What is known of members' clocks."""
        own = {
            name: self.group.clock(name, one.lags) for name, one in self.tracks.items()
        }
        return ChainMap(own, self.group.clocks)

    @cached_property
    def bounds(self) -> Sequence[Bounds]:
        """When the group was held, by all that may cover it."""
        control = self.settings.control
        if control is None or control.trouble:
            return ()
        until = math.inf if control.until is None else control.until
        spans = [one for one in control.spans if one.group == self.case.group]
        return [
            self._bounds(span, until)
            for span in spans
            if self.covers(span.scope) is not False
        ]

    def _bounds(self, span: Span, until: float) -> Bounds:
        patience, skew = self.settings.patience, self.settings.clock_skew
        read = math.inf
        if self.covers(span.scope):
            read = self.group.readings.first(span, skew, self.clocks)
        return Bounds.of(span, read, patience, skew, until)

    def covers(self, scope: str) -> bool | None:
        """Return whether a scope covers it; None for a pattern that cannot be read."""
        if scope not in self._covers:
            try:
                self._covers[scope] = covering(scope)(self.case.tp)
            except JournalError:
                self._covers[scope] = None
        return self._covers[scope]


def result_of(case: Case, written: Container[str]) -> Result:
    """Apply all checks to what is known about one case."""
    unjudged = dict(_unjudged(case))
    findings: list[Finding] = []
    for one in (
        *(found for track in case.tracks.values() for found in track.findings()),
        *_late_commits(case.tracks.values()),
        *(() if _incomparable(case) else _by_offsets(case)),
        *_under_holds(case),
        *_resets(case),
    ):
        if isinstance(one, Finding):
            findings.append(one)
        else:
            unjudged.setdefault(*one)
    moot = {"A2", "A4", "A6", "W5"} & unjudged.keys()
    if untold := _untold(case, written):
        unjudged.setdefault("A2", untold)
    holds = tuple(one for one in case.bounds if case.covers(one.span.scope))
    bases = {**_BASES, "A4": case.basis, "A6": case.basis}
    if holds or "W10" in unjudged:
        bases |= dict.fromkeys(case.of_group_holds, Basis.CLOCKS)
    return Result(
        case=case.case,
        findings=tuple(
            one
            for one in findings
            if one.check not in moot or one.basis in {Basis.ORDER, Basis.COMMITS}
        ),
        group_holds=holds,
        bases=bases,
        unjudged=unjudged,
        unrecorded=case.unrecorded.count,
    )


def _incomparable(case: Case) -> str:
    # Why offsets cannot be compared: they are of two topics of one name; "" if not.
    first = {epoch.cluster: epoch.member for epoch in case.epochs if epoch.cluster}
    if len(first) > 1:
        (one, who), (other, another), *_ = first.items()
        return (
            f"{who} was on the cluster {one} and {another} on {other}: judge each "
            "cluster by itself"
        )
    if len({epoch.topic_id for epoch in case.epochs} - {None}) > 1:
        return "the topic was deleted and created again: its id changed"
    return ""


def _by_offsets(case: Case) -> Iterator[Finding | Unjudged]:
    is_drained = case.settings.is_drained
    yield from wrong_starts(case.case, case.tracks, _targets(case))
    yield from fleet.missing(
        case.case, case.tracks, case.acknowledged, is_drained=is_drained
    )
    if is_drained:
        yield from fleet.not_done(case.case, case.tracks, case.acknowledged)


def _late_commits(tracks: Iterable[Track]) -> Iterator[Finding]:
    # Wrong only if the generation that revoked the partition gave it to a member.
    tracks = list(tracks)
    given = frozenset[int]().union(*(one.generations for one in tracks))
    for one in tracks:
        for number, found in one.commits.late:
            if number in given:
                yield evolve(found, basis=Basis.GENERATIONS)


# ---------------------------------------------------------------- holds of the group


def _under_holds(case: Case) -> Iterator[Finding | Unjudged]:
    for bounds in case.bounds:
        scope = bounds.span.scope
        for found in under_hold(case.case, case.tracks, bounds, case.clocks):
            if isinstance(found, Finding) and not case.covers(scope):
                yield (
                    found.check,
                    f"it is unknown what {scope} covers: {found.evidence}",
                )
            else:
                yield found


def _unknown_holds(case: Case) -> str:
    # Why it is not known when the group was held; "" if it is.
    control = case.settings.control
    if control is None or not control.is_about(case.case.group):
        for scope, holder in case.group.readings:
            if not case.covers(scope):
                continue
            who = "only the control topics say when (--control, or --history FILE)"
            if control is not None:
                who = f"the history that was given is of the group {control.group} only"
            return f"members read that {holder} held {scope}: {who}"
        return ""
    return (
        control.trouble or _others_holds(case, control) or _not_covered(case, control)
    )


def _not_covered(case: Case, control: Control) -> str:
    # Why what was read of holds topics begins too late or ends too early; "" if not.
    skew = case.settings.clock_skew
    began = min((epoch.at for epoch in case.epochs), default=math.inf)
    if began < control.since + skew:
        return (
            f"the control topics are complete since {_utc(control.since)}, "
            "and the partition may have had an owner before"
        )
    last = max((one.last_at for one in case.tracks.values()), default=-math.inf)
    if control.may_lack(last, skew):
        return _too_early(control)
    return ""


def _too_early(control: Control) -> str:
    until = _utc(control.until or 0.0)
    return f"the history ends at {until}, take it after the journals"


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


def _others_holds(case: Case, control: Control) -> str:
    # Why what was read of holds topics is not of the members' own; "" if it may be.
    for epoch in case.epochs:
        if control.cluster and epoch.cluster not in {None, control.cluster}:
            return (
                f"the holds topics are of the cluster {control.cluster}, and "
                f"{epoch.member} was on {epoch.cluster}"
            )
    for one in case.group.lacking:
        scope, holder = one.key
        if case.covers(scope) is False:
            continue
        if control.may_lack(one.written, case.settings.clock_skew):
            said = f"{holder} held {scope} later, as {one.entry} proves"
            return f"{_too_early(control)}: {said}"
        older = ", or the history was written before" if control.until is None else ""
        return (
            f"the holds topics lack the hold of {scope} by {holder} that {one.entry} "
            f"proves: they are of another cluster, or were made again since{older}"
        )
    return ""


def _resets(case: Case) -> Iterator[Finding | Unjudged]:
    # A member's word that it was moved counts if an operator's hold says so, too.
    control, group = case.settings.control, case.case.group
    for name, track in case.tracks.items():
        for one in track.resets:
            is_read = control is not None and control.is_about(group)
            known = control.targets if control is not None else ()
            if is_read and (group, one.owner, one.tp, one.offset) in known:
                continue
            if is_read and control is not None and _has_all(control, case, one.at):
                yield track.unconfirmed(one)
                continue
            why = (
                f"{name} says in entry {one.n} that {one.owner} moved it to {one.offset}; "
                "only the control topics can confirm that (--control, or --history FILE)"
            )
            yield from ((check, why) for check in ("A2", "A4", "A5", "A6"))


def _targets(case: Case) -> frozenset[int]:
    # The offsets to which operators asked to move the group.
    control, name = case.settings.control, f"{case.case.topic}:{case.case.partition}"
    known = control.targets if control is not None else ()
    return frozenset(
        offset
        for group, _, tp, offset in known
        if (group, tp) == (case.case.group, name)
    )


def _has_all(control: Control, case: Case, at: float) -> bool:
    skew = case.settings.clock_skew
    is_known = not control.trouble and at >= control.since + skew
    return is_known and not control.may_lack(at, skew)


# ---------------------------------------------------------------- what is not judged


def _unjudged(case: Case) -> Iterator[Unjudged]:
    tracks = case.tracks
    if not tracks and not case.case.group and case.acknowledged.told:
        yield "A2", "no journal says who read the acknowledged records"
    yield from _unseen_commits(tracks)
    yield from _unplaced(tracks)
    for one in tracks.values():
        yield from one.unjudged()
    if why := _incomparable(case):
        yield from ((check, why) for check in ("A2", "A4", "A5", "A6", "W5"))
    if grouped := _grouped(case):
        checks = (*_OF_THE_GROUP, *case.of_group_holds)
        yield from ((check, grouped) for check in checks)
    if unknown := _unknown_holds(case):
        yield from ((check, unknown) for check in case.of_group_holds)


def _untold(case: Case, written: Container[str]) -> str:
    # Losses that were found are losses nevertheless.
    if case.acknowledged.kept is None:
        for one in case.tracks.values():
            if "A2" in one.was_reset:
                return f"{one.was_reset['A2']}: {_UNKEPT}"
    if hole := _hole(case):
        return hole
    if not case.settings.is_drained:
        return ""
    # Whether everything came cannot be told from what came.
    if not case.acknowledged.told and case.case.topic not in written:
        return _UNTOLD
    least = case.acknowledged.untold
    passed = fleet.positions(case.epochs)
    if any(uncovered(merged([(0, least)] if least else []), passed)):
        return f"what the topic had before offset {least} is deleted"
    return ""


def _hole(case: Case) -> str:
    is_plain = case.case.topic in case.settings.uncompacted
    if not is_plain or any(one.is_transactional for one in case.tracks.values()):
        return ""
    if case.unrecorded.first is None:
        return ""
    start, end = case.unrecorded.first
    where = "audit --against-topic tells"
    if case.acknowledged.kept is not None:
        where = "the topic has deleted them since"
    return f"offsets {start} to {end - 1} {_UNRECORDED}{where}"


def _unseen_commits(tracks: Mapping[str, Track]) -> Iterator[Unjudged]:
    # Where an owner begins at one of them, that it was delivered is judged there.
    for name, one in tracks.items():
        if one.is_blind and one.is_working:
            why = f"the journal of {name} lacks commits, as of a producer's transaction"
            yield "W4", why


def _unplaced(tracks: Mapping[str, Track]) -> Iterator[Unjudged]:
    for name, one in tracks.items():
        for offset in one.commits.unplaced:
            if offset:
                why = f"{name} committed {offset}, but its position then is unknown"
                yield "A5", why


def _grouped(case: Case) -> str:
    # Members that name a generation were in a group, but perhaps in different ones.
    if not case.case.group:
        for name, one in case.tracks.items():
            if any(epoch.is_numbered for epoch in one.epochs):
                return f"{name} was in a group, but its journal does not name it"
    return ""
