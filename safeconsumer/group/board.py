"""
Folds what the holds topic and the status topic say of all groups. It asks nobody.

A command, ``wait`` and the console feed the same object, step by step, with what they
read. What they show of a group is a :class:`~safeconsumer.group.view.View` of it:

1. :meth:`Board.feed` takes over records.
2. :meth:`Board.update` finds the broker's time, and by it who reports, and who does not
   any more. Until the next update views show what was known then.
3. :meth:`Board.view` shows one group, with what the cluster says of it.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from attrs import define, evolve, field, frozen
from kafka import TopicPartition

from safeconsumer.group.commits import Move
from safeconsumer.group.control_clients import Remade
from safeconsumer.group.facts import NOT_READ, HoldRecord
from safeconsumer.group.fold import Fold, Written
from safeconsumer.group.log_clock import AGREE, LogClock
from safeconsumer.group.report_wire import STREAM, Report, decode_report
from safeconsumer.group.settings import Control
from safeconsumer.group.survey import Survey
from safeconsumer.group.topic_reader import time_of, written
from safeconsumer.group.view import NO_TIMES, Times, View, skew_of

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
# Kafka's TimestampType of a record whose time is the broker's.
_LOG_APPEND_TIME = 1


# ---------------------------------------------------------------- records


@define(eq=False)
class _LastReport:
    """The last record of one reporter; most are never decoded."""

    at: float
    value: bytes | None
    taken_at: float  # by our monotonic clock

    @cached_property
    def report(self) -> Report | None:
        report = decode_report(self.value)
        offset = 0.0 if report is None else self.at - report.at_ms / 1000
        return None if report is None else evolve(report, clock_offset=offset)


@frozen(kw_only=True)
class Readable:
    """
    How much of the topics can be read.

    Attributes:
        ends: the offset up to which the holds topic is read, by its name; None if it
            is not.
        is_heard: whether reports are read.
        unread: what cannot be read, each with the reason, as text.
    """

    ends: Mapping[str, int] | None
    is_heard: bool
    unread: tuple[str, ...] = ()


@define(eq=False)
class _OfGroup:
    """
    What the topics say of one group.

    Attributes:
        holds: those that are not lifted; expired ones are among them.
        reports: the last report of every reporter that reported lately.
        gone: the last reports of streams that report no more, or were stopped in a
            batch.
        late: the last reports of members that report no more, or have stopped.
        lost: those of ``late`` that may still work on records, listed or not.
    """

    holds: list[HoldRecord] = field(factory=list)
    reports: list[Report] = field(factory=list)
    gone: list[Report] = field(factory=list)
    late: list[Report] = field(factory=list)
    lost: list[Report] = field(factory=list)


# ---------------------------------------------------------------- the board


class Board:
    """
    All records of the topics that were read so far, folded by group.

    Thread rules: none; a caller that shares one between threads must lock.

    Args:
        settings: the names of the topics, and the allowed clock skew.
        clock: computes the broker's time.
        most: how many of the holds topic's records are kept; None for all.

    Attributes:
        records: the holds topic's records, tombstones too, in order.
        positions: the offsets below which everything was taken over.
        reported_at: the time of the newest report; 0.0 if there is none.
        times: the times of the last update.
        is_heard: whether somebody reported, at the last update.
    """

    def __init__(
        self,
        settings: Control,
        clock: LogClock | None = None,
        most: int | None = None,
    ) -> None:
        self._holds_topic = settings.holds_topic
        self.records: deque[Written] = deque(maxlen=most)
        self.positions: Mapping[TopicPartition, int] = {}
        self.reported_at = 0.0
        self.times = NO_TIMES
        self.is_heard = False
        self._skew = settings.clock_skew
        self._fold = Fold()
        self._clock = clock or LogClock()
        self._last: dict[bytes | None, _LastReport] = {}
        self._written_at = 0.0
        self._holds_are_timed = self._reports_are_timed = True
        self._is_remade = False
        self._groups: Mapping[str, _OfGroup] = {}

    # ------------------------------------------------------------ feeding

    def begin_again(self, remade: Iterable[Remade]) -> None:
        """Note that topics were created again: their offsets start over, holds stay."""
        if any(one.topic == self._holds_topic for one in remade):
            self._fold.begin_again()
            self._is_remade = True

    def feed(
        self,
        polled: Mapping[str, Iterable[Any]],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Take over records by topic, and how far each topic is read with them."""
        for name, records in polled.items():
            if name == self._holds_topic:
                self._take_holds(records)
                continue
            for record in records:
                self._take_report(record)
        self.positions = dict(positions)

    def _take_holds(self, records: Iterable[Any]) -> None:
        taken = []
        for record in records:
            self._holds_are_timed = _is_timed(record)
            if self._holds_are_timed:
                self._written_at = max(self._written_at, time_of(record) or 0.0)
            taken.append(written(record))
        self._fold.take(taken)
        self.records.extend(taken)

    @property
    def proven(self) -> float:
        """
        The newest time that the broker gave a record; 0.0 if there is none.

        A topic without ``LogAppendTime`` has the times of the hosts that wrote, which
        prove nothing.
        """
        reported_at = self.reported_at if self._reports_are_timed else 0.0
        return max(reported_at, self._written_at)

    def _take_report(self, record: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        # Reports go by offset: a broker's clock may have gone back.
        self._reports_are_timed = _is_timed(record)
        at = time_of(record)
        self.reported_at = self.reported_at if at is None else at
        self._last.pop(record.key, None)  # the newest comes last
        self._last[record.key] = _LastReport(
            at or 0.0, record.value, self._clock.passed()
        )
        # Whoever looks at holds alone never updates, which leaves out old ones.
        while self._last:
            oldest, last = next(iter(self._last.items()))
            if abs(self.reported_at - last.at) <= _KEPT_FOR:
                break
            del self._last[oldest]

    @property
    def ends(self) -> dict[str, int]:
        """The offset below which the holds topic was taken over, by its name."""
        at = self.positions.get(TopicPartition(self._holds_topic, 0))
        return {} if at is None else {self._holds_topic: at}

    @property
    def incarnation(self) -> int:
        """How often the holds topic was created again, as far as it was noticed."""
        return self._fold.incarnation

    def holds(self, group: str | None = None) -> tuple[HoldRecord, ...]:
        """
        Return the holds that are not lifted by now, of one group or of all.

        Those are among them that the topic lost when it was created again.
        """
        return self._fold.holds(group)

    # ------------------------------------------------------------ one moment

    def update(self, listen: Callable[[], float | None] | None = None) -> None:
        """
        Bring up to date what views show.

        Args:
            listen: waits for one more record if clocks differ, and returns its time, or
                None if none came; None: it is not waited for.
        """
        wall = self._clock.wall()
        groups: dict[str, _OfGroup] = defaultdict(_OfGroup)
        for hold in self.holds():
            groups[hold.key.group].holds.append(hold)
        now, self.is_heard = None, False
        if self.reported_at:
            moment = self._now(listen)
            self._sort_reports(moment, groups)
            self.is_heard = self._clock.is_sure
            now = moment if self.is_heard and self._reports_are_timed else None
        self.times = Times(
            now, self.proven, wall, self._holds_are_timed, self._clock.passed()
        )
        self._groups = {**groups}

    def _now(self, listen: Callable[[], float | None] | None) -> float:
        reports = (one.report for one in self._last.values())
        is_there = any(one.state != "stopped" for one in reports if one is not None)
        return self._clock.now(
            self.reported_at, listen if listen and is_there else lambda: None
        )

    def _sort_reports(self, now: float, groups: Mapping[str, _OfGroup]) -> None:
        moment = now if self._clock.is_sure else self.reported_at
        self._last = {
            key: one
            for key, one in self._last.items()
            if abs(moment - one.at) <= NAMED_FOR
        }
        for last in self._last.values():
            if (one := last.report) is None:
                continue
            of_group = groups[one.group]
            has_stopped = one.state == "stopped"
            is_done = has_stopped and not one.busy
            if is_live(last.at, now) and not has_stopped:
                of_group.reports.append(one)
            elif one.kind != STREAM:
                of_group.late.append(one)
                if not is_done and self._may_be_alive(last, now):
                    of_group.lost.append(one)
            elif not is_done:  # what it was stopped in runs again
                of_group.gone.append(one)
        for of_group in groups.values():
            of_group.reports.sort(key=lambda one: (one.client_id, one.member))

    def _may_be_alive(self, last: _LastReport, now: float) -> bool:
        # If nobody tells the time, ours counts, with the allowed skew.
        clock = self._clock
        moment, late = (now, 0.0) if clock.is_sure else (clock.wall(), self._skew)
        age = max(moment - last.at, clock.passed() - last.taken_at)
        return age <= NAMED_FOR + late

    # ------------------------------------------------------------ what it shows

    @property
    def groups(self) -> set[str]:
        """The groups that have holds, or members or streams that may be there."""
        return {
            name
            for name, one in self._groups.items()
            if one.holds or one.reports or one.gone or one.lost
        }

    @property
    def held(self) -> set[str]:
        """The groups that have holds; expired ones are among them."""
        return {name for name, one in self._groups.items() if one.holds}

    @property
    def read_until(self) -> float:
        """
        The time up to which it was fed, which a record proves.

        It is by this machine's clock if that agrees with the broker's. If nobody tells
        the broker's time, it is the time of the newest record.
        """
        now, wall = self.times.now, self.times.wall
        is_right = now is not None and abs(wall - now) <= AGREE
        return wall if is_right else self.times.proven

    @property
    def remade(self) -> tuple[str, ...]:
        """The holds topic, if it was created again and still lacks holds."""
        reports = (report for one in self._groups.values() for report in one.reports)
        now = self.times.proven
        lacks = any(one.kept for one in reports) or any(
            self._fold.is_outlived(one) and one.in_force(now, self._skew)
            for one in self._fold.holds()
        )
        return (self._holds_topic,) if self._is_remade and lacks else ()

    def view(
        self,
        group: str,
        survey: Survey,
        readable: Readable,
        moves: Mapping[TopicPartition, Move] | None = None,
    ) -> View:
        """
        Return a view of one group.

        Args:
            group: the group.
            survey: what the cluster says of it.
            readable: how much of the topics can be read.
            moves: the committed offsets that silent members have moved.
        """
        known, proven = self._groups.get(group, _OfGroup()), self.times.proven
        facts = survey.facts.get(group, NOT_READ)
        skew = skew_of(self._skew, known.reports)
        listed = {one.member_id for one in facts.members}
        return View(
            group=group,
            facts=facts,
            holds=tuple(one for one in known.holds if one.in_force(proven, skew)),
            just_over=tuple(
                one
                for one in known.holds
                if not one.in_force(proven, skew)
                and one.in_force(proven - SILENT_AFTER, skew)
            ),
            reports=tuple(known.reports),
            gone=tuple(known.gone),
            late=tuple(
                one
                for one in known.late
                if one.member_id in listed or one in known.lost
            ),
            ends=readable.ends,
            is_heard=readable.is_heard,
            unread=(*readable.unread, *survey.unread.get(group, ())),
            lags=survey.lags.get(group, {}),
            moves=moves or {},
            times=self.times,
            skew=skew,
            incarnation=self.incarnation,
        )


def is_live(at: float, now: float) -> bool:
    """
    Tell whether a report of that time still counts, both by the broker's clock.

    A report later than now was written before that clock went back.
    """
    return abs(now - at) <= SILENT_AFTER


def _is_timed(record: Any) -> bool:  # noqa: ANN401 - kafka-python is untyped
    """Tell whether a record's time is the broker's."""
    return bool(record.timestamp_type == _LOG_APPEND_TIME)
