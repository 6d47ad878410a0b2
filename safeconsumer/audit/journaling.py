"""Makes a consumer keep its own journal, for ``SafeConsumer(journal=...)``."""

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import timedelta
from typing import Any

from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import TopicPartition

from safeconsumer import events
from safeconsumer._kafka.handover import ARRIVED
from safeconsumer._kafka.membership import Membership
from safeconsumer.audit.calls import Calls, Seen
from safeconsumer.audit.deliveries import Deliveries
from safeconsumer.audit.reading import covered
from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors import ControlWriteError, JournalError, SafeConsumerError
from safeconsumer.events.dispatch import Hook
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import (
    APP,
    WHOLE,
    Hold,
    HoldKey,
    Lifetime,
    checked_duration,
)
from safeconsumer.holds.ownership import Reassignment
from safeconsumer.holds.scope import Scope
from safeconsumer.journal.format import ENDED, EXPIRED, scope_text, tp_text
from safeconsumer.journal.writer import JournalWriter

log = logging.getLogger("safeconsumer.audit")


class Journaling:
    """
    Journals what one consumer does.

    Args:
        journal: a folder for a journal of its own, or a writer, which stays open.
        client_id: names the member.
        group: its consumer group.

    Raises:
        JournalError: it is not the path of a folder, or the folder cannot be written.

    Thread rules: any thread.
    """

    def __init__(
        self,
        journal: "str | os.PathLike[str] | JournalWriter",
        client_id: object,
        group: object,
    ) -> None:
        if not journal or not isinstance(journal, str | os.PathLike | JournalWriter):
            message = f"journal takes a folder or a JournalWriter, not {journal!r}"
            raise JournalError(message)
        self._is_ours = not isinstance(journal, JournalWriter)
        self.writer = (
            journal
            if isinstance(journal, JournalWriter)
            else JournalWriter(journal, member=str(client_id), group=str(group or ""))
        )
        self.group = str(group or "")
        self.writer.belong_to(self.group)
        self._calls = Calls(self.writer)
        self.came = Deliveries(self.writer)
        self._write_holds = holds_hook(self.writer)
        self._failed: JournalError | None = None
        self._has_ended = False
        self._membership: Membership | None = None

    def begin(self, consumer: SafeConsumer) -> None:
        """Make an adopted consumer, which has nothing assigned yet, keep the journal."""
        self._membership = Membership(consumer)
        self._membership.keep_journal(self)
        own = type(consumer)
        name = f"Journaling{own.__name__}"
        consumer.__class__ = type(name, (JournalingConsumer, own), {})
        consumer.__dict__["_safe_journal"] = self

    def end(self) -> None:
        """Stop writing; a second call does nothing."""
        self._has_ended = True
        if self._is_ours:
            self.writer.close()

    def undo(self) -> None:
        """End, because the consumer could not be made; leave no journal that says nothing."""
        self.end()
        if self._is_ours and not self.writer.number:
            with suppress(OSError):
                self.writer.path.unlink()

    def check(self) -> None:
        """
        Check that everything could be written so far.

        Raises:
            JournalError: a write failed on a thread that could not report it.
        """
        if self._failed is not None:
            raise JournalError(*self._failed.args) from self._failed

    # ------------------------------------------------------------ what parts tell

    def hook(self, event: events.Event) -> None:
        """Journal holds from elsewhere."""
        self._quietly(lambda: self._write_holds(event))

    def committing(
        self, offsets: Mapping[TopicPartition, int]
    ) -> AbstractContextManager[object]:
        """Write a commit, and before it how far positions moved without records."""
        for tp, offset in offsets.items():
            self._moved(tp, offset)
        said = {tp_text(tp): offset for tp, offset in offsets.items()}
        return self.around("commit", {"offsets": said})

    def purged(self, tp: TopicPartition, count: int | None, why: str) -> None:
        """Write which fetched data was thrown away."""
        said = {"tp": tp_text(tp), "count": count, "why": why}
        self._quietly(lambda: self.writer.write("purged", said))

    def parked(self, tp: TopicPartition, size: int, limit: int) -> None:
        """Write which data is parked for a resume."""
        said = {"tp": tp_text(tp), "bytes": size, "limit": limit}
        self._quietly(lambda: self.writer.write("parked", said))

    def begins_at(self, tp: TopicPartition, offset: int) -> None:
        """Write a position that was set."""
        self.came.begins_at(tp, offset)
        said = {"tp": tp_text(tp), "offset": offset}
        self._quietly(lambda: self.writer.write("begins", said))

    def _moved(self, tp: TopicPartition, offset: int) -> None:
        before = self.came.next.get(tp_text(tp))
        now = None if self._membership is None else self._membership.next_position(tp)
        if before is None or now is None or not before < offset <= now:
            return
        said = {"tp": tp_text(tp), "from": before, "next": offset}
        self.writer.write("moved", said)
        self.came.begins_at(tp, offset)

    def reassigned(self, change: Reassignment) -> None:
        """Write that an ownership begins or ends, at that moment."""
        self.came.forget((*change.departed, *change.gained))
        member = self._membership
        generation = -1 if member is None else member.generation()
        lost = member is not None and generation < 0
        self._owned("lost" if lost else "revoked", change.departed, generation)
        self._owned("assigned", change.gained, generation)

    def _owned(
        self, event: str, partitions: Iterable[TopicPartition], generation: int
    ) -> None:
        names = sorted(map(tp_text, partitions))
        if names:
            said = {"partitions": names, "generation": generation}
            self._quietly(lambda: self.writer.write(event, said))

    # ------------------------------------------------------------ what calls tell

    def around(
        self,
        op: str,
        said: Mapping[str, object] | None = None,
        seen: Seen | None = None,
    ) -> AbstractContextManager[int]:
        """
        Write a call, and its return after the block; nothing once this has ended.

        Raises:
            JournalError: one of them could not be written.
        """
        return nullcontext(0) if self._has_ended else self._calls.around(op, said, seen)

    def tell(self, event: str, said: Mapping[str, object]) -> None:
        """
        Write one entry; nothing once this has ended.

        Raises:
            JournalError: it could not be written.
        """
        if not self._has_ended:
            self.writer.write(event, said)

    def tell_running(self) -> None:
        """
        Write the records that handlers are working on; nothing once this has ended.

        Raises:
            JournalError: it could not be written.
        """
        if not self._has_ended:
            self.writer.write_running()

    def delivered(
        self,
        records: Mapping[TopicPartition, Sequence[ConsumerRecord]],
        call: int,
        *,
        is_peek: bool,
    ) -> None:
        """Write the records that a ``poll`` returns; a peek does not move the position."""
        for tp, several in records.items():
            if is_peek:
                self.came.peeked(tp, several, poll=call)
                continue
            end = (
                None if self._membership is None else self._membership.next_position(tp)
            )
            self.came.came(tp, several, end, poll=call)

    def _quietly(self, write: Callable[[], object]) -> None:
        # An error would do harm here, under upstream's lock or in a hook. The next poll
        # reports it instead.
        if self._has_ended:
            return
        try:
            write()
        except JournalError as error:
            if self._failed is None:
                log.exception("the journal has a hole from here on")
            self._failed = error


class JournalingConsumer(SafeConsumer):
    """
    Journals its calls, deliveries and ownerships.

    Raises:
        JournalError: from ``poll`` and iteration, if something could not be written;
            the records of that call come again with the next.
    """

    _safe_journal: Journaling

    def poll(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        update_offsets: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """As the parent."""
        if self._safe_iteration.is_stepping():  # the step writes its records
            return super().poll(timeout_ms, max_records, update_offsets)
        journal = self._safe_journal
        journal.check()
        records: dict[TopicPartition, list[ConsumerRecord]] = {}
        try:
            with journal.around("poll") as call:
                records = super().poll(timeout_ms, max_records, update_offsets)
                journal.delivered(records, call, is_peek=not update_offsets)
        except BaseException as error:
            self._safe_read_again(records, error)
            raise
        return records

    def __next__(self) -> ConsumerRecord:
        """As the parent."""
        journal = self._safe_journal
        journal.check()
        after, asked = journal.writer.number, journal.writer.now()
        record: ConsumerRecord | None = None
        try:
            record = super().__next__()
            tp = TopicPartition(record.topic, record.partition)
            journal.came.came(tp, [record], after=after, asked=asked)
        except BaseException as error:
            if record is not None:
                tp = TopicPartition(record.topic, record.partition)
                self._safe_read_again({tp: [record]}, error)
            raise
        return record

    def _safe_read_again(
        self,
        records: Mapping[TopicPartition, Sequence[ConsumerRecord]],
        error: BaseException,
    ) -> None:
        # They are not returned: they could not be written, or a signal handler raised.
        seek = super().seek if isinstance(error, JournalError) else self.seek
        for tp, several in records.items():
            with suppress(ValueError, KeyError):  # it has another owner now
                seek(tp, several[0].offset)

    # ------------------------------------------------------------ calls

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """As the parent."""
        with self._safe_seeking({partition: offset}):
            super().seek(partition, offset)
            self._safe_journal.came.begins_at(partition, offset)  # upstream does not

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """As the parent."""
        with self._safe_seeking(dict.fromkeys(partitions or self.assignment())):
            super().seek_to_beginning(*partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """As the parent."""
        with self._safe_seeking(dict.fromkeys(partitions or self.assignment())):
            super().seek_to_end(*partitions)

    def _safe_seeking(
        self, offsets: Mapping[Any, int | None]
    ) -> AbstractContextManager[int]:
        said = {f"{tp[0]}:{tp[1]}": offset for tp, offset in offsets.items()}
        return self._safe_journal.around("seek", {"offsets": said})

    def pause_group(
        self,
        *targets: Any,  # noqa: ANN401 - the parent's
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
    ) -> None:
        """As the parent."""
        seconds = checked_duration(for_)
        call = uuid.uuid4().hex[:12]
        # Its duration counts from the broker's time of its record, which is later.
        now = self._safe_journal.writer.now()
        self._safe_tell_group("group-asked", targets, owner, id=call)
        try:
            super().pause_group(*targets, owner=owner, reason=reason, for_=for_)
        except SafeConsumerError as error:
            if not isinstance(error, ControlWriteError):  # some of them may be held
                self._safe_tell_group("group-refused", targets, owner, id=call)
            raise
        until = None if seconds is None else now + seconds
        self._safe_tell_group("group-hold", targets, owner, until=until, id=call)

    def resume_group(self, *targets: Any, owner: str = APP) -> tuple[Hold, ...]:  # noqa: ANN401 - the parent's
        """As the parent."""
        call = uuid.uuid4().hex[:12]
        self._safe_tell_group("group-lift", targets, owner, id=call)
        try:
            left = super().resume_group(*targets, owner=owner)
        except BaseException:
            self._safe_tell_group("group-lift", targets, owner, ok=False)
            raise
        self._safe_tell_group("group-lifted", targets, owner, id=call)
        return left

    def _safe_tell_group(
        self,
        event: str,
        targets: Iterable[Any],
        owner: str,
        **more: object,
    ) -> None:
        journal = self._safe_journal
        known = {name: value for name, value in more.items() if value is not None}
        for scope in scopes_text(targets):
            said = {"scope": scope, "owner": owner, "group": journal.group}
            journal.tell(event, {**said, "source": "group", **known})

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:  # noqa: FBT001, FBT002 - upstream's signature
        """As the parent."""
        try:
            super().close(autocommit=autocommit, timeout_ms=timeout_ms)
        finally:
            self._safe_journal.end()

    # ------------------------------------------------------------ inside

    def _safe_place(
        self,
        found: Mapping[Scope, object],
        *,
        owner: str,
        reason: str | None,
        for_: float | timedelta | None,
        lifetime: Lifetime | None,
    ) -> None:
        seconds = checked_duration(for_)
        journal = self._safe_journal
        said: dict[str, object] = {"scopes": [scope_text(one) for one in found]}
        said["owner"] = owner
        said["lifetime"] = self._safe_lifetime_of(owner, lifetime).value
        if seconds is not None:
            said["until"] = journal.writer.now() + seconds
        with journal.around("pause", said, lambda: self._safe_seen(found)):
            super()._safe_place(
                found, owner=owner, reason=reason, for_=for_, lifetime=lifetime
            )
            journal.tell_running()

    def _safe_lift(
        self,
        keys: Sequence[HoldKey],
        *,
        owner: str,
        by_application: bool = False,
        all_of_owner: bool = False,
    ) -> tuple[Hold, ...]:
        said = {"scopes": [scope_text(scope) for scope, _ in keys], "owner": owner}
        scopes = tuple(scope for scope, _ in keys)
        around = self._safe_journal.around
        with around("resume", said, lambda: self._safe_seen(scopes)):
            return super()._safe_lift(
                keys,
                owner=owner,
                by_application=by_application,
                all_of_owner=all_of_owner,
            )

    def _safe_seen(self, named: Iterable[Scope]) -> Mapping[str, object]:
        # Other threads go on meanwhile: the number of the last entry before the look
        # shows the checker with which entries it can be compared.
        journal = self._safe_journal.writer
        number, at = journal.number, journal.now()
        view = self._safe_ledger.view()  # one look: a gate may open at any moment
        here = covered(map(scope_text, named), view.partitions())
        return {
            "seen": number,
            "seen_at": at,
            "assigned": sorted(map(tp_text, here)),
            "paused": sorted(map(tp_text, here & view.quiet)),
            "gated": sorted(map(tp_text, here & set(view.gates))),
        }


def holds_hook(journal: JournalWriter) -> Hook:
    """
    Make a hook for ``SafeConsumer(hooks=...)`` that journals holds from elsewhere.

    These are holds that no call of this process places: those of operators and of the
    group, those that arrived with a partition, and whole pauses. It also journals that
    a hold of any owner expired or ended, and that a plain pause did with a resume.
    """

    def write(event: events.Event) -> None:
        match event:
            case events.HoldsPlaced():
                for hold in filter(_is_elsewhere, event.holds):
                    journal.write_running()
                    journal.write("hold", _named(hold))
            case events.HoldsRemoved():
                since = journal.time_of(event.at)
                for hold in event.holds:
                    if hold.is_remote or hold.owner == WHOLE:
                        journal.write("lift", {**_named(hold), "since": since})
                    elif hold.lifetime is Lifetime.PLAIN:  # perhaps of nothing named
                        said = {"since": since, "why": ENDED}
                        journal.write("lift", {**_named(hold), **said})
            case events.HoldsExpired() | events.HoldsEnded():
                why = EXPIRED if isinstance(event, events.HoldsExpired) else ENDED
                said = {"since": journal.time_of(event.at), "why": why}
                for hold in event.holds:
                    journal.write("lift", {**_named(hold), **said})

    return write


def _is_elsewhere(hold: Hold) -> bool:
    # No call of this process names it.
    return hold.is_remote or hold.reason == ARRIVED or hold.owner == WHOLE


def _named(hold: Hold) -> dict[str, object]:
    return {"scope": scope_text(hold.scope), "owner": hold.owner}


def scopes_text(targets: Iterable[Any]) -> list[str]:
    """Return the targets of ``pause`` by their names in journals."""
    return [scope_text(scopes.of(one)) for one in targets]
