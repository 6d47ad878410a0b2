"""
Follows one member's entries about one partition, in their order.

A track keeps what the checks ask for: the ownerships with their deliveries and commits,
the position, and since when nothing is known of it. Each check that one process's
entries decide has a place of its own: A1 and W10 in ``while_held``, A5 in ``commits``,
W4, W5 and W7 in ``handled``, A3 and A4 in :func:`misplaced` below.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator

from safeconsumer.audit.clocks import Lags
from safeconsumer.audit.commits import CommitRule, Place
from safeconsumer.audit.entries import (
    Assigned,
    Begins,
    Call,
    Committed,
    Completed,
    Deliver,
    Dropped,
    Entry,
    Handle,
    Handled,
    Lift,
    Lost,
    Moved,
    Ownership,
    Reset,
    Return,
    Transactional,
)
from safeconsumer.audit.findings import Finding, Findings, Subject
from safeconsumer.audit.handled import Handlers
from safeconsumer.audit.holding import Holds, Placed
from safeconsumer.audit.ownerships import Answer, Commit, Delivered, Epoch, Moments
from safeconsumer.audit.spans import merged, uncovered
from safeconsumer.audit.while_held import WhileHeld
from safeconsumer.journal.format import tp_text


def misplaced(entry: Deliver, position: int | None) -> Iterator[tuple[str, int, str]]:
    """
    Yield what is wrong with the place of a run of records: check, offset and evidence.

    A3: an ownership has no gap, so a run begins where the position is. A4: it does not
    step back. The position is None where nobody knows it.
    """
    start, first, last, end = entry.start, entry.first, entry.last, entry.next
    if not start <= first <= last < end or entry.count > last - first + 1:
        yield (
            "A3",
            first,
            f"offsets {first} to {last} do not lie in {start} to {end - 1}",
        )
    if position is None or start == position:
        return
    if start > position:
        yield "A3", position, f"went on at {start}; {position} was next"
    else:
        yield "A4", start, f"went back to {start}; {position} was next"


class Track:
    """
    Follows one member on one partition.

    Args:
        subject: the member and the partition.
        holds: the holds of the member.
        keeps_moments: whether :attr:`delivered`, :attr:`lags` and what handlers began
            are wanted, where something was held for the group: sixteen bytes each.

    Attributes:
        case: the group and the partition.
        member: the member.
        epochs: its ownerships.
        position: where it stands; None if that is not known.
        is_owned: whether it has the partition now.
        is_blind: whether there may be commits that its journal lacks.
        is_working: whether a worker's handlers get the records.
        handled: what a worker's handlers did with its records.
        commits: its commits.
        delivered: when polls returned records, with the first offset of each.
        last_at: when a poll last returned records, or a handler last began; ``-inf``
            if neither did.
        lags: how long after their append records came.
        was_reset: resets of its position, by the check that they may hide something of.
        resets: ownerships that began where an operator's hold moved the partition, as
            the member says; the holds topic must say so, too.
        generations: the generations in which the member gained the partition.
        is_transactional: whether it read a batch of a transaction.
    """

    def __init__(
        self, subject: Subject, holds: Holds, *, keeps_moments: bool = True
    ) -> None:
        self._subject = subject
        self.case, self.member = subject.case, subject.member
        self._holds = holds
        self._keeps_moments = keeps_moments
        self._findings = Findings()
        self._held = WhileHeld(subject, holds)
        self.commits = CommitRule(subject, self._findings)
        self.handled = Handlers(self._find, keeps_moments=keeps_moments)
        self.epochs: list[Epoch] = []
        self.position: int | None = None
        self.is_owned = False
        self.is_blind = False
        self.is_working = False
        self.is_transactional = False
        self.delivered = Moments()
        self.last_at = -math.inf
        self.lags = Lags()
        self.was_reset: dict[str, str] = {}
        self.resets: list[Reset] = []
        self.generations: set[int] = set()
        self._peeked = -1  # the offset up to which peeked records will come again
        self._came_last = 0  # the entry of the last delivery
        # The run that a delivery continues, if it is in order; None if that takes a
        # closer look.
        self._run: Delivered | None = None
        self._ends = array("q")  # of what came in its ownership
        self._seeking: dict[object, tuple[Epoch, int | None]] = {}
        # The returns of seeks, and the position that each has left.
        self._left: list[tuple[int, int | None]] = []
        self._reached: set[object] = (
            set()
        )  # seeks whose records came before their return
        self._also = -1  # where it may stand, too: before or after a seek, who knows
        self._left_at: int | None = None  # where a seek, or a reset, left from
        self._aim = -1.0  # of the last seek in this ownership
        # Where an ownership goes on that a rebalance gives back.
        self._kept: int | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield the promises that it broke by itself, once the journal has ended."""
        yield from self._findings
        yield from self._held.findings()

    def unjudged(self) -> Iterator[tuple[str, str]]:
        """Yield the checks that its journal leaves open, once it has ended, and why."""
        yield from self._held.unjudged()
        if "A4" in self.was_reset:
            yield "A4", self.was_reset["A4"]

    def end(self, at: float) -> None:
        """Note when the journal has ended."""
        self._keep_what_runs()
        if self.is_owned:
            self.epochs[-1].over = at

    def _find(
        self, check: str, entry: Entry, offset: int | None, evidence: str
    ) -> None:
        found = self._subject.finding(check, entry, offset, evidence)
        self._findings.add(found)

    @property
    def _latest(self) -> Epoch | None:
        return self.epochs[-1] if self.epochs else None

    @property
    def last_entry(self) -> int:
        """The number of the last entry, as far as that tells where the journal ends."""
        began = self.epochs[-1].entry if self.epochs else 0
        return max(self._came_last, self.commits.last_entry, began)

    @property
    def all_commits(self) -> Iterator[Commit]:
        """Those with which a broker may have answered."""
        yield from self.commits.strays
        for epoch in self.epochs:
            yield from epoch.commits

    def epoch_at(self, entry: int) -> Epoch | None:
        """Return the ownership that an entry is of, or that had ended before it."""
        at = bisect_right(self.epochs, entry, key=lambda one: one.entry)
        return self.epochs[at - 1] if at else None

    # ------------------------------------------------------------ ownership

    def assigned(self, entry: Assigned) -> None:
        """Follow the begin of an ownership."""
        if self.is_owned:
            return
        generation = entry.generation
        began = Epoch(member=self.member, at=entry.at, generation=generation)
        began.entry, began.cluster = entry.n, entry.cluster
        began.topic_id = (entry.topics or {}).get(self.case.topic)
        self.generations.add(-1 if generation is None else generation)
        before = self._latest
        is_given_back = before is not None and before.is_followed_by(generation)
        if before is not None and is_given_back:
            began.owned_since = before.owned_since
        self.handled.gained(is_given_back=is_given_back)
        self.epochs.append(began)
        self.is_owned = True
        self._peeked = self._aim = -1
        self._left.clear()
        self.commits.gained(is_given_back=is_given_back)
        self._kept = self.position if is_given_back else None
        self._leave(None)

    def departed(self, entry: Ownership) -> None:
        """Follow the end of an ownership."""
        self._run = None
        if not self.is_owned:
            return
        is_lost = isinstance(entry, Lost)
        self.epochs[-1].over = entry.at
        self.epochs[-1].was_lost = is_lost
        self.epochs[-1].was_revoked = not is_lost
        self.commits.departed_in = None if is_lost else entry.generation
        self.is_owned = False

    # ------------------------------------------------------------ positions

    def _leave(self, left_at: int | None) -> None:
        # Until it is told where it stands, the position is unknown.
        self.position = self._run = None
        self._left_at, self._also = left_at, -1

    def _stand_at(self, position: int) -> None:
        left_at, self._left_at = self._left_at, None
        if left_at is not None:
            self.epochs[-1].skipped.add(left_at, position)
        self.position, self._run = position, None
        if self.epochs[-1].began_at is None:
            self.epochs[-1].began_at = position

    def seeking(self, call: Call) -> None:
        """Follow the call of a seek; until it returns it may have been done or not."""
        if self.is_owned:
            target = (call.offsets or {}).get(tp_text(self.case.tp))
            self._seeking[call.id] = self.epochs[-1], target
            self._run = None

    def sought(self, entry: Return, offset: int | None) -> None:
        """Follow the return of a seek; one that failed moves nothing."""
        epoch, _ = self._seeking.pop(entry.id, (None, None))
        if entry.ok is False:
            return
        if epoch is not None and epoch is self._latest:
            if entry.id in self._reached:
                self._reached.discard(entry.id)
                return
            self._left.append((entry.n, self.position))
            self._go_to(epoch, offset)

    def _go_to(self, epoch: Epoch, offset: int | None) -> None:
        epoch.seeks += not epoch.runs
        epoch.is_chosen |= epoch.began_at is None
        self.commits.sought()
        self.handled.sought(offset)
        self._aim = math.inf if offset is None else offset
        self._leave(self._left_at if self.position is None else self.position)
        if offset is not None:
            self._stand_at(offset)

    def answered(self, entry: Committed, found: tuple[int, str] | None) -> None:
        """Follow the broker's answer to the question where an ownership begins."""
        if not self.is_owned or self.epochs[-1].began_at is not None:
            return
        offset, note = (None, "") if found is None else found
        self.epochs[-1].answer = Answer(offset, note, entry.n)
        if offset is not None:
            self.commits.begins_at(offset)

    def begins(self, entry: Begins) -> None:
        """
        Follow a position that no seek had named.

        In the middle of an ownership it is the client's reset rule that sets one, when
        the position is out of range: that is its own word. Back, it makes A4 unjudged;
        forward, A2, unless the topic shows where its log begins.
        """
        if not self.is_owned or self._seeking:
            return
        before, offset = self.position, entry.offset
        self._aim = min(self._aim, offset)
        if before is not None and offset != before:
            runs = self.epochs[-1].runs
            if offset > before or (runs and runs[-1].end == before):  # no seek since
                self.was_reset["A2" if offset > before else "A4"] = (
                    f"{self.member} says in entry {entry.n} that the position was reset "
                    f"from {before} to {offset}"
                )
            self.epochs[-1].deleted.add(before, offset)
            self._leave(None)
        if self.position is None:
            self._stand_at(offset)

    def reset(self, entry: Reset) -> None:
        """Follow an ownership that begins where an operator moves the partition."""
        if self.is_owned:
            self.resets.append(entry)
            self.epochs[-1].was_reset = True
            self._go_to(self.epochs[-1], entry.offset)

    def unconfirmed(self, entry: Reset) -> Finding:
        """Return what is wrong with a reset that no operator has asked for."""
        said = f"{entry.owner} is said to have moved it here; no hold of theirs says so"
        return self._subject.finding("A4", entry, entry.offset, said)

    def read_transaction(self, _entry: Transactional) -> None:
        """Note that offsets without a record may be those of transactions."""
        self.is_transactional = True

    def moved(self, entry: Moved) -> None:
        """Follow a position that moves over offsets without a record."""
        if self.is_owned:
            if self.position is None:
                self._stand_at(entry.start)
            self._go_on(entry.start, entry.next, math.inf)
            self._run = None

    def _go_on(self, start: int, end: int, at: float) -> None:
        self.position = end
        runs = self.epochs[-1].runs
        if runs and runs[-1].end == start:
            runs[-1].end, runs[-1].at = end, min(runs[-1].at, at)
        else:
            runs.append(Delivered(start, end, at))

    # ------------------------------------------------------------ records

    def deliver(self, entry: Deliver) -> None:
        """Follow a run of records; nearly all of them continue the one before."""
        run, first, end, at = self._run, entry.first, entry.next, entry.at
        if (
            run is None
            or first != run.end
            or first != entry.start
            or end != entry.last + 1
            or entry.count > end - first
            or entry.gaps
            or entry.peek
            or self._holds
        ):
            self._deliver(entry)
        else:
            run.end = self.position = self._ends[-1] = end
        self._came_last, self.last_at = entry.n, at
        if self._keeps_moments:
            self.delivered.add(at, first)
            if entry.written is not None:
                self.lags.add(at, entry.written, entry.n)

    def _deliver(self, entry: Deliver) -> None:
        if not self.is_owned:
            self._find("A3", entry, entry.first, "delivered without owning it")
            epoch = Epoch(member=self.member, at=entry.at, was_assigned=False)
            self.epochs.append(epoch)
            self.is_owned = True
        epoch = self.epochs[-1]
        if epoch.first is None:
            epoch.first = entry.at, entry.first
        after = entry.after
        called = entry.n if after is None else max(after, self._came_last) + 1
        self._held.delivered(entry, called)
        self._add_records(epoch, entry)
        if entry.peek:  # it will come again, whatever is committed until then
            self._peeked = max(self._peeked, entry.next)
            self._run = None
            return
        if not self._came_before_a_seek(entry):
            position = None if self._seeking else self.position
            for check, offset, evidence in misplaced(entry, position):
                self._find(check, entry, offset, evidence)
            if self.position is None:
                self._stand_at(entry.start)
            self._go_on(entry.start, entry.next, entry.at)
        if self.is_working:
            self.handled.delivered(entry)
            if epoch.passed:
                epoch.passed = merged(uncovered(epoch.passed, merged(entry.spans)))
        elif epoch.came.ends[-1] == entry.next == self.position:
            self._run, self._ends = epoch.runs[-1], epoch.came.ends

    def _came_before_a_seek(self, entry: Deliver) -> bool:
        # A poll that began before a seek returned has read before it or after it. What
        # it read before leaves the position where the seek has put it.
        since = entry.n - 1 if entry.after is None else entry.after
        self._left = [one for one in self._left if one[0] > since]
        also, self._also = self._also, -1
        start = entry.start
        if start == also:
            self.position = also
        for known, (epoch, target) in self._seeking.items():
            if target == start != self.position and epoch is self._latest:
                self._left.append((entry.n, self.position))
                self._go_to(epoch, target)
                self._reached.add(known)
                return False
        olds = {position for _, position in self._left}
        if start == self.position or not olds & {start, None}:
            self._also = start if start in olds else -1
            return False
        self._run = None
        self.epochs[-1].runs.append(Delivered(start, entry.next, entry.at))
        return True

    @staticmethod
    def _add_records(epoch: Epoch, entry: Deliver) -> None:
        for start, end in entry.spans:
            epoch.came.add(start, end)

    # ------------------------------------------------------------ commits

    def committing(self, call: Call, offset: int) -> None:
        """Follow the call of a commit."""
        known, reached = self._standing, -1
        position = None if known is None else max(known, self._peeked, self._also)
        if self.is_working:  # it commits what is complete, wherever a seek stands now
            reached = self.epochs[-1].end if self.is_owned else -1
            self.handled.committing(call, offset, position)
        place = Place(self._latest, self.is_owned, position, reached)
        self.commits.called(call, offset, place)

    @property
    def _standing(self) -> int | None:
        # The position, or where it is to begin.
        epoch = self._latest
        if self.position is not None or epoch is None or epoch.began_at is not None:
            return self.position
        return self._kept if epoch.answer is None else epoch.answer.offset

    def committed(self, entry: Return, offset: int) -> None:
        """Follow the answer of a commit."""
        self.commits.returned(entry, offset, self._latest)

    # ------------------------------------------------------------ holds and handlers

    def placed(self, hold: Placed) -> None:
        """Note that a hold over the partition was placed."""
        self._held.placed(hold, self.handled.at_work())

    def lifted(self, entry: Lift) -> None:
        """Follow the end of a hold that no call lifted."""
        self._held.lifted(entry)

    def works(self) -> None:
        """Note that a worker's handlers get the records from here on."""
        self.is_working = True
        self._run = None
        self._keep_what_runs()
        self.handled.works()

    def began(self, entry: Handle) -> None:
        """Follow the start of a handler."""
        self.last_at = entry.at
        self._held.began(entry)
        self.handled.began(entry)

    def ended(self, entry: Handled) -> None:
        """Follow the end of a handler."""
        self.handled.ended(entry)

    def completed(self, entry: Completed) -> None:
        """Follow a record that is complete although its handler failed."""
        self.handled.completed(entry)

    def dropped(self, entry: Dropped) -> None:
        """
        Follow a worker that gives up records.

        It is right to where its program sought past them: what a reset goes back over
        is the worker's to do.
        """
        end = min(self._aim, entry.before)
        gone = ((one, one + 1) for one in self.handled.dropped(entry) if one < end)
        for epoch in self.epochs[-1:]:
            epoch.passed = merged([*epoch.passed, *gone])

    def _keep_what_runs(self) -> None:
        # What a handler has is not passed over, unless it comes to an end.
        runs = merged((one, one + 1) for one in self.handled.at_work())
        for epoch in self.epochs:
            epoch.passed = merged(uncovered(epoch.passed, runs))
