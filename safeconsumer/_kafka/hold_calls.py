"""Implements the calls that change holds: ``pause``, ``resume`` and ``held`` blocks."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any

from kafka import KafkaConsumer

from safeconsumer._kafka.arguments import scopes_of
from safeconsumer._kafka.consumed import Consumed, EarlyHolds
from safeconsumer._kafka.structs import (
    AssignedPartition,
    AssignedPartitions,
    TopicPartition,
)
from safeconsumer.holds.blocks import check_block, next_owner, refuse_held
from safeconsumer.holds.hold import (
    APP,
    Hold,
    HoldKey,
    Lifetime,
    checked_duration,
    checked_lifetime,
    checked_name,
    checked_owner,
    checked_placer,
    checked_reason,
)
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.plain import Snapshot
from safeconsumer.holds.scope import Scope, Target
from safeconsumer.holds.view import Assigned


class HoldCalls:
    """
    Checks the arguments of calls that change holds, and makes the changes.

    Thread rules: any thread and a signal handler may call the methods; they take only
    the ledger's lock.

    Args:
        consumer: an adopted consumer.
        ledger: the ledger of the consumer.
        lifetime: the default lifetime of holds; if None, holds with the owner ``app``
            are plain pauses, and other owners' holds last until resumed.
        journal: the recorder that writes each call to the journal; None without a
            journal.

    Attributes:
        consumed: what the consumer has subscribed to or was assigned manually.
        early: holds that were placed before anything was consumed.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - a SafeConsumer
        ledger: PauseLedger,
        lifetime: Lifetime | None,
        journal: Any,  # noqa: ANN401 - a Recorder, which stands above
    ) -> None:
        self._consumer: KafkaConsumer = consumer
        self._ledger, self._lifetime, self._journal = ledger, lifetime, journal
        self.consumed, self.early = Consumed(consumer), EarlyHolds(ledger)
        self._returned = AssignedPartitions({})
        # The held() blocks that have ended but whose holds may not be lifted yet.
        self._ended: dict[_Block, None] = {}
        # Maps hold keys to the block that has placed, or is about to place, the hold.
        self._claims: dict[HoldKey, _Block] = {}

    # ------------------------------------------------------------ placing and lifting

    def place(
        self,
        targets: Iterable[Target],
        *,
        owner: str,
        reason: str | None,
        for_: float | timedelta | None,
        lifetime: Lifetime | None,
    ) -> None:
        """Place the holds for a call of ``SafeConsumer.pause``; raise that call's errors."""
        found = scopes_of(targets)
        if self._ended:
            self.lift_interrupted()
        owner = checked_placer(owner)
        reason = None if reason is None else checked_reason(reason)
        seconds = None if for_ is None else checked_duration(for_)
        lifetime = self._lifetime_of(owner, lifetime)
        if not found or self._consumer._closed:
            return
        named, others = _split(found)
        self.consumed.check(others)
        more: dict[str, Any] = {
            "owner": owner,
            "reason": reason,
            "for_": seconds,
            "lifetime": lifetime,
            "known_topics": self.consumed.known_topics,
            "named": named if lifetime is Lifetime.PLAIN else (),
        }
        if self._journal is None:
            self._ledger.place(found, **more)
        else:
            with self._journal.pausing(found, owner, lifetime, seconds):
                self._ledger.place(found, **more)
        if not self.consumed.has_any():
            self.early.note((scope, owner) for scope in found)

    def _lifetime_of(self, owner: str, lifetime: Lifetime | None) -> Lifetime:
        if lifetime is not None:
            return checked_lifetime(lifetime)
        if self._lifetime is not None:
            return self._lifetime
        return Lifetime.PLAIN if owner == APP else Lifetime.UNTIL_RESUMED

    def lift(self, targets: Iterable[Target], owner: str) -> tuple[Hold, ...]:
        """Lift an owner's holds on these targets; return the holds that still cover them."""
        checked_owner(owner)
        keys = [(scope, owner) for scope in scopes_of(targets)]
        # This comes first: if another thread places such a hold now, that thread calls
        # early.note() later, so the hold is remembered.
        self.early.forget(keys)
        with self._resuming(keys, owner):
            return self._ledger.remove(keys, by_application=owner == APP)

    def lift_all(self, owner: str) -> None:
        """Lift all holds of an owner."""
        checked_owner(owner)
        keys = [one.key for one in self._ledger.view().holds if one.owner == owner]
        self.early.forget(keys)
        with self._resuming(keys, owner, every=True):
            self._ledger.remove_owner(owner)

    def _resuming(
        self, keys: Iterable[HoldKey], owner: str, *, every: bool = False
    ) -> AbstractContextManager[None]:
        if self._journal is None:
            return nullcontext()
        written: AbstractContextManager[None]
        scopes = [scope for scope, _ in keys]
        written = self._journal.resuming(scopes, owner, every=every)
        return written

    # ------------------------------------------------------------ blocks

    @contextmanager
    def held(
        self,
        targets: tuple[Target, ...],
        *,
        owner: str | None,
        reason: str | None,
        for_: float | timedelta | None,
    ) -> Iterator[None]:
        """Hold the targets in a ``with`` block; lift the hold even if the block raises."""
        scopes = tuple(scopes_of(targets))
        owner = next_owner() if owner is None else checked_placer(owner)
        if self._ended:
            self.lift_interrupted()
        check_block(scopes, owner, self._ledger.view().holds)
        block = _Block(owner, targets, tuple((scope, owner) for scope in scopes))
        lifetime = Lifetime.UNTIL_RESUMED
        try:
            self._claim(block)
            block.is_lifted = False
            self._consumer.pause(
                *targets, owner=owner, reason=reason, for_=for_, lifetime=lifetime
            )
        except BaseException:
            block.is_interrupted = True
            self._ended[block] = None
            # If pause() refused its arguments, it has placed no holds. If the journal
            # was full, it has placed the holds. If it was interrupted, it may have
            # placed them.
            if not block.is_lifted:
                holds = self._ledger.view().holds
                block.is_lifted = not any(map(holds.get, block.keys))
            self._lift_block(block)
            raise
        try:
            yield
        finally:
            try:
                self._ended[block] = None
                self._lift_block(block)
            except BaseException:
                # A signal handler may raise before the first line of _lift_block().
                block.is_interrupted = True
                raise

    def _lift_block(self, block: "_Block") -> None:
        # Only the thread that removes the block from self._ended lifts its hold,
        # because a slow second thread would lift the hold of a later block. If a signal
        # handler raises, the block is added again, and the next poll or pause lifts the
        # hold.
        try:
            if self._ended.pop(block, block) is block:
                return  # another thread has removed the block
            if not block.is_lifted:
                self._lift_holds_of(block)
            block.is_lifted = True
            self._release(block)
        except BaseException:
            block.is_interrupted = True
            self._ended[block] = None
            raise

    def _lift_holds_of(self, block: "_Block") -> None:
        if block.owner != APP:
            self._consumer.resume(*block.targets, owner=block.owner)
            return
        # The consumer's resume() would also end whole pauses of the application.
        self.early.forget(block.keys)
        with self._resuming(block.keys, block.owner):
            self._ledger.remove(block.keys)

    def _claim(self, block: "_Block") -> None:
        # If two threads start blocks with the same owner at the same time, neither
        # finds a hold. The claims then decide which block is refused.
        for key in block.keys:
            if self._claims.setdefault(key, block) is not block:
                refuse_held(*key)

    def _release(self, block: "_Block") -> None:
        for key in block.keys:
            if self._claims.get(key) is block:
                del self._claims[key]

    def lift_interrupted(self) -> None:
        """Lift the holds of blocks whose exit was interrupted by a signal handler."""
        for block in tuple(self._ended):
            if block.is_interrupted:
                self._lift_block(block)

    # ------------------------------------------------------------ sets of partitions

    def assigned(self) -> dict[tuple[str, int], TopicPartition]:
        """Return the partitions of ``assignment()``, the same objects until it changes."""
        return self._objects_of(self._ledger.view().assigned)

    def paused(self, owner: str) -> set[TopicPartition]:
        """
        Return the partitions of ``paused()``, as the objects of ``assignment()``.

        Raises:
            HoldSettingError: the owner is not a valid name.
        """
        checked_name(owner)
        view = self._ledger.view()
        objects = self._objects_of(view.assigned)
        return {objects[tp] for tp in view.held_by(owner)}

    def quiet(self) -> set[TopicPartition]:
        """Return the partitions of ``quiet()``, as the objects of ``assignment()``."""
        view = self._ledger.view()
        objects = self._objects_of(view.assigned)
        return {objects[tp] for tp in view.quiet}

    def _objects_of(self, assigned: Assigned) -> dict[tuple[str, int], TopicPartition]:
        returned = self._returned
        if returned.assigned is not assigned:
            self._returned = returned = AssignedPartitions(assigned)
        return returned.partitions


class _Block:
    # A ``held()`` block, with the keys of its holds.

    def __init__(
        self, owner: str, targets: tuple[Target, ...], keys: tuple[HoldKey, ...]
    ) -> None:
        self.owner, self.targets, self.keys = owner, targets, keys
        self.is_interrupted = False  # the next poll or pause lifts the holds
        self.is_lifted = True  # whether no hold of the block needs to be lifted


def _split(
    found: Mapping[Scope, Target],
) -> tuple[list[tuple[Scope, Snapshot]], list[Scope]]:
    # Returns the scopes of targets that are objects from assignment(), each with its
    # snapshot, and the scopes of all other targets.
    named, others = [], []
    for scope, target in found.items():
        if isinstance(target, AssignedPartition) and target.snapshot is not None:
            named.append((scope, target.snapshot))
        else:
            others.append(scope)
    return named, others
