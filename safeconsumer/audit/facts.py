"""
Defines the facts of a journal: flat rows that all rules, views and traces read.

:mod:`safeconsumer.audit.process` creates the facts in one pass over the journal of one
process; it tracks positions, holds and handlers, and does not read any other journal.
The group, the partition and the member are passed along with a fact. Each fact has
``n`` and ``at``, the number and time of the entry that shows the fact. An entry that
can be judged without other entries is itself a fact. The table in ``design/audit.md``
lists the readers of each fact.
"""

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import TypeAlias

import msgspec

from safeconsumer.audit import entries
from safeconsumer.audit.entries import Entry
from safeconsumer.audit.spans import Span

Fact: TypeAlias = Entry


def _event_of(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Derived(Entry, tag=_event_of):
    """A fact that no single entry states."""


class Owned(Derived):
    """
    An ownership begins.

    Attributes:
        is_back: whether the partition came back in the same or the next generation, so
            that no other member can have owned it in between.
    """

    generation: int | None = None
    topic_id: str | None = None
    cluster: str | None = None
    is_back: bool = False


class Released(Derived):
    """An ownership ends."""

    generation: int | None = None
    is_lost: bool = False


class Positioned(Derived):
    """
    The first position of an ownership is known.

    Attributes:
        offset: the position.
        how: what set the position: ``broker`` for the committed offset or the client's
            reset policy, ``seek``, ``reset`` for an operator's hold, or ``records`` if
            only the entries after it show the position.
        answered: the committed offset in the broker's answer; -1 if nothing is
            committed, None if the journal has no answer.
        by: the metadata of that commit.
        asked: the number of the entry with that answer; 0 without an answer.
    """

    offset: int
    how: str
    answered: int | None = None
    by: str = ""
    asked: int = 0


class Delivered(Derived):
    """
    Records were delivered by one poll, or by several polls without a gap between them.

    Attributes:
        start: the position before the records.
        first: the first offset.
        last: the last offset.
        next: the position after the records.
        count: the number of records.
        gaps: offsets between ``first`` and ``last`` that have no record.
        stood: the position according to all earlier entries; None if it is not known.
        is_owned: whether the partition was owned.
        is_peek: whether the poll left the position unchanged, so that the records will
            be delivered again.
        asked: when the poll began.
        written: when the broker appended the first record.
        created: the producer's time of the first record.
    """

    start: int
    first: int
    last: int
    next: int
    count: int
    gaps: Sequence[Span] = ()
    stood: int | None = None
    is_owned: bool = True
    is_peek: bool = False
    asked: float | None = None
    written: float | None = None
    created: float | None = None

    @property
    def spans(self) -> Iterator[Span]:
        """The offsets of the records, as contiguous ranges."""
        at = self.first
        for start, end in self.gaps:
            yield at, start
            at = end
        yield at, self.last + 1


class Sought(Derived):
    """A seek chose the first position of an ownership, or later moved to a lower position."""

    offset: int


class Skipped(Derived):
    """A seek, or an operator, moved the position forward from ``start`` to ``end``."""

    start: int
    end: int


class AutoReset(Derived):
    """
    The client changed the position according to its reset policy.

    Attributes:
        is_sought: whether there was a seek since the last record.
        log: the start of the log in the broker's first answer to a fetch after the
            reset, from the member's ``LogStart`` entry; None without such an answer.
    """

    start: int
    end: int
    is_sought: bool = False
    log: int | None = None

    @property
    def is_over_deleted(self) -> bool:
        """Whether a broker confirmed that the old position was no longer in the log."""
        return self.log is not None and self.start < self.log


class Committed(Derived):
    """
    A commit was acknowledged, failed, or never got an answer.

    Attributes:
        asked: the number of the call's entry; None if the journal has no call.
        called: the time of the call, or else of the answer.
        answered: when the answer arrived; None without an answer.
        offset: the committed offset.
        is_done: whether the broker acknowledged the commit.
        is_owned: whether the member owned the partition at the time of the call.
        stood: the position at the time of the call; None if it was not known.
        floor: the end of the last record below the highest offset that was committed
            before in the ownership, since the last seek; that offset if no entry shows
            the record, and -1 if no offset was committed.
        is_before: whether the committed records were delivered before the last seek.
        is_first: whether there was no seek in the ownership before the commit.
        departed_in: the generation in which the partition had been revoked; None if it
            was not revoked.
        own: the number of the entry that began the ownership; None if there was no
            ownership yet.
    """

    asked: int | None
    called: float
    offset: int
    is_done: bool
    is_owned: bool
    answered: float | None = None
    stood: int | None = None
    floor: int = -1
    is_before: bool = False
    is_first: bool = True
    departed_in: int | None = None
    own: int | None = None

    @property
    def call(self) -> int:
        """The entry that requested the commit, or else the entry that reports the answer."""
        return self.n if self.asked is None else self.asked


class EarlyCommit(Derived):
    """A commit was requested beyond a record that was not complete."""

    offset: int
    first: int


class HandlerBegan(Derived):
    """
    A handler began.

    Attributes:
        offset: the handler's record, or the first of several.
        last: the last record.
        unknown: offsets of the handler that were already complete, or were not
            delivered.
        busy: records of the same lane that other handlers were working on.
        after: a later record of the lane whose handler had already begun.
        over: an earlier record of the lane that was not complete.
    """

    offset: int
    last: int
    unknown: Sequence[int] = ()
    busy: Sequence[int] = ()
    after: int | None = None
    over: int | None = None


class Done(Derived):
    """The records from ``start`` to before ``end`` are complete."""

    start: int
    end: int


class GivenUp(Derived):
    """
    A worker dropped records because its program called ``seek`` past them.

    Attributes:
        own: the number of the ownership, counted from 0.
    """

    own: int
    start: int
    end: int


class UnderHold(Derived):
    """
    A member delivered records, or began a handler, while the partition was held.

    Attributes:
        check: the rule that forbids the action.
        what: the action, as text.
        offset: the first record concerned.
        scope: the scope of one of the holds.
        owner: the owner of that hold.
        doubt: the reason why the hold may have ended; "" if no entry suggests that.
            With ``group_holds``, the reason why another hold may have ended.
        group_holds: scopes and owners of holds of the group that no entry ended; empty
            if the process itself shows that a hold was in force.
        again: the times and numbers of further entries of the same kind under these
            holds.
    """

    check: str
    what: str
    offset: int | None
    scope: str
    owner: str
    doubt: str = ""
    group_holds: Sequence[tuple[str, str]] = ()
    again: Sequence[tuple[float, int]] = ()


class OwnHold(Derived):
    """
    A hold that the member placed or read has ended, or was in force to the end.

    Attributes:
        lifetime: the ``lifetime=`` of the call, if a call placed the hold.
        expires: when the hold would expire.
        until: when the hold ended; None if it was in force at the journal's end.
        how: how the hold ended: ``resume``, ``lift``, or the reason if no call ended
            it.
    """

    scope: str
    owner: str
    lifetime: str | None = None
    expires: float | None = None
    until: float | None = None
    how: str | None = None


class OpenSeek(Derived):
    """Records were delivered during a seek that never returned."""


class JournalEnd(Derived):
    """The journal ends; ``last_at`` is the time of the last delivery or handler start."""

    last_at: float | None = None


KINDS: Sequence[type[Fact]] = (
    *(AutoReset, Committed, Delivered, Done, EarlyCommit, GivenUp, HandlerBegan),
    *(JournalEnd, OpenSeek, Owned, OwnHold, Positioned, Released, Skipped, Sought),
    UnderHold,
    *(entries.Acked, entries.Clock, entries.Hold, entries.Kept, entries.LogStart),
    *(
        entries.Moved,
        entries.Named,
        entries.Reset,
        entries.Transactional,
        entries.Unseen,
    ),
    entries.Working,
)

_decoder: "msgspec.json.Decoder[Fact]" = msgspec.json.Decoder(reduce(or_, KINDS))


def encoded(fact: Fact) -> str:
    """Return a fact as JSON."""
    return msgspec.json.encode(fact).decode()


def decoded(text: str) -> Fact:
    """Return the fact from the output of :func:`encoded`."""
    return _decoder.decode(text)
