"""
Folds what the control topics and the status topic say, for operators. It asks nobody.

A command, ``wait`` and the console feed the same object, step by step, with what they
read; whatever they show of holds and members comes from it.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen
from kafka import TopicPartition

from safeconsumer.group import wire
from safeconsumer.group.commits import CommitWatch, Move, held_by_silent
from safeconsumer.group.facts import UNKNOWN, GroupFacts, Standing
from safeconsumer.group.fold import Fold, Written, as_standing, entry_of, side_by_side
from safeconsumer.group.log_clock import AGREE, LogClock
from safeconsumer.group.picture import Picture, Times, skew_of
from safeconsumer.group.report_wire import STREAM, Report, decode_report
from safeconsumer.group.settings import Control
from safeconsumer.group.survey import Survey
from safeconsumer.group.topic_reader import Remade, time_of, written

OPERATOR = "operator"
GROUP = "group"

# Seconds; a member without a report for as long is gone, or cannot reach the broker.
SILENT_AFTER = 15.0
# Seconds for which one that reports no more is named: Kafka lists a member that was
# killed until its session ends, after 45 s by default. One that Kafka does not list, and
# that did not say that it stops, may be frozen and go on: for as long those of its
# partitions are unknown that it did not report as quiet, by a hold that still stands. A
# process may be frozen for longer, and nothing shows that.
NAMED_FOR = 4 * SILENT_AFTER
# Seconds after which a report is forgotten though nobody has asked since.
_KEPT_FOR = 10 * NAMED_FOR

T = TypeVar("T", Standing, Report)

_NOBODY = GroupFacts(state=UNKNOWN, members=(), committed={}, has_committed=False)


@define(eq=False)
class _Heard:
    """The last record of one reporter; most are never decoded."""

    at: float
    value: bytes | None
    taken_at: float  # by our monotonic clock

    @cached_property
    def report(self) -> Report | None:
        report = decode_report(self.value)
        offset = 0.0 if report is None else self.at - report.at_ms / 1000
        return None if report is None else evolve(report, clock_offset=offset)


@define(eq=False)
class Past:
    """
    A record of a control topic; most are never decoded.

    Attributes:
        source: ``operator`` or ``group``, after the topic.
        written: the record.
    """

    source: str
    written: Written

    def is_of(self, group: str | None) -> bool:
        """Tell whether it is about a group; None for any."""
        key = wire.decode_key(self.written.key)
        return key is not None and group in {None, key.group}

    @cached_property
    def standing(self) -> Standing | None:
        """The record in the form for operators; None if it cannot be read."""
        entry = entry_of("", self.written)
        return None if entry is None else as_standing(self.source, entry)


def history_of(several: Iterable[Past], group: str | None) -> tuple[Standing, ...]:
    """Return the records about one group or all, both topics' merged by their times."""
    found = (one.standing for one in several if one.is_of(group))
    return side_by_side(one for one in found if one is not None)


@frozen(kw_only=True)
class Told:
    """
    What the topics say at one moment, of all groups.

    Attributes:
        standing: the holds that are not lifted; expired ones are among them.
        reports: the last report of every reporter that reported lately, sorted.
        gone: the last reports of streams that report no more, or were stopped in a
            batch.
        late: the last reports of members that report no more, or have stopped.
        lost: those of ``late`` that may still work on records, listed or not.
        now: the broker's time, in seconds since the epoch; None if it is unknown.
        newest: the time of the newest record; the broker's is no earlier.
        wall: this machine's time.
    """

    standing: tuple[Standing, ...] = ()
    reports: tuple[Report, ...] = ()
    gone: tuple[Report, ...] = ()
    late: tuple[Report, ...] = ()
    lost: tuple[Report, ...] = ()
    now: float | None = None
    newest: float = 0.0
    wall: float = 0.0

    @property
    def times(self) -> Times:
        """The times by which it is judged whether a hold has ended."""
        return Times.of(self.now, self.newest, self.wall)

    @property
    def read_until(self) -> float:
        """The time up to which they were read: by this machine's clock, if that is right."""
        here = self.times.here
        return self.wall if abs(self.wall - here) <= AGREE else here

    @property
    def groups(self) -> set[str]:
        """The groups that it names."""
        reports = (*self.reports, *self.gone, *self.lost)
        held = {one.key.group for one in self.standing}
        return held | {one.group for one in reports}

    def pictures(
        self, groups: Iterable[str], survey: Survey, skew: float, seen: "Seen"
    ) -> dict[str, Picture]:
        """
        Return one picture for each group.

        Args:
            groups: the groups.
            survey: what the cluster says of them.
            skew: seconds by which members lift holds late, by this side's settings.
            seen: how much of the topics could be read.
        """
        reports, standing = _by_group(self.reports), _by_group(self.standing)
        gone, late = _by_group(self.gone), _by_group(self.late)
        proven, found = self.times.proven, {}
        for group in sorted(groups):
            most = skew_of(skew, reports.get(group, ()))
            facts = survey.facts.get(group, _NOBODY)
            listed = {one.member_id for one in facts.members}
            found[group] = Picture(
                group=group,
                facts=facts,
                standing=tuple(
                    one for one in standing.get(group, ()) if one.in_force(proven, most)
                ),
                just_over=tuple(
                    one
                    for one in standing.get(group, ())
                    if not one.in_force(proven, most)
                    and one.in_force(proven - SILENT_AFTER, most)
                ),
                reports=tuple(reports.get(group, ())),
                ends=seen.ends,
                lags=survey.lags.get(group, {}),
                now=self.now,
                newest=self.newest,
                wall=self.wall,
                taken_at=time.monotonic(),
                unread=(*seen.unread, *survey.unread.get(group, ())),
                is_heard=seen.is_heard,
                moved_by_silent=seen.moves.get(group, {}),
                skew=most,
                gone=tuple(gone.get(group, ())),
                late=tuple(
                    one
                    for one in late.get(group, ())
                    if one.member_id in listed or one in self.lost
                ),
            )
        return found

    def moves(
        self, watch: CommitWatch, facts: Mapping[str, GroupFacts], *, is_heard: bool
    ) -> dict[str, dict[TopicPartition, Move]]:
        """Note committed offsets; return which of them silent members have moved."""
        reports, standing = _by_group(self.reports), _by_group(self.standing)
        return {
            group: watch.note(
                group,
                one,
                # While reports are not read, no member counts as silent.
                held_by_silent(one, reports.get(group, ()), standing.get(group, ()))
                if is_heard
                else {},
            )
            for group, one in facts.items()
        }


@frozen(kw_only=True)
class Seen:
    """
    How much of the topics could be read.

    Attributes:
        ends: the offsets up to which the control topics are read; None if they are not.
        is_heard: whether reports are read.
        unread: what could not be read, each with the reason, as text.
        moves: by group, which committed offsets silent members have moved.
    """

    ends: Mapping[str, int] | None
    is_heard: bool
    unread: Collection[str] = ()
    moves: Mapping[str, Mapping[TopicPartition, Move]] = field(factory=dict)


class Known:
    """
    What the topics have said so far.

    Thread rules: none; a caller that shares one between threads must lock.

    Args:
        settings: the names of the topics, and the allowed clock skew.
        clock: computes the broker's time.
        most: how many of the control topics' records are kept; None for all.

    Attributes:
        records: the control topics' records, tombstones too, each topic's in order.
        positions: the offsets below which everything was taken over.
        reported_at: the time of the newest report; 0.0 if there is none.
    """

    def __init__(
        self, settings: Control, clock: LogClock, most: int | None = None
    ) -> None:
        self.sources = dict(zip(settings.topics, (OPERATOR, GROUP), strict=True))
        self.records: deque[Past] = deque(maxlen=most)
        self.positions: Mapping[TopicPartition, int] = {}
        self.reported_at = 0.0
        self._skew = settings.clock_skew
        self._fold = Fold(self.sources)
        self._clock = clock
        self._heard: dict[bytes | None, _Heard] = {}
        self._written_at = 0.0
        self._remade: tuple[str, ...] = ()

    def begin_again(self, remade: Iterable[Remade]) -> None:
        """Note that topics were created again: their offsets start over, holds stay."""
        for one in remade:
            if one.topic in self.sources:
                self._fold.begin_again(one.topic)
                self._remade = tuple(dict.fromkeys((*self._remade, one.topic)))

    def take(
        self,
        polled: Mapping[str, Iterable[Any]],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Take over records by topic, and how far each topic is read with them."""
        for name, records in polled.items():
            if name in self.sources:
                self._take_holds(name, [written(one) for one in records])
                continue
            for record in records:
                self._take_report(record)
        self.positions = dict(positions)
        for tp, offset in positions.items():
            if tp.topic in self.sources:
                self._fold.read_through(tp.topic, offset)

    @property
    def ends(self) -> dict[str, int]:
        """The offsets below which the control topics were taken over, by topic."""
        at = self.positions
        return {tp.topic: one for tp, one in at.items() if tp.topic in self.sources}

    def _take_holds(self, name: str, records: Sequence[Written]) -> None:
        newest = max((one.at_ms for one in records), default=0) / 1000
        self._written_at = max(self._written_at, newest)
        self._fold.take(name, records)
        source = self.sources[name]
        self.records.extend(Past(source, one) for one in records)

    def _take_report(self, record: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        # Reports go by offset: a broker's clock may have gone back.
        at = time_of(record)
        self.reported_at = self.reported_at if at is None else at
        self._heard.pop(record.key, None)  # the one that was heard last comes last
        self._heard[record.key] = _Heard(at or 0.0, record.value, self._clock.passed)
        # Whoever looks at holds alone asks for no pictures, in which old ones are left out.
        while self._heard and self.reported_at - self._oldest_at() > _KEPT_FOR:
            del self._heard[next(iter(self._heard))]

    def _oldest_at(self) -> float:
        return next(iter(self._heard.values())).at

    def standing(self, group: str | None = None) -> tuple[Standing, ...]:
        """Return the holds that are not lifted, of one group or of all."""
        return self._fold.standing(group)

    def told(self, listen: Callable[[], float | None] | None = None) -> Told:
        """
        Return what is known now.

        Args:
            listen: waits for one more record if clocks differ, and returns its time, or
                None if none came; None: it is not waited for.
        """
        newest = max(self.reported_at, self._written_at)
        wall = self._clock.wall
        told = Told(standing=self.standing(), newest=newest, wall=wall)
        if not self.reported_at:
            return told
        now = self._now(listen)
        moment = now if self._clock.is_sure else self.reported_at
        self._heard = {
            key: one
            for key, one in self._heard.items()
            if abs(moment - one.at) <= NAMED_FOR
        }
        reports: list[Report] = []
        gone: list[Report] = []
        late: list[Report] = []
        lost: list[Report] = []
        for heard in self._heard.values():
            if (one := heard.report) is None:
                continue
            has_stopped = one.state == "stopped"
            is_done = has_stopped and not one.busy
            if is_live(heard.at, now) and not has_stopped:
                reports.append(one)
            elif one.kind != STREAM:
                late.append(one)
                if not is_done and self._may_be_alive(heard, now):
                    lost.append(one)
            elif not is_done:  # what it was stopped in runs again
                gone.append(one)
        return evolve(
            told,
            reports=tuple(sorted(reports, key=lambda one: (one.client_id, one.member))),
            gone=tuple(gone),
            late=tuple(late),
            lost=tuple(lost),
            now=now if self._clock.is_sure else None,
        )

    def _may_be_alive(self, heard: _Heard, now: float) -> bool:
        # If nobody tells the time, ours counts, with the allowed skew.
        clock = self._clock
        moment, late = (now, 0.0) if clock.is_sure else (clock.wall, self._skew)
        age = max(moment - heard.at, clock.passed - heard.taken_at)
        return age <= NAMED_FOR + late

    def _now(self, listen: Callable[[], float | None] | None) -> float:
        reports = (one.report for one in self._heard.values())
        is_there = any(one.state != "stopped" for one in reports if one is not None)
        return self._clock.now(
            self.reported_at, _nothing if listen is None or not is_there else listen
        )

    def remade(self, told: Told) -> tuple[str, ...]:
        """Return the topics that were created again and still lack holds."""
        if not self._remade or any(one.kept for one in told.reports):
            return self._remade
        now = told.times.proven
        missed = {
            one.topic
            for one in self._fold.held()
            if self._fold.is_outlived(one)
            and as_standing("", one).in_force(now, self._skew)
        }
        return tuple(name for name in self._remade if name in missed)


def is_live(at: float, now: float) -> bool:
    """
    Tell whether a report of that time still counts, both by the broker's clock.

    A report later than now was written before that clock went back.
    """
    return abs(now - at) <= SILENT_AFTER


def _by_group(several: Iterable[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for one in several:
        group = one.group if isinstance(one, Report) else one.key.group
        found.setdefault(group, []).append(one)
    return found


def _nothing() -> None:
    """Wait for no record."""
