"""
The one place where holds live, with what they mean for the assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rpds import HashTrieMap

from safeconsumer import events
from safeconsumer.holds import ownership as rebalance
from safeconsumer.holds import state as ledger
from safeconsumer.holds._holding import HoldLedger
from safeconsumer.holds.changes import Remove
from safeconsumer.holds.hold import APP, HoldKey, Lifetime
from safeconsumer.holds.scope import Partition, TopicPartition
from safeconsumer.holds.view import Shift, with_assignment, with_gates, with_state

Watcher = Callable[[Mapping[TopicPartition, int]], object]
"""
Is told of gained partitions, already behind a gate, with their ownership epochs.
"""

_CONTROL_GATE = "waits until the control topics are read"


class PauseLedger(HoldLedger):
    """
    Keeps the holds of one consumer and what they mean for its assignment.

    Thread rules: every method may be called from any thread, :meth:`begin_call` and
    :meth:`end_call` from the polling one; :meth:`place` and :meth:`remove` from a
    signal handler too, where they only leave a note that the next look-up applies.
    """

    def _prepare(self) -> None:
        self._ownership = rebalance.Ownership()
        # left quiet, and a hold still covers it
        self._departed_quiet: frozenset[TopicPartition] = frozenset()
        self._in_call = False
        self._began_quiet = False
        self._call_gates: dict[TopicPartition, str] = {}
        self._control_gates: dict[TopicPartition, str] = {}
        self._watcher: Watcher | None = None
        # whether the application's pause of a partition goes where the partition goes
        self.is_carried: Callable[[TopicPartition], bool] | None = None
        # told of each change of the assignment, as a watcher is
        self.on_reassigned: Callable[[rebalance.Reassignment], object] | None = None

    def watch(self, watcher: Watcher) -> None:
        """
        Close a gate on whatever is gained from now on, until :meth:`open_gates`.

        Args:
            watcher: called on the thread that assigns, under upstream's locks but not
                under ours: it must be quick, block on nothing and raise nothing.
        """
        self._watcher = watcher

    def open_gates(self, epochs: Mapping[TopicPartition, int]) -> None:
        """
        Open the gates of those partitions that are still owned as they were then.
        """
        with self._locked():
            owned = self._ownership.epochs
            for tp, epoch in epochs.items():
                if owned.get(tp) == epoch:
                    self._control_gates.pop(tp, None)
            self._view, shift = with_gates(self._view, self._gates())
            self._tell_gates(shift, "the control topics are read")
        self.deliver()

    def control_gates(self) -> frozenset[TopicPartition]:
        """
        Return the partitions that wait for the control topics.
        """
        return frozenset(self._control_gates)

    def hook_failures(self) -> Mapping[str, int]:
        """
        Return how often each hook raised, by its ``repr``.
        """
        return dict(self.dispatcher.failures)

    def ownership(self) -> rebalance.Ownership:
        """
        Return the owned partitions with their epochs.
        """
        return self._ownership

    def assign(self, assignment: Iterable[TopicPartition]) -> rebalance.Reassignment:
        """
        Take over a new assignment; what is held is quiet from this instant.

        May be called under upstream's subscription lock: events wait for
        :meth:`deliver`.
        """
        assigned = tuple(assignment)
        away = self._departed_quiet
        topics = {tp[0] for tp in (*assigned, *away)}
        with self._locked(topics=topics):
            ownership, change = rebalance.reassign(self._ownership, assigned)
            self._ownership = ownership
            if not change.gained and not change.departed:
                return change
            self._depart(change, assigned)
            gates = self._gates_after(change)
            self._view, shift = with_assignment(self._view, assigned, gates)
            self._tell_assignment(change)
            self._departed_quiet -= change.gained.union(
                tp for tp in away if not self._view.state.covers(tp)
            )
            self._tell_gates(shift, "holds ended with the assignment")
        if self.on_reassigned is not None:
            self.on_reassigned(change)
        if self._watcher is not None and change.gained:
            self._watcher({tp: ownership.epochs[tp] for tp in change.gained})
        return change

    def begin_call(self) -> bool:
        """
        Mark the start of a ``poll``.

        If everything assigned is quiet now, what is gained before :meth:`end_call`
        is gated until then: whoever paused all of it before the call has had no
        chance yet to pause the rest (KAFKA-13463). With nothing assigned, what held
        when there last was something still counts: the loss of a membership must
        not look like a resume.

        Returns:
            Whether what is gained will be gated.
        """
        now = self.view()
        if now.assigned:
            self._began_quiet = now.is_quiet_throughout()
        self._in_call = True
        return self._began_quiet

    def end_call(self) -> None:
        """
        Mark the end of a ``poll`` and open the gates that its start asked for.
        """
        self._in_call = False
        if self._call_gates:
            with self._locked():
                self._call_gates.clear()
                self._view, shift = with_gates(self._view, self._gates())
                self._tell_gates(shift, "the poll that gained them has returned")

    def choose_anew(self) -> None:
        """
        Note that the application chose what it consumes; outside of a ``poll``.

        With nothing assigned, what held when there last was something no longer
        counts: that was another choice.
        """
        if not self._view.assigned and not self._in_call:
            self._began_quiet = False

    def _before_removal(self) -> None:
        # With nothing assigned, what held last counts for the next poll, unless
        # somebody resumes.
        if not self._view.assigned:
            self._began_quiet = False

    def _apply_remove(self, change: Remove) -> None:
        self._open_call_gates(change.keys)
        super()._apply_remove(change)

    def _expire(self) -> None:
        before = self._view.state
        super()._expire()
        if self._view.state is not before:
            there = {hold.key for hold in self._view.state}
            self._before_removal()
            self._open_call_gates(hold.key for hold in before if hold.key not in there)

    def _open_call_gates(self, keys: Iterable[HoldKey]) -> None:
        if not self._call_gates:
            return
        for scope, owner in keys:
            # The gate stands in for the owners that hold the rest; one that lifts its
            # own holds speaks for itself only.
            if not self._is_held_but_by(owner):
                for tp in self._view.affected_by(scope):
                    self._call_gates.pop(tp, None)
        self._view, shift = with_gates(self._view, self._gates())
        self._tell_gates(shift, "resumed")

    def _is_held_but_by(self, owner: str) -> bool:
        return any(
            hold.owner != owner
            and any(True for _ in self._view.affected_by(hold.scope))
            for hold in self._view.state
        )

    def _depart(
        self, change: rebalance.Reassignment, assigned: tuple[TopicPartition, ...]
    ) -> None:
        self._departed_quiet |= {tp for tp in change.departed if tp in self._view.quiet}
        state, ended = ledger.end_assignment(
            self._view.state, change.departed, assigned
        )
        state, carried = ledger.remove(state, self._carried(change))
        ended += carried
        if ended:
            self._view, _ = with_state(
                self._view, state, (hold.scope for hold in ended)
            )
            self._emit(
                events.HoldsEnded,
                holds=ended,
                departed=events.sorted_partitions(change.departed),
            )

    def _carried(self, change: rebalance.Reassignment) -> list[HoldKey]:
        if self.is_carried is None:
            return []
        return [
            hold.key
            for tp in change.departed
            if self.is_carried(tp)
            for hold in self._view.state.of(Partition(tp[0], tp[1]))
            if hold.owner == APP
            and hold.lifetime is Lifetime.UNTIL_RESUMED
            and hold.expires_at is None
        ]

    def _gates_after(
        self, change: rebalance.Reassignment
    ) -> HashTrieMap[TopicPartition, str]:
        for tp in change.departed:
            self._call_gates.pop(tp, None)
            self._control_gates.pop(tp, None)
        if self._in_call and self._began_quiet:
            why = "gained during a poll() that began all paused"
            self._call_gates.update(dict.fromkeys(change.gained, why))
        if self._watcher is not None:
            self._control_gates.update(dict.fromkeys(change.gained, _CONTROL_GATE))
        return self._gates()

    def _gates(self) -> HashTrieMap[TopicPartition, str]:
        return HashTrieMap.convert({**self._call_gates, **self._control_gates})

    def _tell_assignment(self, change: rebalance.Reassignment) -> None:
        quiet = [tp for tp in change.gained if tp in self._view.quiet]
        self._emit(
            events.AssignmentChanged,
            gained=events.sorted_partitions(change.gained),
            departed=events.sorted_partitions(change.departed),
            quiet=events.sorted_partitions(quiet),
        )
        back = {
            tp: self._view.state.covering(tp)
            for tp in quiet
            if tp in self._departed_quiet
        }
        holds = {hold.key: hold for holds in back.values() for hold in holds}
        if holds:
            self._emit(
                events.HoldsBit,
                partitions=events.sorted_partitions(tp for tp in back if back[tp]),
                holds=tuple(holds.values()),
            )

    def _tell_gates(self, shift: Shift, reason: str) -> None:
        if shift.quiet or shift.flowing:
            self._emit(
                events.GatesChanged,
                quiet=shift.quiet,
                flowing=shift.flowing,
                reason=reason,
            )
