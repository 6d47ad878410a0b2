"""Reads journals for a picture from the judge's replay, after each entry."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeVar

from attrs import define, evolve, field, frozen

from safeconsumer.audit import fleet
from safeconsumer.audit.checker import Court, Settings, Verdict
from safeconsumer.audit.facts import OVER, Address, Fact, facts
from safeconsumer.audit.holding import Key, Placed, ended_at, keys
from safeconsumer.audit.journal import Entry, Source
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.reading import is_partition
from safeconsumer.audit.replay import Let, Replay
from safeconsumer.audit.timeline.story import (
    Fault,
    Held,
    Lane,
    Level,
    MemberLane,
    Owned,
    Point,
    Run,
    Timeline,
)
from safeconsumer.errors import JournalError
from safeconsumer.journal.format import EXPIRED, tp_text

# JournalWriter adds this to a member's name: its process id, and a random part.
_OF_A_PROCESS = re.compile(r"-\d+-[0-9a-f]{8}$")
_BY_CHANCE = re.compile(r"-[0-9a-f]{8}$")

_MOVES = frozenset({"assigned", "revoked", "lost"})

# 1900-01-01 and 9000-01-01, well within what calendars can represent.
_FIRST_MOMENT, _LAST_MOMENT = -2_208_988_800, 221_845_392_000


@frozen(kw_only=True)
class Wanted:
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
        self.let: list[tuple[Let, float]] = []
        self.runs: list[tuple[int, Run]] = []
        self.points: list[Point] = []

    def look(self, replay: Replay, fact: Fact) -> None:
        match fact.event:
            case "deliver":
                count, first, last = (fact[name] for name in ("count", "first", "last"))
                run = Run(at=fact.at, count=count, first=first, last=last)
                self.runs.append((fact.number, run))
            case "parked":
                self._point(fact, fact["bytes"])
            case "purged":
                self._point(fact, fact["count"] or 0, fact["why"] or "")
        is_owned = replay.is_owned and fact.event != OVER
        self._look_at_owner(replay, fact, is_owned=is_owned)
        # The expiry is applied when it is drawn, since no entry reports it.
        standing = replay.holds.standing(-math.inf) if is_owned else ()
        self._look_at_holds(fact, {one.key: one for one in standing})
        if fact.event == "lift":
            self._cut(fact)
            known = {id(let) for let, _ in self.let}
            self.let += ((let, fact.at) for let in replay.let if id(let) not in known)

    def _point(self, fact: Fact, count: int, said: str = "") -> None:
        self.points.append(Point(at=fact.at, kind=fact.event, count=count, said=said))

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


@define(kw_only=True)
class _Process:
    """The entries of one journal about its process as a whole."""

    group: str | None
    began: float = math.inf
    ended: float = -math.inf
    is_consumer: bool = False
    moves: dict[int, Point] = field(factory=dict)

    def move(self, case: Address, fact: Fact) -> None:
        """Note that it got or gave up a partition; one entry may be about several."""
        self.is_consumer = True
        name = f"{case.topic}:{case.partition}"
        known = self.moves.get(fact.number)
        if known is None:
            point = Point(at=fact.at, kind=fact.event, count=1, said=name)
        else:
            said = f"{known.said}, {name}"
            point = evolve(known, count=known.count + 1, said=said)
        self.moves[fact.number] = point


class Watching:
    """
    Reads journals with the judge, and collects for a picture what the judge saw.

    Args:
        settings: the assumptions of the judge.
    """

    def __init__(self, settings: Settings) -> None:
        self._court = Court(settings, self._look)
        self._skew = settings.clock_skew
        self._cases: tuple[Address, ...] = ()  # those of the picture told last
        self._seen: dict[Address, dict[str, _Seen]] = {}
        self._processes: dict[str, _Process] = {}
        self._faults: dict[object, Fault] = {}

    def hear(self, journal: Source) -> None:
        """
        Take a whole journal.

        Raises:
            JournalError: it is broken somewhere.
        """
        for address, fact in facts(_Noted(journal, self._note)):
            self._take(address, fact)

    def _take(self, address: Address, fact: Fact) -> None:
        process = self._process(fact.member, address.group, fact.at)
        if fact.event in _MOVES:
            process.move(address, fact)
        self._court.take(address, fact)

    def _look(self, case: Address, replay: Replay, fact: Fact) -> None:
        members = self._seen.setdefault(case, {})
        seen = members.get(fact.member)
        if seen is None:
            seen = members[fact.member] = _Seen()
        seen.look(replay, fact)

    def _process(self, member: str, group: str | None, at: float) -> _Process:
        process = self._processes.get(member)
        if process is None:
            process = self._processes[member] = _Process(group=group)
        if not process.group and group is not None:  # produced records have no group
            process.group = group
        process.began, process.ended = min(process.began, at), max(process.ended, at)
        return process

    def _note(self, group: str, entry: Entry) -> None:
        # Without a partition: that a process lived, and its faults.
        process = self._process(entry.member, group, entry.at)
        key = entry.member, entry["id"]
        match entry.event:
            case "call":
                process.is_consumer = True
            case "fault":
                self._faults[key] = _fault(entry)
            case "heal" if key in self._faults:
                self._faults[key] = evolve(self._faults[key], end=entry.at)

    # ------------------------------------------------------------ telling

    def told(self, wanted: Wanted | None = None) -> Timeline:
        """
        Return the timeline, once all journals were taken.

        Raises:
            JournalError: they have no entries about the wanted part.
        """
        wanted = wanted or Wanted()
        origin, until = self._moments()
        start, end = _window(origin, until, wanted)
        verdicts = self._court.verdicts()
        self._cases = tuple(verdicts)
        chosen = [case for case in sorted(verdicts, key=_order) if wanted.covers(case)]
        if not chosen:
            raise _nothing(verdicts)
        window = _Window(start, end)
        lanes = [self._lane(verdicts[case], window) for case in chosen]
        found = sum(len(one.findings) for one in verdicts.values())
        return Timeline(
            start=start,
            end=end,
            origin=origin,
            until=until,
            lanes=lanes,
            members=self._members({case.group for case in chosen}, window),
            faults=window.clipped(self._faults.values()),
            left_out=len(verdicts) - len(chosen),
            elsewhere=found - sum(len(lane.findings) for lane in lanes),
        )

    def unnamed(self, wanted: Wanted) -> str:
        """
        Return which of the wanted names no journal has, beside those that one has; "".

        Call it after :meth:`told`, which finds out which there are.
        """
        cases = self._cases
        unknown = [
            *(
                f"the group {name}"
                for name in sorted(wanted.groups - {case.group for case in cases})
            ),
            *(
                f"the topic {name}"
                for name in sorted(wanted.topics - {case.topic for case in cases})
            ),
            *map(
                tp_text,
                sorted(
                    wanted.partitions - {(case.topic, case.partition) for case in cases}
                ),
            ),
        ]
        if not unknown:
            return ""
        return f"no journal names {', '.join(unknown)}; they name {_named(cases)}"

    def _moments(self) -> tuple[float, float]:
        processes = self._processes.values()
        if not processes:
            message = "nothing to draw: the journals have no entries"
            raise JournalError(message)
        origin = min(one.began for one in processes)
        until = max(one.ended for one in processes)
        if origin < _FIRST_MOMENT or until > _LAST_MOMENT:
            message = "nothing to draw: times lie outside the years 1900 to 9000"
            raise JournalError(message)
        return origin, until

    def _lane(self, verdict: Verdict, window: "_Window") -> Lane:
        case = verdict.case
        members = self._seen.get(case, {})
        owned = [
            Owned(member=name, start=epoch.at, end=end, is_lost=epoch.was_lost)
            for name, seen in members.items()
            for epoch, end in seen.owned
        ]
        held = [one for name, seen in members.items() for one in seen.held(name)]
        held += _of_the_group(verdict, members, self._skew)
        wrong = {
            (one.member, one.entry) for one in verdict.findings if one.check == "A1"
        }
        wrong.update(_against_the_group(verdict, members, self._skew))
        runs = [
            evolve(run, is_wrong=(name, number) in wrong)
            for name, seen in members.items()
            for number, run in seen.runs
        ]
        points = [point for seen in members.values() for point in seen.points]
        return Lane(
            place=(case.group or "", case.topic, case.partition),
            owned=window.clipped(sorted(owned, key=lambda one: one.start)),
            held=window.clipped(_merged(held)),
            runs=window.inside(runs),
            parked=window.inside(one for one in points if one.kind == "parked"),
            purged=window.inside(one for one in points if one.kind == "purged"),
            findings=[one for one in verdict.findings if window.is_inside(one.at)],
            unjudged=verdict.unjudged,
        )

    def _members(self, groups: set[str | None], window: "_Window") -> list[MemberLane]:
        found: dict[tuple[str, str], dict[str, _Process]] = {}
        for name, one in self._processes.items():
            is_there = one.began <= window.end and one.ended >= window.start
            if one.is_consumer and one.group in groups and is_there:
                key = one.group or "", _OF_A_PROCESS.sub("", name)
                found.setdefault(key, {})[name] = one
        return [
            MemberLane(
                group=group,
                name=name,
                processes=frozenset(own),
                lives=[window.of(one.began, one.ended) for one in own.values()],
                points=window.inside(
                    point for one in own.values() for point in one.moves.values()
                ),
            )
            for (group, _), known in sorted(
                found.items(), key=lambda item: (item[0][0], _counted(item[0][1]))
            )
            for name, own in _one_after_the_other(known)
        ]


@define
class _Noted:
    source: Source
    note: Callable[[str, Entry], None]

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
            self.note(group, entry)
            yield entry


def _fault(entry: Entry) -> Fault:
    return Fault(
        kind=entry["kind"],
        targets=tuple(entry["targets"]),
        start=entry.at,
        end=entry.at + max(0.0, entry["seconds"]),
    )


def _of_the_group(
    verdict: Verdict, members: Mapping[str, _Seen], skew: float
) -> Iterator[Held]:
    # The judge decides which holds bind an ownership (G2), and which ones a member
    # dropped too early (A1). A member that had the partition before the hold obeys as
    # soon as it has read the hold, which its own journal shows.
    for span in verdict.group_holds:
        for name, seen in members.items():
            since = [
                told for let, told in seen.let if fleet.was_in_force(span, let, skew)
            ]
            for epoch, end in seen.owned:
                starts = [max(told, epoch.at) for told in since]
                if fleet.binds(span, epoch, skew):
                    starts.append(epoch.at)
                until = min(end, span.end - skew)
                if starts and min(starts) < until:
                    yield Held(
                        member=name,
                        scope=span.scope,
                        owner=span.owner,
                        level=Level.GROUP,
                        start=min(starts),
                        end=until,
                    )


def _against_the_group(
    verdict: Verdict, members: Mapping[str, _Seen], skew: float
) -> Iterator[tuple[str, int]]:
    # The deliveries that G2 is about: it reports only the first one of an ownership.
    names = {one.member for one in verdict.findings if one.check == "G2"}
    for name in names & members.keys():
        bound = [
            (epoch.at, min(end, span.end - skew))
            for span in verdict.group_holds
            for epoch, end in members[name].owned
            if fleet.binds(span, epoch, skew)
        ]
        for number, run in members[name].runs:
            if any(start <= run.at < end for start, end in bound):
                yield name, number


def _merged(held: Iterable[Held]) -> list[Held]:
    # A hold that is placed again while in force continues; an operator's journal and a
    # member's may both have the same hold.
    found: dict[tuple[str, str, str], list[Held]] = {}
    for one in sorted(held, key=lambda one: one.start):
        own = found.setdefault((one.member, one.scope, one.owner), [])
        if own and one.start <= own[-1].end:
            own[-1] = evolve(own[-1], end=max(own[-1].end, one.end))
        else:
            own.append(one)
    every = (one for own in found.values() for one in own)
    return sorted(every, key=lambda one: (one.start, one.scope, one.owner))


def _one_after_the_other(
    processes: Mapping[str, _Process],
) -> Iterator[tuple[str, dict[str, _Process]]]:
    # A member that was restarted has one lane; members that live at the same time have
    # separate lanes, even with the same name, as kafka-python names clients.
    lanes: list[dict[str, _Process]] = []
    for name, one in sorted(processes.items(), key=lambda item: item[1].began):
        free = (
            lane
            for lane in lanes
            if all(other.ended <= one.began for other in lane.values())
        )
        lane = next(free, None)
        if lane is None:
            lanes.append(lane := {})
        lane[name] = one
    short = _OF_A_PROCESS if len(lanes) == 1 else _BY_CHANCE
    for own in lanes:
        yield short.sub("", next(iter(own))), own


def _order(case: Address) -> tuple[str, str, int]:
    return case.group or "", case.topic, case.partition


def _counted(name: str) -> list[str | int]:
    # Natural order, with text and numbers by turns: m2 comes before m10.
    parts = re.split("([0-9]{1,9})", name)
    return [int(part) if n % 2 else part for n, part in enumerate(parts)]


def _nothing(cases: Iterable[Address]) -> JournalError:
    return JournalError(
        f"nothing to draw: no such partition; the journals name {_named(cases)}"
    )


def _named(cases: Iterable[Address]) -> str:
    names = [f"{one.topic}:{one.partition} of group {one.group}" for one in cases]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""  # noqa: PLR2004 - as many as fit
    return (", ".join(sorted(names)[:5]) or "none") + more


def _window(origin: float, until: float, wanted: Wanted) -> tuple[float, float]:
    start = origin + wanted.start
    end = until if wanted.end is None else min(until, origin + wanted.end)
    if start > until or end < start:
        asked = "the end" if wanted.end is None else f"{wanted.end:.1f} s"
        message = (
            f"nothing to draw: the journals last {until - origin:.1f} s, "
            f"from {wanted.start:.1f} s to {asked} is asked for"
        )
        raise JournalError(message)
    return start, max(end, start + 0.001)


_Spanned = TypeVar("_Spanned", Held, Owned, Fault)
_Dated = TypeVar("_Dated", Run, Point)


@frozen
class _Window:
    """The period of time that is drawn."""

    start: float
    end: float

    def of(self, start: float, end: float) -> tuple[float, float]:
        return max(start, self.start), min(end, self.end)

    def clipped(self, spans: Iterable[_Spanned]) -> list[_Spanned]:
        found = []
        for one in spans:
            start, end = self.of(one.start, one.end)
            if start <= end:
                found.append(evolve(one, start=start, end=end))
        return found

    def inside(self, dated: Iterable[_Dated]) -> list[_Dated]:
        found = [one for one in dated if self.is_inside(one.at)]
        return sorted(found, key=lambda one: one.at)

    def is_inside(self, at: float | None) -> bool:
        return at is None or self.start <= at <= self.end
