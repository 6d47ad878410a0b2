"""``Consumer``, a ``confluent_kafka.Consumer`` whose pauses hold, and whose group's do."""

import math
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Self

from safeconsumer.clients.librdkafka import (
    KafkaException,
    LibrdkafkaClients,
    Message,
    TopicPartition,
    UpstreamConsumer,
)
from safeconsumer.clients.member import Member, OtherPartition, Target
from safeconsumer.events.dispatch import Hook
from safeconsumer.group.settings import Control
from safeconsumer.holds.hold import APP, Hold, Lifetime
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.scope import TopicPartition as Pair

__all__ = ["Consumer"]

# Seconds; a poll waits in steps of this length, so a partition flows no later than this
# after its last hold was lifted. librdkafka has no call that ends a wait.
_SLICE = 0.1
# Seconds between two questions for the generation, which the protocol of KIP-848 may
# change without a rebalance.
_IDENTIFY_EVERY = 1.0
# How librdkafka writes what it calls a group's metadata: its mark, the generation as 32
# bits in the machine's order, and more (rd_kafka_consumer_group_metadata_write).
_MARK = b"CGMDv2:"
_TRUE = {"true", "t", "1"}

Callback = Callable[[Any, list[Any]], object]


class Consumer(UpstreamConsumer):
    """
    A ``confluent_kafka.Consumer`` that delivers nothing a hold covers.

    A hold (:meth:`hold`) keeps a partition, a topic, the topics of a pattern or the
    whole consumer quiet, through rebalances, until its owner lifts it. :meth:`pause`
    and :meth:`resume` are confluent-kafka's, and a pause now lasts through rebalances
    that give its partition back. With ``control=`` the consumer also obeys what
    operators hold for its group, and reports it.

    Everything else is confluent-kafka's. It works with eager and cooperative assignors
    and with ``group.protocol=consumer`` (KIP-848).

    Args:
        config: confluent-kafka's settings, all of them; others as keywords.
        control: a :class:`~safeconsumer.Control` makes this member obey operators'
            holds; None starts no control thread. The control topics are read and
            written with clients of the same settings: addresses, login, TLS,
            ``oauth_cb``. ``client_configs=`` must not be set.
        hooks: functions that take every event (``safeconsumer.events``), quickly and on
            any thread.
        log: whether events become structlog lines, or lines of the logger
            ``safeconsumer``.
        more: confluent-kafka's settings and keywords.

    Raises:
        MissingExtraError: confluent-kafka is not installed; the import raises it.
        ControlSettingError, HookTypeError: an argument is not acceptable.
        ControlTopicError: the settings of the holds topic would let Kafka delete holds.
        KafkaException: confluent-kafka's, for its settings.

    After an exception no thread is left running.

    Thread rules: ``hold``, ``lift``, ``pause``, ``resume``, ``holds``, ``explain`` and
    ``quiet`` on any thread, in callbacks, too; everything else on the polling thread.
    """

    busy: Callable[[], Iterable[OtherPartition]] | None = None
    """
    Returns the partitions of whose records threads of the program's own have some.

    With ``control=`` a held partition is not reported quiet while it is among them, nor
    before the ``poll`` or ``consume`` after the one that returned records of it. It is
    asked on another thread, with each report; if it raises, all assigned ones count.
    """

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
            client_id=client_id,
            group_id=group_id,
            hooks=hooks,
            log=log,
            elsewhere=partial(_busy_of, weakref.ref(self)),
        )
        # librdkafka would commit what it has handed over, also what is kept back here.
        stores = settings.get("enable.auto.offset.store", True)
        self._stores = str(stores).lower() in _TRUE
        self._is_cooperative = _is_cooperative(settings)
        # Records that were taken from librdkafka and not given to the program yet, and
        # its messages that are no records.
        self._kept: dict[Pair, deque[Message]] = {}
        self._notices: deque[Message] = deque()
        # The partitions that librdkafka was told to pause, those that it may have paused
        # since an earlier ownership, which it remembers, and the quiet ones then.
        self._told = self._unsure = frozenset[Pair]()
        self._applied: frozenset[Pair] | None = None
        # Why the assignment changes in the callback under way, and whether the
        # program's part of it has changed it.
        self._cause: Cause | None = None
        self._has_assigned = False
        self._is_unsubscribed = self._is_closing = False
        self._identify_at = 0.0
        super().__init__({**settings, "enable.auto.offset.store": False})
        if control is not None:
            try:
                self._member.obey(control, LibrdkafkaClients(settings))
            except BaseException:
                super().close()
                raise

    @property
    def hook_failures(self) -> Mapping[str, int]:
        """How often each hook raised, by its ``repr``; empty if none did. Any thread."""
        return dict(self._member.ledger.dispatcher.failures)

    # ------------------------------------------------------------ pausing

    def hold(
        self,
        *targets: Target,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
    ) -> None:
        """
        Hold the targets: once this has returned, none of their records is delivered.

        A hold lasts through rebalances, lost membership and changed subscriptions until
        its owner lifts it. It covers what is assigned later, too, and never moves a
        position. With no targets nothing is held; after an exception nothing has
        changed.

        Args:
            targets: partitions, scopes as text (``orders:3``, ``orders``,
                ``re:ord.*`` over whole names, ``@all``), compiled patterns, scopes of
                holds, :data:`safeconsumer.ALL`.
            owner: whose hold it is; only the same owner's :meth:`lift` lifts it.
            reason: text for people, up to 1,024 bytes.
            for_: seconds, or a timedelta, until it ends by itself: never early, and at
                the latest when the consumer next polls.

        Raises:
            TargetTypeError: a target is of another type.
            ScopeSyntaxError: a text or pattern is not acceptable.
            HoldSettingError: owner, reason or duration is not acceptable.
        """
        self._member.place(targets, owner=owner, reason=reason, for_=for_)

    def lift(self, *targets: Target, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's holds of exactly these targets.

        A hold of a wider scope, or of another owner, stays. Lifting what is not held is
        no error. A waiting ``poll`` returns records of what flows now within 100 ms and
        a fetch; those that were kept back come first.

        Returns:
            The holds that still cover the targets or parts of them.

        Raises:
            TargetTypeError, ScopeSyntaxError: as :meth:`hold`.
            HoldSettingError: the owner is not acceptable, or is an operator.
        """
        return self._member.lift(targets, owner)

    def pause(self, partitions: Iterable[OtherPartition]) -> None:
        """
        Pause partitions; as confluent-kafka's, but it lasts through rebalances.

        It ends with :meth:`resume`, or when a rebalance leaves its partition out. It is
        a hold by the owner ``app``, and is among :meth:`holds`.
        """
        self._member.place(partitions, lifetime=Lifetime.PLAIN)

    def resume(self, partitions: Iterable[OtherPartition]) -> None:
        """Resume partitions; as confluent-kafka's. What else is held stays quiet."""
        self._member.lift(partitions, APP)

    def holds(self) -> tuple[Hold, ...]:
        """Return every hold, also those that cover nothing assigned here now."""
        return self._member.holds()

    def explain(self, tp: Target) -> tuple[str, ...]:
        """
        Return why a partition is quiet: one line per hold, and no line if it flows.

        Raises:
            HoldSettingError: it is not one partition.
            TargetTypeError, ScopeSyntaxError: as :meth:`hold`.
        """
        return self._member.explain(tp)

    def quiet(self) -> list[TopicPartition]:
        """Return the assigned partitions that a hold or a closed gate covers now."""
        return _theirs(sorted(self._member.quiet()))

    # ------------------------------------------------------------ records

    def poll(self, timeout: float | None = -1) -> Message | None:
        """
        Return the next message of a partition that no hold covers; as confluent-kafka's.

        Args:
            timeout: seconds to wait; negative or None for no limit.
        """
        fetch = super().poll

        def one(_: int, seconds: float) -> Sequence[Message]:
            message = fetch(seconds)
            return () if message is None else (message,)

        found = self._given(1, timeout, one)
        return found[0] if found else None

    def consume(
        self, num_messages: int = 1, timeout: float | None = -1
    ) -> list[Message]:
        """
        Return messages of partitions that no hold covers; as confluent-kafka's.

        Args:
            num_messages: the most that it returns.
            timeout: seconds to wait for so many; negative or None for no limit.
        """
        return self._given(num_messages, timeout, super().consume)

    def _given(
        self,
        most: int,
        timeout: float | None,
        fetch: Callable[[int, float], Sequence[Message]],
    ) -> list[Message]:
        self._member.begin_call()
        has_end = timeout is not None and timeout >= 0
        until = time.monotonic() + timeout if has_end else math.inf  # type: ignore[operator]  # it is a number then
        while True:
            now = time.monotonic()
            if now >= self._identify_at:
                self._identify()
            self._apply()
            if (missing := most - self._count()) > 0:
                self._keep(fetch(missing, max(0.0, min(_SLICE, until - now))))
            is_over = time.monotonic() >= until
            if is_over or self._count() >= most:
                found = self._take(most)
                if found or is_over:
                    return found

    def _keep(self, messages: Iterable[Message]) -> None:
        owned = self._member.ledger.owned()
        for one in messages:
            if one.error() is not None:
                self._notices.append(one)
            elif (tp := (str(one.topic()), int(one.partition() or 0))) in owned:
                self._kept.setdefault(tp, deque()).append(one)

    def _count(self) -> int:
        """Return how many messages could be given now."""
        found = len(self._notices)
        if self._kept:
            quiet = self._member.quiet()
            found += sum(len(one) for tp, one in self._kept.items() if tp not in quiet)
        return found

    def _take(self, most: int) -> list[Message]:
        found: list[Message] = []
        while self._notices and len(found) < most:
            found.append(self._notices.popleft())
        given: list[Pair] = []
        free = self._member.may_give(self._kept.keys())
        for tp in [one for one in self._kept if one in free]:
            several = self._kept[tp]
            while several and len(found) < most:
                found.append(last := several.popleft())
                if not several or len(found) == most:
                    given.append(tp)
                    self._store(last)
            if not several:
                del self._kept[tp]
        self._member.gave(given)
        return found

    def _store(self, last: Message) -> None:
        # Of what was taken away meanwhile nothing is to be committed.
        if self._stores:
            with suppress(KafkaException):
                self.store_offsets(message=last)

    # ------------------------------------------------------------ positions

    def seek(self, partition: TopicPartition) -> None:
        """Set the position of a partition to its ``offset``; as confluent-kafka's."""
        super().seek(partition)
        self._kept.pop((partition.topic, partition.partition), None)

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offsets of the next messages; as confluent-kafka's."""
        found: list[TopicPartition] = super().position(partitions)
        for one in found:
            if kept := self._kept.get((one.topic, one.partition)):
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
        Subscribe to topics; as confluent-kafka's.

        Held partitions are paused before ``poll`` has returned from ``on_assign``.
        """
        self._is_unsubscribed = False
        super().subscribe(
            topics,
            on_assign=partial(self._on_assign, on_assign),
            on_revoke=partial(self._on_revoke, on_revoke, Cause.PASSING),
            on_lost=partial(self._on_revoke, on_lost or on_revoke, Cause.LOST),
        )

    def unsubscribe(self) -> None:
        """End the subscription; as confluent-kafka's. Pauses end, holds stay."""
        self._is_unsubscribed = True
        super().unsubscribe()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions instead of others; as confluent-kafka's."""
        super().assign(partitions)
        self._kept.clear()
        self._told, self._unsure = frozenset(), frozenset(map(_pair, partitions))
        self._member.own(self._unsure, self._why(), all_=True)
        self._reassigned()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions besides others; as confluent-kafka's."""
        super().incremental_assign(partitions)
        self._unsure = frozenset(map(_pair, partitions))
        self._member.own(self._unsure, self._why(), all_=False)
        self._reassigned()

    def unassign(self) -> None:
        """End the assignment; as confluent-kafka's."""
        super().unassign()
        self._kept.clear()
        self._told = self._unsure = frozenset()
        self._member.own((), self._why(), all_=True)
        self._reassigned()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Take partitions out of the assignment; as confluent-kafka's."""
        super().incremental_unassign(partitions)
        departed = frozenset(map(_pair, partitions))
        for tp in departed:
            self._kept.pop(tp, None)
        self._told -= departed
        self._unsure -= departed
        self._member.leave(departed, self._why())
        self._reassigned()

    def _why(self) -> Cause:
        return Cause.ASSIGNED if self._cause is None else self._cause

    def _reassigned(self) -> None:
        self._has_assigned, self._applied = True, None
        if not self._is_closing:  # librdkafka answers no more, and still revokes
            self._identify()
            self._apply()

    def _on_assign(self, call: Callback | None, _: object, parts: list[Any]) -> None:
        self._cause, self._has_assigned = Cause.JOINED, False
        try:
            if call is not None:
                call(self, parts)
        finally:
            if not self._has_assigned:  # as upstream does it, but not behind our back
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
            cause = Cause.JOINED  # the join that takes them has completed
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
        """Pause and resume in librdkafka what has become quiet, or flows."""
        quiet = self._member.quiet()
        if quiet is self._applied:
            return
        if start := quiet - self._told:
            super().pause(_theirs(start))
        if end := (self._told | self._unsure) - quiet:
            super().resume(_theirs(end))
        self._told = self._applied = quiet
        self._unsure = frozenset()

    def _identify(self) -> None:
        # On this thread only: confluent-kafka lets one thread at a time into a client,
        # and another one would starve beside a poll.
        self._identify_at = time.monotonic() + _IDENTIFY_EVERY
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
        """Leave the group and close; as confluent-kafka's. Control threads end, too."""
        if not self._is_closing:
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


def _busy_of(consumer: "weakref.ref[Consumer]") -> Iterable[OtherPartition]:
    one = consumer()
    return () if one is None or one.busy is None else one.busy()


def _is_cooperative(settings: Mapping[str, Any]) -> bool:
    # librdkafka refuses a mixture of eager and cooperative assignors.
    strategy = str(settings.get("partition.assignment.strategy", ""))
    is_newer = str(settings.get("group.protocol", "")).lower() == "consumer"
    return is_newer or "cooperative" in strategy.lower()


def _pair(one: OtherPartition) -> Pair:
    return one.topic, one.partition


def _theirs(partitions: Iterable[Pair]) -> list[TopicPartition]:
    return [TopicPartition(*tp) for tp in partitions]
