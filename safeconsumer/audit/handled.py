"""
Judges what one member's handlers did with the records of one partition.

The checks are: W4, nothing is committed beyond what is complete; W5, no handler begins
a record that is complete or was never delivered; W7, records of a lane are handled one
at a time, in the order of offsets. Records that begin together, as a batch or in
another process, are one step of their lane: they may come again in any smaller steps,
before anything behind them.

Entries of one process are compared by their numbers, without clocks. What completes a
record is written before the worker knows of it, so it comes before a commit that was
asked for, or a record that began, after it.
"""

from collections.abc import Callable, Iterator, Sequence

from attrs import evolve, frozen

from safeconsumer.audit.entries import (
    Call,
    Completed,
    Deliver,
    Dropped,
    Entry,
    Handle,
    Handled,
)
from safeconsumer.audit.ownerships import Moments
from safeconsumer.audit.spans import Spans, merged

_SPANS = 1024


@frozen
class _Step:
    """
    Records of a lane that began together.

    Attributes:
        is_dropped: whether its worker has given them up since: their end says nothing
            of the same records if they are delivered again.
    """

    offsets: Sequence[int]
    lane: str | None
    stint: int
    is_dropped: bool = False


# Takes the check, the entry, the offset and the evidence.
Find = Callable[[str, Entry, int, str], object]


class Handlers:
    """
    Follows the handlers of one partition.

    Args:
        find: reports a broken promise.
        keeps_moments: whether :attr:`begun` is wanted, as of ``Track``.

    Attributes:
        begun: every start.
        done: offsets that are complete, in any ownership.
    """

    def __init__(self, find: Find, *, keeps_moments: bool = True) -> None:
        self._find = find
        self._keeps_moments = keeps_moments
        self._open: set[int] = set()  # delivered in this ownership and not complete
        self._left: set[int] = set()  # before a seek: it may be worked on, or dropped
        self._next: int | None = None
        self._stint = 0  # counts ownerships
        self._newest = self._over = -1  # numbers of ownerships of the worker
        self._running: dict[object, _Step] = {}
        self._failed: set[int] = set()  # a call ended without them, in any ownership
        self._lanes: dict[str, Sequence[int]] = {}  # the last step of each
        self.begun = Moments()
        self.done = Spans()
        self._most = _SPANS  # of them, until those that touch are made one

    # ------------------------------------------------------------ ownership

    def works(self) -> None:
        """Note that a worker begins, which does not wait for what another one left behind."""
        self._running.clear()
        self._newest = self._over = -1

    def gained(self, *, is_given_back: bool) -> None:
        """Start again, unless nobody else can have had the partition in between."""
        if not is_given_back:
            self._stint += 1
            self._over = self._newest
            self._next = None
            self._open.clear()
            self._left.clear()
            self._lanes.clear()

    def sought(self, offset: int | None) -> None:
        """
        Note that what is at an offset or behind it is delivered again, if at all.

        A worker does not notice a seek at once: it may still begin what it has, and
        writes what it drops. Its own seeks give back only what it has not begun.
        """
        start = 0 if offset is None else offset
        self._left |= {one for one in self._open if one >= start}
        self._open -= self._left
        self._goes_back(start)

    def dropped(self, entry: Dropped) -> set[int]:
        """Follow a worker that gives up what it had before an offset; return that."""
        self._left |= {one for one in self._open if one < entry.before}
        self._open -= self._left
        self._lanes.clear()
        self._running = {
            call: evolve(step, is_dropped=True) for call, step in self._running.items()
        }
        return {one for one in self._left if one < entry.before}

    def delivered(self, entry: Deliver) -> None:
        """Expect the records of a run to be handled."""
        if self._next is not None and entry.start < self._next:
            self._goes_back(entry.start)
        self._next = entry.next
        for start, end in entry.spans:
            came = range(start, end)
            self._open.update(came)
            self._left.difference_update(came)

    def _goes_back(self, start: int) -> None:
        self._lanes = {
            lane: step for lane, step in self._lanes.items() if step[-1] < start
        }

    # ------------------------------------------------------------ handlers

    def at_work(self) -> Iterator[int]:
        """Yield the offsets whose handlers have begun and not ended."""
        return (one for step in self._running.values() for one in step.offsets)

    def began(self, entry: Handle) -> None:
        """Judge a start."""
        offsets, lane, epoch = offsets_of(entry), entry.lane, entry.epoch
        if self._keeps_moments:
            for offset in offsets:
                self.begun.add(entry.at, offset)
        for other in self._running.values():
            if lane is not None and other.lane == lane:
                said = f"while {other.offsets[0]} of its lane was handled"
                self._find("W7", entry, offsets[0], f"began {offsets[0]} {said}")
        is_over = self._is_over(epoch)
        stint = -1 if is_over else self._stint
        self._running[entry.id] = _Step(offsets, lane, stint)
        if is_over:  # it belongs to an ownership that has ended, and does not count
            return
        self._newest = self._newest if epoch is None else epoch
        for offset in offsets:
            if offset not in self._open and offset not in self._left:
                said = f"began {offset}, which is complete or was not delivered"
                self._find("W5", entry, offset, said)
        if lane is not None:
            self._follow(entry, offsets, lane)

    def _is_over(self, epoch: int | None) -> bool:
        return epoch is not None and (epoch < self._newest or epoch <= self._over)

    def _follow(self, entry: Handle, offsets: Sequence[int], lane: str) -> None:
        before, first, last = self._lanes.get(lane, ()), offsets[0], offsets[-1]
        if before and first < before[0]:
            said = f"began {first} after {before[0]} of its lane"
            self._find("W7", entry, first, said)
        for one in before:
            if one < last and one in self._open and one not in offsets:
                said = f"began {last} before {one} of its lane was complete"
                self._find("W7", entry, last, said)
                break
        if not before or last > before[-1]:
            self._lanes[lane] = offsets

    def ended(self, entry: Handled) -> None:
        """Note the end of a handler; the records that it is done with are complete."""
        step = self._running.pop(entry.id, None)
        if step is None:
            return
        done = step.offsets if entry.ok else entry.done or ()
        self._failed.update(step.offsets)
        self._failed.difference_update(done)
        self._complete(*done)
        if step.stint == self._stint:
            self._left.difference_update(done)
            if not step.is_dropped:
                self._open.difference_update(done)

    def completed(self, entry: Completed) -> None:
        """
        Note a record that is complete although its handler failed.

        Of a record that a poll returned it counts after the end of a call that failed.
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
            self.done.add(offset, offset + 1)
        if len(self.done) > self._most:  # records of several lanes end in any order
            self.done = merged(self.done)
            self._most = max(_SPANS, 2 * len(self.done))

    # ------------------------------------------------------------ commits

    def committing(self, entry: Call, offset: int, position: int | None) -> None:
        """
        Judge a commit when it is asked for.

        Beyond the position it is one of before a seek, of what was delivered by then.
        """
        open_ = self._open
        if position is not None and offset > position:
            open_ = self._open | self._left
        first = min((one for one in open_ if one < offset), default=None)
        if first is not None:
            said = f"committed {offset}, {first} is not complete"
            self._find("W4", entry, first, said)
        # Nothing can overtake what began before all records that are open.
        low = min(self._open, default=offset)
        self._lanes = {
            lane: step for lane, step in self._lanes.items() if step[-1] >= low
        }


def offsets_of(entry: Handle) -> Sequence[int]:
    """Return the records with which a handler begins, in the order of offsets."""
    several: Sequence[int] | None = entry.batch
    return (entry.offset,) if several is None else sorted(several)
