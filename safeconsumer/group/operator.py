"""Does what operators do: places and lifts holds, and shows which members obey."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, Self, TypeVar

import kafka.errors as kafka_errors
from attrs import evolve, frozen
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors import ControlTopicError, ControlWriteError
from safeconsumer.group import clients, report_wire, topics, whole
from safeconsumer.group.asking import AWAY, facts_of, facts_of_groups, listed_groups
from safeconsumer.group.commits import CommitWatch, held_by_silent
from safeconsumer.group.errand import Errand
from safeconsumer.group.facts import UNKNOWN, GroupFacts, Standing
from safeconsumer.group.fold import Fold, Written, as_standing, side_by_side
from safeconsumer.group.log_clock import LogClock
from safeconsumer.group.noting import Journal, Noting
from safeconsumer.group.picture import Picture, skew_of
from safeconsumer.group.publisher import Acknowledged, Change, publish
from safeconsumer.group.report_wire import Report
from safeconsumer.group.reports import LazyProducer
from safeconsumer.group.settings import Control
from safeconsumer.holds.scope import Scope

OPERATOR = "operator"
GROUP = "group"

# Seconds; a member without a report for as long is gone, or cannot reach the broker.
SILENT_AFTER = 15.0
# Seconds for which one that reports no more is named: Kafka lists a member that was
# killed until its session ends, after 45 s by default.
NAMED_FOR = 4 * SILENT_AFTER
_WRITE_TIMEOUT = 10.0
_CLOSE_MS = 500
_BACKOFF_MS = 20

_COORDINATOR_SECONDS = 5.0
_COORDINATOR_BACKOFF = 0.2
_COORDINATOR_ERRORS = (
    kafka_errors.CoordinatorLoadInProgressError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorError,
)

T = TypeVar("T")


@frozen(kw_only=True)
class _Times:
    """
    The time of the newest report, and the broker's time now if reports give it.

    Also the streams whose last report is too old by then and did not say that they
    stop, or said that they were stopped in the middle of a batch.
    """

    newest: float = 0.0
    now: float | None = None
    gone: tuple[Report, ...] = ()


_Told = tuple[tuple[Standing, ...], dict[str, int] | None]
_Heard = tuple[tuple[Report, ...], _Times]
_NOBODY: tuple[Report, ...] = ()
_NOTHING_STANDS: _Told = ((), None)
_NOTHING_HEARD: _Heard = ((), _Times())


class Operator:
    """
    A connection for commands. A context manager; every method waits for the broker.

    Args:
        base: how to reach the cluster, with kafka-python's keys.
        settings: the names of the control topics.
        clock: computes the broker's time.
        journal: gets what :meth:`write` does, for audits; None: no journal.

    Attributes:
        base: how the cluster is reached.
        settings: the names of the control topics.
        unwritten: why the journal lacks some results; "" if it lacks none.

    Raises:
        KafkaError: from every method, if the broker cannot be reached or refuses.
        ControlTopicError: from every method that reads a control topic, if it does not
            exist.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        settings: Control,
        clock: LogClock | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.settings = settings
        self._journal = journal
        self.unwritten = ""
        self._clock = clock or LogClock()
        self._commits = CommitWatch()
        # Milliseconds; a first request waits this long for metadata that is not known
        # yet.
        hasty = {"client_id": "safeconsumer-cli", "retry_backoff_ms": _BACKOFF_MS}
        self.base = {**hasty, **base}
        self._producer = LazyProducer(
            lambda: clients.producer(self.base, _WRITE_TIMEOUT)
        )
        self._admin: KafkaAdminClient | None = None
        self._consumer: SafeConsumer | None = None
        self._other: Operator | None = None
        self._there: set[str] = set()
        self._is_fit = False
        self._cluster: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all clients."""
        if self._other is not None:
            self._other.close()
        self._close_consumer()
        self._producer.close()
        if self._admin is not None:
            self._admin.close()

    @property
    def admin(self) -> KafkaAdminClient:
        """The client for all requests other than reading and writing records."""
        if self._admin is None:
            self._admin = clients.admin(self.base)
        return self._admin

    @property
    def cluster(self) -> str | None:
        """The id of the cluster; None if it has none."""
        if self._cluster is None:
            self._cluster = self.admin.describe_cluster()["cluster_id"] or None
        return self._cluster

    # ------------------------------------------------------------ holds

    def check_journal(self) -> None:
        """
        Check that changes could be journaled, if there is a journal.

        Raises:
            JournalError: they could not; :meth:`write` would change nothing.
        """
        if self._journal is not None:
            self._journal.check(self.cluster)

    def check(self) -> None:
        """
        Check that the control topics' settings keep holds, as far as they can be read.

        Raises:
            ControlTopicError: they do not; the message says what to do.
        """
        if self.settings.trust_topic:
            return
        found = topics.ask(self.admin, self.settings.topics)
        faults = [fault for facts in found for fault in topics.faults(facts)]
        if faults:
            raise ControlTopicError("; ".join(faults))
        self._is_fit = True

    def _if_fit(self, ends: dict[str, int] | None) -> dict[str, int] | None:
        # A topic made for other data has no holds on it either; this is asked once.
        if ends is not None and not self._is_fit:
            self.check()
        return ends

    def _require(self, *names: str) -> None:
        # Asking a topic that does not exist for its offsets waits until the timeout.
        names = tuple(one for one in names if one not in self._there)
        if not names:
            return
        try:
            topics.require(self.admin, names)
        except kafka_errors.UnknownTopicOrPartitionError as error:
            raise ControlTopicError(*error.args) from error
        self._there.update(names)

    def topic_of(self, source: str) -> str:
        """Return the control topic of operators' or of the group's own holds."""
        return dict(zip((OPERATOR, GROUP), self.settings.topics, strict=True))[source]

    def write(self, source: str, changes: Sequence[Change]) -> tuple[Acknowledged, ...]:
        """
        Place or lift holds; each is acknowledged by all replicas on return.

        Args:
            source: ``operator`` or ``group``.
            changes: what to write.

        Raises:
            ControlWriteError: one was not acknowledged; running it again is safe.
            JournalError: the journal cannot be written; nothing was changed.
        """
        topic = self.topic_of(source)
        if self._journal is None or not changes:
            return publish(self._producer, topic, changes, _WRITE_TIMEOUT)
        noting = Noting(self._journal, source, self.cluster)
        noting.asked(changes)
        done: Sequence[Acknowledged] = ()
        refused: Sequence[Change] = ()
        try:
            done = publish(self._producer, topic, changes, _WRITE_TIMEOUT)
        except ControlWriteError as error:
            done, refused = error.acknowledged, error.refused
            raise
        finally:
            self.unwritten = self.unwritten or noting.answered(done, refused)
        return tuple(done)

    def standing(self, group: str | None = None) -> tuple[Standing, ...]:
        """
        Return the holds that are on the topics, of one group or of all.

        They are folded by offset, as members fold them; expired ones are among them.
        """
        return self._told(group)[0]

    def _told(self, group: str | None) -> _Told:
        fold = Fold(self._sources, group)
        records, ends = self._read(self.settings.topics)
        for topic, several in _by_topic(records).items():
            fold.take(topic, several)
        return fold.standing(), ends

    @property
    def _sources(self) -> dict[str, str]:
        return dict(zip(self.settings.topics, (OPERATOR, GROUP), strict=True))

    def _read(
        self, names: Sequence[str], since: float | None = None
    ) -> tuple[list[Any], dict[str, int]]:
        self._require(*names)
        return self._asked(lambda consumer: whole.read(consumer, names, since))

    def _asked(self, ask: Callable[[SafeConsumer], T]) -> T:
        if self._consumer is None:
            self._consumer = clients.reader(self.base)
        try:
            return ask(self._consumer)
        except BaseException:
            # The client may be in the middle of an answer, so the next look makes a new
            # one. A topic may be gone, too, for which the old client would wait in
            # vain.
            self._there.clear()
            self._close_consumer()
            raise

    def _close_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=_CLOSE_MS)

    def records(self, group: str | None = None) -> tuple[Standing, ...]:
        """
        Return all records still on the control topics, tombstones too.

        Each topic's are in their own order; the two are merged by their times.
        """
        fold = Fold(self._sources, group)
        read = _by_topic(self._read(self.settings.topics)[0])
        return side_by_side(
            as_standing(self._sources[topic], entry)
            for topic, several in read.items()
            for entry in fold.entries(topic, several)
        )

    def records_between(
        self, source: str, first: int, end: int
    ) -> tuple[Standing, ...]:
        """
        Return the records of a part of a control topic, tombstones too, of all groups.

        Args:
            source: ``operator`` or ``group``.
            first: the first offset.
            end: the offset after the last.
        """
        topic = self.topic_of(source)
        fold = Fold(self._sources)
        found = self._asked(lambda one: whole.read_part(one, topic, first, end))
        entries = fold.entries(topic, map(whole.written, found))
        return tuple(as_standing(source, one) for one in entries)

    # ------------------------------------------------------------ members

    def reports(self, group: str) -> tuple[Report, ...]:
        """
        Return the last report of every member that reported lately.

        Times are compared on the broker's clock, by the records' own times. If this
        machine's clock differs, the call waits once for the next report, two intervals
        at most.
        """
        return self._heard(group)[0]

    def _heard(self, group: str | None) -> _Heard:
        topic = self.settings.status_topic
        if topic is None:
            return _NOTHING_HEARD
        last: dict[str, tuple[float, Report]] = {}
        newest = 0.0
        for record in self._read((topic,), since=SILENT_AFTER)[0]:
            at = whole.time_of(record) or 0.0
            newest = at or newest  # by offset: a broker's clock may have gone back
            report = report_wire.decode_report(record.value)
            if report is not None and group in {None, report.group}:
                report = evolve(report, clock_offset=at - report.at_ms / 1000)
                last[report.member] = (at, report)
        there = [one for one in last.values() if one[1].state != "stopped"]
        stopped = [one for _, one in last.values() if stopped_in_a_batch(one)]
        if not there and not self._clock.knows(newest):
            return (), _Times(newest=newest, gone=tuple(stopped))  # nobody to wait for
        now = self._clock.now(newest, lambda: self._next_report_at(topic))
        live: list[Report] = []
        old: list[Report] = []
        for at, report in there:
            (live if is_live(at, now) else old).append(report)
        found = tuple(sorted(live, key=lambda one: (one.client_id, one.member)))
        return found, _Times(
            newest=newest,
            now=now if self._clock.is_sure else None,
            gone=(*(one for one in old if one.kind == report_wire.STREAM), *stopped),
        )

    def _late(
        self, reports: Iterable[Report], *groups: GroupFacts
    ) -> tuple[Report, ...]:
        # Read as far back as a session lasts, only if somebody does not report.
        said = {one.member_id for one in reports}
        silent = {one.member_id for facts in groups for one in facts.members} - said
        if self.settings.status_topic is None or not silent:
            return ()
        found: dict[str | None, Report] = {}
        for record in self._read((self.settings.status_topic,), since=NAMED_FOR)[0]:
            report = report_wire.decode_report(record.value)
            if report is not None and report.member_id in silent:
                at = whole.time_of(record) or 0.0
                found[report.member_id] = evolve(
                    report, clock_offset=at - report.at_ms / 1000
                )
        return tuple(found.values())

    def broker_time(self) -> float:
        """
        Return the broker's time, or the time of the newest report if it is not known.

        It is 0.0 if reports cannot be read; then no hold counts as expired.
        """
        times = _tried(lambda: self._heard(""), _NOTHING_HEARD, [])[1]
        return times.newest if times.now is None else times.now

    def _next_report_at(self, topic: str) -> float | None:
        timeout = 2 * self.settings.status_interval + 0.5
        return self._asked(lambda consumer: whole.next_time(consumer, topic, timeout))

    def group(self, group: str) -> GroupFacts:
        """Ask the cluster about a consumer group."""
        described = _coordinated(lambda: self._described(group))
        committed = _coordinated(lambda: self.admin.list_group_offsets(group))[group]
        facts = facts_of(described, committed)
        if facts.state == "Dead" and self._is_listed(group):
            return evolve(facts, state=UNKNOWN)
        return facts

    def _described(self, group: str) -> Mapping[str, Any]:
        described: Mapping[str, Any] = self.admin.describe_groups([group])[group]
        said = described.get("error")
        if said and described["group_state"] != "Dead":
            # kafka-python does not raise these errors: they are in the answer, as text.
            kinds = (one for one in _COORDINATOR_ERRORS if one.__name__ in said)
            raise next(kinds, kafka_errors.KafkaError)(said)
        return described

    def _is_listed(self, group: str) -> bool:
        # It uses the protocol of KIP-848, about which kafka-python's admin cannot ask.
        return group in self.groups()

    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups that this principal may see."""
        return tuple(one["group_id"] for one in self.admin.list_groups())

    def retention(self, names: Sequence[str]) -> dict[str, float | None]:
        """
        Return after how many seconds topics delete records; None: never because of age.

        Topics for which the broker gives no answer are left out.
        """
        return topics.retention(self.admin, names) if names else {}

    def topics(self) -> tuple[str, ...]:
        """Return the names of all topics that this principal may see."""
        return tuple(self.admin.list_topics())

    def partitions(self, scopes: Iterable[Scope]) -> tuple[TopicPartition, ...]:
        """Return the existing partitions that scopes cover."""
        scopes = tuple(scopes)
        names = [
            name
            for name in self.topics()
            if any(_may_cover(scope, name) for scope in scopes)
        ]
        described = self.admin.describe_topics(names) if names else []
        there = (
            TopicPartition(one["name"], number)
            for one in described
            for number in range(len(one["partitions"]))
        )
        return tuple(
            sorted(tp for tp in there if any(one.covers(tp) for one in scopes))
        )

    def lags(
        self, facts: GroupFacts, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return how many records wait in partitions for which the group has commits."""
        wanted = [tp for tp in partitions if tp in facts.committed]
        if not wanted:
            return {}
        ends = self._ends(wanted)
        return {tp: max(0, ends[tp] - facts.committed[tp]) for tp in wanted}

    # ------------------------------------------------------------ one look

    def look(
        self, group: str, *, is_strict: bool = False, timeout: float | None = None
    ) -> Picture:
        """
        Return all that can be known of a group now, with one consumer.

        Without a control topic or a status topic, or the right to read one, the rest is
        returned all the same, and the picture names what is missing.

        Args:
            group: the consumer group.
            is_strict: raise if the control topics cannot be read.
            timeout: seconds after which it gives up, whatever the brokers do; None for
                the clients' own limits, half a minute for each request.

        Raises:
            KafkaTimeoutError: it was not answered within ``timeout``.
        """
        if timeout is None:
            seen = self._look(group, is_strict=is_strict)
        else:
            seen = self.within(
                timeout,
                lambda one: one._look(group, is_strict=is_strict),  # noqa: SLF001 - an Operator, too
            )
        silent = {}
        if seen.is_heard:
            silent = held_by_silent(seen.facts, seen.reports, seen.standing)
        moved = self._commits.note(group, seen.facts, silent)
        return evolve(seen, moved_by_silent=moved)

    def within(self, seconds: float, ask: Callable[["Operator"], T]) -> T:
        """
        Call a function with a time limit, whatever the brokers do.

        It gets separate clients, since those of a thread that waits cannot be used.

        Args:
            seconds: after which it gives up.
            ask: called with an operator like this one, on another thread.

        Raises:
            KafkaTimeoutError: there was no answer in time.
        """
        other, self._other = self._other, None
        if other is None:
            other = Operator(self.base, self.settings, copy(self._clock))
        errand = Errand(lambda: ask(other), other.close)
        try:
            answer = errand.result(seconds)
        except TimeoutError as error:
            raise kafka_errors.KafkaTimeoutError(*error.args) from error
        except BaseException:
            other.close()
            raise
        self._other = other
        return answer

    def _look(self, group: str, *, is_strict: bool) -> Picture:
        unread: list[str] = []
        facts = self.group(group)
        standing, ends = (
            self._told(group)
            if is_strict
            else _tried(lambda: self._told(group), _NOTHING_STANDS, unread)
        )
        if not is_strict:
            ends = _tried(lambda: self._if_fit(ends), None, unread)
        heard = _tried(lambda: self._heard(group), _NOTHING_HEARD, unread)
        reports, times = heard
        heard_at = time.monotonic()
        newest = max((one.at or 0.0 for one in standing), default=0.0)
        now = times.now or max(times.newest, newest)
        skew = skew_of(self.settings.clock_skew, reports)
        standing = tuple(one for one in standing if one.in_force(now, skew))
        held = [
            tp for tp in facts.partitions if any(one.covers(tp) for one in standing)
        ]
        no_lags: dict[TopicPartition, int] = {}
        lags = _tried(lambda: self.lags(facts, held), no_lags, unread)
        taken_at = time.monotonic()
        return Picture(
            group=group,
            facts=facts,
            standing=standing,
            reports=reports,
            ends=ends,
            lags=lags,
            now=None if times.now is None else times.now + taken_at - heard_at,
            taken_at=taken_at,
            unread=tuple(unread),
            is_heard=heard is not _NOTHING_HEARD,
            skew=skew,
            gone=times.gone,
            late=_tried(lambda: self._late(reports, facts), _NOBODY, unread),
        )

    def survey(self) -> tuple[Picture, ...]:
        """
        Return what is known of every group at once, and of groups that are only held.

        Lags are not included, and committed offsets only of groups with holds.
        """
        unread: list[str] = []
        standing, ends = _tried(lambda: self._told(None), _NOTHING_STANDS, unread)
        ends = _tried(lambda: self._if_fit(ends), None, unread)
        heard = _tried(lambda: self._heard(None), _NOTHING_HEARD, unread)
        reports, times = heard
        newest = max((one.at or 0.0 for one in standing), default=0.0)
        now = times.now or max(times.newest, newest)
        listed, held = listed_groups(self.admin), {one.key.group for one in standing}
        names = {*listed, *held, *(one.group for one in reports)}
        facts, missing = facts_of_groups(self.admin, sorted(names), listed, held)

        late = _tried(lambda: self._late(reports, *facts.values()), _NOBODY, unread)

        def picture(name: str) -> Picture:
            said = tuple(one for one in reports if one.group == name)
            skew = skew_of(self.settings.clock_skew, said)
            return Picture(
                group=name,
                facts=facts[name],
                standing=tuple(
                    one
                    for one in standing
                    if one.key.group == name and one.in_force(now, skew)
                ),
                reports=said,
                ends=ends,
                lags={},
                now=times.now,
                taken_at=time.monotonic(),
                unread=(*unread, *missing.get(name, ())),
                is_heard=heard is not _NOTHING_HEARD,
                skew=skew,
                gone=tuple(one for one in times.gone if one.group == name),
                late=tuple(one for one in late if one.group == name),
            )

        return tuple(map(picture, sorted(names)))

    def written_since(
        self, moments: Mapping[TopicPartition, float]
    ) -> dict[TopicPartition, int]:
        """
        Return how many offsets were written since; only if the broker can tell.

        Args:
            moments: seconds since the epoch, by the broker's clock.
        """
        if not moments:
            return {}

        def ask(consumer: SafeConsumer) -> dict[TopicPartition, int]:
            asked = {tp: int(at * 1000) for tp, at in moments.items()}
            try:
                found = consumer.offsets_for_times(asked)
            except AWAY:
                raise
            except (kafka_errors.KafkaError, ValueError):
                return {}
            ends = consumer.end_offsets(list(asked))
            return {
                tp: 0 if one is None else max(0, ends[tp] - one.offset)
                for tp, one in found.items()
            }

        return self._asked(ask)

    # ------------------------------------------------------------ reading

    def broker_version(self) -> tuple[int, ...]:
        """Return the Kafka version whose protocols the cluster speaks."""
        return self._asked(lambda consumer: tuple(consumer.config["api_version"]))

    def ends(self) -> dict[str, int]:
        """Return the end offsets of the control topics."""
        self._require(*self.settings.topics)
        ends = self._ends([TopicPartition(name, 0) for name in self.settings.topics])
        return {tp.topic: end for tp, end in ends.items()}

    def _ends(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        timeout_ms = whole.READ_TIMEOUT * 1000
        return self._asked(
            lambda consumer: consumer.end_offsets(partitions, timeout_ms=timeout_ms)
        )


def _tried(ask: Callable[[], T], otherwise: T, unread: list[str]) -> T:
    # What is missing or may not be read is named; other errors are raised.
    try:
        return ask()
    except (ControlTopicError, kafka_errors.TopicAuthorizationFailedError) as error:
        unread.append(str(error))
        return otherwise


def _coordinated(ask: Callable[[], T]) -> T:
    # A coordinator may move, and a cluster's first is created only on demand.
    deadline = time.monotonic() + _COORDINATOR_SECONDS
    while True:
        try:
            return ask()
        except _COORDINATOR_ERRORS:
            if time.monotonic() > deadline:
                raise
            time.sleep(_COORDINATOR_BACKOFF)


def stopped_in_a_batch(one: Report) -> bool:
    """Tell whether a stream was stopped in a batch, which runs again when it is back."""
    is_stopped = one.state == "stopped" and bool(one.busy)
    return is_stopped and one.kind == report_wire.STREAM


def is_live(at: float, now: float) -> bool:
    """
    Tell whether a report of that time still counts, both by the broker's clock.

    A report later than now was written before that clock went back.
    """
    return abs(now - at) <= SILENT_AFTER


def _by_topic(records: Iterable[Any]) -> dict[str, list[Written]]:
    found: dict[str, list[Written]] = {}
    for record in records:
        found.setdefault(record.topic, []).append(whole.written(record))
    return found


def _may_cover(scope: Scope, topic: str) -> bool:
    named = getattr(scope, "topic", None)
    return named == topic if named is not None else scope.covers((topic, 0))
