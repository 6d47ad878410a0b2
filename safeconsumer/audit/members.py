"""
Reads one member's journal, and has each of its partitions followed.

What a check asks of a partition needs the entries that name the partition, and those
that name none or several: ownerships, calls, holds. So one case can be judged anywhere
by these entries of each journal alone, as is done on Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from safeconsumer.audit.entries import (
    Acked,
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
    Hold,
    Kept,
    Lift,
    Lost,
    Moved,
    Other,
    Ownership,
    Reset,
    Return,
    Revoked,
    Running,
    Transactional,
    Unseen,
    Working,
)
from safeconsumer.audit.findings import Address, Subject
from safeconsumer.audit.holding import Change, Holds
from safeconsumer.audit.reading import (
    TopicPartition,
    covering,
    is_partition,
    partition_of,
    tp_of,
)
from safeconsumer.audit.stream import Source
from safeconsumer.audit.tracks import Track
from safeconsumer.errors.base import JournalError
from safeconsumer.journal.format import tp_text


class Watch(Protocol):
    """Sees what a member does, for a trace; it changes nothing."""

    def entry(self, member: "Member", entry: Entry | Other) -> None:
        """See an entry that was followed."""

    def holds(self, member: "Member", change: Change) -> None:
        """See holds that were placed or ended."""


class Member:
    """
    One member of one group, as far as its journal was read.

    Args:
        name: names the process.
        group: its consumer group.
        only: the only partition that is judged; None for all.
        written: takes what producers wrote.
        keeps_moments: as of :class:`Track`.
        watch: sees what it does.

    Attributes:
        name: names the process.
        group: its consumer group.
        tracks: what it did with each partition.
        holds: its holds.
    """

    def __init__(  # noqa: PLR0913 - one parameter per setting
        self,
        name: str,
        group: str,
        *,
        only: TopicPartition | None = None,
        written: Callable[[Acked | Kept], None],
        keeps_moments: bool = True,
        watch: Watch | None = None,
    ) -> None:
        self.name, self.group = name, group
        self.tracks: dict[TopicPartition, Track] = {}
        self.holds = Holds()
        self._only = None if only is None else tp_text(only)
        self._written = written
        self._keeps_moments = keeps_moments
        self._watch = watch
        self._named: dict[str, Track] = {}
        self._is_blind = self._is_working = False
        self._takers = self._by_event()

    def _by_event(self) -> Mapping[type, Callable[[Any], None]]:
        return {
            Acked: self._wrote,
            Assigned: self._owned,
            Begins: self._one(Track.begins),
            Call: self._called,
            Committed: self._answered,
            Completed: self._one(Track.completed),
            Deliver: self._one(Track.deliver),
            Dropped: self._one(Track.dropped),
            Handle: self._one(Track.began),
            Handled: self._one(Track.ended),
            Hold: self._heard,
            Kept: self._wrote,
            Lift: self._lifted,
            Lost: self._departed,
            Moved: self._one(Track.moved),
            Reset: self._one(Track.reset),
            Return: self._returned,
            Revoked: self._departed,
            Running: self.holds.runs,
            Transactional: self._one(Track.read_transaction),
            Unseen: self._commits_unseen,
            Working: self._works,
        }

    def read(self, entries: Iterable[Entry | Other]) -> None:
        """
        Follow entries, which come in their order.

        Raises:
            JournalError: an entry is broken, or names something that cannot be read.
        """
        takers, named = self._takers, self._named
        watch = self._watch
        entry: Entry | Other | None = None
        try:
            for entry in entries:
                if type(entry) is Deliver and watch is None and entry.tp in named:
                    named[entry.tp].deliver(entry)
                    continue
                take = takers.get(type(entry))
                if take is not None:
                    self._take(take, entry)
                if watch is not None:
                    watch.entry(self, entry)
        finally:
            self._end(entry)

    def _take(self, take: Callable[[Any], None], entry: Entry | Other) -> None:
        try:
            take(entry)
        except ValueError as error:
            message = f"the journal of {self.name}, entry {entry.n}: {error}"
            raise JournalError(message) from error

    def _end(self, entry: Entry | Other | None) -> None:
        if entry is not None:
            for track in self.tracks.values():
                track.end(entry.at)

    # ------------------------------------------------------------ of one partition

    def _track(self, name: str) -> Track | None:
        known = self._named.get(name)
        if known is None and self._only in {None, name}:
            tp = partition_of(name)
            if tp_text(tp) != name:
                message = f"{name[:300]!r} is no partition: write topic:number"
                raise ValueError(message)
            subject = Subject(Address(self.group, *tp), self.name)
            known = Track(subject, self.holds, keeps_moments=self._keeps_moments)
            self._named[name] = self.tracks[tp] = known
            known.is_blind = self._is_blind
            if self._is_working:
                known.works()
        return known

    def _one(self, follow: Callable[[Track, Any], None]) -> Callable[[Any], None]:
        def take(entry: Any) -> None:  # noqa: ANN401 - any entry with a partition
            track = self._track(entry.tp)
            if track is not None:
                follow(track, entry)

        return take

    def _wrote(self, entry: Acked | Kept) -> None:
        if self._only in {None, entry.tp}:
            self._written(entry)

    # ------------------------------------------------------------ of several

    def _several(self, names: Iterable[str]) -> Iterator[Track]:
        for name in names:
            track = self._track(name)
            if track is not None:
                yield track

    def _owned(self, entry: Assigned) -> None:
        self._changed(self.holds.gained(entry))
        for track in self._several(entry.partitions):
            track.assigned(entry)

    def _answered(self, entry: Committed) -> None:
        for name, found in entry.offsets.items():
            for track in self._several([name]):
                track.answered(entry, found)

    def _departed(self, entry: Revoked | Lost) -> None:
        self.holds.departed(entry)
        for track in self._several(entry.partitions):
            track.departed(entry)

    def _commits_unseen(self, _entry: Unseen) -> None:
        self._is_blind = True
        for track in self.tracks.values():
            track.is_blind = True

    def _works(self, _entry: Working) -> None:
        self._is_working = True
        for track in self.tracks.values():
            track.works()

    # ------------------------------------------------------------ calls

    def _called(self, entry: Call) -> None:
        match entry.op:
            case "pause" | "resume" | "assign" | "unsubscribe":
                self._changed(self.holds.called(entry))
            case "seek":
                for track in self._several(entry.offsets or ()):
                    track.seeking(entry)
            case "commit":
                for track, offset in self._committed(entry):
                    track.committing(entry, offset)

    def _returned(self, entry: Return) -> None:
        offsets = entry.offsets or {}
        match entry.op:
            case "pause" | "resume" | "assign" | "unsubscribe":
                self._changed(self.holds.returned(entry))
            case "seek":
                for track in self._several(offsets):
                    track.sought(entry, offsets[tp_text(track.case.tp)])
            case "commit":
                for track, offset in self._committed(entry):
                    track.committed(entry, offset)

    def _committed(self, entry: Call) -> Iterator[tuple[Track, int]]:
        for name, offset in (entry.offsets or {}).items():
            for track in self._several([name]):
                if offset is not None:
                    yield track, offset

    # ------------------------------------------------------------ holds

    def _heard(self, entry: Hold) -> None:
        self._changed(self.holds.hears(entry))

    def _lifted(self, entry: Lift) -> None:
        change = self.holds.lifted(entry)
        for track in self._covered(entry.scope):
            track.lifted(entry)
        self._changed(change)

    def _changed(self, change: Change) -> None:
        if self._is_working:
            for one in change.placed:
                for track in self._covered(one.scope):
                    track.placed(one)
        if self._watch is not None:
            self._watch.holds(self, change)

    def _covered(self, scope: str) -> Sequence[Track]:
        if is_partition(scope):
            track = self.tracks.get(partition_of(scope))
            return () if track is None else (track,)
        covers = covering(scope)
        return [track for tp, track in self.tracks.items() if covers(tp)]


def split(journal: Source) -> Iterator[tuple[Address, Entry]]:
    """
    Yield the entries of a journal, each with what it is about.

    An entry that may be about any partition has the address of its group: every case of
    the group needs it, in its place among the others. One that names partitions comes
    once for each of them, too.

    Raises:
        JournalError: the journal is broken somewhere.
    """
    for entry in journal.entries:
        if not isinstance(entry, Other):
            try:
                addresses = _addresses(journal.group, entry)
            except ValueError as error:
                message = f"the journal of {journal.member}, entry {entry.n}: {error}"
                raise JournalError(message) from error
            for address in addresses:
                yield address, entry


def _addresses(group: str, entry: Entry) -> Sequence[Address]:
    match entry:
        case Acked() | Kept():
            return [Address(None, *tp_of(entry.tp))]
        case Committed() | Call(op="seek" | "commit") | Return(op="seek" | "commit"):
            return [Address(group, *tp_of(name)) for name in entry.offsets or ()]
        case Ownership():  # also tells all others that a hold may have ended
            own = (Address(group, *tp_of(name)) for name in entry.partitions)
            return [Address(group), *own]
    about: str | None = getattr(entry, "tp", None)
    return [Address(group) if about is None else Address(group, *tp_of(about))]
