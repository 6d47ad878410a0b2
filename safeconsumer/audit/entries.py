"""
Decodes the lines of a journal into typed entries.

The format is defined in :mod:`safeconsumer.journal.format`. Types are checked while a
line is decoded. Events, fields and calls that this version does not know are ignored,
because another program that uses the same format may write more of them.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta, Struct, field

from safeconsumer.errors.base import JournalError
from safeconsumer.journal.format import VERSION

# org.apache.kafka.common.protocol: an offset is an INT64.
_MAX_OFFSET = 2**63 - 1

Count = Annotated[int, Meta(ge=0)]
Position = Annotated[int, Meta(ge=0, le=_MAX_OFFSET)]
# The largest valid offset of a record, so that the offset after it is also valid.
Offset = Annotated[int, Meta(ge=0, lt=_MAX_OFFSET)]
Id = int | str


class Entry(Struct, tag_field="e", tag="", gc=False, kw_only=True):
    """
    One line of a journal; no code modifies an entry.

    Attributes:
        n: the number of the entry in the journal of its process.
        at: seconds since the epoch, by the clock of that process.
    """

    n: int
    at: float

    @property
    def event(self) -> str:
        """The name of the event."""
        return str(self.__struct_config__.tag)


class Ownership(Entry):
    """The ownership of some partitions begins or ends."""

    partitions: list[str]
    generation: int | None = None


class Assigned(Ownership, tag="assigned"):
    """Ownerships begin; ``cluster`` is the cluster's id, ``topics`` has topic ids by name."""

    topics: dict[str, str | None] | None = None
    cluster: str | None = None


class Revoked(Ownership, tag="revoked"):
    """Ownerships end in a rebalance, or by a call to ``assign`` or ``unsubscribe``."""


class Lost(Ownership, tag="lost"):
    """Ownerships ended because the membership was lost."""


class Unseen(Entry, tag="unseen"):
    """After this entry, commits for the member may be missing from its journal."""


class Committed(Entry, tag="committed"):
    """The committed offsets at which ownerships begin; None if nothing is committed."""

    offsets: dict[str, Position | None]
    notes: dict[str, str] = {}


class Clock(Entry, tag="clock"):
    """The minimum and maximum number of seconds by which the broker's clock is ahead."""

    least: float
    most: float


class Begins(Entry, tag="begins"):
    """The position was set to the committed offset, or by the client's reset policy."""

    tp: str
    offset: Position


class LogStart(Entry, tag="log_start"):
    """The start of the log, from a broker's answer after a position was out of range."""

    tp: str
    first: Position


class Deliver(Entry, tag="deliver"):
    """Consecutive records that a poll, or a step of an iteration, returned."""

    tp: str
    start: Offset = field(name="from")
    next: Offset
    first: Offset
    last: Offset
    count: Count
    after: Count | None = None
    asked: float | None = None
    gaps: list[tuple[Offset, Offset]] | None = None
    peek: bool | None = None
    written: float | None = None
    created: float | None = None

    @property
    def has_sound_gaps(self) -> bool:
        """Whether the gaps are sorted, and lie between the first and the last offset."""
        at = self.first
        for start, end in self.gaps or ():
            if not at < start < end <= self.last:
                return False
            at = end
        return True


class Reset(Entry, tag="reset"):
    """The ownership begins at the offset to which an operator's hold moves the partition."""

    tp: str
    offset: Position
    owner: str


class Named(Entry, tag="named"):
    """The id of the topic, recorded later because it was unknown when the ownership began."""

    tp: str
    topics: dict[str, str]


class Transactional(Entry, tag="transactional"):
    """A batch of a transaction was read, so some offsets may have no record."""

    tp: str


class Moved(Entry, tag="moved"):
    """The position moved past offsets that have no record."""

    tp: str
    start: Offset = field(name="from")
    next: Offset


class Call(Entry, tag="call"):
    """The application calls ``op``: pause, resume, seek, commit, assign or unsubscribe."""

    op: str
    id: Id
    scopes: list[str] | None = None
    owner: str | None = None
    every: bool | None = None
    until: float | None = None
    lifetime: str | None = None
    moves: bool | None = None
    offsets: dict[str, Position | None] | None = None
    ok: bool | None = None


class Return(Call, tag="return"):
    """The call with this id returned; ``ok`` is false if it failed."""


class Hold(Entry, tag="hold"):
    """A hold is in force that no call of this process lists in its ``scopes``."""

    scope: str
    owner: str | None = None
    since: float | None = None
    until: float | None = None
    written: float | None = None
    offset: Position | None = None


class Lift(Entry, tag="lift"):
    """A hold has ended; ``why`` is the reason if no call lifted it."""

    scope: str
    owner: str | None = None
    since: float | None = None
    why: str | None = None


class Working(Entry, tag="working"):
    """After this entry, a worker's handlers get the records."""

    order: str


class Handle(Entry, tag="handle"):
    """A handler starts to process one record, or a ``batch`` of offsets."""

    tp: str
    offset: Offset
    id: Id
    batch: Annotated[list[Offset], Meta(min_length=1)] | None = None
    lane: str | None = None
    attempt: int | None = None
    epoch: int | None = None


class Handled(Entry, tag="handled"):
    """A handler has ended; if it is not ``ok``, it may have completed some records."""

    tp: str
    offset: Offset
    id: Id
    ok: bool
    done: list[Offset] | None = None


class Completed(Entry, tag="completed"):
    """A record is complete although its handler failed."""

    tp: str
    offset: Offset
    why: str
    epoch: int | None = None


class Dropped(Entry, tag="dropped"):
    """A worker dropped the records before an offset, because of a seek."""

    tp: str
    before: Position


class Running(Entry, tag="running"):
    """The offsets that handlers are working on, by partition."""

    records: dict[str, list[Offset]]


class Acked(Entry, tag="acked"):
    """Records of a producer that a broker acknowledged."""

    tp: str
    first: Offset
    last: Offset


class Kept(Entry, tag="kept"):
    """The first offset that was still in a topic's log when the log was read."""

    tp: str
    first: Offset


class Other(Struct, frozen=True, kw_only=True):
    """
    A line whose event this version does not know.

    Attributes:
        n: as in :class:`Entry`.
        at: as in :class:`Entry`.
        event: the name of the event.
    """

    n: int
    at: float
    event: str = field(name="e")


class End(Struct, frozen=True):
    """
    The last line of a part that is followed by another part.

    Attributes:
        part: the number of the next part.
        after: the number of the last entry.
    """

    part: int
    after: int
    n: ClassVar[int] = -1


class Head(Struct, frozen=True, kw_only=True):
    """
    The first line of a file.

    Attributes:
        journal: the version of the format.
        member: names the process.
        group: the process's consumer group.
        at: when the file began.
        began: when the journal began; None if it began with this file.
        part: the number of this part; 1 for the first or only one.
        after: the number of the last entry in the previous part.
    """

    journal: int
    member: str
    group: str = ""
    at: float
    began: float | None = None
    part: Annotated[int, Meta(ge=1)] = 1
    after: Count = 0


EVENTS: Mapping[str, type[Entry]] = {
    str(kind.__struct_config__.tag): kind
    for kind in (
        *(Acked, Assigned, Begins, Call, Clock, Committed, Completed),
        *(Deliver, Dropped),
        *(Handle, Handled, Hold, Kept, Lift, LogStart, Lost, Moved, Named),
        *(Reset, Return),
        *(Revoked, Running, Transactional, Unseen, Working),
    )
}
"""
The events that this version knows.
"""

Line = Entry | Other | End

Decoder = msgspec.json.Decoder[Any]

_entries = Decoder(reduce(or_, EVENTS.values()))
_others, _ends, _heads, _any = Decoder(Other), Decoder(End), Decoder(Head), Decoder()

# Decoding errors, including those for bytes that are not text and for too deeply nested
# brackets.
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def head_of(name: str, line: bytes) -> Head:
    """
    Decode a journal's first line; ``name`` names the file in error messages.

    Raises:
        JournalError: the line is not the head of a journal, or has another version.
    """
    found = _decoded(name, 1, line, _any)
    if not isinstance(found, dict) or "journal" not in found:
        message = f"{name} is no journal: its first line has no version"
        raise JournalError(message)
    if found["journal"] != VERSION:
        message = (
            f"{name} is a journal of version {found['journal']!r}; this program reads "
            f"{VERSION}"
        )
        raise JournalError(message)
    head: Head = _decoded(name, 1, line, _heads)
    return head


def decoded(name: str, number: int, text: bytes) -> Iterable[Line]:
    """
    Decode complete lines; ``number`` is the number of the first line in its file.

    Raises:
        JournalError: a line is broken; the message has the line's file and number, the
            path of the field and the type that the field should have. The lines before
            the broken line are yielded first.
    """
    try:
        found: list[Line] = _entries.decode_lines(text)
    except _BROKEN:
        found = []
    if len(found) == text.count(b"\n"):  # decode_lines() skips empty lines
        return found
    lines = text.split(b"\n")[:-1]
    return (_entry(name, number + at, line) for at, line in enumerate(lines))


def _entry(name: str, number: int, line: bytes) -> Line:
    found = _decoded(name, number, line, _any)
    decoder = _entries
    if isinstance(found, dict):
        if "n" not in found and "part" in found:
            decoder = _ends
        elif isinstance(found.get("e"), str) and found["e"] not in EVENTS:
            decoder = _others
    entry: Line = _decoded(name, number, line, decoder)
    return entry


def _decoded(name: str, number: int, line: bytes, decoder: Decoder) -> Any:  # noqa: ANN401 - as the decoder has it
    try:
        return decoder.decode(line)
    except msgspec.ValidationError as error:
        message = f"{name}, line {number}: {error}"
        raise JournalError(message) from error
    except _BROKEN as error:
        message = f"{name}, line {number}: not JSON; only a last line may be cut"
        raise JournalError(message) from error
