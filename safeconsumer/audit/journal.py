"""
Defines and reads the delivery journal: what one process did, in JSON lines.

This is version 1. The first line, ``{"journal": 1, "member": ..., "group": ..., "at":
...}``, names the member. Each further line has ``n``, counted up by one, ``at``, the
seconds since the epoch on a clock that never goes back, ``e``, the event, and its
fields:

- ``group``: ``group``, to which all further entries belong, instead of the head's; it
  is written if a consumer is given the writer;
- ``call`` and ``return``: ``op`` (pause, resume, seek, commit, poll), ``id``, the same
  for both; ``scopes`` and ``owner`` (pause, resume), ``until`` (a pause that expires),
  ``lifetime`` (pause: until_resumed, while_assigned or plain, where it is known), ``offsets``
  (commit; seek, null: the first or the next), ``ok`` false if it failed; ``paused``,
  ``gated`` and ``assigned`` after it (pause, resume; ``gated`` is null if it is not
  known), ``seen``, the last entry before these were read, and ``seen_at``, when;
- ``deliver``: ``tp``, ``from`` and ``next``, the positions before and after, ``first``
  and ``last`` offset, ``count``, ``gaps``: offsets between these that no record had,
  ``[7, 9]`` for 7 and 8, ``poll``: the call it belongs to, or ``after``: the last entry
  before the step of an iteration that yielded it, with ``asked``, when the step began;
  ``peek`` true if the position stays where it was (``poll(update_offsets=False)``);
  of the first record ``written``, when the broker appended it, or ``created``, when its
  producer says that it was made, seconds since the epoch;
- ``begins``: ``tp``, ``offset``: a position was set that no seek had named: the
  committed offset, or the one that the client's reset rule gives;
- ``moved``: ``tp``, ``from`` and ``next``: the position moved over offsets without a
  record;
- ``assigned``, ``revoked``, ``lost``: ``partitions``, ``generation``; with ``assigned``
  also ``commits``, false if the client commits by itself, unseen;
- ``hold``, ``lift``: ``scope``, ``owner`` of a hold that came from elsewhere; ``since``
  is when it was lifted, as the entry may be written a little later, and ``why`` is the
  reason if nobody lifted it: it expired, or ended with an ownership;
- ``parked``: ``tp``, ``bytes``, ``limit``;
- ``working``: ``order`` (partition, key, unordered): from here on a worker's handlers
  get the records, so that a record counts as done only if they report it;
- ``handle`` and ``handled``: a handler begins and ends: ``tp``, ``offset``, ``id``, the
  same for both; with ``handle`` also ``lane``, the same for records that must not
  overlap, null if any may, ``attempt``, and ``epoch``, a number that is larger in each
  ownership; with ``handled`` ``ok``, false if it raised;
- ``completed``: ``tp``, ``offset``, ``why``: the record is complete although its
  handler failed: dead-letter (written when the letter is acknowledged, before anybody
  else learns of it) or skipped (may be written after others have learned of it);
- ``running``: ``records``, the offsets by partition that handlers are working on;
  written between the moment when a hold is in force and the entry that reports it;
- ``acked``: ``tp``, ``first``, ``last``: a producer's acknowledged records;
- ``kept``: ``tp``, ``first``: where the log of a topic begins that was read; what it
  had before is deleted;
- ``group-hold``, ``group-lift``: ``scope``, ``owner``, ``group``: acknowledged by the
  control topic, or about to be asked for; ``until`` of a hold that expires;
  ``source``, ``operator`` or ``group``, if it is known which of the two it is; a lift
  that failed is written again with ``ok`` false: it is unknown whether it was done;
- ``group-asked``: the same and ``id``: a hold that is about to be asked for; its
  ``until`` is the earliest possible, as if it were placed at that moment. The outcome
  has the same ``id``: ``group-hold``, or ``group-refused`` if it was certainly not
  placed; without either the outcome is unknown. A ``group-lift`` with an ``id`` is
  followed by ``group-lifted`` or ``group-refused`` likewise. ``written`` is when the
  broker appended it, seconds since the epoch, null if the control topic has the times
  of producers; ``offset`` its place there;
- ``purged``: ``tp``, ``count``, ``why``: fetched records that were thrown away;
  without ``count`` if that is not known for this partition alone;
- ``fault`` and ``heal``: ``id``, the same for both; with ``fault`` also ``kind``,
  ``targets`` (names of members, numbers of brokers, topics) and ``seconds``, how long
  it is meant to last, 0 if it is over at once. A test did this to the fleet. They are
  for pictures; no check reads them, so no fault excuses anything.

A process that is killed may leave half a line at the end; nothing else may be broken.

A journal whose head has ``shared`` is appended to by one process after the other: an
operator's commands share one. Its entries are numbered consecutively; ``at`` is by each
process's own clock, which may have been set back. Its head has ``cluster``, the id of
the one cluster that it is about; no check reads it, but processes that append do.

A journal may be in parts, each a file. The head of a later one also has ``part``,
counted up by one from 1, ``after``, the number of the last entry before it, and
``began``, the ``at`` of the first head; a part that is over ends with a line without
``n``: ``part`` and ``after`` of the next one.
"""

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field, frozen

from safeconsumer.audit.fields import check, is_time
from safeconsumer.errors import JournalError

VERSION = 1

# The reasons why a hold that nobody lifted is over.
EXPIRED, ENDED = "expired", "ended"

# The events of operators, who place and lift holds of a whole group.
OF_OPERATORS = frozenset(
    {"group-asked", "group-hold", "group-lift", "group-lifted", "group-refused"}
)

# The reasons why a record is complete although its handler failed.
DEAD_LETTER, SKIPPED = "dead-letter", "skipped"

# Skips the search for blanks around a document, with which json.loads begins and ends.
_scan: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]


@define
class Entry:
    """
    One line of a journal; it is never changed.

    Attributes:
        member: the process that wrote it.
        number: its number in the journal of that process.
        at: seconds since the epoch.
        event: the event.
        fields: all other fields.
    """

    member: str
    number: int
    at: float
    event: str
    fields: Mapping[str, Any] = field(factory=dict)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of any kind
        """Return a field; None if it is not there."""
        return self.fields.get(name)


@frozen(kw_only=True)
class Journal:
    """
    One process's journal.

    Attributes:
        member: names the process.
        group: its consumer group.
        entries: in their order.
        is_cut: whether the last line was left unfinished.
    """

    member: str
    group: str
    entries: tuple[Entry, ...]
    is_cut: bool = False


@frozen(kw_only=True)
class Head:
    """
    The first line of a file.

    Attributes:
        member: names the process.
        group: its consumer group.
        began: when its journal began; together with ``member`` this identifies it.
        part: the number of this part; 1 if it is the first one, or the only one.
        after: the number of the last entry before it.
        is_shared: whether one process after the other appends to it.
    """

    member: str
    group: str
    began: float
    part: int = 1
    after: int = 0
    is_shared: bool = False


@frozen
class Tail:
    """The end of a part: its last entry, and the number of the next part, if it has one."""

    last: int
    next: int | None


class Source(Protocol):
    """Any source of one member's entries."""

    @property
    def member(self) -> str:
        """The name of the process."""

    @property
    def group(self) -> str:
        """Its consumer group."""

    @property
    def entries(self) -> Iterable[Entry]:
        """Its entries in order; they may be read again."""


def read(path: Path) -> Journal:
    """
    Read one file that contains a whole journal.

    Raises:
        JournalError: it cannot be read, is of a newer version, is broken elsewhere
            than in its last line, or is one of several parts; names the file and the
            line.
    """
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        message = f"{path} cannot be read: {error}"
        raise JournalError(message) from error
    return parse(str(path), text)


def parse(name: str, text: str) -> Journal:
    """
    Read a journal's text; ``name`` is for errors.

    Raises:
        JournalError: as :func:`read`.
    """
    lines = text.split("\n")
    is_cut = lines.pop() != ""
    if not lines:
        message = f"{name} has no whole line: it is no journal, or it is empty"
        raise JournalError(message)
    head = head_of(name, lines[0])
    check_begins(head, name)
    entries: list[Entry] = []
    reading = entries_of(name, head, lines[1:])
    while True:
        try:
            entries.append(next(reading))
        except StopIteration as end:
            check_ends(end.value, name)
            break
    return Journal(
        member=head.member, group=head.group, entries=tuple(entries), is_cut=is_cut
    )


def check_begins(head: Head, name: str, last: int = 0) -> None:
    """
    Check that nothing is missing between an entry and the part that should follow it.

    Raises:
        JournalError: something is missing.
    """
    if head.after > last:
        message = (
            f"{name} is part {head.part} of the journal of {head.member}: entries "
            f"{last + 1} to {head.after} stand in a part that is missing"
        )
        raise JournalError(message)


def check_ends(tail: Tail, name: str) -> None:
    """
    Check that a journal may end with this part.

    Raises:
        JournalError: it continues in a part that is missing.
    """
    if tail.next is not None:
        message = (
            f"{name} goes on after entry {tail.last} in part {tail.next}, which is "
            "missing"
        )
        raise JournalError(message)


def head_of(name: str, line: str) -> Head:
    """
    Read a journal's first line.

    Raises:
        JournalError: it is not a first line, or of a newer version.
    """
    head = _document(name, 1, line)
    if "journal" not in head:
        message = f"{name} is no journal: its first line has no version"
        raise JournalError(message)
    version = head["journal"]
    if version != VERSION:
        message = (
            f"{name} is a journal of version {version!r}; this program reads {VERSION}"
        )
        raise JournalError(message)
    began: Any = head.get("began", head.get("at"))
    part, after = _place(head)
    if not is_time(began) or part < 1 or after < 0:
        message = f"{name}, line 1: at, began, part or after is not valid"
        raise JournalError(message)
    return Head(
        member=str(head.get("member", name)),
        group=str(head.get("group", "")),
        began=float(began),
        part=part,
        after=after,
        is_shared=head.get("shared") is True,
    )


def _place(document: Mapping[str, Any]) -> tuple[int, int]:
    part, after = document.get("part", 1), document.get("after", 0)
    is_right = type(part) is int and type(after) is int
    return (part, after) if is_right else (-1, -1)


def entries_of(
    name: str, head: Head, lines: Iterable[str]
) -> Generator[Entry, None, Tail]:
    """
    Read the lines after the first; return how they end.

    Raises:
        JournalError: a line is broken, or missing.
    """
    number, following = head.after, None
    for line_number, line in enumerate(lines, start=2):
        document = _document(name, line_number, line)
        if following is not None:
            message = f"{name}, line {line_number}: stands after the end of its part"
            raise JournalError(message)
        if "n" not in document and "part" in document:
            following = _following(name, line_number, number, document)
            continue
        number += 1
        yield _entry(name, head.member, number, line_number, document)
    return Tail(number, following)


def _following(name: str, line: int, last: int, document: Mapping[str, Any]) -> int:
    part, after = _place(document)
    if after != last:
        message = (
            f"{name}, line {line}: the part ends with entry {after}, and {last} stands "
            "before it: lines are missing"
        )
        raise JournalError(message)
    return part


def _entry(
    name: str, member: str, number: int, line: int, document: dict[str, Any]
) -> Entry:
    n, at, event = (document.pop(key, None) for key in ("n", "at", "e"))
    if type(n) is not int or not is_time(at) or not isinstance(event, str):
        message = f"{name}, line {line}: no n, at and e"
        raise JournalError(message)
    if n != number:
        message = (
            f"{name}, line {line}: entry {n} stands where {number} should: lines "
            "are missing, or two processes wrote it"
        )
        raise JournalError(message)
    try:
        check(event, document)
    except JournalError as error:
        message = f"{name}, line {line}: {error}"
        raise JournalError(message) from error
    return Entry(member, n, float(at), event, document)


def _document(name: str, number: int, line: str) -> dict[str, Any]:
    try:
        document, end = _scan(line, 0)
    except (StopIteration, ValueError, RecursionError):
        document, end = None, -1
    if end != len(line):
        message = f"{name}, line {number}: not JSON; only a last line may be cut"
        raise JournalError(message)
    if not isinstance(document, dict):
        message = f"{name}, line {number}: not an object"
        raise JournalError(message)
    return document
