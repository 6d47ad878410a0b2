"""
Exports the events of consumers, workers and group control, which hooks receive.

``SafeConsumer(hooks=[...])`` sets the hooks; a hook is called with one event at a time.
Every class is a subclass of :class:`Event`; the events of group control and of workers
are also subclasses of :class:`ControlEvent` and :class:`WorkerEvent`. Events are
immutable; ``name`` is the name of the log line, and ``as_dict`` returns the event as
plain JSON values::

    from safeconsumer import events

    def hook(event: events.Event) -> None:
        match event:
            case events.HoldsPlaced(holds, quiet):
                print("held:", *(hold.scope for hold in holds), len(quiet), "quiet")
            case events.HoldsExpired(holds):
                print("expired:", *(hold.owner for hold in holds))
            case events.Event(name="rebalance_completed", gained=gained):
                print("gained", len(gained))

Every hook receives every event once, in chronological order, without a lock held. One
thread at a time calls the hooks. A slow hook therefore delays the other hooks and later
events, but not a ``poll``, ``pause`` or ``resume`` on another thread. Such a call may
return before the hooks have received its events. For example, a ``poll`` may return
records of partitions while hooks still handle the ``rebalance_completed`` event that
names these partitions. A hook may pause, resume and query holds; the events of these
calls follow the event that the hook is handling. A hook's exceptions are counted,
logged once, and have no other effect.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safeconsumer.events.base import Event, Partitions, sorted_partitions
from safeconsumer.events.consumer import (
    AssignedWhileHeld,
    FetchesPurged,
    GatesChanged,
    HeldPartitionUncommitted,
    HoldCoversNothing,
    HoldEvent,
    HoldsEnded,
    HoldsExpired,
    HoldsPlaced,
    HoldsRemoved,
    LogTruncated,
    ParkedDataDropped,
    PartitionReset,
    PatternCoversNothing,
    PauseNotHandedOver,
    PositionOutOfRange,
    RebalanceCompleted,
    StillHeld,
    TopicRecreated,
    UnreadRecordsDeleted,
)
from safeconsumer.events.dispatch import Hook

if TYPE_CHECKING:
    from safeconsumer.group.events import (
        ControlEvent,
        ControlNotUnderstood,
        ControlReady,
        ControlRecordsSkipped,
        ControlTopicReset,
        ControlUnavailable,
        ControlUnchecked,
        GatesOpenedUnread,
    )
    from safeconsumer.worker.events import (
        BatchUnreadable,
        BreakerClosed,
        BreakerOpened,
        CommitRejected,
        DeadLetterFailed,
        HandlerStalled,
        NothingConsumed,
        PartitionStarted,
        RecordExhausted,
        RecordRetried,
        WorkDrained,
        WorkDropped,
        WorkerEvent,
        WorkerProcessDied,
        WorkerStopped,
        WorkPaused,
    )

__all__ = [
    "AssignedWhileHeld",
    "BatchUnreadable",
    "BreakerClosed",
    "BreakerOpened",
    "CommitRejected",
    "ControlEvent",
    "ControlNotUnderstood",
    "ControlReady",
    "ControlRecordsSkipped",
    "ControlTopicReset",
    "ControlUnavailable",
    "ControlUnchecked",
    "DeadLetterFailed",
    "Event",
    "FetchesPurged",
    "GatesChanged",
    "GatesOpenedUnread",
    "HandlerStalled",
    "HeldPartitionUncommitted",
    "HoldCoversNothing",
    "HoldEvent",
    "HoldsEnded",
    "HoldsExpired",
    "HoldsPlaced",
    "HoldsRemoved",
    "Hook",
    "LogTruncated",
    "NothingConsumed",
    "ParkedDataDropped",
    "PartitionReset",
    "PartitionStarted",
    "Partitions",
    "PatternCoversNothing",
    "PauseNotHandedOver",
    "PositionOutOfRange",
    "RebalanceCompleted",
    "RecordExhausted",
    "RecordRetried",
    "StillHeld",
    "TopicRecreated",
    "UnreadRecordsDeleted",
    "WorkDrained",
    "WorkDropped",
    "WorkPaused",
    "WorkerEvent",
    "WorkerProcessDied",
    "WorkerStopped",
    "sorted_partitions",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of any type
    # Imports the events of group control and of workers only when they are needed,
    # because a consumer does not need them.
    if name in __all__:
        for room in ("group", "worker"):
            home = import_module(f"safeconsumer.{room}.events")
            if hasattr(home, name):
                globals()[name] = value = getattr(home, name)
                return value
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
