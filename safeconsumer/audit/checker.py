"""
Judges all members' journals about one partition together: the reference checker.

The checks are: A1, nothing is delivered while held; A2, nothing is lost; A3, an
ownership has no gap; A4, an ownership does not step back, and none begins after the
committed offset; A5, nothing is committed that was not delivered; A6, records that are
delivered twice were not committed; G2, nothing is delivered that is held for the group,
once its members know of the hold.

For workers, whose handlers are journaled: W4, nothing is committed beyond what is
complete; W5, every record is completed in the end, once per ownership; W7, records of a
lane are handled one at a time, in order; W10, no handler begins on held records.
"""

import math
from collections.abc import (
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter

from attrs import evolve, field, frozen

from safeconsumer.audit import fleet, group_holds
from safeconsumer.audit.control import Control, Span
from safeconsumer.audit.entries import Acked, Entry, Kept, Other
from safeconsumer.audit.findings import Address, Basis, Finding
from safeconsumer.audit.holding import Key
from safeconsumer.audit.members import Member, Watch
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.reading import TopicPartition, covering_for_group, tp_of
from safeconsumer.audit.spans import merged, uncovered
from safeconsumer.audit.starts import (
    Start,
    basis_of,
    starts_of,
    wrong_commits,
    wrong_starts,
)
from safeconsumer.audit.stream import Source
from safeconsumer.audit.tracks import Track
from safeconsumer.errors import JournalError

CHECKS = (
    *("A1", "A2", "A3", "A4", "A5", "A6", "G2"),
    *("W4", "W5", "W7", "W10"),
)

# Checks that need to know to which group each member belongs.
_OF_THE_GROUP = ("A2", "A4", "A6", "G2")

# Why A2 is not judged where everything that was written should have been delivered.
_UNTOLD = (
    "nothing says what was written: that takes producers' journals, or the topic "
    "(audit --against-topic)"
)

# What a clean result rests on; for A4 and A6 this depends on what is known.
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
    """

    patience: float = 5.0
    clock_skew: float = 0.0
    is_drained: bool = False
    control: Control | None = None


@frozen(kw_only=True)
class Result:
    """
    What was found about one case.

    Attributes:
        case: the consumer group and the partition.
        findings: every broken promise.
        group_holds: when the partition was held for the group.
        bases: the evidence on which each check rests here.
        unjudged: checks that could not be judged here, and why.
    """

    case: Address
    findings: tuple[Finding, ...]
    group_holds: tuple[Span, ...] = ()
    bases: Mapping[str, Basis] = field(factory=dict)
    unjudged: Mapping[str, str] = field(factory=dict)


def judge(
    case: Address,
    entries: Iterable[tuple[str, Entry]],
    settings: Settings,
    written: Container[str] = (),
) -> Result:
    """
    Judge one partition of one consumer group by entries of all journals.

    It is pure. Each member's entries come together, in their order.

    Args:
        case: the group and the partition.
        entries: those with the addresses that :func:`needs_of` names for the case, as
            :func:`safeconsumer.audit.members.split` finds them, each after its member.
        settings: the assumptions.
        written: topics for which a journal or the topic itself says what was written,
            perhaps to other partitions only.

    Raises:
        JournalError: an entry names something that cannot be read.
    """
    checker = Checker(settings, only=case)
    for name, own in groupby(entries, itemgetter(0)):
        checker.follow(name, case.group or "", (entry for _, entry in own))
    return checker.result(case, written)


class Checker:
    """
    Judges all cases that journals are about, on one machine, in one pass.

    Memory grows with ownerships, commits and gaps between deliveries; where something
    was held for the group also with polls that returned records; not with records.

    Args:
        settings: the assumptions.
        only: the only case that is judged; None for all.
        watch: sees what members do.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        only: Address | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._settings = settings
        self._only = only
        self._watch = watch
        self._members: dict[tuple[str, str], Member] = {}
        self._written: dict[TopicPartition, fleet.Acknowledged] = {}

    def read(self, journal: Source) -> None:
        """
        Read a whole journal.

        Raises:
            JournalError: it is broken somewhere; the entries before that count, but
                they prove nothing.
        """
        entries = iter(journal.entries)
        group: str | None = journal.group
        while group is not None:
            group = self.follow(journal.member, group, entries)

    def follow(
        self, member: str, group: str, entries: Iterator[Entry | Other]
    ) -> str | None:
        """
        Follow entries of one member; return the group to which it changes, if it does.

        Raises:
            JournalError: as :meth:`read`.
        """
        known = self._members.get((member, group))
        if known is None:
            known = self._members[member, group] = Member(
                member,
                group,
                only=None if self._only is None else self._only.tp,
                written=self._wrote,
                keeps_moments=_is_held(self._settings, group),
                watch=self._watch,
            )
        return known.read(entries)

    def _wrote(self, member: str, entry: Acked | Kept) -> None:
        tp = tp_of(entry.tp)
        self._written.setdefault(tp, fleet.Acknowledged()).add(member, entry)

    def results(self) -> dict[Address, Result]:
        """Return what was found about each case, once all journals were read."""
        known = [
            *(
                Address(one.group, *tp)
                for one in self._members.values()
                for tp in one.tracks
            ),
            *(Address(None, *tp) for tp in self._written),
        ]
        written = written_to(known)
        return {case: self.result(case, written) for case in needs_of(known)}

    def result(self, case: Address, written: Container[str]) -> Result:
        """
        Return what was found about one case.

        Args:
            case: the group and the partition.
            written: as of :func:`judge`.
        """
        members = [
            one
            for (_, group), one in sorted(self._members.items())
            if group == case.group
        ]
        own = _Case(
            case,
            self._settings,
            {one.name: one.tracks[case.tp] for one in members if case.tp in one.tracks},
            self._written.get(case.tp) or fleet.Acknowledged(),
            [one.holds.heard for one in members],
        )
        return _result(own, written)


def check(
    journals: Iterable[Source], settings: Settings | None = None
) -> dict[Address, Result]:
    """
    Return what is found about every group and partition that the journals name.

    Args:
        journals: the journals of all members and producers.
        settings: the assumptions.

    Raises:
        JournalError: a journal is broken somewhere.
    """
    checker = Checker(settings or Settings())
    for journal in journals:
        checker.read(journal)
    return checker.results()


def findings_of(
    results: Mapping[Address, Result],
) -> dict[TopicPartition, tuple[Finding, ...]]:
    """Return the findings about each partition, in any group."""
    found: dict[TopicPartition, tuple[Finding, ...]] = {}
    for case, result in results.items():
        found[case.tp] = *found.get(case.tp, ()), *result.findings
    return found


def needs_of(addresses: Iterable[Address]) -> dict[Address, frozenset[Address]]:
    """
    Return the cases that entries are about, and the addresses whose entries each needs.

    A partition that was written to is a case of each group that reads its topic. If no
    group does, it is a case of the group ``""``: nobody delivered the acknowledged
    records. If groups and a consumer without a group read a topic, that consumer is
    judged only on the partitions that its own journal names.
    """
    found = frozenset(addresses)
    readers: dict[str, set[str]] = {}
    for one in found:
        if one.is_case and one.group is not None:
            readers.setdefault(one.topic, set()).add(one.group)
    cases = {one for one in found if one.is_case}
    for one in found:
        if one.group is None:
            groups = readers.get(one.topic, {""})
            groups = groups - {""} or groups
            cases.update(evolve(one, group=group) for group in groups)
    return {
        case: frozenset({case, evolve(case, group=None), Address(case.group)}) & found
        for case in sorted(cases)
    }


def written_to(addresses: Iterable[Address]) -> frozenset[str]:
    """Return the topics for which a journal or the topic itself says what was written."""
    return frozenset(one.topic for one in addresses if one.group is None)


def _is_held(settings: Settings, group: str | None) -> bool:
    control = settings.control
    return control is not None and any(one.group == group for one in control.spans)


# ---------------------------------------------------------------- one case


@frozen
class _Case:
    """
    Everything that is known about one case.

    Attributes:
        case: the group and the partition.
        settings: the assumptions.
        tracks: what members did with it.
        acknowledged: what producers wrote.
        heard: when members of the group read which holds.
    """

    case: Address
    settings: Settings
    tracks: Mapping[str, Track]
    acknowledged: fleet.Acknowledged
    heard: Sequence[Mapping[Key, Sequence[float]]]

    @property
    def epochs(self) -> list[Epoch]:
        """The ownerships, those of each member in order."""
        return [epoch for one in self.tracks.values() for epoch in one.epochs]

    @property
    def starts(self) -> Sequence[Start]:
        """The ownerships before which something is known to be committed."""
        strays = [one.commits.strays for one in self.tracks.values()]
        return starts_of(self.epochs, strays, self.settings.clock_skew)

    def covers(self, scope: str) -> bool | None:
        """Return whether a scope covers it; None for a pattern that cannot be read."""
        try:
            return covering_for_group(scope)(self.case.tp)
        except JournalError:
            return None


def _result(case: _Case, written: Container[str]) -> Result:
    """Apply all checks to what is known about one case."""
    starts, basis = case.starts, basis_of(case.epochs)
    unjudged = dict(_unjudged(case, starts, written))
    findings: list[Finding] = []
    for one in (
        *(found for track in case.tracks.values() for found in track.findings()),
        *_late_commits(case.tracks.values()),
        *wrong_starts(case.case, starts, basis),
        *wrong_commits(case.case, starts, basis),
        *_by_offsets(case),
        *_under_holds(case),
    ):
        if isinstance(one, Finding):
            findings.append(one)
        else:
            unjudged.setdefault(*one)
    moot = {"A2", "A4", "A6", *dict(_unseen_commits(case.tracks))} & unjudged.keys()
    return Result(
        case=case.case,
        findings=tuple(
            one for one in findings if one.check not in moot or one.basis is Basis.ORDER
        ),
        group_holds=tuple(_spans(case)),
        bases={**_BASES, "A4": basis, "A6": basis},
        unjudged=unjudged,
    )


def _by_offsets(case: _Case) -> Iterator[Finding]:
    is_drained = case.settings.is_drained
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


def _spans(case: _Case) -> Iterator[Span]:
    control = case.settings.control
    if control is None or control.trouble:
        return
    for span in control.spans:
        if span.group == case.case.group and case.covers(span.scope) is not False:
            yield span


def _under_holds(case: _Case) -> Iterator[Finding | Unjudged]:
    patience, skew = case.settings.patience, case.settings.clock_skew
    readings = group_holds.Readings()
    for scope, holder, at in _heard(case):
        readings.add(scope, holder, at)
    for span in _spans(case):
        bounds = readings.bounds(span, patience, skew)
        for found in group_holds.under_hold(case.case, case.tracks, bounds):
            if case.covers(span.scope):
                yield found
            else:
                said = f"it is unknown what {span.scope} covers: {found.evidence}"
                yield found.check, said


def _heard(case: _Case) -> Iterator[tuple[str, str, float]]:
    for one in case.heard:
        for (scope, holder), times in one.items():
            if ":" in holder and case.covers(scope):  # of the group or of operators
                yield from ((scope, holder, at) for at in times)


def _unknown_holds(case: _Case) -> str:
    # Why it is not known when the group was held; "" if it is.
    control = case.settings.control
    if control is None or not control.is_about(case.case.group):
        for scope, holder, _ in _heard(case):
            return (
                f"members read that {holder} held {scope}: give what the control "
                "topics say (--control)"
            )
        return ""
    if control.trouble:
        return control.trouble
    began = min((epoch.at for epoch in case.epochs), default=math.inf)
    if began < control.since - case.settings.clock_skew:
        since = datetime.fromtimestamp(control.since, UTC)
        return (
            f"the control topics are complete since {since:%Y-%m-%d %H:%M:%SZ}, "
            "and the partition had an owner before"
        )
    return ""


# ---------------------------------------------------------------- what is not judged


def _unjudged(
    case: _Case, starts: Sequence[Start], written: Container[str]
) -> Iterator[Unjudged]:
    tracks = case.tracks
    if case.settings.is_drained and (untold := _untold(case, written)):
        yield "A2", untold
    if not tracks and not case.case.group and case.acknowledged.told:
        yield "A2", "no journal says who read the acknowledged records"
    yield from _unseen_commits(tracks)
    yield from _unplaced(tracks, starts)
    for one in tracks.values():
        if one.was_reset:
            yield "A4", one.was_reset
    if any(one.may_be_anew for one in starts):
        why = "the group counts generations from 1 again, perhaps without its commits"
        yield from (("A4", why), ("A5", why), ("A6", why))
    if grouped := _grouped(case):
        yield from ((check, grouped) for check in _OF_THE_GROUP)
    if unknown := _unknown_holds(case):
        yield "G2", unknown


def _untold(case: _Case, written: Container[str]) -> str:
    # Whether everything came cannot be told from what came.
    if not case.acknowledged.told and case.case.topic not in written:
        return _UNTOLD
    least = case.acknowledged.untold
    passed = fleet.positions(case.epochs)
    if any(uncovered(merged([(0, least)] if least else []), passed)):
        return f"what the topic had before offset {least} is deleted"
    return ""


def _unseen_commits(tracks: Mapping[str, Track]) -> Iterator[Unjudged]:
    # Of a client that commits by itself nobody knows what is committed, and so neither
    # where the next owner was to begin.
    for name, one in tracks.items():
        if one.is_blind:
            why = f"{name} commits by itself, and its journal does not tell what"
            for check_ in ("A4", "A5", "A6", *(("W4",) if one.is_working else ())):
                yield check_, why
            return


def _unplaced(
    tracks: Mapping[str, Track], starts: Sequence[Start]
) -> Iterator[Unjudged]:
    placed = {id(one.epoch) for one in starts}
    for name, one in tracks.items():
        for epoch, offset in one.commits.unplaced:
            if offset and (epoch.was_sought or id(epoch) not in placed):
                why = f"{name} committed {offset}, but its position then is unknown"
                yield "A5", why


def _grouped(case: _Case) -> str:
    # Members that name a generation were in a group, but perhaps in different ones.
    if not case.case.group:
        for name, one in case.tracks.items():
            if any(epoch.is_numbered for epoch in one.epochs):
                return f"{name} was in a group, but its journal does not name it"
    return ""
