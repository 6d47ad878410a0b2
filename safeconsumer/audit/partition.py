"""
Tracks what one process does with one partition, and reports facts about its position.

A position is known from a ``begins`` entry, a seek, a reset, or the records of the last
poll. If a poll was running when a seek returned, the poll may have read from before or
after the seek, so the position is unknown until the next records are delivered.
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
    # A requested commit; ``seeks`` counts the seeks before the request, or is -1 if the
    # committed records were delivered before the last seek.
    fact: Committed
    seeks: int


@define(eq=False)
class _Seek:
    # A seek that has been called; ``is_racing`` if records were delivered before the
    # call returned.
    own: int | None
    target: int
    is_racing: bool = False


class Partition:
    """
    Tracks what one process does with one partition.

    Args:
        tp: the partition.
        holds: the holds of the process.
        take: called with each fact.
        is_each: whether each delivery and each start of a handler is a fact; if not,
            consecutive deliveries are merged into one fact, and starts in order are
            omitted.

    Attributes:
        tp: the partition.
        position: the offset that is read next; None if it is not known.
        while_held: finds what the process did while the partition was held.
        worker_records: tracks the handlers that process the partition's records.
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
        # ``_open`` is a fact about deliveries that has not been passed on yet. ``_run``
        # is the same fact if the next delivery may extend it, and None otherwise.
        self._open: Delivered | None = None
        self._run: Delivered | None = None
        self._last_delivery = 0  # the entry of the last delivery
        # The ownership: the entry that began it, its number, and the generation in
        # which the previous ownership was revoked.
        self._own: int | None = None
        self._is_owned = False
        self._count = -1
        self._departed_in: int | None = None
        # The position.
        self.position: int | None = None
        self._has_begun = self._is_sought = False
        # the last position of the previous ownership, if this ownership continues there
        self._kept = -1
        self._end: int | None = None  # the position after the last records
        self._reached = -1  # the highest position in this ownership
        self._peeked = -1  # the end of peeked records, which are delivered again
        self._left_at: int | None = None  # the position before a seek or a reset
        self._seeking: dict[object, _Seek] = {}  # calls in progress
        self._sought_at = -1  # the entry that reports the return of the last seek
        self._most = -1  # the highest possible position, while a seek makes it unknown
        self._has_markers = False  # whether this ownership has read a transaction
        self._sought_to = -1.0  # the target of the last seek in this ownership
        self._lowest: float | None = None  # the lowest position after a seek began it
        # The committed offset that the broker returned, the metadata of that commit,
        # and the number of the entry with the broker's answer.
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
        # The records that a worker gave up on, by the number of the ownership.
        self._given_up: dict[int, Spans] = {}

    # ------------------------------------------------------------ reporting

    def _flush(self) -> None:
        # After a flush, the next delivery is not merged into an earlier fact.
        run, end, delivered = self._run, self.position, self._open
        if run is not None and end is not None:
            run.next = self._end = self._reached = end
            run.last = end - 1
            run.count = end - run.first
        self._run = self._open = None
        if delivered is not None:
            self._take(delivered)

    def mark(self, entry: Fact) -> None:
        """Report a fact that applies to everything after its entry."""
        if isinstance(entry, entries.Working):
            self._is_working = True
            self._keep_what_runs()
            self.worker_records.note_worker()
        self._has_markers |= isinstance(entry, entries.Transactional)
        self._take(entry)

    def end(self, n: int, at: float) -> None:
        """Report the facts that are known only at the end of the journal."""
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
        """Process an entry that reports the start of an ownership."""
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
        """Process an entry that reports the end of an ownership."""
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
        # The position is unknown until an entry shows it.
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
        # The first seek skipped everything below its target, so each later seek to a
        # lower target leaves another gap.
        if self._lowest is not None and position < self._lowest:
            self._lowest = position
            self._take(facts.Sought(n=entry.n, at=entry.at, offset=position))

    def note_answer(self, found: tuple[int, str] | None, entry: int) -> None:
        """Record the committed offset that the broker returned, and its metadata."""
        if self._is_owned and not self._has_begun:
            offset, note = (-1, "") if found is None else found
            self._answered = offset, note, entry
            self._floor = offset

    def note_seek_call(self, call: entries.Call) -> None:
        """Process a seek call, which takes effect at some time before it returns."""
        if self._is_owned:
            target = (call.offsets or {}).get(self._name)
            self._seeking[call.id] = _Seek(self._own, -1 if target is None else target)
            self._flush()

    @property
    def _targets(self) -> Iterator[int]:
        return (one.target for one in self._seeking.values())

    def note_seek_return(self, entry: entries.Return, offset: int | None) -> None:
        """Process the return of a seek; a failed seek does not move the position."""
        seek = self._seeking.pop(entry.id, None)
        if entry.ok is False or seek is None or seek.own != self._own:
            return
        self._flush()
        self._sought_at = entry.n
        self._go_to(offset, entry, "seek")
        if seek.is_racing:
            self._lose_position(-1 if offset is None else offset)

    def _lose_position(self, most: int) -> None:
        # Only the next delivery shows whether the seek was in effect before or after
        # the poll.
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
        Process an entry that sets the position to an offset which no seek named.

        Later in an ownership, the client's reset policy sets the position if the old
        one is out of range.
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
        """Report the start of the log, which a broker returned after a reset."""
        self._take(entry)

    def note_reset(self, entry: entries.Reset) -> None:
        """Process an ownership that starts at the offset that an operator set."""
        if self._is_owned:
            self._take(entry)
            self._go_to(entry.offset, entry, "reset")
            self._reset = entry.offset, self._seeks

    def note_move(self, entry: entries.Moved) -> None:
        """Process a move of the position past offsets that have no record."""
        if self._is_owned:
            self._flush()
            if self.position is None:
                self._stand_at(entry.start, entry, "records")
            self._take(entry)
            self._pass_over((entry.start, entry.next))
            self._go_on(entry.next)

    def _pass_over(self, *several: Span) -> None:
        # The position passes offsets without a record, perhaps a second time after it
        # was moved back.
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
        """Process the delivery of records; most deliveries continue the previous one."""
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
        if entry.peek:  # its records are delivered again, even if committed
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
        # pass this fact on now, because it begins an ownership
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
        # all records given up on precede a delivery that starts at or after that end
        if given_up and delivered.start < given_up.ends[-1]:
            self._given_up[self._count] = merged(
                uncovered(given_up, merged(delivered.spans))
            )

    # ------------------------------------------------------------ commits

    def note_commit_call(self, call: entries.Call, offset: int) -> None:
        """Process a commit call."""
        stood = self._standing()
        if self.position is None and self._has_markers and offset > (stood or 0):
            stood = None  # the position may be after a marker that follows the records
        reached = -1
        # the worker commits complete records, even if a seek has moved the position
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
        # The member commits the target of a reset even if its program has called seek
        # after the reset, for example in the listener.
        if self._reset is None or not self._is_owned:
            return False
        target, seeks = self._reset
        return offset == target and self._seeks > seeks

    @property
    def _reached_now(self) -> int:
        # Until ``_run`` is complete, ``_reached`` is out of date.
        return self._reached if self._run is None else self.position or 0

    def _standing(self) -> int | None:
        # Return the position, or the highest possible position while it is unknown.
        if self.position is not None:
            return max(self.position, self._peeked)
        if self._has_begun or self._is_sought:
            return self._most if self._most >= 0 else None
        answered = -1 if self._answered is None else self._answered[0]
        most = max(answered, self._kept)
        return most if most >= 0 else None

    def note_commit_answer(self, entry: entries.Return, offset: int) -> None:
        """Process the broker's answer to a commit."""
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
        """Process the start of a handler."""
        self._last_at = entry.at
        self.while_held.note_start(entry)
        self.worker_records.note_start(entry)

    def note_drop(self, entry: entries.Dropped) -> None:
        """
        Process an entry that reports which records a worker dropped.

        A worker may drop only records below the target of its program's seek. If a
        reset moves the position back, the records still have to be handled.
        """
        end = min(max(self._sought_to, *self._targets, -1.0), entry.before)
        gone = ((one, one + 1) for one in self.worker_records.note_drop(end))
        if self._own is not None:
            own = self._given_up.get(self._count, ())
            self._given_up[self._count] = merged([*own, *gone])

    def _keep_what_runs(self) -> None:
        # A record that a handler is still processing was not dropped.
        runs = merged((one, one + 1) for one in self.worker_records.at_work())
        for own, spans in self._given_up.items():
            self._given_up[own] = merged(uncovered(spans, runs))
