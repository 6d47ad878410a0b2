"""Records the actions of a consumer, for ``SafeConsumer(journal=...)``."""

import itertools
import logging
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import events
from safeconsumer._kafka.handover import ARRIVED
from safeconsumer._kafka.membership import Membership
from safeconsumer.errors.base import JournalError
from safeconsumer.events.takeover import essential
from safeconsumer.holds.hold import WHOLE, Hold, Lifetime
from safeconsumer.holds.ownership import Reassignment
from safeconsumer.holds.scope import Scope
from safeconsumer.journal.deliveries import Began, Deliveries
from safeconsumer.journal.format import (
    ENDED,
    EXPIRED,
    NOTE,
    RESUMED,
    scope_text,
    tp_text,
)
from safeconsumer.journal.writer import JournalWriter, Running

log = logging.getLogger("safeconsumer.journal")

# Seconds between two entries about the broker's clock.
_CLOCK_SECONDS = 60.0
# Brokers truncate their times to milliseconds.
_MS = 0.001


class Recorder:
    """
    Writes the actions of one consumer into its journal.

    The methods are called by the consumer, its parts (``Membership.keep_journal``) and
    its worker, if it has one.

    Args:
        journal: a folder, in which the recorder creates a journal, or a writer, which
            serves one consumer at a time and which the recorder does not close.
        client_id: names the member.
        group: the member's consumer group.
        hands_over: whether pauses are handed over with their partitions
            (``pause_handover``).

    Raises:
        JournalError: the argument is not the path of a folder, the folder is not
            writable, or the writer serves another consumer or group.

    Thread rules: :meth:`began`, :meth:`polled` and :meth:`steps` must run on the
    polling thread, the other methods on any thread.

    Attributes:
        writer: writes the entries to files.
    """

    def __init__(
        self,
        journal: "str | os.PathLike[str] | JournalWriter",
        client_id: object,
        group: object,
        *,
        hands_over: bool = False,
    ) -> None:
        if not journal or not isinstance(journal, str | os.PathLike | JournalWriter):
            message = f"journal takes a folder or a JournalWriter, not {journal!r}"
            raise JournalError(message)
        group = str(group or "")
        self._is_ours = not isinstance(journal, JournalWriter)
        self.writer = (
            journal
            if isinstance(journal, JournalWriter)
            else JournalWriter(journal, member=str(client_id), group=group)
        )
        self.writer.serve(self, group)
        self._moves = {"moves": True} if hands_over else {}
        self._ids = itertools.count(1)
        self._deliveries = Deliveries(self.writer)
        # By partition, the first of the records that the journal lists as delivered and
        # that the next polls will return again.
        self._repeated: dict[TopicPartition, int] = {}
        self._seeking: dict[int, dict[str, int | None]] = {}  # unfinished calls
        # The offsets of the last commit, and the number of its entry. While that entry is
        # the newest, the same commit is not written again.
        self._committed: tuple[object, int] = (None, 0)
        # The committed offsets that the broker returned in the current ownerships.
        self._answers: dict[TopicPartition, OffsetAndMetadata | None] = {}
        # Partitions whose log start is not known yet, each with an offset. Answers to
        # fetches from lower offsets are ignored.
        self._log_starts_unknown: dict[TopicPartition, int] = {}
        # The time and the bounds of the last entry about the broker's clock.
        self._clock = -math.inf, 0.0, 0.0
        # The partitions with a "transactional" entry in this ownership.
        self._transactional: set[TopicPartition] = set()
        self._has_hidden_commits = False
        # Whether a group assigned the partitions, so that a membership can be lost.
        self._is_of_group = False
        self._is_behind = False
        self._has_ended = False
        self._running: Running | None = None
        self._membership: Membership | None = None

    def begin(self, consumer: object) -> None:
        """Start to record an adopted consumer, which must not have an assignment yet."""
        self._membership = Membership(consumer)
        self._membership.keep_journal(self)

    def end(self) -> None:
        """Stop writing; a second call has no effect."""
        self._has_ended = True
        if self._running is not None:
            self.writer.running = self._running = None
        self.writer.release(self)
        if self._is_ours:
            self.writer.close()

    def undo(self) -> None:
        """Stop because the consumer could not be created; remove the journal if empty."""
        self.end()
        if self._is_ours and not self.writer.number:
            with suppress(OSError):
                self.writer.path.unlink()

    # ------------------------------------------------------------ records

    def began(self) -> Began:
        """
        Record the start of a poll or step; return the fields for its entries.

        Raises:
            JournalError: earlier entries still cannot be written.
        """
        if not self._has_ended:
            self.writer.flush()
        self._deliveries.began()
        return {"after": self.writer.number, "asked": self.writer.now()}

    def polled(
        self,
        records: Mapping[TopicPartition, Sequence[ConsumerRecord]],
        began: Began,
        *,
        is_peek: bool,
    ) -> None:
        """
        Write the records that a ``poll`` is about to return.

        Args:
            records: the records.
            began: the result of :meth:`began` at the start of this poll.
            is_peek: whether the poll leaves the positions unchanged.

        Raises:
            JournalError: the records could not be written, so they must not be returned.
        """
        if self._has_ended:  # another thread is closing the consumer
            return
        for tp, several in records.items():
            if not is_peek:
                self._go_back(tp, several[0].offset)
            end = self._position(tp)
            self._deliveries.write(tp, several, began, end=end, is_peek=is_peek)

    def steps(
        self,
        records: Generator[ConsumerRecord, None, None],
        put_back: Callable[[ConsumerRecord], None],
    ) -> Generator[ConsumerRecord, None, None]:
        """
        Write and yield the records of an iteration.

        Args:
            records: a generator of the records.
            put_back: called with a record that could not be yielded.

        Raises:
            JournalError: a record could not be written.
        """
        try:
            began = self.began()
            for record in records:
                # There must be no call between the head of the loop and this block: if
                # a signal handler raised in that call, the record would not be put
                # back.
                try:
                    tp = TopicPartition(record.topic, record.partition)
                    self._go_back(tp, record.offset)
                    self._deliveries.write(tp, [record], began)
                except BaseException:
                    put_back(record)
                    raise
                yield record
                began = self.began()
        finally:
            records.close()

    def comes_again(self, tp: TopicPartition, offset: int) -> None:
        """Record that a poll did not return records that the journal may list."""
        if offset < self._deliveries.next.get(tp_text(tp), offset):
            self._repeated[tp] = offset

    def _go_back(self, tp: TopicPartition, first: int) -> None:
        # The client itself has moved the position back, below the end of the last
        # delivery entry.
        if tp in self._repeated:
            offset = min(first, self._repeated[tp])
            with self.calling("seek", {"offsets": {tp_text(tp): offset}}):
                self._deliveries.begins_at(tp, offset)
            self._repeated.pop(tp, None)

    def _position(self, tp: TopicPartition) -> int | None:
        return None if self._membership is None else self._membership.next_position(tp)

    # ------------------------------------------------------------ calls

    @contextmanager
    def calling(self, op: str, fields: Mapping[str, object]) -> Iterator[None]:
        """
        Write a call with its arguments, run the block, and write its return.

        Raises:
            JournalError: the call or its return could not be written.
        """
        answer = self._write_call(op, fields)
        is_done = False
        try:
            yield
            is_done = True
        finally:
            answer(is_done=is_done)

    def _write_call(self, op: str, fields: Mapping[str, object]) -> Callable[..., None]:
        call = {"op": op, "id": next(self._ids), **fields}
        failed = {**call, "ok": False}
        try:
            self.write("call", call)
        except BaseException:
            # The consumer does not make the call, but the call's entry may be written
            # later, or may already be written.
            with suppress(JournalError):
                self.note("return", failed)
            raise

        def answer(*, is_done: bool, **known: object) -> None:
            self.write("return", {**(call if is_done else failed), **known})

        return answer

    @contextmanager
    def pausing(
        self,
        scopes: Iterable[Scope],
        owner: str,
        lifetime: Lifetime,
        for_: float | None,
    ) -> Iterator[None]:
        """
        Write a ``pause``; before its return, write the records that handlers work on.

        Raises:
            JournalError: as :meth:`calling`.
        """
        fields: dict[str, object] = {"scopes": [scope_text(one) for one in scopes]}
        fields |= {"owner": owner, "lifetime": lifetime.value, **self._moves}
        if for_ is not None:
            fields["until"] = self.writer.now() + for_
        with self.calling("pause", fields):
            yield
            self.write_running()

    def resuming(
        self, scopes: Iterable[Scope], owner: str, *, every: bool = False
    ) -> AbstractContextManager[None]:
        """
        Write a ``resume``, of these scopes or of ``every`` hold of the owner.

        Raises:
            JournalError: as :meth:`calling`.
        """
        names = [scope_text(one) for one in scopes]
        fields = {"scopes": names, "owner": owner, **({"every": True} if every else {})}
        return self.calling("resume", fields)

    @contextmanager
    def seeking(self, offsets: Mapping[Any, int | None]) -> Iterator[None]:
        """
        Write a ``seek``; None stands for either the start or the end of a partition.

        If several seeks overlap, it is unknown which of them took effect last, so each
        is written with None.

        Raises:
            JournalError: as :meth:`calling`.
        """
        by_name = {tp_text(tp): offset for tp, offset in offsets.items()}
        # Do not take a lock: a signal handler would wait for the thread that it
        # interrupted.
        others = [*self._seeking.values()]
        self._seeking[id(by_name)] = by_name
        for one in others:
            for name in one.keys() & by_name.keys():
                one[name] = by_name[name] = None
        try:
            with (
                self.calling("seek", {"offsets": by_name}),
                self._deliveries.seeking(by_name),
            ):
                yield
        finally:
            del self._seeking[id(by_name)]
        for tp in offsets:
            self._repeated.pop(tp, None)

    def committing(
        self, offsets: Mapping[TopicPartition, int]
    ) -> tuple[str, Callable[..., None]]:
        """
        Write the request for a commit.

        Before the request, write how far positions moved past offsets without records.
        If the last commit had the same offsets, and only clock entries were written
        since, do not write the request: it would prove nothing new, and an idle client
        commits every five seconds.

        Returns:
            The metadata with which the commit names this journal and its newest entry
            ("" after the recorder has ended), and a function that writes the result.
            The function needs the partitions that were sent, because a commit leaves
            out deleted topics.

        Raises:
            JournalError: the request could not be written.
        """
        for tp, offset in offsets.items():
            self._write_move(tp, offset)
        by_name = {tp_text(tp): offset for tp, offset in offsets.items()}
        if not self._has_ended:
            self.writer.flush()  # a queued entry counts as newer than the last commit
        if self._committed == (by_name, self.writer.number):
            return self._note, lambda *_, **__: None
        answer = self._write_call("commit", {"offsets": by_name})
        note, asked = self._note, self.writer.number

        def answered(sent: Iterable[TopicPartition], *, is_done: bool) -> None:
            names = {*map(tp_text, sent)}
            kept = {name: at for name, at in by_name.items() if name in names}
            self._without_raising(lambda: answer(is_done=is_done, offsets=kept))
            if is_done and kept == by_name and self.writer.number == asked + 1:
                self._committed = by_name, self.writer.number

        return note, answered

    @staticmethod
    def is_note(metadata: str) -> bool:
        """Return whether the metadata of a commit names a journal, this one or another."""
        return metadata.startswith(NOTE)

    @property
    def _note(self) -> str:
        here = f"{NOTE}{self.writer.name}#{self.writer.number}"
        return "" if self._has_ended else here

    def committed(
        self, answers: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> None:
        """
        Write the committed offsets, from the broker, at which ownerships begin.

        Args:
            answers: the committed offset of each partition; None if nothing is
                committed.
        """
        new = {
            tp_text(tp): one
            for tp, one in answers.items()
            if tp not in self._answers or self._answers[tp] != one
        }
        self._answers.update(answers)
        if new:
            offsets = {name: one and one.offset for name, one in new.items()}
            notes = {name: one.metadata for name, one in new.items() if one}
            notes = {name: note for name, note in notes.items() if note}
            self._write_without_raising(
                "committed", {"offsets": offsets, "notes": notes}
            )

    def clock(self, at: float, sent: float, received: float) -> None:
        """
        Write the difference between the broker's clock and the journal's clock.

        Write an entry once a minute, and whenever the new bounds contradict the last
        ones.

        Args:
            at: a time that the broker's clock showed, in whole milliseconds.
            sent: the latest known time before the broker read its clock, in monotonic
                seconds.
            received: the earliest known time after the broker read its clock, in
                monotonic seconds.
        """
        before, now, after = time.monotonic(), self.writer.now(), time.monotonic()
        least, most = at - received - now + before, at + _MS - sent - now + after
        written, low, high = self._clock
        if now - written < _CLOCK_SECONDS and least <= high and low <= most:
            return
        self._clock = now, least, most
        bounds = {"least": round(least, 6), "most": round(most, 6)}
        self._without_raising(lambda: self._write_clock(bounds))

    def _write_clock(self, bounds: Mapping[str, object]) -> None:
        # A clock entry does not count as newer than the last commit, so that an equal
        # commit is still left out.
        (committed, newest), before = self._committed, self.writer.number
        self.write("clock", bounds)
        if newest == before and self.writer.number == before + 1:
            self._committed = committed, before + 1

    def _write_move(self, tp: TopicPartition, offset: int) -> None:
        before, now = self._deliveries.next.get(tp_text(tp)), self._position(tp)
        if self._deliveries.is_sought(tp) or before is None or now is None:
            return
        if not before < offset <= now:
            return
        self.write("moved", {"tp": tp_text(tp), "from": before, "next": offset})
        self._deliveries.begins_at(tp, offset)

    def named(self, tp: TopicPartition, topic_id: str) -> None:
        """Write the id of a topic that was not known when the ownership began."""
        topics = {tp.topic: topic_id}
        self._write_without_raising("named", {"tp": tp_text(tp), "topics": topics})

    def transactional(self, tp: TopicPartition) -> None:
        """Write, at most once per ownership, that records may belong to a transaction."""
        if tp not in self._transactional:
            self._transactional.add(tp)
            self._write_without_raising("transactional", {"tp": tp_text(tp)})

    def unseen(self) -> None:
        """Write, at most once, that the journal may lack later commits of this member."""
        if not self._has_hidden_commits:
            self._has_hidden_commits = True
            self._write_without_raising("unseen", {})

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """
        Write one entry, unless the recorder has ended.

        Raises:
            JournalError: the entry could not be written.
        """
        if not self._has_ended:
            self.writer.write(event, fields)

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """
        Queue an entry to be written before the next one, unless the recorder has ended.

        Raises:
            JournalError: the journal is closed.
        """
        if not self._has_ended:
            self.writer.note(event, fields)

    def note_worker(self, order: str, running: Running) -> None:
        """
        Write that a worker receives the records from now on.

        Before each later hold, the journal lists the records that the worker's handlers
        are working on.

        Args:
            order: the worker's ``order=``.
            running: returns the offsets that the handlers are working on, by partition.

        Raises:
            JournalError: the entry could not be written.
        """
        self.write("working", {"order": order})
        self.writer.running = self._running = running

    def write_running(self) -> None:
        """
        Write the records that handlers are working on, unless the recorder has ended.

        Raises:
            JournalError: the entry could not be written.
        """
        if not self._has_ended:
            self.writer.write_running()

    # ------------------------------------------------------------ positions, ownerships

    def begins_at(self, tp: TopicPartition, offset: int) -> None:
        """Write the position at which reading starts."""
        self._repeated.pop(tp, None)
        before = self._deliveries.next.get(tp_text(tp))
        if before is None and self._answers.get(tp) is None:  # nothing is committed
            self._log_starts_unknown[tp] = offset
        elif before is not None and before < offset:
            self._log_starts_unknown[tp] = before + 1
        self._deliveries.begins_at(tp, offset)
        self._write_without_raising("begins", {"tp": tp_text(tp), "offset": offset})

    def log_starts_at(self, tp: TopicPartition, first: int, asked: int) -> None:
        """
        Write the start of the log, once for each position that the reset policy set.

        Args:
            tp: the partition.
            first: the first offset of the log, from a broker's answer to a fetch; -1 if
                the broker is too old to return it.
            asked: the offset of that fetch, which may have been sent before the
                position was set.
        """
        if asked >= self._log_starts_unknown.get(tp, math.inf) and first >= 0:
            del self._log_starts_unknown[tp]
            self._write_without_raising(
                "log_start", {"tp": tp_text(tp), "first": first}
            )

    def reset(self, tp: TopicPartition, offset: int, owner: str) -> None:
        """Write that an ownership begins at the offset to which an operator moved it."""
        self._deliveries.begins_at(tp, offset)
        fields = {"tp": tp_text(tp), "offset": offset, "owner": owner}
        self._write_without_raising("reset", fields)

    def reassigned(self, change: Reassignment) -> None:
        """Write which ownerships begin and end."""
        changed = (*change.departed, *change.gained)
        self._deliveries.forget(changed)
        self._transactional.difference_update(changed)
        for tp in changed:
            self._repeated.pop(tp, None)
            self._answers.pop(tp, None)
        member = self._membership
        generation = -1 if member is None else member.generation()
        lost = self._is_of_group and generation < 0
        departed = {"partitions": _names(change.departed), "generation": generation}
        gained = {"partitions": _names(change.gained), "generation": generation}
        if change.departed:
            self._write_without_raising("lost" if lost else "revoked", departed)
        if change.gained:
            self._is_of_group = generation >= 0
            topics = {topic for topic, _ in change.gained}
            ids = {} if member is None else member.topic_ids(topics)
            where = None if member is None else member.cluster_id()
            fields = {**gained, "topics": ids, "cluster": where}
            self._write_without_raising("assigned", fields)

    @essential
    def hook(self, event: events.Event) -> None:
        """
        Write starts and ends of holds that no call of this process names explicitly.

        Such starts are those of operators' and the group's holds, of holds that were
        handed over with a partition, and of whole pauses. Such ends are those of holds
        that expire or end with an ownership, and of plain pauses that a resume ends
        without naming them.
        """
        if isinstance(event, events.HoldsPlaced):
            for hold in filter(_is_placed_elsewhere, event.holds):
                self._without_raising(self.write_running)
                self._write_without_raising(
                    "hold", {**_key_fields(hold), **self._times_of(hold)}
                )
        elif isinstance(event, _ENDS):
            since = self.writer.time_of(event.at)
            for hold in event.holds:
                if _is_end_unnamed(event, hold):
                    how = {"since": since, "why": _reason_of_end(event, hold)}
                    self._write_without_raising("lift", {**_key_fields(hold), **how})

    def _times_of(self, hold: Hold) -> dict[str, object]:
        if hold.record is not None:
            written, offset = hold.record
            return {"written": written, "offset": offset}
        since = self.writer.time_of(hold.placed_at)
        if hold.expires_at is None:
            return {"since": since}
        return {"since": since, "until": since + hold.expires_at - hold.placed_at}

    def _write_without_raising(self, event: str, fields: Mapping[str, object]) -> None:
        self._without_raising(lambda: self.write(event, fields))

    def _without_raising(self, write: Callable[[], object]) -> None:
        # An exception would do harm under upstream's lock or in a hook. The entry stays
        # queued, and the next poll raises if it still cannot be written.
        try:
            write()
            self._is_behind = False
        except JournalError:
            if not self._is_behind:  # log only the first failure in a row
                log.exception("the journal is behind from here on")
            self._is_behind = True


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return sorted(map(tp_text, partitions))


_ENDS = (events.HoldsRemoved, events.HoldsExpired, events.HoldsEnded)


def _is_placed_elsewhere(hold: Hold) -> bool:
    # Return whether no call of this process names the hold.
    return hold.is_remote or hold.reason == ARRIVED or hold.owner == WHOLE


def _is_end_unnamed(event: events.Event, hold: Hold) -> bool:
    # Return whether the hold ended without a call that names it; a resume also ends
    # plain pauses that it does not name.
    is_plain = hold.lifetime is Lifetime.PLAIN
    is_named = not (hold.is_remote or hold.owner == WHOLE or is_plain)
    return not (isinstance(event, events.HoldsRemoved) and is_named)


def _reason_of_end(event: events.Event, hold: Hold) -> str | None:
    if isinstance(event, events.HoldsExpired):
        return EXPIRED
    if isinstance(event, events.HoldsRemoved):
        return None if hold.is_remote else RESUMED
    return ENDED


def _key_fields(hold: Hold) -> dict[str, object]:
    return {"scope": scope_text(hold.scope), "owner": hold.owner}
