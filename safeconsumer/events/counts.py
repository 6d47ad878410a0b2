"""Counts events for metrics, which otherwise show only the current state."""

from collections import Counter
from itertools import product
from typing import Any

from safeconsumer.events.base import Event
from safeconsumer.events.consumer import (
    FetchesPurged,
    HoldEvent,
    ParkedDataDropped,
    RebalanceCompleted,
    UnreadRecordsDeleted,
)
from safeconsumer.events.takeover import essential
from safeconsumer.holds.hold import KINDS, kind_of

# A worker changes its own holds many times a second, and reports their duration
# instead.
HOLD_KINDS = tuple(kind for kind in KINDS if kind != "worker")
CHANGES = ("placed", "removed", "expired", "ended")
MOVES = ("gained", "revoked", "lost")
ALARMS = (
    "assigned_while_held",
    "control_not_understood",
    "control_unavailable",
    "control_unchecked",
    "held_partition_uncommitted",
    "hold_covers_nothing",
    "log_truncated",
    "partition_reset",
    "pattern_covers_nothing",
    "pause_not_handed_over",
    "position_out_of_range",
    "topic_recreated",
)
"""
Names of a consumer's warnings and errors that no other counter counts.
"""
WORKER_ALARMS = (
    "batch_unreadable",
    "breaker_opened",
    "dead_letter_failed",
    "handler_stalled",
    "nothing_consumed",
    "record_exhausted",
    "work_paused",
    "worker_process_died",
)
"""
Names of a worker's warnings and errors. A breaker that opens is an alarm; one that
closes is not.
"""


@essential
class Counts:
    """
    A hook that counts events; costs no time per record, because records are not events.

    The table of the metrics (``metrics/table.py``) explains each counter.

    Thread rules: one thread at a time calls this object, like any hook; any thread may
    read the counts without a lock, because all keys exist from the start.

    Args:
        alarms: the names of events that count as alarms.
    """

    def __init__(self, alarms: tuple[str, ...] = ALARMS) -> None:
        self.hold_changes = dict.fromkeys(product(HOLD_KINDS, CHANGES), 0)
        self.rebalances = 0
        self.moves = dict.fromkeys(MOVES, 0)
        self.purged_bytes = 0
        self.parked_dropped_bytes = 0
        self.deleted_unread = 0
        self.alarms = dict.fromkeys(alarms, 0)
        self.control_skipped = 0
        self.control_resets = 0
        self.gates_opened_unread = 0

    def __call__(self, event: Event) -> None:
        """Count an event."""
        if event.name in self.alarms and event.severity in {"warning", "error"}:
            self.alarms[event.name] += 1
        match event:
            case HoldEvent():
                self._count_holds(event)
            case RebalanceCompleted():
                self.rebalances += 1
                for how in MOVES:
                    self.moves[how] += len(getattr(event, how))
            case FetchesPurged():
                self.purged_bytes += event.bytes
            case ParkedDataDropped():
                self.parked_dropped_bytes += event.bytes
            case UnreadRecordsDeleted():
                self.deleted_unread += event.gone
            case _:
                self._count_control(event)

    def _count_control(self, event: Event) -> None:
        # untyped, because its class is in group, which must not be imported here
        one: Any = event
        match event.name:
            case "control_records_skipped":
                self.control_skipped += one.records
            case "control_topic_reset":
                self.control_resets += 1
            case "gates_opened_unread":
                self.gates_opened_unread += len(one.partitions)

    def __repr__(self) -> str:
        return "<the counter of events for metrics>"

    def _count_holds(self, event: HoldEvent) -> None:
        change = event.name.removeprefix("hold_")
        # One event may have ten thousand holds, of only a few owners.
        for owner, count in Counter(hold.owner for hold in event.holds).items():
            key = kind_of(owner), change
            if key in self.hold_changes:
                self.hold_changes[key] += count
