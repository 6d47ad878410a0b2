"""
Collects a timeline's data while the judge reads journals.

When a partition is owned or held is never worked out here: these times are read from
the judge's own replay after each entry, so that timeline and verdict cannot disagree.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

from attrs import evolve, frozen

from safeconsumer.audit.checker import Court, Settings, Verdict
from safeconsumer.audit.facts import OVER, Address, Fact, facts
from safeconsumer.audit.findings import Finding
from safeconsumer.audit.holding import Key, Placed, ended_at, keys
from safeconsumer.audit.journal import Entry, Source
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.reading import is_partition
from safeconsumer.audit.replay import Replay
from safeconsumer.audit.timeline.data import (
    Fault,
    Held,
    Lane,
    Level,
    Owned,
    Process,
    Run,
    Timeline,
)
from safeconsumer.errors import JournalError
from safeconsumer.journal.format import EXPIRED, tp_text

# 1900-01-01 and 9000-01-01, well within what calendars can represent.
_FIRST_MOMENT, _LAST_MOMENT = -2_208_988_800, 221_845_392_000


@frozen(kw_only=True)
class Part:
    """
    The part of the journals that is shown.

    Attributes:
        groups: these; none means all.
        topics: these; none means all.
        partitions: these, too; none means all.
        start: seconds after the first entry.
        end: the same; None means to the last one.
    """

    groups: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    partitions: frozenset[tuple[str, int]] = frozenset()
    start: float = 0.0
    end: float | None = None

    def covers(self, case: Address) -> bool:
        """Return whether a partition of a group is wanted."""
        if self.groups and case.group not in self.groups:
            return False
        if not self.topics and not self.partitions:
            return True
        return case.topic in self.topics or (
            (case.topic, case.partition) in self.partitions
        )

    def unknown(self, cases: Iterable[Address]) -> list[str]:
        """Return which of its names are not those of a case."""
        groups, topics, partitions = (
            set(self.groups),
            set(self.topics),
            set(self.partitions),
        )
        for one in cases:
            groups.discard(one.group or "")
            topics.discard(one.topic)
            partitions.discard((one.topic, one.partition))
        return [
            *(f"the group {one}" for one in sorted(groups)),
            *(f"the topic {one}" for one in sorted(topics)),
            *map(tp_text, sorted(partitions)),
        ]


class _Seen:
    """
    Collects the holds in the judge's replay of one member and one partition.

    A hold is in force from the fact after which the replay has it, while the partition
    is owned in the replay. A later entry may report that it had ended earlier: then the
    collected span is cut, by the rule by which the judge withdraws a suspicion.
    """

    def __init__(self) -> None:
        self._open: dict[Key, tuple[Placed, float]] = {}
        # The holds of each key, one after the other.
        self._spans: dict[Key, list[tuple[Placed, float, float]]] = {}
        self._is_owned = False
        self.owned: list[tuple[Epoch, float]] = []
        self.runs: list[tuple[int, Run]] = []

    def look(self, replay: Replay, fact: Fact) -> None:
        if fact.event == "deliver":
            count, first, last = (fact[name] for name in ("count", "first", "last"))
            run = Run(at=fact.at, count=count, first=first, last=last)
            self.runs.append((fact.number, run))
        is_owned = replay.is_owned and fact.event != OVER
        self._look_at_owner(replay, fact, is_owned=is_owned)
        # The expiry is applied when it is drawn, since no entry reports it.
        standing = replay.holds.standing(-math.inf) if is_owned else ()
        self._look_at_holds(fact, {one.key: one for one in standing})
        if fact.event == "lift":
            self._cut(fact)

    def _look_at_owner(self, replay: Replay, fact: Fact, *, is_owned: bool) -> None:
        if is_owned == self._is_owned:
            return
        self._is_owned = is_owned
        if is_owned:
            self.owned.append((replay.epochs[-1], math.inf))
        else:
            self.owned[-1] = self.owned[-1][0], fact.at

    def _look_at_holds(self, fact: Fact, now: Mapping[Key, Placed]) -> None:
        for key, (placed, start) in list(self._open.items()):
            if now.get(key) is not placed:
                del self._open[key]
                span = placed, start, min(fact.at, placed.until)
                self._spans.setdefault(key, []).append(span)
        for key, placed in now.items():
            self._open.setdefault(key, (placed, fact.at))

    def _cut(self, lift: Fact) -> None:
        # Backwards, as far as the reported end may reach: a journal of a day may have a
        # thousand times as many spans.
        for key in keys(lift):
            own = self._spans.get(key, [])
            for number in reversed(range(len(own))):
                placed, start, end = own[number]
                if placed.is_ended_by(lift):
                    own[number] = placed, start, min(end, placed.ended(lift).until)
                elif lift["why"] == EXPIRED:
                    break  # nor is any before it
                moment = ended_at(lift) if placed.is_remote else lift["departed_at"]
                if moment is None or start <= moment:
                    break  # those before were over

    def held(self, member: str) -> Iterator[Held]:
        """Yield the holds, once the journal has ended."""
        for placed, start, end in chain.from_iterable(self._spans.values()):
            if start < end:
                yield Held(
                    member=member,
                    scope=placed.scope,
                    owner=placed.owner,
                    level=_level_of(placed),
                    start=start,
                    end=end,
                )


def _level_of(placed: Placed) -> Level:
    if placed.is_remote:
        return Level.GROUP
    if placed.scope == "@all":
        return Level.CONSUMER
    if is_partition(placed.scope):
        return Level.PARTITION
    return Level.PATTERN if placed.scope.startswith("re:") else Level.TOPIC


class Collector:
    """
    Reads journals with the judge, and collects what the judge saw.

    Args:
        settings: the assumptions of the judge.
    """

    def __init__(self, settings: Settings) -> None:
        self._court = Court(settings, self._look)
        self._seen: dict[Address, dict[str, _Seen]] = {}
        self._processes: dict[str, Process] = {}
        self._members: set[str] = set()
        self._faults: dict[object, Fault] = {}

    def read(self, journal: Source) -> None:
        """
        Read a whole journal.

        Raises:
            JournalError: it is broken somewhere.
        """
        for address, fact in facts(_Noted(journal, self)):
            if fact.event in {"assigned", "revoked", "lost"}:
                self._members.add(fact.member)
            self._court.take(address, fact)

    def _look(self, case: Address, replay: Replay, fact: Fact) -> None:
        members = self._seen.setdefault(case, {})
        seen = members.get(fact.member)
        if seen is None:
            seen = members[fact.member] = _Seen()
        seen.look(replay, fact)

    def note(self, group: str, entry: Entry) -> None:
        """See an entry that need not be about a partition: processes live, and fail."""
        name, key = entry.member, (entry.member, entry["id"])
        known = self._processes.get(name)
        if known is None:
            known = Process(group=group, name=name, start=entry.at, end=entry.at)
        self._processes[name] = evolve(
            known,
            group=known.group or group,
            start=min(known.start, entry.at),
            end=max(known.end, entry.at),
        )
        match entry.event:
            case "call":
                self._members.add(name)
            case "fault":
                self._faults[key] = Fault(
                    kind=entry["kind"],
                    targets=tuple(entry["targets"]),
                    start=entry.at,
                    end=entry.at + max(0.0, entry["seconds"]),
                )
            case "heal" if key in self._faults:
                self._faults[key] = evolve(self._faults[key], end=entry.at)

    def timeline(self, part: Part | None = None) -> Timeline:
        """
        Return the timeline, once all journals were read.

        Raises:
            JournalError: they have no entries about the part, or not about all of it.
        """
        part = part or Part()
        origin, until = self._moments()
        window = _window(origin, until, part)
        verdicts = self._court.verdicts()
        if unknown := part.unknown(verdicts):
            known = _named(verdicts)
            message = f"no journal names {', '.join(unknown)}; they name {known}"
            raise JournalError(message)
        chosen = [case for case in sorted(verdicts, key=_order) if part.covers(case)]
        if not chosen:
            message = (
                f"no such partition in such a group; journals name {_named(verdicts)}"
            )
            raise JournalError(message)
        lanes = [self._lane(verdicts[case], window) for case in chosen]
        found = sum(len(one.findings) for one in verdicts.values())
        groups = {case.group for case in chosen}
        members = [
            one
            for name, one in self._processes.items()
            if name in self._members and one.group in groups
        ]
        return Timeline(
            start=window.start,
            end=window.end,
            origin=origin,
            until=until,
            lanes=lanes,
            members=window.clipped(sorted(members, key=_by_name)),
            faults=window.clipped(self._faults.values()),
            left_out=len(verdicts) - len(chosen),
            elsewhere=found - sum(len(lane.findings) for lane in lanes),
        )

    def _moments(self) -> tuple[float, float]:
        processes = self._processes.values()
        if not processes:
            message = "nothing to draw: the journals have no entries"
            raise JournalError(message)
        origin = min(one.start for one in processes)
        until = max(one.end for one in processes)
        if origin < _FIRST_MOMENT or until > _LAST_MOMENT:
            message = "nothing to draw: times lie outside the years 1900 to 9000"
            raise JournalError(message)
        return origin, until

    def _lane(self, verdict: Verdict, window: "_Window") -> Lane:
        members = self._seen.get(verdict.case, {})
        owned = [
            Owned(member=name, start=epoch.at, end=end, is_lost=epoch.was_lost)
            for name, seen in members.items()
            for epoch, end in seen.owned
        ]
        held = [one for name, seen in members.items() for one in seen.held(name)]
        held += _of_the_group(verdict, members)
        wrong = {
            (one.member, one.entry) for one in verdict.findings if one.check == "A1"
        }
        wrong.update(_against_the_group(verdict, members))
        runs = [
            evolve(run, is_wrong=(name, number) in wrong)
            for name, seen in members.items()
            for number, run in seen.runs
        ]
        return Lane(
            case=verdict.case,
            owned=window.clipped(sorted(owned, key=lambda one: one.start)),
            held=window.clipped(_merged(held)),
            runs=window.inside(runs),
            findings=window.inside(verdict.findings),
            unjudged=verdict.unjudged,
        )


@frozen
class _Noted:
    """A journal whose entries are noted before the judge gets them."""

    source: Source
    collector: Collector

    @property
    def member(self) -> str:
        return self.source.member

    @property
    def group(self) -> str:
        return self.source.group

    @property
    def entries(self) -> Iterator[Entry]:
        group = self.source.group
        for entry in self.source.entries:
            if entry.event == "group":
                group = entry["group"]
            self.collector.note(group, entry)
            yield entry


def _of_the_group(verdict: Verdict, members: Mapping[str, _Seen]) -> Iterator[Held]:
    # A member that had the partition before the hold obeys as soon as it has read the
    # hold, which its own journal shows.
    for bounds in verdict.group_holds:
        for name, seen in members.items():
            for epoch, end in seen.owned:
                start, until = bounds.begins(epoch), min(end, bounds.end)
                if start < until:
                    yield Held(
                        member=name,
                        scope=bounds.span.scope,
                        owner=bounds.span.holder,
                        level=Level.GROUP,
                        start=start,
                        end=until,
                    )


def _against_the_group(
    verdict: Verdict, members: Mapping[str, _Seen]
) -> Iterator[tuple[str, int]]:
    # The deliveries that G2 is about: it reports only the first one of an ownership.
    names = {one.member for one in verdict.findings if one.check == "G2"}
    for name in names & members.keys():
        bound = [
            (bounds.begins(epoch), min(end, bounds.end))
            for bounds in verdict.group_holds
            for epoch, end in members[name].owned
        ]
        for number, run in members[name].runs:
            if any(start <= run.at < end for start, end in bound):
                yield name, number


def _merged(held: Iterable[Held]) -> list[Held]:
    # A hold that is placed again while in force continues; the control topics and a
    # member's journal may both have the same hold.
    found: dict[tuple[str, str, str], list[Held]] = {}
    for one in sorted(held, key=lambda one: one.start):
        own = found.setdefault((one.member, one.scope, one.owner), [])
        if own and one.start <= own[-1].end:
            own[-1] = evolve(own[-1], end=max(own[-1].end, one.end))
        else:
            own.append(one)
    every = (one for own in found.values() for one in own)
    return sorted(every, key=lambda one: (one.start, one.scope, one.owner))


def _order(case: Address) -> tuple[str, str, int]:
    return case.group or "", case.topic, case.partition


def _by_name(one: Process) -> list[str | int]:
    # Natural order, with text and numbers by turns: m2 comes before m10.
    parts = re.split("([0-9]{1,9})", one.name)
    return [one.group, *(int(part) if n % 2 else part for n, part in enumerate(parts))]


def _named(cases: Iterable[Address]) -> str:
    names = sorted(
        f"{tp_text((one.topic, one.partition))} of group {one.group}" for one in cases
    )
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""  # noqa: PLR2004 - as many as fit
    return (", ".join(names[:5]) or "none") + more


def _window(origin: float, until: float, part: Part) -> "_Window":
    start = origin + part.start
    end = until if part.end is None else min(until, origin + part.end)
    if start > until or end < start:
        asked = "the end" if part.end is None else f"{part.end:.1f} s"
        message = (
            f"nothing to draw: the journals last {until - origin:.1f} s, "
            f"from {part.start:.1f} s to {asked} is asked for"
        )
        raise JournalError(message)
    return _Window(start, max(end, start + 0.001))


_Spanned = TypeVar("_Spanned", Held, Owned, Fault, Process)
_Dated = TypeVar("_Dated", Run, Finding)


@frozen
class _Window:
    """The period of time that is shown."""

    start: float
    end: float

    def clipped(self, spans: Iterable[_Spanned]) -> list[_Spanned]:
        found = []
        for one in spans:
            start, end = max(one.start, self.start), min(one.end, self.end)
            if start <= end:
                found.append(evolve(one, start=start, end=end))
        return found

    def inside(self, dated: Iterable[_Dated]) -> list[_Dated]:
        """Return what is in the window, or has no moment, in the order of time."""
        found = [one for one in dated if one.at is None or self._has(one.at)]
        return sorted(found, key=lambda one: one.at or 0.0)

    def _has(self, at: float) -> bool:
        return self.start <= at <= self.end
