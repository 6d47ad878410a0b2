"""Follows the control topics and the cluster's groups, and publishes what is known."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from typing import Any, Self

import kafka.errors as kafka_errors
from attrs import evolve, field, frozen
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer._kafka.control_reader import ControlReader, topic_ids
from safeconsumer.consumer import SafeConsumer
from safeconsumer.group import clients, report_wire, topics, whole
from safeconsumer.group.asking import AWAY, facts_of_groups, listed_groups
from safeconsumer.group.commits import CommitWatch, Move, held_by_silent
from safeconsumer.group.facts import UNKNOWN, GroupFacts, Standing
from safeconsumer.group.fold import Fold, as_standing, side_by_side
from safeconsumer.group.log_clock import LogClock
from safeconsumer.group.operator import (
    GROUP,
    NAMED_FOR,
    OPERATOR,
    is_live,
    stopped_in_a_batch,
)
from safeconsumer.group.picture import Picture, skew_of
from safeconsumer.group.report_wire import STREAM, Report
from safeconsumer.group.settings import Control

log = logging.getLogger("safeconsumer.group")

_POLL_MS = 250
_CLOSE_MS = 500
# Seconds; a snapshot older than this says nothing about the present.
OLD_AFTER = 10.0
_SURVEY_EVERY = 1.0
# A survey takes at most this share of the time, however many groups there are, unless
# its answers would be too old before the next one ends.
_SURVEY_SHARE = 0.2
# Making a snapshot of a thousand groups takes 30 ms: at most this share of the time.
_PUBLISH_SHARE = 0.1
_PUBLISH_EVERY = 0.1
_VIEWED = 30.0
_SILENCE = 5.0
_BACKOFF = 1.0
_LOOK_FOR_STATUS = 10.0
_ASK_TIMEOUT_MS = 5_000
_END_SECONDS = 3.0
_MOST_RECORDS = 10_000
_UNKNOWN = GroupFacts(state=UNKNOWN, members=(), committed={}, has_committed=False)


@frozen
class Trouble:
    """
    Why nothing newer is known.

    Attributes:
        said: a sentence for people.
        detail: the client's own words.
    """

    said: str
    detail: str


_SLOW = Trouble(
    "The cluster has not answered for a while.",
    f"what is known is older than {OLD_AFTER:.0f} s",
)


@frozen(kw_only=True)
class Snapshot:
    """
    What is known at one moment; it never changes.

    Attributes:
        version: increases by one with each snapshot.
        pictures: the pictures of groups, by consumer group.
        records: the records read from the control topics, tombstones too.
        moved: since when committed offsets have not moved, by our monotonic clock, for
            each group and partition.
        now: the broker's time, in seconds since the epoch; None if it is unknown.
        heard_at: a moment by our monotonic clock: everything that the cluster had
            acknowledged by then is included, as it was then or later.
        is_complete: whether the control topics were read to their ends, and groups
            listed.
        trouble: why nothing newer is known; None if all is well.
        unread: what could not be read, each with the reason, as text.
        remade: control topics that were deleted and created again meanwhile.
    """

    version: int = 0
    pictures: Mapping[str, Picture] = field(factory=dict)
    records: tuple[Standing, ...] = ()
    moved: Mapping[tuple[str, TopicPartition], float] = field(factory=dict)
    now: float | None = None
    heard_at: float
    is_complete: bool = False
    trouble: Trouble | None = None
    unread: tuple[str, ...] = ()
    remade: tuple[str, ...] = ()

    @property
    def age(self) -> float:
        """The number of seconds for which nothing newer is known."""
        return time.monotonic() - self.heard_at

    @property
    def is_old(self) -> bool:
        """Whether it is too old to say anything about the present."""
        return self.age >= OLD_AFTER

    def history(self, group: str | None = None) -> tuple[Standing, ...]:
        """Return the records still on the control topics, of one group or of all."""
        return side_by_side(
            one for one in self.records if group in {None, one.key.group}
        )


@frozen
class _Heard:
    at: float
    report: Report


@frozen(kw_only=True)
class _Survey:
    facts: Mapping[str, GroupFacts] = field(factory=dict)
    moves: Mapping[str, Mapping[TopicPartition, Move]] = field(factory=dict)
    lags: Mapping[str, Mapping[TopicPartition, int]] = field(factory=dict)
    unread: Mapping[str, tuple[str, ...]] = field(factory=dict)
    # When it began, and where the control topics ended after that.
    asked_at: float | None = None
    ends: Mapping[TopicPartition, int] = field(factory=dict)
    trouble: Trouble | None = None


class Follower:
    """
    Publishes what is known as snapshots, for a caller that looks all the time.

    It reads the three control topics with one consumer, and asks about groups with one
    admin client. It needs no more rights than an operator's commands, places nothing,
    and keeps the last snapshot whatever happens to the cluster. It is a context
    manager.

    Args:
        base: how to reach the cluster, with kafka-python's keys.
        settings: the names of the control topics.

    Thread rules: it has two threads; the public methods may be called on any.
    """

    def __init__(self, base: Mapping[str, Any], settings: Control) -> None:
        self._base = {"client_id": "safeconsumer-console", **base}
        self.settings = settings
        sources = dict(zip(settings.topics, (OPERATOR, GROUP), strict=True))
        self._sources = sources
        self._fold = Fold(sources)
        self._reports: dict[str, _Heard] = {}
        self._lasts: dict[str, _Heard] = {}  # also of those that have ended
        self._records: deque[Standing] = deque(maxlen=_MOST_RECORDS)
        self._positions: dict[TopicPartition, int] = {}
        self._identities: dict[str, object] = {}
        self._clock = LogClock()
        self._newest = 0.0
        self._read_at: float | None = None
        self._reading_trouble: Trouble | None = None
        self._unread: tuple[str, ...] = ()
        self._survey = _Survey()
        self._commits = CommitWatch()
        self._viewed: dict[str, float] = {}
        self._remade: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._published = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._due = threading.Event()  # a caller waits for the next survey
        self._wanted_at = 0.0
        self._is_changed = False
        self._publish_at = 0.0
        self._snapshot = Snapshot(heard_at=time.monotonic())
        self._threads = [
            threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
            for name, work in (
                ("safeconsumer-follower", self._read),
                ("safeconsumer-survey", self._ask),
            )
        ]

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._due.set()
        for one in self._threads:
            one.join(_END_SECONDS)

    def snapshot(self) -> Snapshot:
        """Return what is known now, without waiting."""
        known = self._snapshot
        if known.is_complete and known.trouble is None and known.is_old:
            return evolve(known, trouble=_SLOW)
        return known

    def ask_now(self) -> None:
        """Ask the cluster at once, and not only when the next survey is due."""
        self._wanted_at = time.monotonic()
        self._due.set()

    def view(self, group: str) -> None:
        """Note that a group is being looked at: its lags are fetched for a while."""
        with self._lock:
            self._viewed[group] = time.monotonic()

    def wait_for(self, topic: str, offset: int, timeout: float) -> bool:
        """Wait until a record of a control topic is in the snapshot; tell whether it is."""
        tp = TopicPartition(topic, 0)
        with self._published:
            return self._published.wait_for(
                lambda: self._positions.get(tp, 0) > offset, timeout
            )

    # ------------------------------------------------------------ threads

    def _run(self, work: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            try:
                work()
            except Exception as error:
                log.debug("%s begins again", work.__name__, exc_info=True)
                self._lose(work, _trouble(error))
                self._stopping.wait(_BACKOFF)

    def _lose(self, work: Callable[[], None], why: Trouble) -> None:
        with self._lock:
            if work == self._read:
                self._reading_trouble = why
            else:
                self._survey = evolve(self._survey, trouble=why)
            # The last snapshot stays: nothing is judged by reports that cannot be read.
            self._snapshot = evolve(
                self._snapshot, version=self._snapshot.version + 1, trouble=why
            )

    # ------------------------------------------------------------ the control topics

    def _read(self) -> None:
        with ExitStack() as closing:
            admin = clients.admin(self._base)
            closing.callback(admin.close)
            names = self._readable(admin)
            consumer = clients.reader(self._base)
            closing.callback(consumer.close, autocommit=False, timeout_ms=_CLOSE_MS)
            reader = ControlReader(consumer)
            ends = self._begin(consumer, names)
            look_at = time.monotonic() + _LOOK_FOR_STATUS
            while not self._stopping.is_set():
                self._turn(consumer, reader, ends)
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + _LOOK_FOR_STATUS
                    if names != self._wanted and self._readable(admin) != names:
                        return

    @property
    def _wanted(self) -> tuple[str, ...]:
        status = self.settings.status_topic
        return (*self.settings.topics, *(() if status is None else (status,)))

    def _readable(self, admin: KafkaAdminClient) -> tuple[str, ...]:
        topics.require(admin, self.settings.topics)
        status = self.settings.status_topic
        if status is None:
            self._unread = ("there is no status topic, by the settings",)
            return self.settings.topics
        try:
            topics.require(admin, (status,))
        except AWAY:
            raise
        except kafka_errors.KafkaError as error:
            self._unread = (str(error),)
            return self.settings.topics
        self._unread = ()
        return self._wanted

    def _begin(
        self, consumer: SafeConsumer, names: Sequence[str]
    ) -> Mapping[TopicPartition, int]:
        partitions = [TopicPartition(name, 0) for name in names]
        consumer.assign(partitions)
        firsts = consumer.beginning_offsets(partitions, timeout_ms=_ASK_TIMEOUT_MS)
        ends = consumer.end_offsets(partitions, timeout_ms=_ASK_TIMEOUT_MS)
        identities = topic_ids(consumer, names)
        with self._lock:
            for tp in partitions:
                known = self._positions.get(tp, 0)
                if self._is_another(identities, tp.topic) or ends[tp] < known:
                    self._begin_again(tp)
                    known = 0
                self._positions[tp] = max(known, firsts[tp])
            self._identities.update(
                {name: one for name, one in identities.items() if one is not None}
            )
            status = {tp: 0 for tp in partitions if tp.topic not in self._sources}
            self._positions.update(
                whole.firsts_since(consumer, NAMED_FOR, status, ends)
            )
        for tp in partitions:
            consumer.seek(tp, self._positions[tp])
        return dict(ends)

    def _begin_again(self, tp: TopicPartition) -> None:
        if tp.topic in self._sources:
            self._fold.begin_again(tp.topic)
            self._remade = tuple(dict.fromkeys((*self._remade, tp.topic)))

    def _is_another(self, identities: Mapping[str, object], name: str) -> bool:
        known, found = self._identities.get(name), identities[name]
        return None not in {known, found} and known != found

    def _turn(
        self,
        consumer: SafeConsumer,
        reader: ControlReader,
        ends: Mapping[TopicPartition, int],
    ) -> None:
        polled = consumer.poll(_POLL_MS)
        identities = topic_ids(consumer, [tp.topic for tp in ends])
        again = [name for name in identities if self._is_another(identities, name)]
        if again:
            message = f"{', '.join(again)} was made again"
            raise kafka_errors.UnknownTopicOrPartitionError(message)
        if reader.silence() > _SILENCE:
            message = f"no answer to a fetch for {_SILENCE:.0f} s"
            raise kafka_errors.KafkaTimeoutError(message)
        with self._lock:
            for tp, records in polled.items():
                self._take(tp.topic, records)
            self._positions.update(reader.positions())
            for name in self._sources:
                self._fold.read_through(name, self._positions[TopicPartition(name, 0)])
            was_lost = self._reading_trouble is not None
            if all(self._positions[tp] >= end for tp, end in ends.items()):
                self._read_at = time.monotonic() - reader.silence()
                self._reading_trouble = None
            self._is_changed = self._is_changed or bool(polled)
            is_urgent = was_lost or any(tp.topic in self._sources for tp in polled)
            if is_urgent or self._is_due():
                self._publish()

    def _is_due(self) -> bool:
        wanted = self._snapshot.heard_at <= self._wanted_at < self._heard_at()
        is_time = time.monotonic() >= self._publish_at
        return wanted or (self._is_changed and is_time)

    def _take(self, name: str, records: Iterable[Any]) -> None:
        for record in records:
            at = whole.time_of(record) or 0.0
            is_control = name in self._sources
            # Reports go by offset: a broker's clock may have gone back.
            self._newest = max(self._newest, at) if is_control else at or self._newest
            if is_control:
                taken = self._fold.take(name, (whole.written(record),))
                self._records.extend(
                    as_standing(self._sources[name], one) for one in taken.fresh
                )
                continue
            report = report_wire.decode_report(record.value)
            if report is not None:
                offset = at - report.at_ms / 1000
                heard = _Heard(at, evolve(report, clock_offset=offset))
                self._reports[report.member] = self._lasts[report.member] = heard

    # ------------------------------------------------------------ the groups

    def _ask(self) -> None:
        with ExitStack() as closing:
            admin = clients.admin(self._base)
            closing.callback(admin.close)
            asker = clients.asker(self._base)
            closing.callback(asker.close, autocommit=False, timeout_ms=_CLOSE_MS)
            while not self._stopping.is_set():
                self._due.clear()
                began = time.monotonic()
                self._ask_once(admin, asker)
                self._due.wait(_rest_after(time.monotonic() - began))

    def _ask_once(self, admin: KafkaAdminClient, asker: KafkaConsumer) -> None:
        began = time.monotonic()
        with self._lock:
            names = {one.key.group for one in self._fold.standing()}
            names |= {one.report.group for one in self._live()}
        listed = set(listed_groups(admin))
        facts, unread = facts_of_groups(admin, sorted(names | listed), listed)
        asked = self._with_lags(facts)
        wanted = {tp for one in asked.values() for tp in one.committed}
        control = {TopicPartition(name, 0) for name in self._sources}
        there = _existing(admin, wanted | control)
        ends = asker.end_offsets(there, timeout_ms=_ASK_TIMEOUT_MS) if there else {}
        with self._lock:
            self._survey = _Survey(
                facts=facts,
                moves=self._noted(facts),
                lags={group: _lags(one, ends) for group, one in asked.items()},
                unread=unread,
                asked_at=began,
                ends={tp: end for tp, end in ends.items() if tp in control},
            )
            self._publish()

    def _with_lags(self, facts: Mapping[str, GroupFacts]) -> dict[str, GroupFacts]:
        since = time.monotonic() - _VIEWED
        with self._lock:
            self._viewed = {one: at for one, at in self._viewed.items() if at > since}
            wanted = {*self._viewed, *(one.key.group for one in self._fold.standing())}
        return {group: one for group, one in facts.items() if group in wanted}

    def _noted(
        self, facts: Mapping[str, GroupFacts]
    ) -> dict[str, dict[TopicPartition, Move]]:
        reports: dict[str, list[Report]] = {}
        for one in self._live():
            reports.setdefault(one.report.group, []).append(one.report)
        self._commits.keep(facts.keys())
        return {
            group: self._commits.note(
                group,
                one,
                self._silent(group, one, reports.get(group, ())),
            )
            for group, one in facts.items()
        }

    def _silent(
        self, group: str, facts: GroupFacts, reports: Sequence[Report]
    ) -> dict[TopicPartition, str]:
        # While reports are not read, no member counts as silent.
        is_heard = self._is_listened_to and not self._unread
        known = self._snapshot.pictures.get(group)
        if known is None or not is_heard:
            return {}
        return held_by_silent(facts, reports, known.standing)

    # ------------------------------------------------------------ publishing

    @property
    def _is_listened_to(self) -> bool:
        return self._read_at is not None and self._reading_trouble is None

    def _live(self) -> list[_Heard]:
        # While reports are not read, no member counts as silent.
        if self._is_listened_to and self._reports:
            now = self._clock.now(self._newest, lambda: None)
            self._reports = {
                member: one
                for member, one in self._reports.items()
                if is_live(one.at, now)
            }
        return [one for one in self._reports.values() if one.report.state != "stopped"]

    def _gone(self) -> list[Report]:
        """
        Return the last reports of who reports no more, or was stopped in a batch.

        Call it after :meth:`_live`, and under the lock.
        """
        if not self._lasts or self._read_at is None or self._reading_trouble:
            return []
        now = self._clock.now(self._newest, lambda: None)
        self._lasts = {
            member: one
            for member, one in self._lasts.items()
            if abs(now - one.at) <= NAMED_FOR
        }
        return [
            one.report
            for member, one in self._lasts.items()
            if stopped_in_a_batch(one.report)
            or (one.report.state != "stopped" and member not in self._reports)
        ]

    def _heard_at(self) -> float:
        """Return the moment as of which everything is known. Call it under the lock."""
        survey, known = self._survey, self._snapshot.heard_at
        if self._read_at is None or survey.asked_at is None:
            return known
        names = map(TopicPartition, self._sources, (0, 0))
        is_read = all(
            tp in survey.ends and self._positions[tp] >= survey.ends[tp] for tp in names
        )
        return max(known, min(self._read_at, survey.asked_at)) if is_read else known

    def _publish(self) -> None:
        """Make the next snapshot. Call it under the lock."""
        began = time.monotonic()
        reports = [one.report for one in self._live()]
        now = None
        if self._read_at is not None and self._newest:
            told = self._clock.now(self._newest, lambda: None)
            now = told if self._clock.is_sure else None
        survey = self._survey
        self._snapshot = Snapshot(
            version=self._snapshot.version + 1,
            pictures=self._pictures(reports, now),
            records=tuple(self._records),
            moved=self._commits.stands_since(),
            now=now,
            heard_at=self._heard_at(),
            is_complete=self._read_at is not None and survey.asked_at is not None,
            trouble=self._reading_trouble or survey.trouble,
            unread=self._unread,
            remade=self._remade_and_missed(reports, now or self._newest),
        )
        self._is_changed = False
        done = time.monotonic()
        self._publish_at = done + max(_PUBLISH_EVERY, (done - began) / _PUBLISH_SHARE)
        self._published.notify_all()

    def _remade_and_missed(
        self, reports: Iterable[Report], now: float
    ) -> tuple[str, ...]:
        if not self._remade or any(one.kept for one in reports):
            return self._remade
        missed = {
            one.topic
            for one in self._fold.held()
            if self._fold.is_outlived(one)
            and as_standing("", one).in_force(now, self.settings.clock_skew)
        }
        return tuple(name for name in self._remade if name in missed)

    def _pictures(
        self, reports: Iterable[Report], now: float | None
    ) -> dict[str, Picture]:
        survey, own = self._survey, self.settings.clock_skew
        said: dict[str, list[Report]] = {}
        for report in sorted(reports, key=lambda one: (one.client_id, one.member)):
            said.setdefault(report.group, []).append(report)
        gone: dict[str, list[Report]] = {}
        late: dict[str, list[Report]] = {}
        for report in self._gone():
            by_group = gone if report.kind == STREAM else late
            by_group.setdefault(report.group, []).append(report)
        skews = {group: skew_of(own, several) for group, several in said.items()}
        standing: dict[str, list[Standing]] = {}
        for one in self._fold.standing():
            # If no member reports the time, records prove that it is not earlier than
            # theirs.
            if one.in_force(now or self._newest, skews.get(one.key.group, own)):
                standing.setdefault(one.key.group, []).append(one)
        ends = None
        if self._read_at is not None and self._reading_trouble is None:
            ends = {
                tp.topic: at
                for tp, at in self._positions.items()
                if tp.topic in self._sources
            }
        pictures = {
            group: Picture(
                group=group,
                facts=survey.facts.get(group, _UNKNOWN),
                standing=tuple(standing.get(group, ())),
                reports=tuple(said.get(group, ())),
                ends=ends,
                lags=survey.lags.get(group, {}),
                now=now,
                taken_at=time.monotonic(),
                unread=(*self._unread, *survey.unread.get(group, ())),
                is_heard=not self._unread,
                moved_by_silent=survey.moves.get(group, {}),
                skew=skews.get(group, own),
                gone=tuple(gone.get(group, ())),
                late=tuple(late.get(group, ())),
            )
            for group in sorted({*survey.facts, *standing, *said, *gone})
        }
        known = self._snapshot.pictures
        return {
            group: known[group] if _is_same(known.get(group), one) else one
            for group, one in pictures.items()
        }


def _rest_after(took: float) -> float:
    # As rare as its share requires, but soon enough that its answers are not too old.
    return max(_SURVEY_EVERY, min(took / _SURVEY_SHARE, OLD_AFTER / 2 - took))


def _lags(
    facts: GroupFacts, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    return {
        tp: max(0, ends[tp] - at) for tp, at in facts.committed.items() if tp in ends
    }


def _existing(
    admin: KafkaAdminClient, partitions: AbstractSet[TopicPartition]
) -> list[TopicPartition]:
    # Asking for the end of a topic that is gone, or hidden from us, would wait in vain.
    names = sorted({tp.topic for tp in partitions})
    described = admin.describe_topics(names) if names else []
    counts = {
        one["name"]: len(one["partitions"])
        for one in described
        if not one["error_code"]
    }
    return sorted(tp for tp in partitions if tp.partition < counts.get(tp.topic, 0))


def _is_same(known: Picture | None, one: Picture) -> bool:
    # A picture in which only the time has changed is not judged again.
    if known is None or known.lasting != one.lasting:
        return False
    return known == evolve(one, now=known.now, taken_at=known.taken_at)


def _trouble(error: Exception) -> Trouble:
    detail = str(error)[:300] or type(error).__name__
    if isinstance(error, AWAY):
        return Trouble("The broker does not answer.", detail)
    return Trouble("The cluster cannot be read.", detail)
