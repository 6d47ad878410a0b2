"""Keeps assigned partitions gated until the control topics are read up to their ends."""

import threading
from collections.abc import Callable, Mapping

from attrs import evolve, field, frozen

from safeconsumer import events
from safeconsumer.group import events as control_events
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Owned
from safeconsumer.holds.scope import TopicPartition

Offsets = Mapping[TopicPartition, int]
Ask = Callable[[Callable[[Offsets | None], object]], object]
"""Requests the control topics' end offsets, and calls back with them or with None."""


@frozen(eq=False)
class _Waiting:
    """
    Partitions that share a gate, and the offsets to read before it opens.

    Attributes:
        owned: the gated partitions, with their new ownerships.
        since: when the gate closed, in seconds on the monotonic clock.
        ends: the control topics' end offsets, requested after the gate closed; None
            until they are known.
        floor: the offsets up to which records were applied when the ends were
            requested; an end below them means that the topic was recreated.
        is_asked: whether a request for the ends is pending.
        is_open: whether the gate opened because ``run_after`` seconds had passed. The
            barrier still requests the ends; until the topics are read up to them,
            records are delivered but resets are not carried out.
    """

    owned: Owned
    since: float
    ends: Offsets | None = None
    floor: Offsets = field(factory=dict)
    is_asked: bool = False
    is_open: bool = False

    def is_plausible(self, ends: Offsets) -> bool:
        """Return whether these end offsets are possible if no topic was recreated."""
        return all(end >= self.floor.get(tp, 0) for tp, end in ends.items())


class Barrier:
    """
    Opens each control gate in the ledger once the member obeys all earlier holds.

    A hold that was acknowledged before an assignment has an offset below the end offset
    that is requested *after* the assignment, so the hold is applied before the gate
    opens.

    Args:
        ledger: the ledger that contains the gates.
        run_after: seconds after which a gate opens even if the topics are not read to
            their ends; None for never.

    Thread rules: any thread may use this. The barrier never calls the ledger or the
    clients while it holds its lock.
    """

    def __init__(self, ledger: PauseLedger, run_after: float | None) -> None:
        self._ledger = ledger
        self._run_after = run_after
        self._lock = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._number = 0
        self._applied: Offsets = {}
        self._ask: Ask | None = None

    def is_waiting(self) -> bool:
        """Return whether a gate is still closed because control records are unread."""
        return not all(one.is_open for one in tuple(self._waiting.values()))

    def unread(self) -> frozenset[TopicPartition]:
        """Return the partitions whose required control records have not all been read."""
        waiting = tuple(self._waiting.values())
        return frozenset(tp for one in waiting for tp in one.owned)

    def close(self, owned: Owned) -> None:
        """
        Register gated partitions, and request the offsets to read before their gate opens.

        The ledger calls this method during an assignment, under the client's locks, so
        the method does not block.
        """
        now, _ = self._ledger.now()
        with self._lock:
            self._number += 1
            number = self._number
            self._waiting[number] = _Waiting(owned, now)
        self._ask_for(number)

    # ------------------------------------------------------------ the reader

    def connect(self, ask: Ask, applied: Offsets) -> None:
        """
        Start to request end offsets and to open gates.

        End offsets from an earlier connection are requested again, because the topics
        may have been recreated. ``applied`` has the offsets that the reader has
        reached.
        """
        with self._lock:
            self._ask = ask
            self._applied = dict(applied)
            self._waiting = {
                number: evolve(one, ends=None, is_asked=False)
                for number, one in self._waiting.items()
            }
        self.ask_again()

    def disconnect(self) -> None:
        """Stop opening gates, even if answers still arrive."""
        with self._lock:
            self._ask = None

    def ask_again(self) -> None:
        """Request all end offsets that are unknown and have no pending request."""
        for number in tuple(self._waiting):
            self._ask_for(number)

    def applied(self, offsets: Offsets) -> None:
        """Record that the member obeys all records below these offsets, and open gates."""
        with self._lock:
            self._applied = dict(offsets)
        self._open_ready()

    def open_overdue(self) -> None:
        """Open the gates that have waited for ``run_after`` seconds."""
        if self._run_after is None:
            return
        now, _ = self._ledger.now()
        due: dict[TopicPartition, object] = {}
        with self._lock:
            for number, one in tuple(self._waiting.items()):
                if not one.is_open and now - one.since >= self._run_after:
                    self._waiting[number] = evolve(one, is_open=True)
                    due.update(one.owned)
        if due:
            self._ledger.emit(
                control_events.GatesOpenedUnread,
                partitions=events.sorted_partitions(due),
            )
            self._ledger.open_gates(due)

    # ------------------------------------------------------------ inside

    def _ask_for(self, number: int) -> None:
        with self._lock:
            one, ask = self._waiting.get(number), self._ask
            if ask is None or one is None or one.is_asked or one.ends is not None:
                return
            self._waiting[number] = evolve(one, is_asked=True, floor=self._applied)
        ask(lambda ends: self._answered(number, ask, ends))

    def _answered(self, number: int, ask: Ask, ends: Offsets | None) -> None:
        with self._lock:
            one = self._waiting.get(number)
            if one is None or ask is not self._ask:
                return  # the answer is from an earlier connection
            if ends is not None and not one.is_plausible(ends):
                ends = None  # a topic was recreated; the reader will notice that
            self._waiting[number] = evolve(one, ends=ends, is_asked=False)
        self._open_ready()

    def _open_ready(self) -> None:
        ready: dict[TopicPartition, object] = {}
        with self._lock:
            if self._ask is None:
                return
            for number, one in tuple(self._waiting.items()):
                if one.ends is not None and all(
                    self._applied.get(tp, -1) >= end for tp, end in one.ends.items()
                ):
                    del self._waiting[number]
                    ready.update(one.owned)
        if ready:
            self._ledger.open_gates(ready)
