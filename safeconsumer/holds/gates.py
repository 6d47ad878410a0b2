"""
Decides which gained partitions wait: for a ``poll`` to return, or for the control topics.

A caller who held everything before a ``poll`` could not hold what came during it
(KAFKA-13463), so a gate stands in for the holds that were in force when it began. It
opens when the call returns, when all of those holds have been lifted, or when an owner
names the partition in a ``resume`` and only that owner's holds are left of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from safeconsumer.holds.hold import HoldKey
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import Assigned, View, affected_by

CALL_GATE = "gained during a poll() that began all paused"
CONTROL_GATE = "waits until the control topics are read"

_NONE: frozenset[TopicPartition] = frozenset()


class Gates(NamedTuple):
    """
    The gates that are closed, and the holds that those of the call stand in for.

    If nothing is assigned when a call begins, the holds that were in force when
    something last was assigned still count: the loss of a membership must not look like
    a resume. A hold that ends because its partition departs was not lifted, and still
    counts too.

    Attributes:
        control: partitions that wait for the control topics.
        call: partitions that wait for the ``poll`` under way to return.
        in_call: whether one is under way for which ``began`` counts.
        began: the view when it began; None if not everything was held then, or if all
            those holds have been lifted since.
        standing: the holds of that view that nobody has lifted; None: not looked up yet.
    """

    control: frozenset[TopicPartition] = _NONE
    call: frozenset[TopicPartition] = _NONE
    in_call: bool = False
    began: View | None = None
    standing: frozenset[HoldKey] | None = None

    @property
    def is_gating(self) -> bool:
        """Whether what is gained now will be gated."""
        return self.in_call and self.began is not None

    def closed(self) -> dict[TopicPartition, str]:
        """Return the gated partitions, with the reason for people."""
        return {
            **dict.fromkeys(self.call, CALL_GATE),
            **dict.fromkeys(self.control, CONTROL_GATE),
        }

    def begun(self, view: View) -> Gates:
        """Note the start of a call; these themselves, if it gates nothing, as most do."""
        if not view.assigned:
            began, standing = self.began, self.standing
        elif view.is_quiet_throughout() and all(map(view.holds.covers, view.gates)):
            began, standing = view, None
        else:
            began = standing = None
        if began is None and self.began is None and not self.in_call:
            return self
        return Gates(self.control, self.call, True, began, standing)  # noqa: FBT003 - positions are faster

    def ended(self) -> Gates:
        """Note the end of a call: its gates open, and nothing is gated from now on."""
        return Gates(self.control, began=self.began, standing=self.standing)

    def chosen_anew(self, owned: Collection[TopicPartition]) -> Gates:
        """Note that something else is consumed: with nothing owned no hold counts."""
        if owned or self.in_call:
            return self
        return self._replace(began=None, standing=None)

    def read(self, partitions: Collection[TopicPartition]) -> Gates:
        """Open those of partitions whose control topics are read."""
        return self._replace(control=self.control.difference(partitions))

    def reassigned(
        self,
        gained: Collection[TopicPartition],
        departed: Collection[TopicPartition],
        *,
        is_watched: bool,
    ) -> Gates:
        """Drop the gates of departed partitions, and gate the gained ones."""
        control, call = (
            self.control.difference(departed),
            self.call.difference(departed),
        )
        return self._replace(
            control=control.union(gained) if is_watched else control,
            call=call.union(gained) if self.is_gating else call,
        )

    def lifted(
        self,
        keys: Iterable[HoldKey],
        assigned: Assigned,
        *,
        all_of: Collection[str] = (),
    ) -> Gates:
        """
        Note that owners lifted holds, or that these expired.

        Keys count that were named, whether a hold existed or not; of the owners in
        ``all_of`` nothing counts any more.
        """
        if self.began is None:
            return self
        keys = tuple(keys)
        standing = self.standing
        if standing is None:
            view = self.began
            standing = frozenset(
                hold.key for tp in view.partitions() for hold in view.holds.covering(tp)
            )
        standing = standing.difference(keys)
        if all_of:
            standing = frozenset(key for key in standing if key[1] not in all_of)
        if not standing:
            return Gates(self.control, _NONE, self.in_call)
        call = self.call
        if call and len(owners := {owner for _, owner in standing}) == 1:
            # An owner who lifts its own holds opens only the partitions that it named.
            for scope, owner in keys:
                if owner in owners:
                    call = call.difference(affected_by(assigned, scope))
        return self._replace(call=call, standing=standing)
