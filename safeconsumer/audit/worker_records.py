"""
Tracks which records of one partition one member's handlers are processing.

Entries of one process are compared by their numbers, without clocks. The entry that
reports a completed record is written before the worker learns of the completion, so
later commit requests and later handler starts have higher numbers. Records that a
handler gets together, as a batch or in another process, are one step of their lane:
they may be delivered again in smaller steps, but before any later record.
"""

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve, frozen

from safeconsumer.audit.entries import (
    Call,
    Completed,
    Handle,
    Handled,
)
from safeconsumer.audit.facts import Delivered, Done, EarlyCommit, Fact, HandlerBegan
from safeconsumer.audit.spans import Spans, merged

_SPANS = 1024


@frozen
class _Step:
    """
    Records of one lane that a handler received in one call.

    Attributes:
        is_dropped: whether the worker has since dropped the records; if so, the end of
            their handler proves nothing about the same records when they are delivered
            again.
    """

    offsets: Sequence[int]
    lane: str | None
    turn: int
    is_dropped: bool = False


class WorkerRecords:
    """
    Tracks the handlers that process one partition's records.

    Args:
        take: called with each fact about a handler start.
        is_each: whether every start is a fact, or only those that are out of order.
    """

    def __init__(self, take: Callable[[Fact], object], *, is_each: bool) -> None:
        self._take = take
        self._is_each = is_each
        # offsets that were delivered in this ownership and are not complete yet
        self._open: set[int] = set()
        # offsets from before a seek: a handler may be processing them, or the worker
        # dropped them
        self._left: set[int] = set()
        self._next: int | None = None
        self._turn = 0  # counts ownerships
        self._newest = self._over = -1  # numbers of ownerships of the worker
        self._running: dict[object, _Step] = {}
        # offsets whose handler call ended without completing them, in any ownership
        self._failed: set[int] = set()
        self._lanes: dict[str, Sequence[int]] = {}  # the last step of each lane
        self._low = -1  # no running step ends before this offset
        self._done = Spans()  # complete offsets, of any ownership
        self._most = _SPANS  # the number of spans above which adjacent ones are merged

    # ------------------------------------------------------------ ownership

    def note_worker(self) -> None:
        """Record a new worker, which does not wait for an earlier worker's handlers."""
        self._running.clear()
        self._newest = self._over = -1

    def note_gain(self, *, is_given_back: bool) -> None:
        """Forget all records if another member may have owned the partition in between."""
        if not is_given_back:
            self._turn += 1
            self._over = self._newest
            self._next = None
            self._open.clear()
            self._left.clear()
            self._lanes.clear()

    def note_seek(self, offset: int | None) -> None:
        """
        Process a seek: records from its target on count only when delivered again.

        A worker does not notice a seek immediately: it may still start handlers for
        records that it already has, and its journal names the records that it drops.
        The worker's own seeks go back to records that no handler has started.
        """
        start = 0 if offset is None else offset
        self._left |= {one for one in self._open if one >= start}
        self._open -= self._left
        self._goes_back(start)

    def note_drop(self, end: float) -> set[int]:
        """Record that a worker may drop all records before an offset; return them."""
        self._left |= {one for one in self._open if one < end}
        self._open -= self._left
        self._lanes.clear()
        self._running = {
            call: evolve(step, is_dropped=True) for call, step in self._running.items()
        }
        return {one for one in self._left if one < end}

    def note_delivery(self, run: Delivered) -> None:
        """Note that handlers must process the delivered records."""
        if self._next is not None and run.start < self._next:
            self._goes_back(run.start)
        self._next = run.next
        for start, end in run.spans:
            came = range(start, end)
            self._open.update(came)
            self._left.difference_update(came)

    def _goes_back(self, start: int) -> None:
        self._lanes = {
            lane: step for lane, step in self._lanes.items() if step[-1] < start
        }

    # ------------------------------------------------------------ handlers

    def at_work(self) -> Iterator[int]:
        """Yield the offsets of the records that handlers are processing."""
        return (one for step in self._running.values() for one in step.offsets)

    def note_start(self, entry: Handle) -> None:
        """Process a handler start, and report it if it violates the order."""
        offsets, lane, epoch = offsets_of(entry), entry.lane, entry.epoch
        fact = HandlerBegan(n=entry.n, at=entry.at, offset=offsets[0], last=offsets[-1])
        if lane is not None:
            steps = self._running.values()
            fact.busy = [one.offsets[0] for one in steps if one.lane == lane]
        is_over = self._is_over(epoch)
        turn = -1 if is_over else self._turn
        self._running[entry.id] = _Step(offsets, lane, turn)
        if not is_over:  # the handler's ownership is the current one
            self._newest = self._newest if epoch is None else epoch
            known = self._open, self._left
            fact.unknown = [
                one for one in offsets if not any(one in some for some in known)
            ]
            if lane is not None:
                fact.after, fact.over = self._follow(offsets, lane)
        is_odd = fact.busy or fact.unknown or fact.after is not None
        if self._is_each or is_odd or fact.over is not None:
            self._take(fact)

    def _is_over(self, epoch: int | None) -> bool:
        return epoch is not None and (epoch < self._newest or epoch <= self._over)

    def _follow(
        self, offsets: Sequence[int], lane: str
    ) -> tuple[int | None, int | None]:
        # Return a later record of the lane that was started before the given records,
        # and an earlier record of the lane that is still waiting.
        before, first, last = self._lanes.get(lane, ()), offsets[0], offsets[-1]
        if not before or last > before[-1]:
            self._lanes[lane] = offsets
            self._low = min(self._low, last)
        waiting = (one for one in before if one < last and one in self._open)
        over = next((one for one in waiting if one not in offsets), None)
        return (before[0] if before and first < before[0] else None), over

    def note_end(self, entry: Handled) -> None:
        """Record the end of a handler, which completes the records that it handled."""
        step = self._running.pop(entry.id, None)
        if step is None:
            return
        done = step.offsets if entry.ok else entry.done or ()
        self._failed.update(step.offsets)
        self._failed.difference_update(done)
        self._complete(*done)
        if step.turn == self._turn:
            self._left.difference_update(done)
            if not step.is_dropped:
                self._open.difference_update(done)

    def note_completion(self, entry: Completed) -> None:
        """
        Record the completion of a record whose handler failed.

        A record that a poll returned can be completed in this way only after a failed
        call of its handler.
        """
        offset = entry.offset
        was_delivered = offset in self._open or offset in self._left
        if was_delivered and offset not in self._failed:
            return
        self._failed.discard(offset)
        self._complete(offset)
        if not self._is_over(entry.epoch):
            self._open.discard(offset)
            self._left.discard(offset)

    def _complete(self, *offsets: int) -> None:
        for offset in offsets:
            self._done.add(offset, offset + 1)
        if len(self._done) > self._most:  # handlers of different lanes end in any order
            self._done = merged(self._done)
            self._most = max(_SPANS, 2 * len(self._done))

    # ------------------------------------------------------------ commits

    def early_commits(
        self, entry: Call, offset: int, position: int | None
    ) -> Iterator[EarlyCommit]:
        """
        Yield a fact if a commit is requested beyond a record that is not complete.

        A commit beyond the position concerns records that were delivered before a seek.
        """
        open_ = self._open
        if position is not None and offset > position:
            open_ = self._open | self._left
        first = min((one for one in open_ if one < offset), default=None)
        if first is not None:
            yield EarlyCommit(n=entry.n, at=entry.at, offset=offset, first=first)
        # Forget the last steps that end below all open records: none of these records
        # precedes such a step.
        low = min(self._open, default=offset)
        if low > self._low:
            self._low = low
            self._lanes = {
                lane: step for lane, step in self._lanes.items() if step[-1] >= low
            }

    def facts(self, n: int, at: float) -> Iterator[Done]:
        """Yield the complete records; call this after the last entry."""
        for start, end in merged(self._done):
            yield Done(n=n, at=at, start=start, end=end)


def offsets_of(entry: Handle) -> Sequence[int]:
    """Return the sorted offsets of the records that a handler starts to process."""
    several: Sequence[int] | None = entry.batch
    return (entry.offset,) if several is None else sorted(several)
