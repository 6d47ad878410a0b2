"""
Decides which gained partitions wait until the ``poll`` that gained them has returned.

Whoever held everything before the call could not hold what came during it
(KAFKA-13463), so a gate stands in for the holds that were in force when it began. It
opens when the call returns, when all of those holds have been lifted, or when an owner
names the partition in a ``resume`` and only that owner's holds are left of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from safeconsumer.holds.hold import HoldKey
from safeconsumer.holds.scope import Partition, Pattern, Scope, TopicPartition
from safeconsumer.holds.view import PauseView

CALL_GATE = "gained during a poll() that began all paused"


class CallGates:
    """
    The gates of the ``poll`` under way, and the holds they stand in for.

    With nothing assigned at the beginning of a call, what was held when there last was
    something still counts: the loss of a membership must not look like a resume. A hold
    that ends because its partition departs was not lifted, and still counts too.

    Thread rules: under the ledger's lock. Nothing here asks a pattern anything new.

    Attributes:
        closed: the gated partitions, with the reason for people.
    """

    def __init__(self) -> None:
        self.closed: dict[TopicPartition, str] = {}
        self._in_call = False
        # What was there when the call began; None if not all of it was held, or all
        # those holds have been lifted since.
        self._began: PauseView | None = None
        # The holds of then that nobody has lifted, by owner; None: not looked up yet.
        self._standing: dict[str, set[HoldKey]] | None = None
        # What was resumed since by owners who alone still hold something.
        self._named: dict[Scope, None] = {}

    def begin(self, view: PauseView) -> bool:
        """
        Note the start of a call.

        Returns:
            Whether what is gained will be gated.
        """
        self._in_call = True
        if view.assigned:
            if self._began is not None:
                self._forget()
            if _is_held_throughout(view):
                self._began = view
        return self._began is not None

    def end(self) -> bool:
        """
        Note the end of a call: nothing is gated from now on.

        Returns:
            Whether something is gated still, and :meth:`open_all` has work to do.
        """
        self._in_call = False
        return bool(self.closed)

    def open_all(self) -> None:
        """
        Open all gates.
        """
        self.closed.clear()

    def choose_anew(self, view: PauseView) -> None:
        """
        Note that the application chose what it consumes.

        Outside of a call and with nothing assigned, what was held no longer counts:
        that was another choice.
        """
        if not view.assigned and not self._in_call:
            self._forget()

    def patterns(self) -> list[Pattern]:
        """
        Return the patterns that :meth:`reassign` will look up for what is gained.
        """
        return [scope for scope in self._named if isinstance(scope, Pattern)]

    def reassign(
        self, gained: Collection[TopicPartition], departed: Iterable[TopicPartition]
    ) -> None:
        """
        Drop the gates of what departed, and gate what is gained.
        """
        self._open(departed)
        if self._in_call and self._began is not None:
            wide = [one for one in self._named if not isinstance(one, Partition)]
            self.closed.update(
                (tp, CALL_GATE)
                for tp in gained
                if Partition(*tp) not in self._named
                and not any(scope.covers(tp) for scope in wide)
            )

    def lifted(self, keys: Iterable[HoldKey], view: PauseView) -> bool:
        """
        Note that owners lifted holds, or that these expired.

        Args:
            keys: what was named, whether a hold was there or not.
            view: what is assigned.

        Returns:
            Whether a gate was opened.
        """
        if self._began is None:
            return False
        keys = tuple(keys)
        standing = self._look_up(self._began)
        for key in keys:
            _strike(standing, key[1], {key})
        return self._open_named(keys, standing, view)

    def given_up(self, owner: str) -> bool:
        """
        Note that an owner lifted all it holds.

        Returns:
            Whether a gate was opened.
        """
        if self._began is None:
            return False
        standing = self._look_up(self._began)
        standing.pop(owner, None)
        return not standing and self._retire()

    # ------------------------------------------------------------ inside

    def _look_up(self, began: PauseView) -> dict[str, set[HoldKey]]:
        if self._standing is None:
            self._standing = {}
            for tp in began.partitions():
                for hold in began.state.covering(tp):
                    self._standing.setdefault(hold.owner, set()).add(hold.key)
        return self._standing

    def _open_named(
        self,
        keys: Iterable[HoldKey],
        standing: dict[str, set[HoldKey]],
        view: PauseView,
    ) -> bool:
        if not standing:
            return self._retire()
        opened = False
        for scope, owner in keys:
            # One that lifts its own holds speaks for itself only.
            if standing.keys() == {owner}:
                self._named[scope] = None
                if self.closed:
                    opened |= self._open(view.affected_by(scope))
        return opened

    def _retire(self) -> bool:
        # nobody is left to stand in for
        self._forget()
        had_gates = bool(self.closed)
        self.open_all()
        return had_gates

    def _forget(self) -> None:
        self._began = self._standing = None
        self._named.clear()

    def _open(self, partitions: Iterable[TopicPartition]) -> bool:
        before = len(self.closed)
        for tp in partitions:
            self.closed.pop(tp, None)
        return len(self.closed) < before


def _strike(
    standing: dict[str, set[HoldKey]], owner: str, keys: Iterable[HoldKey]
) -> None:
    of_owner = standing.get(owner)
    if of_owner is not None:
        of_owner.difference_update(keys)
        if not of_owner:
            del standing[owner]


def _is_held_throughout(view: PauseView) -> bool:
    # A gate that waits for the control topics is nobody's hold.
    return view.is_quiet_throughout() and all(
        view.state.covers(tp) for tp in view.gates if tp in view.quiet
    )
