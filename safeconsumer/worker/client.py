"""Wraps the consumer's calls for a worker, and sends the worker's events to hooks."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.membership import Membership
from safeconsumer.events.base import Event
from safeconsumer.events.counts import WORKER_ALARMS, Counts
from safeconsumer.events.dispatch import Dispatcher, Hook, name_of
from safeconsumer.events.log import log_event
from safeconsumer.events.takeover import Takeover
from safeconsumer.holds.explain import counted
from safeconsumer.holds.hold import OUTAGES, WORKER, HoldKey, Lifetime, WorkerOwner
from safeconsumer.holds.scope import ALL, Partition, Scope
from safeconsumer.worker.kept import DroppedWork
from safeconsumer.worker.progress import Watermark
from safeconsumer.worker.records import AnyRecord

if TYPE_CHECKING:
    from safeconsumer.journal.recorder import Recorder

UNREADABLE = f"{WORKER}unreadable"


class Emitter:
    """
    Creates events and passes them to structlog and to a hook.

    Attributes:
        counts: counts the events.
        takeover: tracks which threads are in a hook, and lets another thread end a
            worker whose polling thread is stuck in one.
    """

    def __init__(
        self,
        on_event: Hook | None,
        client_id: str | None,
        group_id: str | None,
        wall: Callable[[], float],
        *,
        is_logged: bool,
    ) -> None:
        hooks: tuple[Hook, ...] = (log_event,) if is_logged else ()
        hooks = hooks if on_event is None else (*hooks, on_event)
        self.counts = Counts(WORKER_ALARMS)
        self.takeover = Takeover()
        self._dispatcher = Dispatcher((self.counts, *hooks))
        self._dispatcher.takeover = self.takeover
        self._postponed: tuple[int, list[Event]] | None = None
        self._ids = {"client_id": client_id, "group_id": group_id}
        self._wall = wall

    def __call__(self, kind: Callable[..., Event], **fields: Any) -> None:  # noqa: ANN401 - the event's own
        """Create the event and pass it to the hooks, or postpone it."""
        event = kind(at=self._wall(), **self._ids, **fields)
        kept = self._postponed
        if kept is not None and kept[0] == threading.get_ident():
            kept[1].append(event)
        else:
            self._dispatch(event)

    @contextmanager
    def postponing(self) -> Iterator[None]:
        """Postpone the events that this thread emits in a ``with`` block until it ends."""
        events: list[Event] = []
        self._postponed = threading.get_ident(), events
        try:
            yield
        finally:
            self._postponed = None
            for event in events:
                self._dispatch(event)

    def _dispatch(self, event: Event) -> None:
        stop = self._dispatcher.dispatch(event)
        if stop is not None:
            raise stop

    def problems(self, age: float) -> list[str]:
        """
        List the hooks that have not returned for ``age`` seconds.

        Any thread may call this.
        """
        found: dict[str, list[float]] = {}
        for hook, seconds in self.takeover.stuck(age):
            found.setdefault(name_of(hook), []).append(seconds)
        return [
            f"hook {name} has not returned for {max(times):.1f} s, on "
            f"{counted(len(times), 'thread')}"
            for name, times in found.items()
        ]

    @property
    def failures(self) -> dict[str, int]:
        """The number of exceptions of each hook, by the hook's ``repr``."""
        return dict(self._dispatcher.failures)


Polled: TypeAlias = dict[TopicPartition, list[AnyRecord]]
Committed: TypeAlias = Callable[[Exception | None], None]


class ConsumerClient:
    """
    The operations of a :class:`~safeconsumer.SafeConsumer` that a worker uses.

    Attributes:
        membership: the consumer's membership in its group.
        most: the maximum number of records that one poll returns.
        journal: writes the consumer's journal; None if the consumer keeps no journal.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - upstream has no types
        membership: Membership | None = None,
    ) -> None:
        self._consumer = consumer
        self.membership = membership or Membership(consumer)
        self.most: int = consumer.config["max_poll_records"]
        self.journal: Recorder | None = getattr(consumer, "_safe_journal", None)
        # the keys of the worker's holds that may be in force; None if they are not
        # known
        self._ours: AbstractSet[HoldKey] | None = None
        # the ledger's holds at the last time when all wanted holds were in force
        self._settled: object = None
        self._wanted: AbstractSet[tuple[str, TopicPartition | None]] = frozenset()

    def watch_hooks(self, takeover: Takeover | None) -> None:
        """Make the takeover track which threads are inside a hook of the consumer."""
        self.membership.ledger.dispatcher.takeover = takeover

    def poll(self, timeout: float, records: int) -> Polled:
        """Poll for at most ``records`` records, and wait at most ``timeout`` seconds."""
        with self.membership.own_call("poll"):
            polled: Polled = self._consumer.poll(
                timeout_ms=timeout * 1000, max_records=records
            )
        return polled

    def reads_on(self, tp: TopicPartition, offset: int) -> bool:
        """
        Return whether the position has reached an offset and was not moved beyond it.

        A seek or reset to a later offset makes the result False until a record has been
        polled from its target. The position may be past the offset, for example because
        the offsets in between have no records.
        """
        position, moved = self.membership.position(tp), self.membership.moved_to(tp)
        if position is None or position < offset:
            return False
        return moved is None or moved <= offset

    def go_back(self, tp: TopicPartition, offset: int) -> None:
        """
        Move the position back to an offset, so that its records are delivered again.

        The move undoes a seek. If the program may have called ``seek()``, check
        :meth:`reads_on` first.
        """
        self._consumer._safe_go_back(tp, offset)  # noqa: SLF001 - no call for users

    def hold(
        self,
        owners: Sequence[str],
        wanted: Mapping[tuple[str, TopicPartition | None], str],
    ) -> None:
        """
        Place and lift holds of these owners, so that only the wanted ones are in force.

        None as the partition means the whole consumer. Only the first call searches the
        ledger for all holds of these owners. Each later call looks up only the wanted
        holds and those of the previous call, because other code may have placed
        thousands of holds.
        """
        holds = self.membership.ledger.view().holds
        if holds is self._settled and wanted.keys() == self._wanted:
            return
        keys = {(_scope_of(tp), owner): why for (owner, tp), why in wanted.items()}
        ours = self._ours
        if ours is None:
            ours = {one.key for one in holds if one.owner in owners}
        there = {key for key in ours | keys.keys() if holds.get(key) is not None}
        # If a call below fails, the next turn repeats it and finds the holds that were
        # placed.
        self._settled, self._ours = None, there | keys.keys()
        for scope, owner in there - keys.keys():
            self._consumer.resume(scope, owner=owner)
        for scope, owner in keys.keys() - there:
            is_whole = scope == ALL
            lifetime = Lifetime.UNTIL_RESUMED if is_whole else Lifetime.WHILE_ASSIGNED
            self._consumer.pause(
                scope,
                owner=WorkerOwner(owner),
                reason=keys[scope, owner],
                lifetime=lifetime,
            )
        self._settled, self._wanted = holds, frozenset(wanted)

    def lift_all(self, owner: str) -> None:
        """Lift an owner's hold on the whole consumer; this wakes a waiting poll."""
        self._consumer.resume(ALL, owner=owner)

    def pause(
        self,
        scope: Scope,
        owner: str,
        reason: str,
        seconds: float,
        lifetime: Lifetime = Lifetime.UNTIL_RESUMED,
    ) -> None:
        """
        Hold a scope for this many seconds; by default the hold survives rebalances.

        Any thread may call this.

        Raises:
            NotConsumedError: the consumer no longer consumes the scope.
            JournalError: the hold cannot be written to the journal.
        """
        self._consumer.pause(
            scope,
            owner=WorkerOwner(owner),
            reason=reason,
            for_=seconds,
            lifetime=lifetime,
        )

    def lift_expiring(self) -> None:
        """
        Lift the worker's holds that have an expiry, because the worker stops.

        Any thread may call this.
        """
        for owner in sorted({*OUTAGES, UNREADABLE}):
            self._consumer.resume_all(owner)

    def commit(self, marks: Mapping[TopicPartition, Watermark], timeout: float) -> None:
        """
        Commit the given offsets, and wait for the broker's answer.

        Raises:
            KafkaError: the commit was refused, or took longer than ``timeout`` seconds.
        """
        offsets = self.membership.own_commit(_offsets(marks))
        self._consumer.commit(offsets, timeout_ms=timeout * 1000)

    def commit_soon(
        self, marks: Mapping[TopicPartition, Watermark], then: Committed
    ) -> None:
        """Commit without waiting; a later poll or commit calls ``then`` with the result."""

        def answered(_offsets: object, result: object) -> None:
            then(result if isinstance(result, Exception) else None)

        offsets = self.membership.own_commit(_offsets(marks))
        self._consumer.commit_async(offsets, callback=answered)

    def leave(self, timeout: float, _last: Sequence[DroppedWork]) -> None:
        """
        Leave the group and close the consumer.

        Args:
            timeout: seconds that leaving and closing may take.
            _last: the incomplete records of each partition when the worker stopped.
        """
        with self.membership.own_call("close"):
            self._consumer.close(autocommit=False, timeout_ms=timeout * 1000)

    def release(self) -> None:
        """
        Let other code commit, poll and close again.

        Any thread may call this, repeatedly.
        """
        self.membership.release(self)


def _offsets(
    marks: Mapping[TopicPartition, Watermark],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(*tp): OffsetAndMetadata(mark.offset, "", mark.leader_epoch)
        for tp, mark in marks.items()
    }


def _scope_of(target: TopicPartition | None) -> Scope:
    return ALL if target is None else Partition(target.topic, target.partition)


REFUSED: tuple[type[Exception], ...] = (KafkaError,)
