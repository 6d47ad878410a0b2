"""
Follows one process on one partition, and reports its position as facts.

A position is known from a ``begins`` entry, a seek, a reset, or the records of the last
poll. A poll that was running when a seek returned may have read before or after the
seek: then the position is unknown until the next records are delivered.
"""

import math
from collections.abc import Callable, Iterator

from attrs import define

from safeconsumer.audit import entries, facts
from safeconsumer.audit.facts import Committed, Delivered, Fact
from safeconsumer.audit.holding import Holds
from safeconsumer.audit.reading import TopicPartition
from safeconsumer.audit.spans import Span, Spans, merged, uncovered
from safeconsumer.audit.while_held import WhileHeld
from safeconsumer.audit.worker_records import WorkerRecords
from safeconsumer.journal.format import tp_text

Take = Callable[[Fact], object]
"""
Takes the facts of one partition.
"""


@define(eq=False)
class _Asked:
    # A requested commit; ``seeks`` is -1 if its records were delivered before the last
    # seek.
    fact: Committed
    seeks: int


@define(eq=False)
class _Seek:
    # A seek, from its call on; ``is_racing`` if records were delivered before its
    # return.
    own: int | None
    target: int
    is_racing: bool = False


class Partition:
    """
    One process on one partition.

    Args:
        tp: the partition.
        holds: the holds of the process.
        take: takes the facts.
        is_each: whether each delivery and each start of a handler is a fact; if not,
            consecutive deliveries are one fact, and starts in order are no facts.

    Attributes:
        tp: the partition.
        position: the offset that is read next; None if it is not known.
        while_held: follows the process while the partition is held.
        worker_records: follows the handlers of the partition's records.
    """

    def __init__(
        self, tp: TopicPartition, holds: Holds, take: Take, *, is_each: bool
    ) -> None:
        self.tp = tp
        self._name = tp_text(tp)
        self._holds = holds
        self._take = take
        self._is_each = is_each
        self.while_held = WhileHeld(tp, holds)
        self.worker_records = WorkerRecords(take, is_each=is_each)
        self._is_working = False
        self._last_at: float | None = None
        # The fact about deliveries that has not been passed on yet, and the same fact
        # again if the next delivery may continue it.
        self._open: Delivered | None = None
        self._run: Delivered | None = None
        self._last_delivery = 0  # the entry of the last delivery
        # The ownership: its entry, its number, and the end of the previous ownership.
        self._own: int | None = None
        self._is_owned = False
        self._count = -1
        self._departed_in: int | None = None
        # The position.
        self.position: int | None = None
        self._has_begun = self._is_sought = False
        # where the previous ownership ended, if this one continues there
        self._kept = -1
        self._end: int | None = None  # the position after the last records
        self._reached = -1  # the highest position in this ownership
        self._peeked = -1  # the end of peeked records, which are delivered again
        self._left_at: int | None = None  # the position that a seek, or a reset, left
        self._seeking: dict[object, _Seek] = {}  # running calls
        self._sought_at = -1  # the entry of the last seek's return
        self._most = -1  # the highest possible position, while a seek makes it unknown
        self._has_markers = False  # whether this ownership has read a transaction
        self._sought_to = -1.0  # the target of the last seek in this ownership
        self._lowest: float | None = None  # if a seek began it, its lowest position
        # The committed offset in the broker's answer, the commit's note, and the
        # answer's entry.
        self._answered: tuple[int, str, int] | None = None
        # Commits.
        self._asked: dict[object, _Asked] = {}
        self._seeks = 0
        self._floor = -1
        # The offset at which a reset began this ownership, and the number of seeks
        # before that.
        self._reset: tuple[int, int] | None = None
        # Offsets without a record, in order, that the position has passed.
        self._without_record = Spans()
        # The records that a worker gave up, by ownership.
        self._given_up: dict[int, Spans] = {}

    # ------------------------------------------------------------ reporting

    def _flush(self) -> None:
        # The next delivery starts another fact.
        run, end, delivered = self._run, self.position, self._open
        if run is not None and end is not None:
            run.next = self._end = self._reached = end
            run.last = end - 1
            run.count = end - run.first
        self._run = self._open = None
        if delivered is not None:
            self._take(delivered)

    def mark(self, entry: Fact) -> None:
        """Report a mark, which applies from its entry on."""
        if isinstance(entry, entries.Working):
            self._is_working = True
            self._keep_what_runs()
            self.worker_records.note_worker()
        self._has_markers |= isinstance(entry, entries.Transactional)
        self._take(entry)

    def end(self, n: int, at: float) -> None:
        """Report the facts that only the end of the journal shows."""
        self._flush()
        for asked in self._asked.values():
            self._take(asked.fact)
        if any(one.is_racing for one in self._seeking.values()):
            self._take(facts.OpenSeek(n=n, at=at))
        for fact in (*self.while_held.facts(), *self.worker_records.facts(n, at)):
            self._take(fact)
        self._keep_what_runs()
        for own, spans in self._given_up.items():
            for start, end in spans:
                self._take(facts.GivenUp(n=n, at=at, own=own, start=start, end=end))
        self._take(facts.JournalEnd(n=n, at=at, last_at=self._last_at))

    # ------------------------------------------------------------ ownership

    def note_assignment(self, entry: entries.Assigned, *, is_back: bool) -> None:
        """Follow the start of an ownership."""
        if self._is_owned:
            return
        self.worker_records.note_gain(is_given_back=is_back)
        self._kept = -1 if self.position is None or not is_back else self.position
        floor, aim = (self._floor, self._sought_to) if is_back else (-1, -1.0)
        passed = self._without_record if is_back else Spans()
        self._begin(entry.n)
        self._without_record = passed
        self._floor, self._sought_to = floor, aim
        self._take(
            facts.Owned(
                n=entry.n,
                at=entry.at,
                generation=entry.generation,
                topic_id=(entry.topics or {}).get(self.tp[0]),
                cluster=entry.cluster,
                is_back=is_back,
            )
        )

    def _begin(self, number: int) -> None:
        self._own, self._is_owned = number, True
        self._count += 1
        self._has_begun = self._is_sought = False
        self._reached = self._peeked = self._floor = self._most = -1
        self._has_markers = False
        self._sought_to, self._lowest = -1.0, None
        self._seeks, self._answered, self._reset = 0, None, None
        self._without_record = Spans()
        self._leave(None)

    def note_departure(self, entry: entries.Ownership) -> None:
        """Follow the end of an ownership."""
        if not self._is_owned:
            return
        self._flush()
        is_lost = isinstance(entry, entries.Lost)
        self._departed_in = None if is_lost else entry.generation
        self._is_owned = False
        self._take(
            facts.Released(
                n=entry.n, at=entry.at, generation=entry.generation, is_lost=is_lost
            )
        )

    # ------------------------------------------------------------ positions

    def _leave(self, left_at: int | None) -> None:
        # Until an entry shows the position, it is unknown.
        self._flush()
        self.position = None
        self._left_at = left_at

    def _stand_at(self, position: int, entry: Fact, how: str) -> None:
        left_at, self._left_at = self._left_at, None
        if left_at is not None and left_at < position:
            self._take(
                facts.Skipped(n=entry.n, at=entry.at, start=left_at, end=position)
            )
        self._flush()
        self.position, self._most = position, -1
        if self._has_begun:
            self._note_lowest(entry, position)
            return
        self._has_begun = True
        how = "seek" if self._is_sought and how != "reset" else how
        if how in {"seek", "reset"}:
            self._lowest = math.inf
            self._note_lowest(entry, position)
        answered, by, asked = self._answered or (None, "", 0)
        if how not in {"seek", "reset"}:  # the log may end before the committed offset
            self._floor = min(self._floor, position)
        self._take(
            facts.Positioned(
                n=entry.n,
                at=entry.at,
                offset=position,
                how=how,
                answered=answered,
                by=by,
                asked=asked,
            )
        )

    def _note_lowest(self, entry: Fact, position: int) -> None:
        # Everything below the first target was skipped, so each later target below it
        # leaves another gap.
        if self._lowest is not None and position < self._lowest:
            self._lowest = position
            self._take(facts.Sought(n=entry.n, at=entry.at, offset=position))

    def note_answer(self, found: tuple[int, str] | None, entry: int) -> None:
        """Note the committed offset that the broker reports, and the note of its commit."""
        if self._is_owned and not self._has_begun:
            offset, note = (-1, "") if found is None else found
            self._answered = offset, note, entry
            self._floor = offset

    def note_seek_call(self, call: entries.Call) -> None:
        """Follow the call of a seek, which takes effect at some time until it returns."""
        if self._is_owned:
            target = (call.offsets or {}).get(self._name)
            self._seeking[call.id] = _Seek(self._own, -1 if target is None else target)
            self._flush()

    @property
    def _targets(self) -> Iterator[int]:
        return (one.target for one in self._seeking.values())

    def note_seek_return(self, entry: entries.Return, offset: int | None) -> None:
        """Follow the return of a seek; a failed seek moves nothing."""
        seek = self._seeking.pop(entry.id, None)
        if entry.ok is False or seek is None or seek.own != self._own:
            return
        self._flush()
        self._sought_at = entry.n
        self._go_to(offset, entry, "seek")
        if seek.is_racing:
            self._lose_position(-1 if offset is None else offset)

    def _lose_position(self, most: int) -> None:
        # Only the next records show whether the position is before or after a seek.
        known = -1 if self.position is None else self.position
        self._most = max(self._most, self._reached, known, most)
        self._leave(self._left_at if self.position is None else self.position)

    def _go_to(self, offset: int | None, entry: Fact, how: str) -> None:
        self._is_sought = True
        self._seeks += 1
        self._floor = -1
        self.worker_records.note_seek(offset)
        self._sought_to = math.inf if offset is None else offset
        self._leave(self._left_at if self.position is None else self.position)
        if offset is not None:
            self._stand_at(offset, entry, how)

    def note_begin(self, entry: entries.Begins) -> None:
        """
        Follow a position that moves to an offset which no seek named.

        Within an ownership the client's reset rule moves the position if it is out of
        range.
        """
        if not self._is_owned or self._seeking:
            return
        self._flush()
        before, offset = self.position, entry.offset
        self._sought_to = min(self._sought_to, offset)
        if before is not None and offset != before:
            has_come = self._reached >= 0 and self._end == before
            is_sought = self._is_sought and not has_come
            jump = facts.AutoReset(
                n=entry.n, at=entry.at, start=before, end=offset, is_sought=is_sought
            )
            self._take(jump)
            self._leave(None)
            # After a truncation, commits begin again at the end of the log.
            self._floor = min(self._floor, offset)
        if self.position is None:
            self._stand_at(offset, entry, "broker")

    def note_log_start(self, entry: entries.LogStart) -> None:
        """Report the start of the log, by a broker's answer after a jump."""
        self._take(entry)

    def note_reset(self, entry: entries.Reset) -> None:
        """Follow an ownership that begins where an operator moves the partition."""
        if self._is_owned:
            self._take(entry)
            self._go_to(entry.offset, entry, "reset")
            self._reset = entry.offset, self._seeks

    def note_move(self, entry: entries.Moved) -> None:
        """Follow a position that moves over offsets without a record."""
        if self._is_owned:
            self._flush()
            if self.position is None:
                self._stand_at(entry.start, entry, "records")
            self._take(entry)
            self._pass_over((entry.start, entry.next))
            self._go_on(entry.next)

    def _pass_over(self, *several: Span) -> None:
        # The position passes offsets without a record, perhaps again after it went back.
        for start, end in several:
            passed = self._without_record
            if start < end and passed.ends and start < passed.ends[-1]:
                passed = self._without_record = Spans()
            passed.add(start, end)

    def _go_on(self, end: int) -> None:
        self.position = self._end = end
        self._reached = max(self._reached, end)

    # ------------------------------------------------------------ records

    def note_delivery(self, entry: entries.Deliver) -> None:
        """Follow a run of records; nearly all runs continue the previous one."""
        first, end = entry.first, entry.next
        if (
            self._run is None
            or first != self.position
            or first != entry.start
            or end != entry.last + 1
            or entry.count > end - first
            or entry.gaps
            or entry.peek
            or self._holds
        ):
            self._deliver(entry)
        else:
            self.position = end
        self._last_delivery, self._last_at = entry.n, entry.at

    def _deliver(self, entry: entries.Deliver) -> None:
        self._flush()
        delivered = self._delivered(entry)
        if not self._is_owned:
            self._begin(entry.n)
            self._has_begun = True
        after = entry.after
        called = entry.n if after is None else max(after, self._last_delivery) + 1
        self.while_held.note_delivery(entry, called)
        since = entry.n - 1 if after is None else after
        is_racing = bool(self._seeking) or since < self._sought_at
        if entry.peek:  # its records are delivered again, whatever is committed before
            self._peeked = max(self._peeked, entry.next)
        elif is_racing:
            delivered.stood = None
            self._reached = max(self._reached, entry.next)
            for seek in self._seeking.values():
                seek.is_racing = True
            self._lose_position(max(self._targets, default=-1))
        else:
            if self.position is None:
                self._stand_at(entry.start, entry, "records")
            self._go_on(entry.next)
        if not entry.peek:
            self._pass_over((entry.start, entry.first), *delivered.gaps)
            self._pass_over((entry.last + 1, entry.next))
        self._open = delivered
        if self._is_working:
            self._work(delivered)
        # the facts that follow concern the ownership that this fact begins
        if not delivered.is_owned:
            self._flush()
        elif not (self._is_working or self._is_each or entry.peek or is_racing):
            self._run = delivered if self._goes_straight(delivered) else None

    @staticmethod
    def _goes_straight(delivered: Delivered) -> bool:
        return not delivered.gaps and delivered.last + 1 == delivered.next

    def _delivered(self, entry: entries.Deliver) -> Delivered:
        return Delivered(
            n=entry.n,
            at=entry.at,
            start=entry.start,
            first=entry.first,
            last=entry.last,
            next=entry.next,
            count=entry.count,
            gaps=entry.gaps or (),
            stood=self.position if self._is_owned else None,
            is_owned=self._is_owned,
            is_peek=bool(entry.peek),
            asked=entry.asked,
            written=entry.written,
            created=entry.created,
        )

    def _work(self, delivered: Delivered) -> None:
        self.worker_records.note_delivery(delivered)
        given_up = self._given_up.get(self._count)
        # otherwise the position is past all given-up records
        if given_up and delivered.start < given_up.ends[-1]:
            self._given_up[self._count] = merged(
                uncovered(given_up, merged(delivered.spans))
            )

    # ------------------------------------------------------------ commits

    def note_commit_call(self, call: entries.Call, offset: int) -> None:
        """Follow the call of a commit."""
        stood = self._standing()
        if self.position is None and self._has_markers and offset > (stood or 0):
            stood = None  # the position may be after a marker that follows the records
        reached = -1
        # the commit is of complete records, whatever the target of a seek
        if self._is_working:
            reached = self._reached_now if self._is_owned else -1
            known = None if self.position is None else max(self.position, self._peeked)
            for beyond in self.worker_records.early_commits(call, offset, known):
                self._take(beyond)
        is_before = stood is not None and stood < offset <= reached
        is_of_reset = self._is_of_reset(offset)
        if is_of_reset:
            stood = offset
        fact = Committed(
            n=call.n,
            at=call.at,
            asked=call.n,
            called=call.at,
            offset=offset,
            is_done=False,
            is_owned=self._is_owned,
            stood=stood,
            floor=-1 if is_of_reset else self._floor,
            is_before=is_before,
            is_first=not self._seeks,
            departed_in=self._departed_in,
            own=self._own,
        )
        is_apart = is_before or is_of_reset
        self._asked[call.id] = _Asked(fact, -1 if is_apart else self._seeks)

    def _is_of_reset(self, offset: int) -> bool:
        # The member commits the target of a reset, even if its program has called seek
        # since, perhaps in the listener.
        if self._reset is None or not self._is_owned:
            return False
        target, seeks = self._reset
        return offset == target and self._seeks > seeks

    @property
    def _reached_now(self) -> int:
        # A run that continues ends at the position.
        return self._reached if self._run is None else self.position or 0

    def _standing(self) -> int | None:
        # Return the position; until it is known, return the highest possible position.
        if self.position is not None:
            return max(self.position, self._peeked)
        if self._has_begun or self._is_sought:
            return self._most if self._most >= 0 else None
        answered = -1 if self._answered is None else self._answered[0]
        most = max(answered, self._kept)
        return most if most >= 0 else None

    def note_commit_answer(self, entry: entries.Return, offset: int) -> None:
        """Follow the answer of a commit."""
        asked = self._asked.pop(entry.id, None)
        is_done = entry.ok is not False
        if asked is None:
            fact = Committed(
                n=entry.n,
                at=entry.at,
                asked=None,
                called=entry.at,
                answered=entry.at,
                offset=offset,
                is_done=is_done,
                is_owned=True,
                stood=offset,
                is_first=False,
                own=self._own,
            )
            self._take(fact)
            return
        fact = asked.fact
        fact.n, fact.at, fact.is_done = entry.n, entry.at, is_done
        fact.answered = entry.at
        if is_done and fact.own == self._own and asked.seeks == self._seeks:
            self._floor = max(self._floor, self._without_record.start_below(offset))
        fact.departed_in = self._departed_in
        self._take(fact)

    # ------------------------------------------------------------ handlers

    def note_handler(self, entry: entries.Handle) -> None:
        """Follow the start of a handler."""
        self._last_at = entry.at
        self.while_held.note_start(entry)
        self.worker_records.note_start(entry)

    def note_drop(self, entry: entries.Dropped) -> None:
        """
        Follow a worker that gives up records.

        A worker may drop records up to the target of its program's seek: if a reset
        goes back, the records still have to be handled.
        """
        end = min(max(self._sought_to, *self._targets, -1.0), entry.before)
        gone = ((one, one + 1) for one in self.worker_records.note_drop(end))
        if self._own is not None:
            own = self._given_up.get(self._count, ())
            self._given_up[self._count] = merged([*own, *gone])

    def _keep_what_runs(self) -> None:
        # A record that a handler still has was not dropped.
        runs = merged((one, one + 1) for one in self.worker_records.at_work())
        for own, spans in self._given_up.items():
            self._given_up[own] = merged(uncovered(spans, runs))
