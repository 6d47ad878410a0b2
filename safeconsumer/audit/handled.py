"""
One member and one partition: what handlers did with its records.

W4 nothing committed beyond what is complete; W5 nothing begun that is complete, or was
never delivered; W7 one record of a lane at a time, in the order of offsets.

All of it compares entries of one process by their numbers, without clocks. An end is
written before the worker hears of it, so what was complete when a commit was asked for,
or when the next record began, stands before that. A skipped record is the exception: it
may be written later, and takes back what was found because of it.
"""

from array import array
from collections.abc import Callable, Iterator

from attrs import define, field, frozen

from safeconsumer.audit.facts import Fact
from safeconsumer.audit.journal import DEAD_LETTER
from safeconsumer.audit.spans import Spans


@define
class Begun:
    """
    When handlers began, and on which offset; sixteen bytes each.
    """

    at: "array[float]" = field(factory=lambda: array("d"))
    offset: "array[int]" = field(factory=lambda: array("q"))

    def add(self, at: float, offset: int) -> None:
        """
        Take note of one.
        """
        self.at.append(at)
        self.offset.append(offset)

    def between(self, start: float, end: float) -> Iterator[tuple[float, int]]:
        """
        Yield what began after the one and before the other.
        """
        for at, offset in zip(self.at, self.offset, strict=True):
            if start < at < end:
                yield at, offset


@frozen
class _Task:
    offset: int
    lane: str | None
    stint: int


# What is wrong: the check, the fact, the offset, the evidence; and what takes it back.
Find = Callable[[str, Fact, int, str], Callable[[], None]]


class Handled:
    """
    Follows the handlers of one partition.

    Args:
        find: takes a broken promise; what it returns takes it back.

    Attributes:
        begun: every start.
        done: offsets that are complete, in whatever ownership.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._open: set[int] = set()  # delivered in this ownership and not complete
        self._next: int | None = None
        self._stint = 0  # counts ownerships
        self._newest = self._over = -1  # numbers of ownerships as the worker has them
        self._running: dict[object, _Task] = {}
        self._lanes: dict[str, int] = {}  # what began last in a lane
        self._lettered: set[int] = (
            set()
        )  # in this ownership, perhaps for an earlier one
        self._doubts: dict[int, list[Callable[[], None]]] = {}
        self.begun = Begun()
        self.done = Spans()

    # ------------------------------------------------------------ ownership

    def gained(self, *, is_given_back: bool) -> None:
        """
        Begin anew, unless nobody else can have had the partition between.
        """
        if not is_given_back:
            self._stint += 1
            self._over = self._newest
            self._next = None
            self._open.clear()
            self._doubts.clear()
            self._lanes.clear()
            self._lettered.clear()

    def sought(self) -> None:
        """
        Forget what was delivered: it is dropped, and may come again.
        """
        self._open.clear()
        self._lanes.clear()

    def delivered(self, fact: Fact) -> None:
        """
        Expect that the records of a run are handled.
        """
        if self._next is not None and fact["from"] < self._next:
            self._lanes.clear()
        self._next, at = fact["next"], fact["first"]
        for start, end in fact["gaps"] or ():
            self._open.update(range(at, start))
            at = end
        self._open.update(range(at, fact["last"] + 1))

    # ------------------------------------------------------------ handlers

    def at_work(self) -> Iterator[int]:
        """
        Yield the offsets that handlers have begun with, and not ended.
        """
        return (task.offset for task in self._running.values())

    def began(self, fact: Fact) -> None:
        """
        Judge a start.
        """
        offset, lane, epoch = fact["offset"], fact["lane"], fact["epoch"]
        self.begun.add(fact.at, offset)
        for other in self._running.values():
            if lane is not None and other.lane == lane:
                said = f"began {offset} while {other.offset} of its lane was handled"
                self._find("W7", fact, offset, said)
        is_over = epoch is not None and (epoch < self._newest or epoch <= self._over)
        stint = -1 if is_over else self._stint
        self._running[fact["id"]] = _Task(offset, lane, stint)
        if is_over:  # of an ownership that has ended: what it does counts for nothing
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
        """
        Take note of an end; a record whose handler returned is complete.
        """
        task = self._running.pop(fact["id"], None)
        if task is not None and fact["ok"]:
            self.done.add(task.offset, task.offset + 1)
            if task.stint == self._stint:
                self._open.discard(task.offset)

    def completed(self, fact: Fact) -> None:
        """
        Take note of a record that is complete although its handler failed.
        """
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
        """
        Judge what a commit was asked for.
        """
        left = [one for one in self._open if one < offset]
        if left:
            first = min(left)
            said = f"committed {offset}, {first} is not complete"
            self._doubt(first, self._find("W4", fact, first, said))
        # What began before all that is open can be overtaken by nothing any more.
        low = min(self._open, default=offset)
        self._lanes = {lane: at for lane, at in self._lanes.items() if at >= low}

    def _doubt(self, offset: int, take_back: Callable[[], None]) -> None:
        if offset not in self.at_work():
            self._doubts.setdefault(offset, []).append(take_back)
