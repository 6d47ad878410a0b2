"""
Turns the journal of one process into facts, in one pass.

An entry that names a partition is passed to the
:class:`~safeconsumer.audit.partition.Partition` of that name. Entries about calls,
ownerships and holds are also passed to the object that tracks the holds of the process.
The journals of other processes do not affect these facts.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from safeconsumer.audit import entries, facts
from safeconsumer.audit.entries import Deliver, Entry, Other
from safeconsumer.audit.findings import Address
from safeconsumer.audit.holding import Holds, Placed
from safeconsumer.audit.partition import Partition, Take
from safeconsumer.audit.reading import (
    TopicPartition,
    covering,
    is_partition,
    partition_of,
    tp_of,
)
from safeconsumer.audit.worker_records import WorkerRecords
from safeconsumer.errors.base import JournalError
from safeconsumer.journal.format import tp_text

_OF_HOLDS = frozenset({"pause", "resume", "assign", "unsubscribe"})


class Process:
    """
    The state of one process after the entries of its journal that were read so far.

    Args:
        name: names the process.
        group: the process's consumer group.
        takes: returns the function that receives the facts about an address; called
            once for the group, once for each of its partitions, and for each entry
            that states which records a partition has, whatever the group.
        is_each: as in :class:`~safeconsumer.audit.partition.Partition`.
    """

    def __init__(
        self,
        name: str,
        group: str,
        takes: Callable[[Address], Take],
        *,
        is_each: bool = False,
    ) -> None:
        self.name, self.group = name, group
        self._takes = takes
        self._is_each = is_each
        self._of_group = takes(Address(group))
        self._partitions: dict[TopicPartition, Partition] = {}
        self._by_name: dict[str, Partition] = {}
        self._holds = Holds(self._mark_running, self._report_hold)
        self._marks: dict[type[Entry], Entry] = {}
        self._last: Entry | Other | None = None
        self._takers = self._by_event()

    def _by_event(self) -> Mapping[type, Callable[[Any], object]]:
        return {
            entries.Acked: self._pass_on,
            entries.Assigned: self._follow_gain,
            entries.Begins: self._one(Partition.note_begin),
            entries.Call: self._follow_call,
            entries.Clock: self._of_group,
            entries.Committed: self._follow_answer,
            entries.Completed: self._records(WorkerRecords.note_completion),
            Deliver: self._one(Partition.note_delivery),
            entries.Dropped: self._one(Partition.note_drop),
            entries.Handle: self._one(Partition.note_handler),
            entries.Handled: self._records(WorkerRecords.note_end),
            entries.Hold: self._follow_hold,
            entries.Kept: self._pass_on,
            entries.Lift: self._follow_lift,
            entries.LogStart: self._one(Partition.note_log_start),
            entries.Lost: self._follow_departure,
            entries.Moved: self._one(Partition.note_move),
            entries.Named: self._one(Partition.mark),
            entries.Reset: self._one(Partition.note_reset),
            entries.Return: self._follow_return,
            entries.Revoked: self._follow_departure,
            entries.Running: self._holds.note_running,
            entries.Transactional: self._one(Partition.mark),
            entries.Unseen: self._mark,
            entries.Working: self._mark,
        }

    def read(self, several: Iterable[Entry | Other]) -> None:
        """
        Process entries in order; call :meth:`end` after the last one.

        Raises:
            JournalError: an entry is broken, or contains a name that cannot be parsed.
        """
        takers, named = self._takers, self._by_name
        entry: Entry | Other | None = self._last
        try:
            for entry in several:
                if type(entry) is Deliver and entry.tp in named:
                    named[entry.tp].note_delivery(entry)
                    continue
                take = takers.get(type(entry))
                if take is not None:
                    self._take(take, entry)
        finally:
            self._last = entry

    def _take(self, take: Callable[[Any], object], entry: Entry | Other) -> None:
        try:
            take(entry)
        except ValueError as error:
            message = f"the journal of {self.name}, entry {entry.n}: {error}"
            raise JournalError(message) from error

    def end(self) -> None:
        """Report the facts that are known only at the end of the journal."""
        entry = self._last
        if entry is not None:
            for one in self._holds.placed:
                self._report_hold(one)
            for partition in self._partitions.values():
                partition.end(entry.n, entry.at)
            self._of_group(facts.JournalEnd(n=entry.n, at=entry.at))

    # ------------------------------------------------------------ of one partition

    def _partition(self, name: str) -> Partition:
        known = self._by_name.get(name)
        if known is None:
            tp = partition_of(name)
            if tp_text(tp) != name:
                message = f"{name[:300]!r} is no partition: write topic:number"
                raise ValueError(message)
            take = self._takes(Address(self.group, *tp))
            known = Partition(tp, self._holds, take, is_each=self._is_each)
            self._by_name[name] = self._partitions[tp] = known
            for mark in self._marks.values():
                known.mark(mark)
        return known

    def _one(self, follow: Callable[[Partition, Any], None]) -> Callable[[Any], None]:
        def take(entry: Any) -> None:  # noqa: ANN401 - any entry with a partition
            follow(self._partition(entry.tp), entry)

        return take

    def _records(
        self, follow: Callable[[WorkerRecords, Any], None]
    ) -> Callable[[Any], None]:
        return self._one(lambda one, entry: follow(one.worker_records, entry))

    def _pass_on(self, entry: entries.Acked | entries.Kept) -> None:
        self._takes(Address(None, *tp_of(entry.tp)))(entry)

    # ------------------------------------------------------------ of several

    def _follow_gain(self, entry: entries.Assigned) -> None:
        back = self._holds.note_gain(entry)
        for name in entry.partitions:
            partition = self._partition(name)
            partition.note_assignment(entry, is_back=partition.tp in back)

    def _follow_departure(self, entry: entries.Revoked | entries.Lost) -> None:
        self._holds.note_departure(entry)
        for name in entry.partitions:
            self._partition(name).note_departure(entry)

    def _follow_answer(self, entry: entries.Committed) -> None:
        for name, offset in entry.offsets.items():
            found = None if offset is None else (offset, entry.notes.get(name, ""))
            self._partition(name).note_answer(found, entry.n)

    def _mark(self, entry: entries.Unseen | entries.Working) -> None:
        self._marks[type(entry)] = entry
        for partition in self._partitions.values():
            partition.mark(entry)

    # ------------------------------------------------------------ calls

    def _follow_call(self, entry: entries.Call) -> None:
        if entry.op in _OF_HOLDS:
            self._holds.note_call(entry)
        elif entry.op == "seek":
            for name in entry.offsets or ():
                self._partition(name).note_seek_call(entry)
        elif entry.op == "commit":
            for partition, offset in self._commits_of(entry):
                partition.note_commit_call(entry, offset)

    def _follow_return(self, entry: entries.Return) -> None:
        if entry.op in _OF_HOLDS:
            self._holds.note_return(entry)
        elif entry.op == "seek":
            for name, offset in (entry.offsets or {}).items():
                self._partition(name).note_seek_return(entry, offset)
        elif entry.op == "commit":
            for partition, offset in self._commits_of(entry):
                partition.note_commit_answer(entry, offset)

    def _commits_of(self, entry: entries.Call) -> Iterator[tuple[Partition, int]]:
        for name, offset in (entry.offsets or {}).items():
            partition = self._partition(name)
            if offset is not None:
                yield partition, offset

    # ------------------------------------------------------------ holds

    def _follow_hold(self, entry: entries.Hold) -> None:
        if ":" in (entry.owner or ""):  # holds of the group or of operators
            self._of_group(entry)
        self._holds.note_report(entry)

    def _follow_lift(self, entry: entries.Lift) -> None:
        self._holds.note_lift(entry)
        for partition in self._partitions_under(entry.scope):
            partition.while_held.note_lift(entry)

    def _mark_running(self, one: Placed) -> None:
        if entries.Working in self._marks:
            for partition in self._partitions_under(one.scope):
                at_work = partition.worker_records.at_work()
                partition.while_held.note_hold(one, at_work)

    def _report_hold(self, one: Placed, until: float | None = None) -> None:
        self._of_group(
            facts.OwnHold(
                n=one.number,
                at=one.at,
                scope=one.scope,
                owner=one.owner,
                lifetime=one.lifetime,
                expires=None if one.over_at == math.inf else one.over_at,
                until=until,
                how=one.how,
            )
        )

    def _partitions_under(self, scope: str) -> Sequence[Partition]:
        if is_partition(scope):
            partition = self._partitions.get(partition_of(scope))
            return () if partition is None else (partition,)
        covers = covering(scope)
        return [partition for tp, partition in self._partitions.items() if covers(tp)]
