"""Places and lifts holds for operators, and shows which members obey."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, Self, TypeVar

import kafka.errors as kafka_errors
from attrs import evolve
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer._kafka.of_group import producers
from safeconsumer.errors.base import ControlTopicError, HoldSettingError
from safeconsumer.group import clients, described_topics, patterns, topics
from safeconsumer.group.board import NAMED_FOR, Board, Readable
from safeconsumer.group.commits import (
    CommitWatch,
    Move,
    moved_at_once,
    times_to_look_up,
)
from safeconsumer.group.facts import GroupFacts, HoldRecord
from safeconsumer.group.log_clock import LogClock
from safeconsumer.group.movements import reasons, unmoved
from safeconsumer.group.publisher import Change, changes, new_hold, publish
from safeconsumer.group.scopes import checked_group
from safeconsumer.group.settings import Control
from safeconsumer.group.survey import (
    Survey,
    facts_of_one,
    first_offsets,
    listed_groups,
    survey_of,
    with_lags,
)
from safeconsumer.group.timed_call import TimedCall
from safeconsumer.group.topic_reader import TopicReader
from safeconsumer.group.view import View
from safeconsumer.group.wire import ControlHold, ControlKey
from safeconsumer.holds import ranges
from safeconsumer.holds.hold import checked_duration, checked_reason, operator_name
from safeconsumer.holds.scope import Target

_WRITE_TIMEOUT = 10.0
_READ_TIMEOUT = 30.0
# Seconds of look()'s timeout that are reserved for the requests after the wait for
# reports.
_ANSWER_SECONDS = 0.5
_CLOSE_SECONDS = 0.5
_BACKOFF_MS = 20
_POLL_MS = 100
_NO_TOPIC = kafka_errors.UnknownTopicOrPartitionError.errno

T = TypeVar("T")


class Operator:
    """
    Places, lifts and shows holds on whole groups, as the commands do.

    The operator's principal needs the ACLs that ``safeconsumer control acls`` prints. A
    principal that may write to the holds topic can lift all holds on it. Teams that
    must not control each other's groups therefore need separate topics
    (``Control.prefixed``).

    An operator is a context manager that closes its clients; its holds stay in force.

    Thread rules: only one thread at a time may use this; every method waits for the broker.

    Args:
        base: the kafka-python settings for connecting to the cluster.
        settings: the names of the control topics.
        clock: estimates the broker's time.

    Attributes:
        base: the kafka-python settings for connecting to the cluster.
        settings: the names of the control topics.
        board: the holds and reports, built from the records that were read.

    Raises:
        KafkaError: from every method, if the broker cannot be reached or refuses a
            request.
        ControlTopicError: from every method that reads the holds topic, if that topic
            does not exist.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        settings: Control,
        clock: LogClock | None = None,
    ) -> None:
        self.settings = settings
        self._clock = clock or LogClock()
        self._commits = CommitWatch()
        # retry_backoff_ms is how long a first request waits for metadata.
        hasty = {"client_id": "safeconsumer-cli", "retry_backoff_ms": _BACKOFF_MS}
        self.base = {**hasty, **base}
        self._producer: KafkaProducer | None = None
        self._queries = clients.Queries({**clients.HASTY, **self.base})
        # No records are kept, because a program may keep an operator for months and
        # only a history needs the records.
        self.board = Board(settings, self._clock, max_records=0)
        self._reader = TopicReader(
            lambda: clients.reader(self.base), settings.status_topic, NAMED_FOR
        )
        self._other: Operator | None = None
        self._is_fit = False
        # The time until which a missing report does not yet mean that members are
        # silent.
        self._silent_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all clients."""
        if self._other is not None:
            self._other.close()
        self._reader.close()
        if self._producer is not None:
            producers.end(self._producer, _CLOSE_SECONDS)
        self._queries.close()

    @property
    def admin(self) -> KafkaAdminClient:
        """The client for all requests except reading and writing records."""
        return self._queries.admin

    # ------------------------------------------------------------ holds

    def check(self) -> None:
        """
        Check that no hold can be lost through the holds topic's settings, if readable.

        The broker is queried once, and again if the topic was recreated. :meth:`write`
        and :meth:`read` call this method.

        Raises:
            ControlTopicError: the settings could let holds be lost; the message gives
                advice.
        """
        if self._is_fit or self.settings.trust_topic:
            return
        topics.require_fit(self.facts())
        self._is_fit = True

    def facts(self) -> topics.Facts:
        """Return the broker's description of the holds topic."""
        (found,) = described_topics.describe(self.admin, [self.settings.holds_topic])
        return found

    def is_set_up(self) -> bool:
        """Return whether any control topic exists, or is hidden and may exist."""
        found = described_topics.describe(self.admin, self.settings.topics)
        return any(one.partitions or one.is_hidden for one in found)

    def write(self, wanted: Sequence[Change]) -> tuple[HoldRecord, ...]:
        """
        Place or lift holds; on return, all replicas have acknowledged every change.

        Args:
            wanted: the changes to write.

        Raises:
            ControlTopicError: the topic would lose the holds; nothing was written.
            ControlWriteError: a change was not acknowledged; writing it again is safe.
        """
        self.check()
        topic = self.settings.holds_topic
        return publish(self._connected_producer, topic, wanted, _WRITE_TIMEOUT)

    def _connected_producer(self) -> KafkaProducer:
        if self._producer is None:
            self._producer = clients.producer(self.base, _WRITE_TIMEOUT)
        return self._producer

    def holds(self, group: str | None = None) -> tuple[HoldRecord, ...]:
        """
        Read the holds topic, and return the holds of one group or of all groups.

        The holds are those that members would read from the topic, including expired
        ones.
        """
        # Skip the status topic, because its many reports are not needed for the holds.
        settings = evolve(self.settings, status_topic=None)
        self._read(settings, is_strict=True)
        return self.board.holds(group)

    def pause(
        self,
        group: str,
        *targets: Target,
        owner: str,
        reason: str | None = None,
        for_: float | timedelta | None = None,
    ) -> None:
        """
        Hold targets for all current and future members of a group.

        Members obey within milliseconds. A partition that is assigned after this call
        has returned does not deliver any held records. The hold stays in force after
        this process exits, until :meth:`resume` or ``safeconsumer resume`` lifts it, or
        it expires by the broker's clock. If this owner already holds a target, the hold
        is replaced, and its partitions count as held since the earlier hold was placed.

        Args:
            group: the consumer group.
            targets: as for ``SafeConsumer.pause``; patterns must be RE2, so that all
                members interpret them in the same way. Each target becomes a separate
                hold.
            owner: the owner of the hold, as ``status`` shows it.
            reason: text for people, or None.
            for_: seconds or a ``timedelta`` until the hold expires; None for no limit.

        Raises:
            ControlTopicError: there is no holds topic, or its settings would let Kafka
                delete holds; nothing was written. The settings are requested once, and
                again if the topic was recreated.
            ControlWriteError: a hold was not acknowledged within 10 s. Acknowledged
                holds are in force, and the holds named in the message may still be
                written later; repeating the call is safe.
            HoldSettingError: the group, owner, reason or duration is invalid; nothing
                was written.
            MissingExtraError: a target is a pattern, and google-re2 is missing.
        """
        hold = new_hold(checked_reason(reason), checked_duration(for_))
        wanted = _wanted(group, owner, targets, hold)
        found = self.holds(group)
        proven, skew = self.board.proven, self.settings.clock_skew
        lasting = {one.key: one for one in found if one.in_force(proven, skew)}
        for one in wanted:
            there = lasting.get(one.key)
            if there is not None and there.hold is not None and there.hold.reset:
                message = (
                    f"{one.key.scope} is held by {owner} to move the group to other "
                    "offsets: resume it first. Nothing was changed"
                )
                raise HoldSettingError(message)
        since = {key: one.since for key, one in lasting.items()}
        changed = [one.held_since(since.get(one.key)) for one in wanted]
        self.write(changed)

    def resume(
        self, group: str, *targets: Target, owner: str, force: bool = False
    ) -> None:
        """
        Lift one owner's holds on exactly these targets, for all members.

        Other owners' holds stay, and so do holds with other scopes that cover the same
        partitions. The call raises the same errors as :meth:`pause`; holds named in a
        ``ControlWriteError`` may still exist.

        Args:
            group: the consumer group.
            targets: as for :meth:`pause`.
            owner: the owner of the holds.
            force: lift the holds without reading the topic, even if ``reset-offsets``
                has not moved every partition yet.

        Raises:
            HoldSettingError: ``reset-offsets`` has not moved a partition yet, or one of
                the reasons given for :meth:`pause`; nothing was written.
        """
        wanted = _wanted(group, owner, targets, None)
        if not force:
            self._require_moved(group, {one.key for one in wanted})
        self.write(wanted)

    def _require_moved(self, group: str, keys: Collection[ControlKey]) -> None:
        def own(found: Iterable[HoldRecord]) -> list[HoldRecord]:
            return [one for one in found if one.key in keys]

        if not any(one.hold and one.hold.reset for one in own(self.holds(group))):
            return  # no need for a view, which costs more requests
        view = self.look(group, is_strict=True, has_lags=False)
        if undone := unmoved(view, own(view.holds)):
            why = "; ".join(reasons(undone))
            message = f"{why}. Nothing was changed: force=True lifts it"
            raise HoldSettingError(message)

    # ------------------------------------------------------------ reading

    def _read(self, settings: Control, *, is_strict: bool) -> Readable:
        """Read the topics up to their ends; return which parts could be read."""
        ids, troubles = described_topics.readable(self.admin, settings)
        if is_strict and troubles and self.settings.holds_topic not in ids:
            raise troubles[0]
        try:
            if ids:
                self._read_to_the_ends(ids)
        except BaseException as error:
            # The client may have read only part of an answer, so the next read creates
            # a new client.
            self._reader.close()
            is_refused = isinstance(error, kafka_errors.TopicAuthorizationFailedError)
            if is_strict or not is_refused:
                raise
            return Readable(ends=None, reports_are_read=False, unread=(str(error),))
        return Readable(
            ends=self.board.ends if self.settings.holds_topic in ids else None,
            reports_are_read=self.settings.status_topic in ids,
            unread=tuple(map(str, troubles)),
        )

    def _read_to_the_ends(self, ids: Mapping[str, object]) -> None:
        with self._queries.renewed() as consumer:
            remade = self._reader.begin(list(ids), query_consumer=consumer, ids=ids)
        if any(one.topic == self.settings.holds_topic for one in remade):
            self._is_fit = False
        self.board.topic_recreated(remade)
        self.board.feed({}, self._reader.positions)
        before = dict(self._reader.positions)
        while not self._turn_until(lambda: self._reader.is_complete, _READ_TIMEOUT):
            if self._reader.positions == before:
                wait = f"{_READ_TIMEOUT:.0f} s"
                message = f"reading the control topics made no progress for {wait}"
                raise kafka_errors.KafkaTimeoutError(message)
            before = dict(self._reader.positions)

    def _turn_until(self, is_enough: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not is_enough():
            if time.monotonic() > deadline:
                return False
            self.board.feed(self._reader.turn(_POLL_MS), self._reader.positions)
        return True

    def _listen(self, until: float) -> float | None:
        """Wait for the next report, at most until a given time; return its timestamp."""
        board, before = self.board, self.board.reported_at
        now, seconds = time.monotonic(), 2 * self.settings.status_interval + 0.5
        self._silent_at = now + seconds
        left = min(seconds, until - now)
        has_come = self._turn_until(lambda: board.reported_at != before, left)
        return board.reported_at if has_come else None

    # ------------------------------------------------------------ groups and topics

    def group(self, group: str, until: float = math.inf) -> GroupFacts:
        """
        Return the cluster's description of a consumer group.

        Args:
            group: the consumer group.
            until: when the call stops waiting for the group's coordinator, on the
                monotonic clock.
        """
        return facts_of_one(self.admin, group, until)

    def groups(self) -> tuple[str, ...]:
        """Return the names of all groups that this principal may see."""
        return tuple(listed_groups(self.admin)[0])

    def retention(self, names: Sequence[str]) -> dict[str, float | None]:
        """
        Return, by topic, the seconds until records are deleted by age; None for never.

        Topics that the broker does not describe are left out.
        """
        return described_topics.retention(self.admin, names) if names else {}

    def topics(self) -> tuple[str, ...]:
        """Return the names of all topics that this principal may see."""
        return tuple(self.admin.list_topics())

    def missing(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the given topics that do not exist, as far as this principal can see."""
        described = self.admin.describe_topics(sorted(names)) if names else ()
        return tuple(one["name"] for one in described if one["error_code"] == _NO_TOPIC)

    # ------------------------------------------------------------ views

    def look(
        self,
        group: str,
        *,
        is_strict: bool = False,
        has_lags: bool = True,
        timeout: float | None = None,
    ) -> View:
        """
        Return a current view of a group.

        If a control topic does not exist or may not be read, the view contains
        everything else, and names the missing part.

        Args:
            group: the consumer group.
            is_strict: raise if the holds topic cannot be read.
            has_lags: request lags, too; verdicts do not need them.
            timeout: seconds after which the call gives up, whatever the brokers do;
                None to rely on the clients' own limits, about half a minute for each
                request.

        Raises:
            KafkaTimeoutError: there was no answer within ``timeout``.
        """

        def ask(one: Operator, until: float) -> View:
            if is_strict:  # its error gives better advice than later errors
                one.check()
            facts = one.group(group, until)
            readable = one.read(is_strict=is_strict, until=until)
            return one.view(group, facts, readable, has_lags=has_lags)

        if timeout is None:
            view = ask(self, math.inf)
        else:  # leave time for the requests that follow the reports
            until = time.monotonic() + timeout - _ANSWER_SECONDS
            view = self.within(timeout, lambda one: ask(one, until))
        moves = self._commits.note(group, view.facts, view.held_by_silent)
        if has_lags:  # callers that poll rely on note() instead
            moves = {**self._moves_at_once(view), **moves}
        return evolve(view, moves=moves)

    def _moves_at_once(self, view: View) -> dict[TopicPartition, Move]:
        since = view.held_since(view.held_by_silent)
        times = times_to_look_up(view.times.here, since)
        if not times[0]:
            return {}
        with self._queries.renewed():
            held, recent = (first_offsets(one, self._queries) for one in times)
        found = described_topics.settings_of(self.admin, {tp.topic for tp in recent})
        timed = {
            name
            for name, settings in found.items()
            if settings.get("message.timestamp.type") == "LogAppendTime"
        }
        return moved_at_once(view.facts.committed, held, recent, timed)

    def within(self, seconds: float, ask: Callable[["Operator"], T]) -> T:
        """
        Call a function with a time limit, whatever the brokers do.

        The function gets an operator with clients of its own, because an abandoned call
        may still be using its clients.

        Args:
            seconds: the time limit.
            ask: the function, called on another thread with a copy of this operator.

        Raises:
            KafkaTimeoutError: there was no answer in time.
        """
        other, self._other = self._other, None
        if other is None:
            other = Operator(self.base, self.settings, copy(self._clock))
        call = TimedCall(lambda: ask(other), other.close)
        try:
            answer = call.result(seconds)
        except TimeoutError as error:
            raise kafka_errors.KafkaTimeoutError(*error.args) from error
        except BaseException:
            other.close()
            raise
        self._other = other
        return answer

    def view(
        self,
        group: str,
        facts: GroupFacts,
        readable: Readable,
        *,
        has_lags: bool = False,
    ) -> View:
        """Return a view of a group as of the last read; ``has_lags`` requests its lags."""
        survey = Survey(facts={group: facts})
        if has_lags:
            with self._queries.renewed():
                survey = with_lags(survey, [group], self._queries)
        return self.board.view(group, survey, readable)

    def survey(self, *, has_lags: bool = False) -> tuple[tuple[View, ...], Readable]:
        """
        Return the views of all groups, including groups that exist only in holds.

        The second result says which parts of the topics could be read. Groups whose
        broker does not answer are unknown, and may be missing from the result.

        Args:
            has_lags: request the lags of all groups, not only of groups with holds.
        """
        readable = self.read()
        survey = survey_of(self.admin, self.board.groups)
        if wanted := (survey.facts.keys() if has_lags else self.board.held):
            with self._queries.renewed():
                survey = with_lags(survey, wanted, self._queries)
        readable = evolve(readable, unread=(*readable.unread, *survey.unlisted))
        views = (self.board.view(one, survey, readable) for one in sorted(survey.facts))
        return tuple(views), readable

    def read(self, *, is_strict: bool = False, until: float = math.inf) -> Readable:
        """
        Read new control records into :attr:`board`; return which parts could be read.

        Args:
            is_strict: raise if the holds topic cannot be read.
            until: when the call stops waiting for a report, on the monotonic clock.
        """
        readable = self._read(self.settings, is_strict=is_strict)
        if readable.ends is not None:
            # A topic that is unfit may have been created for other data, so its records
            # are not holds.
            try:
                self.check()
            except ControlTopicError as error:
                if is_strict:
                    raise
                unread = (*readable.unread, str(error))
                readable = evolve(readable, ends=None, unread=unread)
        self.board.update(lambda: self._listen(until))
        if not self.board.has_reporters and time.monotonic() < (self._silent_at or 0.0):
            # The operator has not waited long enough to say that members do not report.
            unread = (*readable.unread, "no report has come yet: give it more time")
            return Readable(ends=None, reports_are_read=False, unread=unread)
        return readable

    def broker_version(self) -> tuple[int, ...]:
        """Return the Kafka version whose protocol the cluster speaks."""
        return tuple(self._queries.consumer.config["api_version"])


def _wanted(
    group: str, owner: str, targets: Iterable[object], hold: ControlHold | None
) -> tuple[Change, ...]:
    each = ranges.spread_targets(targets)
    found = [str(patterns.target(one)) for one in each]
    return changes(checked_group(group), operator_name(owner), found, hold)
