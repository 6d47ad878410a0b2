"""Defines ``Consumer``: confluent-kafka's consumer with lasting pauses and group holds."""

import math
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Self

from safeconsumer.clients.librdkafka import (
    KafkaException,
    Message,
    TopicPartition,
    UpstreamConsumer,
    control_clients,
)
from safeconsumer.clients.member import HoldingConsumer, Member, OtherPartition
from safeconsumer.events.dispatch import Hook
from safeconsumer.group.settings import Control
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.scope import TopicPartition as Pair

__all__ = ["Consumer"]

# Seconds; a poll waits in steps of this length, because librdkafka has no call that
# interrupts a wait. A partition is therefore delivered no later than this after its
# last hold was lifted. One call in each step does all the work; the other calls are
# fast, and only check the holds.
_STEP = 0.1
# The maximum number of records that fast calls return before offsets are stored.
# Records without a stored offset are delivered again if the program stalls and loses
# its partitions.
_MOST_UNSTORED = 500
# Seconds between two requests for the generation, which may change without a rebalance
# in the KIP-848 protocol.
_IDENTIFY_EVERY = 1.0
# librdkafka's format for group metadata: this marker, the generation as 32 bits in the
# machine's byte order, and more (rd_kafka_consumer_group_metadata_write).
_MARK = b"CGMDv2:"
_AUTO_STORE = "enable.auto.offset.store"
# The values that librdkafka accepts for a boolean setting.
_TRUE, _FALSE = {"true", "t", "1"}, {"false", "f", "0"}
# A set that is never identical with ledger.settled, whatever state the ledger is in.
_NO_SET = frozenset({("", -1)})

Callback = Callable[[Any, list[Any]], object]


class Consumer(HoldingConsumer, UpstreamConsumer):
    """
    A ``confluent_kafka.Consumer`` that does not deliver records covered by a hold.

    A hold (:meth:`hold`) keeps a partition, a topic, the topics that match a pattern or
    the whole consumer quiet, even through rebalances, until its owner lifts the hold.
    :meth:`pause` and :meth:`resume` work as in confluent-kafka, but a pause lasts
    through rebalances after which the member still owns the partition. With
    ``control=``, the consumer also obeys operators' holds on its group, and reports
    whether it obeys.

    A waiting ``poll`` notices within 100 ms that a hold was lifted, and then waits for
    a fetch.

    Everything else works as in confluent-kafka. The class works with eager and
    cooperative assignors and with ``group.protocol=consumer`` (KIP-848).

    Args:
        config: confluent-kafka's settings; more can be given as keywords.
        control: a :class:`~safeconsumer.Control` that makes this member obey operators'
            holds; with None, there are no control threads. Control topics are read and
            written by clients with the same addresses, authentication, TLS settings and
            ``oauth_cb``. ``client_configs=`` must not be set.
        hooks: functions that receive every event (``safeconsumer.events``); they must
            be quick, and are called on any thread.
        log: whether events are logged, with structlog or else with the logger
            ``safeconsumer``.
        more: other settings and keywords of confluent-kafka.

    Raises:
        MissingExtraError: raised by the import if confluent-kafka is not installed.
        ControlSettingError, HookTypeError: an argument is invalid.
        ControlTopicError: the settings of the holds topic would let Kafka delete holds.
        KafkaException: confluent-kafka refuses a setting.

    If the constructor raises, no thread keeps running.

    Thread rules: ``hold``, ``lift``, ``pause``, ``resume``, ``holds``, ``explain`` and
    ``quiet`` on any thread, even in callbacks; everything else on the polling thread.
    """

    # Class attributes, so that calls do not have to look up the parent's methods.
    _upstream_poll = UpstreamConsumer.poll
    _upstream_consume = UpstreamConsumer.consume

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        control: Control | None = None,
        hooks: Iterable[Hook] = (),
        log: bool = True,
        **more: Any,  # noqa: ANN401 - upstream's settings
    ) -> None:
        settings = {**(config or {}), **more}
        client_id, group_id = settings.get("client.id"), settings.get("group.id")
        self._member = Member(
            self, client_id=client_id, group_id=group_id, hooks=hooks, log=log
        )
        self._ledger = self._member.ledger
        # Otherwise librdkafka would commit every message that it has returned, even
        # messages that are kept here.
        stores = str(settings.get(_AUTO_STORE, True)).lower()
        self._stores = stores in _TRUE
        self._is_cooperative = _is_cooperative(settings)
        # Messages that librdkafka has returned and the program has not received yet: by
        # partition, its records, errors and end marker. The partition that has waited
        # longest comes first. _notices contains errors and markers for other
        # partitions, or without a partition.
        self._kept: OrderedDict[Pair, deque[Message]] = OrderedDict()
        self._notices: deque[Message] = deque()
        # The partitions that are paused in librdkafka; the partitions that librdkafka
        # may remember as paused from an earlier ownership; and the quiet set that was
        # applied last.
        self._paused = self._maybe_paused = frozenset[Pair]()
        self._applied: frozenset[Pair] | None = None
        # Until _fast_until, and as long as the ledger's quiet set is _fast_quiet, calls
        # are fast: they only fetch, and check the quiet set once more.
        self._fast_quiet, self._fast_until = _NO_SET, 0.0
        # The messages that the last call returned; how many messages fast calls have
        # fetched since offsets were stored; and the partitions for which librdkafka may
        # still have the position from an earlier ownership.
        self._in_hand: Message | Sequence[Message] | None = None
        self._unstored = 0
        self._in_doubt = frozenset[Pair]()
        # The cause of the assignment's change in the running callback, and whether the
        # program's own callback has already changed the assignment.
        self._cause: Cause | None = None
        self._has_assigned = False
        self._is_unsubscribed = self._is_closing = False
        # The topics that the program last subscribed to; librdkafka has no call for
        # them.
        self._topics: frozenset[str] = frozenset()
        self._identify_at = self._fetch_at = 0.0
        if stores in _TRUE | _FALSE:
            settings[_AUTO_STORE] = False
        super().__init__(settings)
        if control is not None:
            try:
                self._member.obey(control, control_clients(settings))
            except BaseException:
                super().close()
                raise

    # ------------------------------------------------------------ pausing

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """
        Pause partitions as in confluent-kafka, but keep them paused in rebalances.

        A pause ends with :meth:`resume`, or when a rebalance takes its partition away.
        The pause is a hold by the owner ``app``, and is included in :meth:`holds`.
        """
        self._pause(_checked(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume partitions as in confluent-kafka. All other holds stay in force."""
        self.lift(*_checked(partitions))

    def quiet(self) -> list[TopicPartition]:
        """Return the assigned partitions that are covered by a hold or a closed gate now."""
        return _upstream_partitions(sorted(self._member.quiet()))

    # ------------------------------------------------------------ records

    def poll(self, timeout: float | None = -1) -> Message | None:
        """
        Return the next message from a partition that no hold covers.

        Otherwise the method behaves like confluent-kafka's.

        Args:
            timeout: seconds to wait; negative or None for no limit.
        """
        ledger = self._ledger
        if ledger.settled is self._fast_quiet and monotonic() < self._fast_until:
            message: Message | None = self._upstream_poll(0)
            if message is not None:
                self._unstored += 1
                self._in_hand = message  # before the check, as in Member.may_give
                quiet = ledger.settled
                if quiet is self._fast_quiet and (
                    not quiet or _pair_of(message) not in quiet
                ):
                    if self._unstored >= _MOST_UNSTORED:
                        self._store_given()
                    return message
                self._keep((message,))
        found = self._messages(1, timeout, self._fetch_one)
        return found[0] if found else None

    def _fetch_one(self, _: int, seconds: float) -> Sequence[Message]:
        message = self._upstream_poll(seconds)
        return () if message is None else (message,)

    def consume(
        self, num_messages: int = 1, timeout: float | None = -1
    ) -> list[Message]:
        """
        Return messages from partitions that no hold covers.

        Otherwise the method behaves like confluent-kafka's.

        Args:
            num_messages: the maximum number of messages to return.
            timeout: seconds to wait for that number; negative or None for no limit.
        """
        ledger = self._ledger
        if ledger.settled is self._fast_quiet and monotonic() < self._fast_until:
            found: list[Message] = self._upstream_consume(num_messages, 0)
            if found:
                self._in_hand = tuple(found)  # the program may change the list
                self._unstored += len(found)
                quiet = ledger.settled
                if (
                    (len(found) == num_messages or timeout == 0)
                    and quiet is self._fast_quiet
                    and (not quiet or quiet.isdisjoint(map(_pair_of, found)))
                ):
                    if self._unstored >= _MOST_UNSTORED:
                        self._store_given()
                    return found
                self._keep(found)
        return self._messages(num_messages, timeout, self._upstream_consume)

    def _messages(
        self,
        most: int,
        timeout: float | None,
        fetch: Callable[[int, float], Sequence[Message]],
    ) -> list[Message]:
        if most < 1:
            return list(fetch(most, 0))  # empty, or raises confluent-kafka's error
        self._end_fast_calls()
        has_end = timeout is not None and timeout >= 0
        until = monotonic() + timeout if has_end else math.inf  # type: ignore[operator]  # it is a number then
        while True:
            now = monotonic()
            self._fast_until = now + _STEP
            self._member.begin_call()
            self._store_given()
            if now >= self._identify_at:
                self._identify()
            self._apply()
            missing = most - self._count()
            if missing > 0:
                self._keep(fetch(missing, max(0.0, min(_STEP, until - now))))
            elif now >= self._fetch_at:
                # librdkafka must be polled to take part in rebalances and to stay in
                # its group.
                self._fetch_at = now + _STEP
                self._keep(fetch(1, 0))
            is_over = monotonic() >= until
            if is_over or self._count() >= most:
                found = self._take(most)
                if found or is_over:
                    self._begin_fast_calls()
                    return found

    def _begin_fast_calls(self) -> None:
        self._in_doubt = self._in_doubt and self._with_position(self._in_doubt)
        if self._applied is not None and not self._in_doubt and not self._count():
            self._fast_quiet = self._applied

    def _end_fast_calls(self) -> None:
        self._fast_quiet = _NO_SET
        if self._in_hand is not None:
            self._member.note_given(_pairs_of(self._in_hand))
            self._in_hand = None

    def _last_given(self) -> Iterable[Pair]:
        return _pairs_of(self._in_hand)

    def _keep(self, messages: Iterable[Message]) -> None:
        owned = self._ledger.owned()
        for one in messages:
            tp = _pair_of(one)
            if one.error() is None:
                if tp in owned:
                    self._kept.setdefault(tp, deque()).append(one)
                    self._in_doubt -= {tp}
            elif tp in self._kept:
                self._kept[tp].append(one)
            else:
                self._notices.append(one)

    def _count(self) -> int:
        """Return how many kept messages could be given to the program now."""
        found = len(self._notices)
        if self._kept:
            quiet = self._member.quiet()
            found += sum(len(one) for tp, one in self._kept.items() if tp not in quiet)
        return found

    def _take(self, most: int) -> list[Message]:
        found: list[Message] = []
        free = self._member.may_give(self._kept.keys())
        while self._notices and len(found) < most:
            found.append(self._notices.popleft())
        for tp in [one for one in self._kept if one in free]:
            if len(found) == most:
                break
            several, before = self._kept[tp], len(found)
            while several and len(found) < most:
                found.append(several.popleft())
            if records := _records(found[before:]):
                self._store(records[-1])
            if several:
                self._kept.move_to_end(tp)
            else:
                del self._kept[tp]
        self._in_hand = tuple(found)
        self._member.note_given(())
        return found

    # ------------------------------------------------------------ positions

    def _store(self, last: Message) -> None:
        # Storing fails, as it should, for a partition that is no longer assigned.
        if self._stores:
            with suppress(KafkaException):
                UpstreamConsumer.store_offsets(self, message=last)

    def _store_given(self) -> None:
        """Store the positions, because fast calls return messages without storing offsets."""
        unstored, self._unstored = self._unstored, 0
        if self._stores and unstored:
            owned = _upstream_partitions(self._ledger.owned().keys() - self._in_doubt)
            with suppress(KafkaException):
                found = [one for one in self.position(owned) if one.offset >= 0]
                UpstreamConsumer.store_offsets(self, offsets=found)

    def _with_position(self, partitions: Iterable[Pair]) -> frozenset[Pair]:
        found = super().position(_upstream_partitions(partitions))
        return frozenset(_pair(one) for one in found if one.offset >= 0)

    def store_offsets(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - upstream's
        """Store offsets for a later commit, as in confluent-kafka."""
        self._store_given()  # first, or it would overwrite the program's offsets
        super().store_offsets(*args, **kwargs)

    def commit(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - upstream's
        """Commit offsets as in confluent-kafka."""
        self._store_given()
        return super().commit(*args, **kwargs)

    def seek(self, partition: TopicPartition) -> None:
        """Set a partition's position to its ``offset``, as in confluent-kafka."""
        self._store_given()
        super().seek(partition)
        self._kept.pop(_pair(partition), None)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets of the next messages, as in confluent-kafka."""
        found: list[TopicPartition] = super().position(partitions)
        for one in found:
            if kept := _records(self._kept.get(_pair(one), ())):
                one.offset = int(kept[0].offset() or 0)
        return found

    # ------------------------------------------------------------ the assignment

    def subscribe(
        self,
        topics: list[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """
        Subscribe to topics as in confluent-kafka.

        Held partitions are paused before the ``poll`` that calls ``on_assign`` returns.
        """
        calls = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
        for name, call in calls.items():
            if call is not None and not callable(call):
                message = f"{name} expects a callable, not {call!r}"
                raise TypeError(message)
        self._is_unsubscribed = False
        super().subscribe(
            topics,
            on_assign=partial(self._on_assign, on_assign),
            on_revoke=partial(self._on_revoke, on_revoke, Cause.PASSING),
            on_lost=partial(self._on_revoke, on_lost or on_revoke, Cause.LOST),
        )
        self._topics = frozenset(topics)

    def _subscribed(self) -> Collection[str] | None:
        # librdkafka treats a topic name that starts with ^ as a pattern.
        has_pattern = any(one.startswith("^") for one in self._topics)
        return None if has_pattern else self._topics

    def unsubscribe(self) -> None:
        """End the subscription as in confluent-kafka. Pauses end, but holds stay."""
        self._is_unsubscribed = True
        super().unsubscribe()
        self._topics = frozenset()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Replace the assignment, as in confluent-kafka."""
        self._store_given()
        super().assign(partitions)
        self._reassigned(partitions, departed=None)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment, as in confluent-kafka."""
        super().incremental_assign(partitions)
        self._reassigned(partitions, departed=())

    def unassign(self) -> None:
        """End the assignment, as in confluent-kafka."""
        self._store_given()
        super().unassign()
        self._reassigned((), departed=None)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment, as in confluent-kafka."""
        self._store_given()
        super().incremental_unassign(partitions)
        self._reassigned((), departed=map(_pair, partitions))

    def _reassigned(
        self,
        partitions: Iterable[TopicPartition],
        *,
        departed: Iterable[Pair] | None,
    ) -> None:
        """Apply librdkafka's new assignment; ``departed=None`` means all old partitions."""
        gained = frozenset(map(_pair, partitions))
        gone = frozenset(self._ledger.owned() if departed is None else departed)
        self._fast_quiet = _NO_SET
        for tp in gone:
            self._kept.pop(tp, None)
        self._paused -= gone
        self._in_doubt -= gone
        self._maybe_paused = (self._maybe_paused - gone) | gained
        cause = self._cause or Cause.ASSIGNED
        # During close, librdkafka revokes the partitions and no longer answers
        # requests.
        is_open = not self._is_closing
        if is_open:
            self._in_doubt |= self._with_position(gained)
            self._identify()
        self._member.begin_ownerships(gained, cause, departed=gone)
        self._has_assigned, self._applied = True, None
        if is_open:
            self._apply()
        self._applied = None  # so that the running call checks its messages at its end

    def _on_assign(self, call: Callback | None, _: object, parts: list[Any]) -> None:
        self._cause, self._has_assigned = Cause.JOINED, False
        try:
            if call is not None:
                call(self, parts)
        finally:
            # If the program's callback did not assign, assign as confluent-kafka would,
            # but through our own method.
            if not self._has_assigned and not self._is_closing:
                fresh = [TopicPartition(one.topic, one.partition) for one in parts]
                assign = (
                    self.incremental_assign if self._is_cooperative else self.assign
                )
                assign(fresh)
            self._cause = None

    def _on_revoke(
        self, call: Callback | None, cause: Cause, _: object, parts: list[Any]
    ) -> None:
        if self._is_closing:
            cause = Cause.CLOSED
        elif self._is_unsubscribed:
            cause = Cause.UNSUBSCRIBED
        elif self._is_cooperative and cause is Cause.PASSING:
            cause = Cause.JOINED  # partitions are revoked after the join has completed
        self._cause, self._has_assigned = cause, False
        try:
            if call is not None:
                call(self, parts)
        finally:
            if not self._has_assigned:
                if self._is_cooperative:
                    self.incremental_unassign(parts)
                else:
                    self.unassign()
            self._cause = None

    # ------------------------------------------------------------ librdkafka

    def _apply(self) -> None:
        """Pause the newly quiet partitions in librdkafka, and resume the others."""
        quiet = self._member.quiet()
        if quiet is self._applied:
            return
        if start := quiet - self._paused:
            super().pause(_upstream_partitions(start))
        if end := (self._paused | self._maybe_paused) - quiet:
            super().resume(_upstream_partitions(end))
        self._paused = self._applied = quiet
        self._maybe_paused = frozenset()

    def _identify(self) -> None:
        # Only the polling thread can do this: confluent-kafka lets one thread at a time
        # use a client, so another thread would starve during a poll.
        self._identify_at = monotonic() + _IDENTIFY_EVERY
        metadata = self.consumer_group_metadata()
        generation = -1
        if metadata.startswith(_MARK):
            start = len(_MARK)
            generation = int.from_bytes(
                metadata[start : start + 4], sys.byteorder, signed=True
            )
        self._member.identify(self.memberid() or "", generation)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Leave the group and close as in confluent-kafka; also stop the control threads."""
        if not self._is_closing:
            self._end_fast_calls()
            self._store_given()
            self._is_closing = True
            self._member.end_control()
        try:
            super().close()
        finally:
            self._kept.clear()
            self._notices.clear()
            self._member.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_cooperative(settings: Mapping[str, Any]) -> bool:
    # librdkafka does not accept a mixture of eager and cooperative assignors.
    strategy = str(settings.get("partition.assignment.strategy", ""))
    is_newer = str(settings.get("group.protocol", "")).lower() == "consumer"
    return is_newer or "cooperative" in strategy.lower()


def _checked(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions; refuse anything else, such as a text, which is also iterable."""
    found = list(partitions)
    for one in found:
        if not isinstance(one, TopicPartition):
            message = f"expected a list of confluent_kafka.TopicPartition, not {one!r}"
            raise TypeError(message)
    return found


def _pair(one: OtherPartition) -> Pair:
    return one.topic, one.partition


def _pair_of(message: Message) -> Pair:
    return str(message.topic()), int(message.partition() or 0)


def _pairs_of(given: Message | Iterable[Message] | None) -> list[Pair]:
    several = (given,) if isinstance(given, Message) else given or ()
    return [_pair_of(one) for one in _records(several)]


def _records(messages: Iterable[Message]) -> list[Message]:
    """Return the messages that are neither errors nor end-of-partition markers."""
    return [one for one in messages if one.error() is None]


def _upstream_partitions(partitions: Iterable[Pair]) -> list[TopicPartition]:
    return [TopicPartition(*tp) for tp in partitions]
