"""
Decides which gained partitions wait until the ``poll`` that gained them has returned.

A caller who held everything before a ``poll`` could not hold what came during it
(KAFKA-13463), so a gate stands in for the holds that were in force when it began. It
opens when the call returns, when all of those holds have been lifted, or when an owner
names the partition in a ``resume`` and only that owner's holds are left of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeAlias

from attrs import evolve, field, frozen
from rpds import HashTrieMap, HashTrieSet

from safeconsumer.holds.hold import HoldKey
from safeconsumer.holds.scope import Partition, Pattern, Scope, TopicPartition
from safeconsumer.holds.view import PauseView

CALL_GATE = "gained during a poll() that began all paused"

Closed: TypeAlias = "HashTrieMap[TopicPartition, str]"
Standing: TypeAlias = "HashTrieMap[str, HashTrieSet[HoldKey]]"


@frozen
class CallGates:
    """
    The gates of the ``poll`` under way, and the holds they stand in for.

    If nothing is assigned when a call begins, the holds that were in force when
    something last was assigned still count: the loss of a membership must not look like
    a resume. A hold that ends because its partition departs was not lifted, and still
    counts too.

    Nothing here asks a pattern about a new name. Applying a change twice changes
    nothing more: a signal handler computes ahead what may have been applied in part.

    Attributes:
        closed: the gated partitions, with the reason for people.
        in_call: whether a call is under way.
        began: the view when the call began; None if not everything was held then, or if
            all those holds have been lifted since.
        standing: the holds of that view that nobody has lifted, by owner; None: not
            looked up yet.
        named: the partitions resumed since by an owner who alone still holds something.
    """

    closed: Closed = field(factory=HashTrieMap)
    in_call: bool = False
    began: PauseView | None = None
    standing: Standing | None = None
    named: HashTrieMap[Scope, None] = field(factory=HashTrieMap)

    @property
    def is_gating(self) -> bool:
        """Whether what is gained now will be gated."""
        return self.in_call and self.began is not None

    def begin(self, view: PauseView) -> CallGates:
        """Note the start of a call."""
        # evolve() would cost too much here and below, where every poll calls twice.
        if not view.assigned:
            return CallGates(self.closed, True, self.began, self.standing, self.named)  # noqa: FBT003 - positions are faster
        return CallGates(self.closed, True, view if _is_held_throughout(view) else None)  # noqa: FBT003 - positions are faster

    def end(self) -> CallGates:
        """Note the end of a call: nothing is gated from now on."""
        return CallGates(self.closed, False, self.began, self.standing, self.named)  # noqa: FBT003 - positions are faster

    def all_open(self) -> CallGates:
        """Open all gates."""
        return evolve(self, closed=HashTrieMap()) if len(self.closed) else self

    def choose_anew(self, view: PauseView) -> CallGates:
        """
        Note that the application called ``subscribe``, ``assign`` or ``unsubscribe``.

        Outside of a call and with nothing assigned, earlier holds no longer count: they
        belonged to the previous choice.
        """
        if view.assigned or self.in_call:
            return self
        return CallGates(self.closed)

    def patterns(self) -> list[Pattern]:
        """Return the patterns that :meth:`reassign` will look up for gained partitions."""
        return [scope for scope in self.named if isinstance(scope, Pattern)]

    def reassign(
        self, gained: Collection[TopicPartition], departed: Iterable[TopicPartition]
    ) -> CallGates:
        """Drop the gates of departed partitions, and gate the gained ones."""
        closed = _without(self.closed, departed)
        if self.is_gating:
            wide = [one for one in self.named if not isinstance(one, Partition)]
            closed = closed.update(
                {
                    tp: CALL_GATE
                    for tp in gained
                    if Partition(*tp) not in self.named
                    and not any(scope.covers(tp) for scope in wide)
                }
            )
        return self if closed is self.closed else evolve(self, closed=closed)

    def lifted(self, keys: Iterable[HoldKey], view: PauseView) -> CallGates:
        """
        Note that owners lifted holds, or that these expired.

        Args:
            keys: the keys that were named, whether a hold existed or not.
            view: the current view of the assignment.
        """
        if self.began is None:
            return self
        keys = tuple(keys)
        standing = _looked_up(self.began) if self.standing is None else self.standing
        for key in keys:
            standing = _struck(standing, key)
        if not len(standing):
            return self._retired()
        gates = evolve(self, standing=standing)
        for scope, owner in keys:
            # An owner who lifts its own holds opens only the partitions that it named.
            if len(standing) == 1 and owner in standing:
                gates = evolve(
                    gates,
                    closed=_without(gates.closed, view.affected_by(scope)),
                    named=gates.named.insert(scope, None),
                )
        return gates

    def given_up(self, owner: str) -> CallGates:
        """Note that an owner lifted all its holds."""
        if self.began is None:
            return self
        standing = _looked_up(self.began) if self.standing is None else self.standing
        standing = standing.discard(owner)
        return evolve(self, standing=standing) if len(standing) else self._retired()

    # ------------------------------------------------------------ inside

    def _retired(self) -> CallGates:
        # no hold is left to stand in for
        return CallGates(in_call=self.in_call)


def _without(closed: Closed, partitions: Iterable[TopicPartition]) -> Closed:
    if len(closed):
        for tp in partitions:
            closed = closed.discard(tp)
    return closed


def _looked_up(began: PauseView) -> Standing:
    found: dict[str, set[HoldKey]] = {}
    for tp in began.partitions():
        for hold in began.state.covering(tp):
            found.setdefault(hold.owner, set()).add(hold.key)
    return HashTrieMap({owner: HashTrieSet(keys) for owner, keys in found.items()})


def _struck(standing: Standing, key: HoldKey) -> Standing:
    owner = key[1]
    keys = standing.get(owner)
    if keys is None:
        return standing
    left = keys.discard(key)
    return standing.insert(owner, left) if len(left) else standing.discard(owner)


def _is_held_throughout(view: PauseView) -> bool:
    # A gate that waits for the control topics is nobody's hold.
    return view.is_quiet_throughout() and all(
        view.state.covers(tp) for tp in view.gates if tp in view.quiet
    )
