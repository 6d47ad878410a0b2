"""
Computes the state of all groups from the holds topic and the status topic.

Commands and the console feed the records that they read to a board, and show a
:class:`~safeconsumer.group.view.View` of a group. The board does not send any requests:

1. :meth:`Board.feed` applies records.
2. :meth:`Board.update` computes the broker's time, and from that which members have
   reported recently. Views show the state at the last update.
3. :meth:`Board.view` returns a view of one group, with the cluster's answers about it.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from attrs import define, evolve, field, frozen
from kafka import TopicPartition

from safeconsumer.group.commits import Move
from safeconsumer.group.control_clients import RecreatedTopic
from safeconsumer.group.facts import NOT_READ, HoldRecord
from safeconsumer.group.fold import Fold, RawRecord, raw_record
from safeconsumer.group.log_clock import AGREE, LogClock
from safeconsumer.group.report_wire import STREAM, Report, decode_report
from safeconsumer.group.settings import Control
from safeconsumer.group.survey import Survey
from safeconsumer.group.topic_reader import time_of
from safeconsumer.group.view import NO_TIMES, Times, View, skew_of

# Seconds without a report after which a member counts as gone or cut off from the
# broker.
SILENT_AFTER = 15.0
# Seconds for which views name a member that no longer reports: Kafka lists a killed
# member until its session times out, after 45 s by default. A member that Kafka does
# not list, and that has not reported that it stopped, may be frozen and continue later.
# During this time the state of its partitions is unknown, except for partitions that it
# reported as quiet because of a hold that is still in force. A process that stays
# frozen for longer cannot be noticed.
NAMED_FOR = 4 * SILENT_AFTER
# Seconds after which a report is dropped even if update() is never called.
_KEPT_FOR = 10 * NAMED_FOR
# Kafka's TimestampType for a record whose timestamp the broker has set.
_LOG_APPEND_TIME = 1


# ---------------------------------------------------------------- records


@define(eq=False)
class _LastReport:
    """The last report from one member or stream, decoded only on first access."""

    at: float
    value: bytes | None
    taken_at: float  # when the report was read, by our monotonic clock

    @cached_property
    def report(self) -> Report | None:
        report = decode_report(self.value)
        offset = 0.0 if report is None else self.at - report.at_ms / 1000
        return None if report is None else evolve(report, clock_offset=offset)


@frozen(kw_only=True)
class Readable:
    """
    Which of the control topics could be read, and how far.

    Attributes:
        ends: maps the holds topic's name to the offset up to which it was read; None if
            it could not be read.
        reports_are_read: whether the members' reports could be read.
        unread: the parts that could not be read, each with the reason, as text.
    """

    ends: Mapping[str, int] | None
    reports_are_read: bool
    unread: tuple[str, ...] = ()


@define(eq=False)
class _OfGroup:
    """
    The records about one group.

    Attributes:
        holds: all holds that have not been lifted, including expired ones.
        reports: the last report of each member or stream that reported recently.
        lost_streams: the last reports of streams that no longer report, or were stopped
            during a batch.
        former_reports: the last reports of members that no longer report, or have
            stopped.
        lost: the reports in ``former_reports`` whose members may still process records,
            even if Kafka does not list them.
    """

    holds: list[HoldRecord] = field(factory=list)
    reports: list[Report] = field(factory=list)
    lost_streams: list[Report] = field(factory=list)
    former_reports: list[Report] = field(factory=list)
    lost: list[Report] = field(factory=list)


# ---------------------------------------------------------------- the board


class Board:
    """
    The holds and reports of every group, built from the control records read so far.

    Thread rules: not thread-safe; a caller that shares a board between threads must
    lock.

    Args:
        settings: the names of the topics, and the allowed clock skew.
        clock: estimates the broker's time.
        max_records: the maximum number of records from the holds topic to keep; None
            for no limit.

    Attributes:
        records: the last records from the holds topic in order, including tombstones.
        positions: the offsets below which all records were applied.
        reported_at: the time of the newest report; 0.0 if there is none.
        times: the clock readings at the last update.
        has_reporters: whether, at the last update, the broker's time was known from
            reports.
    """

    def __init__(
        self,
        settings: Control,
        clock: LogClock | None = None,
        max_records: int | None = None,
    ) -> None:
        self._holds_topic = settings.holds_topic
        self.records: deque[RawRecord] = deque(maxlen=max_records)
        self.positions: Mapping[TopicPartition, int] = {}
        self.reported_at = 0.0
        self.times = NO_TIMES
        self.has_reporters = False
        self._skew = settings.clock_skew
        self._fold = Fold()
        self._clock = clock or LogClock()
        self._last: dict[bytes | None, _LastReport] = {}
        self._written_at = 0.0
        self._holds_are_timed = self._reports_are_timed = True
        self._is_remade = False
        self._groups: Mapping[str, _OfGroup] = {}

    # ------------------------------------------------------------ feeding

    def keep_all_records(self) -> None:
        """Keep every further record from the holds topic, for a history."""
        self.records = deque(self.records)

    def topic_recreated(self, remade: Iterable[RecreatedTopic]) -> None:
        """Record that topics were recreated; their holds stay in force."""
        if any(one.topic == self._holds_topic for one in remade):
            self._fold.topic_recreated()
            self._is_remade = True

    def feed(
        self,
        polled: Mapping[str, Iterable[Any]],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Apply polled records, given by topic, and save the positions after them."""
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
            taken.append(raw_record(record))
        self._fold.take(taken)
        self.records.extend(taken)

    @property
    def proven(self) -> float:
        """
        The newest timestamp that the broker set on a record; 0.0 if there is none.

        Without ``LogAppendTime``, record timestamps come from the hosts that wrote the
        records and are not proof.
        """
        reported_at = self.reported_at if self._reports_are_timed else 0.0
        return max(reported_at, self._written_at)

    def _take_report(self, record: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        # Offsets define the order of reports, because a broker's clock may have been
        # set back.
        self._reports_are_timed = _is_timed(record)
        at = time_of(record)
        self.reported_at = self.reported_at if at is None else at
        self._last.pop(record.key, None)  # keeps the newest report last
        self._last[record.key] = _LastReport(
            at or 0.0, record.value, self._clock.passed()
        )
        # Old reports are also dropped here, because a program that only reads holds
        # never calls update().
        while self._last:
            oldest, last = next(iter(self._last.items()))
            if abs(self.reported_at - last.at) <= _KEPT_FOR:
                break
            del self._last[oldest]

    @property
    def ends(self) -> dict[str, int]:
        """Maps the holds topic's name to the offset up to which its records were applied."""
        at = self.positions.get(TopicPartition(self._holds_topic, 0))
        return {} if at is None else {self._holds_topic: at}

    @property
    def incarnation(self) -> int:
        """The number of times that the holds topic was recreated while it was read."""
        return self._fold.incarnation

    def holds(self, group: str | None = None) -> tuple[HoldRecord, ...]:
        """
        Return the holds of one group, or of all groups, that have not been lifted.

        The result includes holds that are missing from the topic because it was
        recreated.
        """
        return self._fold.holds(group)

    # ------------------------------------------------------------ the update

    def update(self, listen: Callable[[], float | None] | None = None) -> None:
        """
        Recompute the state that views show.

        Args:
            listen: called if the clocks differ; waits for one more report and returns
                its time, or None if no report arrived. Without ``listen``, the update
                does not wait.
        """
        wall = self._clock.wall()
        groups: dict[str, _OfGroup] = defaultdict(_OfGroup)
        for hold in self.holds():
            groups[hold.key.group].holds.append(hold)
        now, self.has_reporters = None, False
        if self.reported_at:
            moment = self._now(listen)
            self._sort_reports(moment, groups)
            self.has_reporters = self._clock.is_sure
            now = moment if self.has_reporters and self._reports_are_timed else None
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
                of_group.former_reports.append(one)
                if not is_done and self._may_be_alive(last, now):
                    of_group.lost.append(one)
            elif not is_done:  # the stopped stream's batch will run again
                of_group.lost_streams.append(one)
        for of_group in groups.values():
            of_group.reports.sort(key=lambda one: (one.client_id, one.member))

    def _may_be_alive(self, last: _LastReport, now: float) -> bool:
        # If no report shows the broker's time, this machine's clock is used, with the
        # allowed skew.
        clock = self._clock
        moment, late = (now, 0.0) if clock.is_sure else (clock.wall(), self._skew)
        age = max(moment - last.at, clock.passed() - last.taken_at)
        return age <= NAMED_FOR + late

    # ------------------------------------------------------------ groups and views

    @property
    def groups(self) -> set[str]:
        """The groups that have holds, or whose members or streams may still be running."""
        return {
            name
            for name, one in self._groups.items()
            if one.holds or one.reports or one.lost_streams or one.lost
        }

    @property
    def held(self) -> set[str]:
        """The groups that have holds, including groups whose holds have all expired."""
        return {name for name, one in self._groups.items() if one.holds}

    @property
    def read_until(self) -> float:
        """
        The latest time up to which the topics are proven to have been read.

        This is the time by this machine's clock if that clock agrees with the broker's,
        and otherwise the newest time that a record proves.
        """
        now, wall = self.times.now, self.times.wall
        is_right = now is not None and abs(wall - now) <= AGREE
        return wall if is_right else self.times.proven

    @property
    def remade(self) -> tuple[str, ...]:
        """The holds topic, if it was recreated and holds are still missing from it."""
        reports = (report for one in self._groups.values() for report in one.reports)
        now = self.times.proven
        lacks = any(one.kept for one in reports) or any(
            self._fold.is_from_earlier_topic(one)
            and one.in_force(now, self.skew(one.key.group))
            for one in self._fold.holds()
        )
        return (self._holds_topic,) if self._is_remade and lacks else ()

    def skew(self, group: str) -> float:
        """Return the maximum seconds by which a member of a group lifts holds late."""
        return skew_of(self._skew, self._groups.get(group, _OfGroup()).reports)

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
            survey: the cluster's answers about groups.
            readable: which parts of the control topics could be read.
            moves: the held partitions whose committed offset a silent member has
                advanced.
        """
        known, proven = self._groups.get(group, _OfGroup()), self.times.proven
        facts = survey.facts.get(group, NOT_READ)
        skew = self.skew(group)
        listed = {one.member_id for one in facts.members}
        return View(
            group=group,
            facts=facts,
            holds=tuple(one for one in known.holds if one.in_force(proven, skew)),
            recently_expired=tuple(
                one
                for one in known.holds
                if not one.in_force(proven, skew)
                and one.in_force(proven - SILENT_AFTER, skew)
            ),
            reports=tuple(known.reports),
            lost_streams=tuple(known.lost_streams),
            former_reports=tuple(
                one
                for one in known.former_reports
                if one.member_id in listed or one in known.lost
            ),
            ends=readable.ends,
            reports_are_read=readable.reports_are_read,
            unread=(*readable.unread, *survey.unread.get(group, ())),
            lags=survey.lags.get(group, {}),
            moves=moves or {},
            times=self.times,
            skew=skew,
            incarnation=self.incarnation,
        )


def is_live(at: float, now: float) -> bool:
    """
    Return whether a report is recent enough to count; both times are broker times.

    A report with a later time than now was written before the broker's clock was set
    back.
    """
    return abs(now - at) <= SILENT_AFTER


def _is_timed(record: Any) -> bool:  # noqa: ANN401 - kafka-python is untyped
    """Return whether the broker set a record's timestamp."""
    return bool(record.timestamp_type == _LOG_APPEND_TIME)
