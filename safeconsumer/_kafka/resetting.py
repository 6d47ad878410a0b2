"""
Moves a member's partitions to the offsets to which an operator has reset the group.

A task on the IO thread checks the target offsets as long as a reset is in force. It
takes these steps for each partition that is quiet, whose records are not in use, and
for which the holds topic was read:

1. it requests the topic's id, because a partition of a recreated topic is not moved;
2. it requests the committed offset. If that is the target, and this ownership started
   there, the partition is done. It is checked again later, because a transaction may
   overwrite the commit;
3. it calls the listener with the partition as revoked, starts a new ownership at the
   target, and calls the listener with the partition as assigned. Fetches, records in a
   worker's queue and commits of the old ownership are no longer valid. If the reset
   ends after the first call of the listener, the ownership is kept, and the task calls
   the listener with the partition as assigned;
4. it commits the target. If the commit fails, step 2 of the next check notices that.

After each wait the task checks that the reset is still in force and the ownership is
still the same. A coordinator that does not respond delays only this task.
"""

import logging
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import events
from safeconsumer._kafka.pausing.ids import PATIENCE
from safeconsumer._kafka.pausing.subscription import id_text
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer.holds.resets import Resets, Target

log = logging.getLogger("safeconsumer.group")

# Seconds between two checks; most of them send nothing.
_CHECK_SECONDS = 0.2
# Seconds between two checks of the committed offsets of moved partitions.
_RECHECK = 3.0
# The maximum number of partitions to query per second; if there are thousands, each is
# queried less often.
_MOST_PER_SECOND = 250
# The timeout of a request or a commit, in milliseconds; after it the task tries again.
_TIMEOUT_MS = 2000.0

States = dict[TopicPartition, OwnedPartitionState]

BUSY = "waits: the program, or a handler, is processing its records"
JOINING = "waits: its group is rebalancing"
UNREAD = "waits: the holds topic was not read up to its assignment yet"
RECREATED = "is not moved: its topic was deleted and recreated since"
NO_POSITION = "waits: its position was requested, and is not known yet"
SILENT = (
    "waits: its coordinator does not respond, or a transaction that commits its "
    "offsets is open"
)


class Resetting:
    """
    Carries out the resets of the group of one consumer.

    Args:
        consumer: an adopted consumer; the object keeps no reference to it.
        resets: provides the target offsets, and stores why partitions were not moved
            yet.
        busy: returns the partitions whose records are in use.

    Thread rules: any thread may call :meth:`wake`; only the IO thread calls the other
    methods.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - a SafeConsumer
        resets: Resets,
        busy: Callable[[], Collection[tuple[str, int]]],
    ) -> None:
        self._coordinator = consumer._coordinator
        self._subscription = consumer._subscription
        self._ledger = self._subscription.ledger
        self._consumer = weakref.ref(consumer)
        self._resets, self._busy = resets, busy
        self._is_running = False
        # Maps each finished partition to its ownership, its target, and the time of the
        # next check.
        self._done: dict[TopicPartition, tuple[object, Target, float]] = {}
        # The situation when a check last found no partition to move, and the time of
        # the next check.
        self._idle_situation: tuple[object, ...] = ()
        self._idle_until = 0.0
        # The last target of each partition; cleared when no reset is left.
        self._last_targets: dict[TopicPartition, Target] = {}
        # The ownerships that the last call of the listener has reported as revoked.
        self._revoked: States = {}

    def wake(self) -> None:
        """Make the task check the targets soon."""
        with suppress(RuntimeError, KafkaError):  # the consumer is closed
            self._coordinator._manager.call_soon(self._run)

    async def _run(self) -> None:
        if self._is_running:  # the task that is running checks again
            return
        self._is_running = True
        try:
            while self._has_work():
                try:
                    await self._check_targets()
                except Exception:
                    log.exception("resets of the group failed, and are tried again")
                await self._coordinator._net.sleep(_CHECK_SECONDS)
        finally:
            self._is_running = False

    def _has_work(self) -> bool:
        if self._resets.targets or self._resets.pending():
            return not self._subscription.is_closing and self._consumer() is not None
        self._resets.troubles = {}
        self._done.clear()
        self._last_targets.clear()
        return False

    async def _check_targets(self) -> None:
        kept = {tp: one for tp, one in self._revoked.items() if self._state(tp) is one}
        if kept and not self._is_member():
            # A join may end these ownerships; it then calls the listener itself.
            return
        self._revoked = {}
        await self._call_listener("on_partitions_assigned", kept)
        found = self._situation()
        if found == self._idle_situation and self._ledger.now()[0] < self._idle_until:
            return  # nothing has changed, so thousands of partitions need no new check
        self._last_targets |= {
            TopicPartition(*tp): one for tp, one in self._targets.items()
        }
        lifted = [tp for tp in self._resets.pending() if tp not in self._targets]
        if lifted:
            await self._continue_at_commits(lifted)
        troubles: dict[tuple[str, int], str] = {}
        due, before = self._due(troubles), self._resets.troubles
        # The requests may take seconds. Until they return, the previous reasons
        # continue to be reported.
        known = {tp: before[tp] for tp in due if tp in before}
        self._resets.troubles = known | troubles
        if not due:
            now = self._ledger.now()[0]
            done = (self._done.get(tp) for tp in self._subscription.assignment)
            ends = [one[2] for one in done if one is not None and one[2] > now]
            self._idle_situation, self._idle_until = (
                found,
                min(ends, default=now + _RECHECK),
            )
            return
        try:
            await self._move(due, troubles)
        except KafkaError as error:
            log.debug("partitions are not moved yet", exc_info=True)
            troubles |= dict.fromkeys(due, _reason_for(error))
        self._resets.troubles = dict(troubles)

    # ------------------------------------------------------------ queries

    @property
    def _targets(self) -> Mapping[tuple[str, int], Target]:
        return self._resets.targets

    def _state(self, tp: tuple[str, int]) -> OwnedPartitionState | None:
        state = self._subscription.assignment.get(TopicPartition(*tp))
        return state if isinstance(state, OwnedPartitionState) else None

    def _situation(self) -> tuple[object, ...]:
        # The table contains the ownerships, holds and gates; each change creates a new
        # table.
        return (
            self._resets.targets,
            self._ledger.table(),
            self._is_member(),
            frozenset(self._busy()),
            frozenset(self._resets.unread()),
        )

    def _due(self, troubles: dict[tuple[str, int], str]) -> States:
        """Return the partitions to check now; store the reasons why others wait."""
        now, found, recreated = self._ledger.now()[0], {}, []
        obstacles = self._obstacles() if self._targets else {}
        for known, target in self._targets.items():
            tp = TopicPartition(*known)
            state = self._state(tp)
            if state is None:
                continue
            if self._is_recreated(state, target):
                troubles[tp] = RECREATED
                recreated.append(tp)
            elif tp in obstacles:
                troubles[tp] = obstacles[tp]
            elif self._done.get(tp, ())[:2] != (state, target) or (
                now >= self._done[tp][2]
            ):
                found[tp] = state
        if recreated:
            self._resets.release(recreated)
        return found

    def _obstacles(self) -> Mapping[tuple[str, int], str]:
        owned = self._subscription.assignment
        if not self._is_member():
            return dict.fromkeys(owned, JOINING)
        flowing = owned.keys() - self._ledger.quiet()
        return {
            **dict.fromkeys(self._busy(), BUSY),
            **dict.fromkeys((*self._resets.unread(), *flowing), UNREAD),
        }

    def _is_member(self) -> bool:
        coordinator = self._coordinator
        if not self._subscription.partitions_auto_assigned():
            return True
        return not coordinator.rejoining and not coordinator._generation.is_lost()

    @staticmethod
    def _is_recreated(state: OwnedPartitionState, target: Target) -> bool:
        known = state.topic_id
        return None not in {known, target.topic_id} and (
            id_text(known) != target.topic_id  # type: ignore[arg-type]  # not None
        )

    def _still_valid(self, states: States, targets: Mapping[Any, Target]) -> States:
        """Return the ownerships that still exist, have the same target and may be moved."""
        obstacles = self._obstacles()
        return {
            tp: state
            for tp, state in states.items()
            if self._state(tp) is state
            and self._targets.get(tp) == targets[tp]
            and tp not in obstacles
            and not self._is_recreated(state, targets[tp])
        }

    async def _committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[Any, Any]:
        asked = frozenset(partitions)
        found: Mapping[Any, Any]
        found = await self._coordinator.fetch_committed_offsets_async(
            asked, _TIMEOUT_MS
        )
        return found

    # ------------------------------------------------------------ moving

    async def _move(self, due: States, troubles: dict[tuple[str, int], str]) -> None:
        targets = {tp: self._targets[tp] for tp in due}
        if any(state.reset_target != targets[tp] for tp, state in due.items()):
            await self._ask_for_ids()
        committed = await self._committed(due)
        to_move, to_commit, done = {}, {}, {}
        for tp, state in self._still_valid(due, targets).items():
            target, found = targets[tp], committed.get(tp)
            is_there = found is not None and found.offset == target.offset
            position = state.position
            # Only the offsets are compared, because a position has no commit metadata.
            stands_there = position is not None and position.offset == target.offset
            if is_there and position is None and state.reset_strategy is None:
                # The previous owner may have moved the partition.
                troubles[tp] = NO_POSITION
            elif is_there and state.reset_target != target and stands_there:
                self._subscription.begin_at_reset(tp, target)
                done[tp] = state
            elif is_there and state.reset_target == target:
                done[tp] = state
            elif state.reset_target == target:
                to_commit[tp] = state
            else:
                to_move[tp] = state
        self._note_done(done, targets)
        # This member's own hold makes sure that no records are delivered and committed
        # before this commit, even if the operator's hold is lifted.
        self._resets.hold(to_commit)
        begun = await self._restart_at_targets(to_move, targets)
        await self._commit({**self._still_valid(to_commit, targets), **begun}, targets)

    async def _ask_for_ids(self) -> None:
        coordinator = self._coordinator
        with suppress(KafkaError):  # on failure the known ids are used, as for commits
            update = coordinator._cluster.request_newer(PATIENCE)
            await coordinator._manager.wait_for(update, PATIENCE * 1000)

    async def _restart_at_targets(
        self, due: States, targets: Mapping[Any, Target]
    ) -> States:
        if not due:
            return {}
        # This member places its own hold before it checks that the operator's hold is
        # in force. If the latter is lifted in between, the partitions stay quiet until
        # the move is done.
        self._resets.hold(due)
        self._revoked = due = self._still_valid(due, targets)
        await self._call_listener("on_partitions_revoked", due)
        due = self._still_valid(due, targets)
        before = {tp: state.position for tp, state in due.items()}
        begun: States = self._subscription.restart({tp: targets[tp] for tp in due})
        for tp in begun:
            position = before[tp]
            self._ledger.emit(
                events.PartitionReset,
                partition=tp,
                position=None if position is None else position.offset,
                offset=targets[tp].offset,
                owner=targets[tp].owner,
            )
        await self._call_listener("on_partitions_assigned", begun)
        return begun

    async def _call_listener(self, method: str, partitions: States) -> None:
        listener = self._subscription.rebalance_listener
        if listener is None or not partitions:
            return
        try:
            await self._coordinator._invoke_rebalance_listener_async(
                method, sorted(partitions)
            )
        except Exception:
            log.exception("a rebalance listener failed while partitions were reset")

    async def _commit(self, due: States, targets: Mapping[Any, Target]) -> None:
        # A new ownership may still be gated, until the reader of the holds topic opens
        # the gate. _still_valid() would leave it out.
        due = {
            tp: state
            for tp, state in due.items()
            if self._state(tp) is state and self._targets.get(tp) == targets[tp]
        }
        if not due:
            return
        coordinator = self._coordinator
        commit = coordinator.mark_as_worker_commit(
            {tp: OffsetAndMetadata(targets[tp].offset, "", -1) for tp in due}
        )
        await coordinator._commit_offsets_sync_async(commit, _TIMEOUT_MS)
        kept = {tp: state for tp, state in due.items() if self._state(tp) is state}
        self._note_done(kept, targets)

    def _note_done(self, done: States, targets: Mapping[Any, Target]) -> None:
        # All finished partitions are checked again at the same time, with one request.
        every = max(_RECHECK, len(self._done.keys() | done.keys()) / _MOST_PER_SECOND)
        until = (self._ledger.now()[0] // every + 1) * every
        self._done |= {tp: (one, targets[tp], until) for tp, one in done.items()}
        self._resets.release(done)

    # ------------------------------------------------------------ lifted before a move

    async def _continue_at_commits(self, lifted: Collection[tuple[str, int]]) -> None:
        """Continue partitions at the committed offset if another member has moved them."""
        owned = {TopicPartition(*tp): self._state(tp) for tp in lifted}
        busy = self._busy()
        self._resets.release([tp for tp, state in owned.items() if state is None])
        asked = {tp: one for tp, one in owned.items() if one and tp not in busy}
        if not asked:
            return
        try:
            committed = await self._committed(asked)
        except KafkaError:
            log.debug("the committed offset is requested again", exc_info=True)
            return
        over = [tp for tp in asked if tp not in self._targets]
        moved = [
            tp
            for tp in over
            if self._state(tp) is asked[tp]
            and self._is_moved(tp, asked[tp], committed.get(tp))
        ]
        self._subscription.restart(dict.fromkeys(moved))
        self._resets.release(over)

    def _is_moved(
        self,
        tp: TopicPartition,
        state: OwnedPartitionState,
        committed: Any,  # noqa: ANN401 - upstream's
    ) -> bool:
        offset = None if committed is None else committed.offset
        position, target = state.position, self._last_targets.get(tp)
        if position is None or offset == position.offset:
            return False
        is_target = target is not None and offset == target.offset
        return offset != state.committed or (offset is not None and is_target)


def _reason_for(error: KafkaError) -> str:
    if isinstance(error, KafkaTimeoutError):
        return SILENT
    return f"waits: {type(error).__name__}: {error}"[:200]
