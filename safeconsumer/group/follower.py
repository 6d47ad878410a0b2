"""Follows the control topics and the cluster's groups, and publishes snapshots of them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Self

from attrs import evolve, field, frozen
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group import clients, described_topics
from safeconsumer.group.board import NAMED_FOR, Board, Readable
from safeconsumer.group.commits import CommitWatch, Move
from safeconsumer.group.fold import RawRecord
from safeconsumer.group.settings import Control
from safeconsumer.group.survey import AWAY, Survey, ends_of, survey_of, with_lags
from safeconsumer.group.topic_reader import TopicReader
from safeconsumer.group.view import NO_TIMES, Times, View

log = logging.getLogger("safeconsumer.group")

_POLL_MS = 250
# Seconds after which a snapshot no longer describes the present.
OLD_AFTER = 10.0
_SURVEY_EVERY = 1.0
# Surveys take at most this share of the time, regardless of the number of groups,
# except when the answers would become too old before the next survey is done.
_SURVEY_SHARE = 0.2
# Creating snapshots takes at most this share of the time; a snapshot of a thousand
# groups takes 30 ms.
_PUBLISH_SHARE = 0.1
_PUBLISH_EVERY = 0.1
# Seconds after which a snapshot gets a new version even if only ages have changed,
# because a page that gets no update marks itself as old after 10 s.
_RENEW_EVERY = 5.0
_VIEWED = 30.0
_BACKOFF = 1.0
_LOOK_FOR_STATUS = 10.0
_END_SECONDS = 3.0
# Seconds between requests for the lags of groups without holds that no page shows;
# these groups may have tens of thousands of partitions.
_LAGS_EVERY = 10.0
MOST_RECORDS = 10_000
"""The maximum number of control records that a follower keeps, the newest ones."""


@frozen
class Trouble:
    """
    The reason why there is no newer snapshot.

    Attributes:
        sentence: the reason, as a sentence for people.
        detail: the client's error message.
    """

    sentence: str
    detail: str


_SLOW = Trouble(
    "The cluster has not answered for a while.",
    f"the snapshot is older than {OLD_AFTER:.0f} s",
)


@frozen(kw_only=True)
class Snapshot:
    """
    All groups at one point in time; a snapshot never changes.

    Attributes:
        version: a counter that increases whenever the pages would change, and every few
            seconds if only ages change.
        views: the groups, by name.
        records: the records read from the holds topic, including tombstones.
        times: the clock readings that determine whether a hold has ended.
        as_of: the time that the snapshot shows, on our monotonic clock. The snapshot
            includes everything that the cluster had acknowledged by that time, and may
            include later changes.
        is_complete: whether the holds topic was read to its end, and the groups were
            listed.
        trouble: why there is no newer snapshot; None if nothing is wrong.
        unread: the parts that could not be read, each with the reason, as text.
        remade: the holds topic, if it was deleted and recreated and holds are still
            missing from it.
    """

    version: int = 0
    views: Mapping[str, View] = field(factory=dict)
    records: tuple[RawRecord, ...] = ()
    times: Times = NO_TIMES
    as_of: float
    is_complete: bool = False
    trouble: Trouble | None = None
    unread: tuple[str, ...] = ()
    remade: tuple[str, ...] = ()

    @property
    def age(self) -> float:
        """The age of the snapshot in seconds."""
        return time.monotonic() - self.as_of

    @property
    def now(self) -> float | None:
        """The broker's current time, even during an outage; None if it is unknown."""
        now, taken_at = self.times.now, self.times.taken_at
        if now is None or taken_at is None:
            return now
        return now + time.monotonic() - taken_at

    @property
    def is_old(self) -> bool:
        """Whether the snapshot is too old to describe the present."""
        return self.age >= OLD_AFTER

    @property
    def lack(self) -> str:
        """Why the snapshot is incomplete or outdated, as a sentence; "" if it is neither."""
        if self.trouble:
            return f"{self.trouble.sentence} {self.trouble.detail}".strip()
        return "" if self.is_complete else "the control topics are being read"


@frozen(kw_only=True)
class _Asked:
    """A survey, when it started, and the holds topic's end offset after that."""

    survey: Survey = field(factory=Survey)
    moves: Mapping[str, Mapping[TopicPartition, Move]] = field(factory=dict)
    at: float | None = None
    end: int | None = None
    trouble: Trouble | None = None


class Follower:
    """
    Publishes snapshots of all groups, for a caller that shows them continuously.

    A follower reads both control topics with one consumer, and queries groups with one
    admin client. A follower does not need more permissions than an operator's commands,
    never places holds, and keeps the last snapshot even if the cluster becomes
    unreachable. A follower is a context manager.

    Args:
        base: the kafka-python settings for connecting to the cluster.
        settings: the names of the control topics.

    Thread rules: a follower runs two threads; any thread may call the public methods.
    """

    def __init__(self, base: Mapping[str, Any], settings: Control) -> None:
        self._base = {"client_id": "safeconsumer-console", **base}
        self.settings = settings
        self._holds = TopicPartition(settings.holds_topic, 0)
        self._board = Board(settings, max_records=MOST_RECORDS)
        self._reader = TopicReader(
            lambda: clients.reader(self._base), settings.status_topic, NAMED_FOR
        )
        # The time up to which all records have been read, and why reading has failed
        # since then.
        self._read_at: float | None = None
        self._reading_trouble: Trouble | None = None
        self._names: frozenset[str] = frozenset()
        self._unread: tuple[str, ...] = ()
        self._asked = _Asked()
        self._commits = CommitWatch()
        self._viewed: dict[str, float] = {}
        self._lags_at = 0.0  # when the follower next requests the lags of all groups
        self._lock = threading.Lock()
        self._published = threading.Condition(self._lock)
        self._stopping = InterruptibleEvent()
        self._is_changed = False
        self._publish_at = 0.0
        self._renewed_at = time.monotonic()
        self._snapshot = Snapshot(as_of=time.monotonic())
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
        for one in self._threads:
            one.join(_END_SECONDS)

    def snapshot(self) -> Snapshot:
        """Return the current snapshot, without waiting."""
        known = self._snapshot
        if known.is_complete and known.trouble is None and known.is_old:
            return evolve(known, trouble=_SLOW)
        return known

    def watch(self, group: str) -> None:
        """Fetch the lags of a group for a while, because a page shows the group."""
        with self._lock:
            self._viewed[group] = time.monotonic()

    def wait_for(self, offset: int, timeout: float) -> bool:
        """Wait until the snapshot includes a holds topic offset; return whether it does."""
        with self._published:
            return self._published.wait_for(
                lambda: self._board.positions.get(self._holds, 0) > offset, timeout
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
                self._asked = evolve(self._asked, trouble=why)
            # Keep the last snapshot, because there can be no new verdict without
            # reports.
            self._put(evolve(self._snapshot, trouble=why))

    # ------------------------------------------------------------ the control topics

    def _read(self) -> None:
        with ExitStack() as closing:
            admin = clients.admin(self._base)
            closing.callback(admin.close)
            closing.callback(self._reader.close)
            ids = self._topic_ids(admin)
            remade = self._reader.begin(list(ids), ids=ids)
            with self._lock:
                self._board.topic_recreated(remade)
                self._names = frozenset(ids)
            look_at = time.monotonic() + _LOOK_FOR_STATUS
            while not self._stopping.is_set():
                self._turn()
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + _LOOK_FOR_STATUS
                    is_all = self._names.issuperset(self.settings.topics)
                    if not is_all and self._topic_ids(admin).keys() != self._names:
                        return

    def _topic_ids(self, admin: KafkaAdminClient) -> dict[str, object]:
        ids, troubles = described_topics.readable(admin, self.settings)
        if self.settings.holds_topic not in ids:
            raise troubles[0]
        self._unread = tuple(map(str, troubles))
        return ids

    def _turn(self) -> None:
        polled = self._reader.turn(_POLL_MS)
        with self._lock:
            self._board.feed(polled, self._reader.positions)
            was_lost = self._reading_trouble is not None
            if self._reader.is_complete:
                self._read_at = time.monotonic() - self._reader.age()
                self._reading_trouble = None
            self._is_changed = self._is_changed or bool(polled)
            is_urgent = was_lost or self.settings.holds_topic in polled
            is_time = self._is_changed and time.monotonic() >= self._publish_at
            if is_urgent or is_time:
                self._publish()

    # ------------------------------------------------------------ the groups

    def _ask(self) -> None:
        with clients.Queries({**clients.HASTY, **self._base}) as queries:
            while not self._stopping.is_set():
                began = time.monotonic()
                self._ask_once(queries, began)
                self._stopping.wait(_rest_after(time.monotonic() - began))

    def _ask_once(self, queries: clients.Queries, began: float) -> None:
        with self._lock:
            viewed = self._viewed.items()
            self._viewed = {one: at for one, at in viewed if at > began - _VIEWED}
            wanted = {*self._viewed, *self._board.held}
            groups = self._board.groups
            known = self._asked.survey.lags
        is_whole = began >= self._lags_at
        survey = survey_of(queries.admin, groups)
        ends = ends_of([self._holds], queries)
        survey = with_lags(survey, survey.facts if is_whole else wanted, queries)
        if is_whole:
            self._lags_at = began + _LAGS_EVERY
        else:
            left = {one: lags for one, lags in known.items() if one in survey.facts}
            survey = evolve(survey, lags={**left, **survey.lags})
        with self._lock:
            self._asked = _Asked(
                survey=survey,
                moves=self._moves(survey),
                at=began,
                end=ends.get(self._holds),
            )
            self._publish()

    def _moves(self, survey: Survey) -> Mapping[str, Mapping[TopicPartition, Move]]:
        # A move counts only in a group that has holds.
        held, readable = self._board.held & survey.facts.keys(), self._readable
        self._commits.keep(held)
        views = (self._board.view(one, survey, readable) for one in held)
        return {
            one.group: self._commits.note(one.group, one.facts, one.held_by_silent)
            for one in views
        }

    # ------------------------------------------------------------ publishing

    @property
    def _is_reading(self) -> bool:
        return self._read_at is not None and self._reading_trouble is None

    @property
    def _readable(self) -> Readable:
        """Which parts of the topics can be read. The caller must hold the lock."""
        return Readable(
            ends=self._board.ends if self._is_reading else None,
            reports_are_read=self.settings.status_topic in self._names,
            unread=self._unread,
        )

    def _as_of(self) -> float:
        """Return ``as_of`` for the next snapshot. The caller must hold the lock."""
        asked, known = self._asked, self._snapshot.as_of
        if self._read_at is None or asked.at is None:
            return known
        at = self._board.positions.get(self._holds, 0)
        is_read = asked.end is not None and at >= asked.end
        return max(known, min(self._read_at, asked.at)) if is_read else known

    def _publish(self) -> None:
        """Create and publish the next snapshot. The caller must hold the lock."""
        began = time.monotonic()
        # The board is not updated while reading fails, so that members do not count as
        # silent.
        if self._is_reading:
            self._board.update()
        asked = self._asked
        snapshot = Snapshot(
            views=self._views(),
            records=tuple(self._board.records),
            times=self._board.times,
            as_of=self._as_of(),
            is_complete=self._read_at is not None and asked.at is not None,
            trouble=self._reading_trouble or asked.trouble,
            unread=(*self._unread, *asked.survey.unlisted),
            remade=self._board.remade,
        )
        self._put(snapshot)
        self._is_changed = False
        done = time.monotonic()
        self._publish_at = done + max(_PUBLISH_EVERY, (done - began) / _PUBLISH_SHARE)
        self._published.notify_all()

    def _put(self, one: Snapshot) -> None:
        """Make a snapshot the current one. The caller must hold the lock."""
        known, now = self._snapshot, time.monotonic()
        is_due = now - self._renewed_at >= _RENEW_EVERY
        is_new = is_due or not _shows_same(known, one)
        self._renewed_at = now if is_new else self._renewed_at
        self._snapshot = evolve(one, version=known.version + is_new)

    def _views(self) -> dict[str, View]:
        survey, moves, readable = self._asked.survey, self._asked.moves, self._readable
        found: dict[str, View] = {}
        for group in sorted({*survey.facts, *self._board.groups}):
            one = self._board.view(group, survey, readable, moves.get(group))
            known = self._snapshot.views.get(group)
            found[group] = known if known and _is_same(known, one) else one
        return found


def _rest_after(took: float) -> float:
    # Surveys stay within _SURVEY_SHARE, unless their answers would become too old before
    # the next survey is done.
    return max(_SURVEY_EVERY, min(took / _SURVEY_SHARE, OLD_AFTER / 2 - took))


def _is_same(known: View, one: View) -> bool:
    # If only the time has changed, the known view and its verdicts are kept, unless the
    # new view shows how long a member has not reported.
    return (
        not one.former_reports
        and known.lasting == one.lasting
        and known.maybe_ended == one.maybe_ended
        and known == evolve(one, times=known.times)
    )


def _shows_same(known: Snapshot, one: Snapshot) -> bool:
    same = evolve(
        one,
        version=known.version,
        views=known.views,
        times=known.times,
        as_of=known.as_of,
    )
    return (
        known == same
        and known.views.keys() == one.views.keys()
        and all(
            view is (other := one.views[name])
            or _is_same(_untimed(view), _untimed(other))
            for name, view in known.views.items()
        )
    )


def _untimed(view: View) -> View:
    # Ignore the times of reports, because pages only show which members report.
    reports = (evolve(one, at_ms=0, clock_offset=0.0) for one in view.reports)
    return evolve(view, reports=tuple(reports))


def _trouble(error: Exception) -> Trouble:
    detail = str(error)[:300] or type(error).__name__
    if isinstance(error, AWAY):
        return Trouble("The broker does not answer.", detail)
    what = "control topics" if isinstance(error, ControlTopicError) else "cluster"
    return Trouble(f"The {what} cannot be read.", detail)
