"""
Judges what one member's handlers did with the records of one partition.

The checks are: W4, nothing is committed beyond what is complete; W5, no handler begins
a record that is complete or was never delivered; W7, records of a lane are handled one
at a time, in the order of offsets.

Entries of one process are compared by their numbers, without clocks. A handler's end is
written before the worker learns of it, so it comes before a commit that was asked for,
or a record that began, after it. A skipped record is the exception: its entry may be
written later, and then withdraws the findings that its absence caused.
"""

from collections.abc import Callable, Iterator

from attrs import frozen

from safeconsumer.audit.facts import Fact
from safeconsumer.audit.ownerships import Moments
from safeconsumer.audit.spans import Spans
from safeconsumer.journal.format import DEAD_LETTER


@frozen
class _Task:
    offset: int
    lane: str | None
    stint: int


# Takes the check, the fact, the offset and the evidence; returns what withdraws it.
Find = Callable[[str, Fact, int, str], Callable[[], None]]


class Handled:
    """
    Follows the handlers of one partition.

    Args:
        find: reports a broken promise; the function that it returns withdraws it.

    Attributes:
        begun: every start.
        done: offsets that are complete, in any ownership.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._open: set[int] = set()  # delivered in this ownership and not complete
        self._next: int | None = None
        self._stint = 0  # counts ownerships
        self._newest = self._over = -1  # numbers of ownerships of the worker
        self._running: dict[object, _Task] = {}
        self._lanes: dict[str, int] = {}  # the record that began last in each lane
        self._lettered: set[int] = (
            set()
        )  # in this ownership, perhaps for an earlier one
        self._doubts: dict[int, list[Callable[[], None]]] = {}
        self.begun = Moments()
        self.done = Spans()

    # ------------------------------------------------------------ ownership

    def gained(self, *, is_given_back: bool) -> None:
        """Start again, unless nobody else can have had the partition in between."""
        if not is_given_back:
            self._stint += 1
            self._over = self._newest
            self._next = None
            self._open.clear()
            self._doubts.clear()
            self._lanes.clear()
            self._lettered.clear()

    def sought(self) -> None:
        """Forget delivered records: they are dropped, and may come again."""
        self._open.clear()
        self._lanes.clear()

    def delivered(self, fact: Fact) -> None:
        """Expect the records of a run to be handled."""
        if self._next is not None and fact["from"] < self._next:
            self._lanes.clear()
        self._next, at = fact["next"], fact["first"]
        for start, end in fact["gaps"] or ():
            self._open.update(range(at, start))
            at = end
        self._open.update(range(at, fact["last"] + 1))

    # ------------------------------------------------------------ handlers

    def at_work(self) -> Iterator[int]:
        """Yield the offsets whose handlers have begun and not ended."""
        return (task.offset for task in self._running.values())

    def began(self, fact: Fact) -> None:
        """Judge a start."""
        offset, lane, epoch = fact["offset"], fact["lane"], fact["epoch"]
        self.begun.add(fact.at, offset)
        for other in self._running.values():
            if lane is not None and other.lane == lane:
                said = f"began {offset} while {other.offset} of its lane was handled"
                self._find("W7", fact, offset, said)
        is_over = epoch is not None and (epoch < self._newest or epoch <= self._over)
        stint = -1 if is_over else self._stint
        self._running[fact["id"]] = _Task(offset, lane, stint)
        if is_over:  # it belongs to an ownership that has ended, and does not count
            return
        self._newest = self._newest if epoch is None else epoch
        if offset in self._lettered:
            self._open.add(offset)
        elif offset not in self._open:
            said = f"began {offset}, which is complete or was not delivered"
            self._find("W5", fact, offset, said)
        if lane is not None:
            self._follow(fact, offset, lane)

    def _follow(self, fact: Fact, offset: int, lane: str) -> None:
        last = self._lanes.get(lane, -1)
        self._lanes[lane] = max(last, offset)
        if offset < last:
            said = f"began {offset} after {last} of its lane"
            self._find("W7", fact, offset, said)
        elif last < offset and last in self._open:
            said = f"began {offset} before {last} of its lane was complete"
            self._doubt(last, self._find("W7", fact, offset, said))

    def ended(self, fact: Fact) -> None:
        """Note the end of a handler; a record whose handler returned is complete."""
        task = self._running.pop(fact["id"], None)
        if task is not None and fact["ok"]:
            self.done.add(task.offset, task.offset + 1)
            if task.stint == self._stint:
                self._open.discard(task.offset)

    def completed(self, fact: Fact) -> None:
        """Note a record that is complete although its handler failed."""
        offset = fact["offset"]
        self._open.discard(offset)
        self.done.add(offset, offset + 1)
        if fact["why"] == DEAD_LETTER:
            self._lettered.add(offset)
        else:
            for take_back in self._doubts.pop(offset, ()):
                take_back()

    # ------------------------------------------------------------ commits

    def committing(self, fact: Fact, offset: int) -> None:
        """Judge a commit when it is asked for."""
        left = [one for one in self._open if one < offset]
        if left:
            first = min(left)
            said = f"committed {offset}, {first} is not complete"
            self._doubt(first, self._find("W4", fact, first, said))
        # Nothing can overtake what began before all records that are open.
        low = min(self._open, default=offset)
        self._lanes = {lane: at for lane, at in self._lanes.items() if at >= low}

    def _doubt(self, offset: int, take_back: Callable[[], None]) -> None:
        if offset not in self.at_work():
            self._doubts.setdefault(offset, []).append(take_back)
