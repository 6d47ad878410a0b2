"""
The one place where holds live, with what they mean for the assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rpds import HashTrieMap

from safeconsumer._core import events, ledger, rebalance
from safeconsumer._core.holds import APP, HoldKey, Lifetime
from safeconsumer._core.scopes import Partition, Pattern, TopicPartition
from safeconsumer._core.view import Shift, with_assignment, with_gates, with_state
from safeconsumer._holding import HoldLedger

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
        self._departed_quiet: set[TopicPartition] = set()
        self._in_call = False
        self._began_quiet = False
        self._call_gates: dict[TopicPartition, str] = {}
        self._control_gates: dict[TopicPartition, str] = {}
        self._watcher: Watcher | None = None
        # whether the application's pause of a partition goes where the partition goes
        self.is_carried: Callable[[TopicPartition], bool] | None = None

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
        self._warm_safely({tp[0] for tp in assigned})
        with self._locked():
            ownership, change = rebalance.reassign(self._ownership, assigned)
            self._ownership = ownership
            if not change.gained and not change.departed:
                return change
            self._depart(change, assigned)
            gates = self._gates_after(change)
            self._view, shift = with_assignment(self._view, assigned, gates)
            self._tell_assignment(change)
            self._tell_gates(shift, "holds ended with the assignment")
        if self._watcher is not None and change.gained:
            self._watcher({tp: ownership.epochs[tp] for tp in change.gained})
        return change

    def begin_call(self) -> None:
        """
        Mark the start of a ``poll``.

        If everything assigned is quiet now, what is gained before :meth:`end_call`
        is gated until then: whoever paused all of it before the call has had no
        chance yet to pause the rest (KAFKA-13463). With nothing assigned, what held
        when there last was something still counts: the loss of a membership must
        not look like a resume.
        """
        now = self.view()
        if now.assigned:
            self._began_quiet = now.is_quiet_throughout()
        self._in_call = True

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

    @property
    def began_quiet(self) -> bool:
        """
        Whether the ``poll`` under way began with everything assigned quiet.
        """
        return self._began_quiet

    def _before_removal(self) -> None:
        # With nothing assigned, what held last counts for the next poll, unless
        # somebody resumes.
        if not self._view.assigned:
            self._began_quiet = False

    def _depart(
        self, change: rebalance.Reassignment, assigned: tuple[TopicPartition, ...]
    ) -> None:
        self._departed_quiet.update(
            tp for tp in change.departed if tp in self._view.quiet
        )
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
        self._departed_quiet.difference_update(change.gained)
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

    def _warm_safely(self, topics: set[str]) -> None:
        # An expression that raises must not undo an assignment: the topic is quiet.
        for pattern in self._patterns():
            for topic in topics:
                try:
                    self._warm((pattern,), (topic,))
                except Exception as error:  # noqa: BLE001 - whatever it raises
                    pattern.assume_match(topic)
                    self._emit(
                        events.PatternFailed,
                        pattern=str(pattern),
                        topic=topic,
                        error=repr(error),
                    )

    def _patterns(self) -> tuple[Pattern, ...]:
        return tuple(
            hold.scope
            for holds in self._view.state.patterns.values()
            for hold in holds[:1]
            if isinstance(hold.scope, Pattern)
        )
