"""
Follows the handlers of one member on the records of one partition.

Entries of one process are compared by their numbers, without clocks. The entry of a
completion is written before the worker learns of the completion, so it precedes later
requests of commits and later starts of records. Records that begin together, as a batch
or in another process, are one step of their lane: they may be delivered again in any
smaller steps, before any later record.
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
    Records of a lane that began together.

    Attributes:
        is_dropped: whether the worker has since dropped the records: then their end
            proves nothing about the same records if they are delivered again.
    """

    offsets: Sequence[int]
    lane: str | None
    turn: int
    is_dropped: bool = False


class WorkerRecords:
    """
    Follows the handlers of one partition.

    Args:
        take: takes facts about starts.
        is_each: whether every start is a fact, or only those that are out of order.
    """

    def __init__(self, take: Callable[[Fact], object], *, is_each: bool) -> None:
        self._take = take
        self._is_each = is_each
        # offsets that were delivered in this ownership and are not complete
        self._open: set[int] = set()
        # offsets from before a seek: handlers may have them, or the worker dropped them
        self._left: set[int] = set()
        self._next: int | None = None
        self._turn = 0  # counts ownerships
        self._newest = self._over = -1  # numbers of ownerships of the worker
        self._running: dict[object, _Step] = {}
        # offsets whose call ended without completing them, in any ownership
        self._failed: set[int] = set()
        self._lanes: dict[str, Sequence[int]] = {}  # the last step of each lane
        self._low = -1  # no running step ends before this offset
        self._done = Spans()  # complete offsets, of any ownership
        self._most = _SPANS  # the number of spans at which those that touch are merged

    # ------------------------------------------------------------ ownership

    def note_worker(self) -> None:
        """Note a new worker, which does not wait for an earlier worker's handlers."""
        self._running.clear()
        self._newest = self._over = -1

    def note_gain(self, *, is_given_back: bool) -> None:
        """Forget the records, unless no other member can have owned the partition since."""
        if not is_given_back:
            self._turn += 1
            self._over = self._newest
            self._next = None
            self._open.clear()
            self._left.clear()
            self._lanes.clear()

    def note_seek(self, offset: int | None) -> None:
        """
        Note a seek: records from its target on are not complete until delivered again.

        A worker does not notice a seek immediately: it may still begin records that it
        has, and its journal names the records that it drops. The worker's own seeks go
        back to records that have not begun.
        """
        start = 0 if offset is None else offset
        self._left |= {one for one in self._open if one >= start}
        self._open -= self._left
        self._goes_back(start)

    def note_drop(self, end: float) -> set[int]:
        """Follow a worker that may drop records before an offset; return these records."""
        self._left |= {one for one in self._open if one < end}
        self._open -= self._left
        self._lanes.clear()
        self._running = {
            call: evolve(step, is_dropped=True) for call, step in self._running.items()
        }
        return {one for one in self._left if one < end}

    def note_delivery(self, run: Delivered) -> None:
        """Expect the records of a run to be handled."""
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
        """Yield the offsets whose handlers have begun but not ended."""
        return (one for step in self._running.values() for one in step.offsets)

    def note_start(self, entry: Handle) -> None:
        """Report a start, and any violation of the order."""
        offsets, lane, epoch = offsets_of(entry), entry.lane, entry.epoch
        fact = HandlerBegan(n=entry.n, at=entry.at, offset=offsets[0], last=offsets[-1])
        if lane is not None:
            steps = self._running.values()
            fact.busy = [one.offsets[0] for one in steps if one.lane == lane]
        is_over = self._is_over(epoch)
        turn = -1 if is_over else self._turn
        self._running[entry.id] = _Step(offsets, lane, turn)
        if not is_over:  # otherwise its ownership has ended
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
        # Return a later record that began before the given ones, and an earlier record
        # that waits.
        before, first, last = self._lanes.get(lane, ()), offsets[0], offsets[-1]
        if not before or last > before[-1]:
            self._lanes[lane] = offsets
            self._low = min(self._low, last)
        waiting = (one for one in before if one < last and one in self._open)
        over = next((one for one in waiting if one not in offsets), None)
        return (before[0] if before and first < before[0] else None), over

    def note_end(self, entry: Handled) -> None:
        """Note the end of a handler, which completes the records that it has handled."""
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
        Note a record that is complete although its handler failed.

        A record that a poll returned can become complete in this way only after a
        failed call.
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
        if len(self._done) > self._most:  # handlers of several lanes end in any order
            self._done = merged(self._done)
            self._most = max(_SPANS, 2 * len(self._done))

    # ------------------------------------------------------------ commits

    def early_commits(
        self, entry: Call, offset: int, position: int | None
    ) -> Iterator[EarlyCommit]:
        """
        Yield a requested commit if it is beyond a record that is not complete.

        A commit beyond the position concerns deliveries before a seek.
        """
        open_ = self._open
        if position is not None and offset > position:
            open_ = self._open | self._left
        first = min((one for one in open_ if one < offset), default=None)
        if first is not None:
            yield EarlyCommit(n=entry.n, at=entry.at, offset=offset, first=first)
        # No record can overtake a step that began before all open records.
        low = min(self._open, default=offset)
        if low > self._low:
            self._low = low
            self._lanes = {
                lane: step for lane, step in self._lanes.items() if step[-1] >= low
            }

    def facts(self, n: int, at: float) -> Iterator[Done]:
        """Yield the complete records, once the journal has ended."""
        for start, end in merged(self._done):
            yield Done(n=n, at=at, start=start, end=end)


def offsets_of(entry: Handle) -> Sequence[int]:
    """Return the offsets of the records on which a handler begins, in order."""
    several: Sequence[int] | None = entry.batch
    return (entry.offset,) if several is None else sorted(several)
