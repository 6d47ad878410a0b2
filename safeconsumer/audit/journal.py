"""
The delivery journal: what a consumer did, one JSON line each, one file per member.

Version 1. The first line says whose it is, ``{"journal": 1, "member": ..., "group":
..., "at": ...}``; each further one has ``n``, counted up by one, ``at``, seconds since
the epoch on a clock that never goes back, ``e``, what happened, and its fields:

- ``call`` and ``return``: ``op`` (pause, resume, seek, commit, poll), ``id``, the same
  for both; ``scopes`` and ``owner`` (pause, resume), ``until`` (a pause that expires),
  ``lifetime`` (pause: until_resumed or while_assigned, where it is known), ``offsets``
  (commit; seek, null: the first or the next), ``ok`` false if it failed; ``paused``,
  ``gated`` and ``assigned`` after it (pause, resume; in ``gated`` nothing if that is
  not known), ``seen``, the last entry before that was looked at, and ``seen_at``, when;
- ``deliver``: ``tp``, ``from`` and ``next``, the positions before and after, ``first``
  and ``last`` offset, ``count``, ``gaps``: offsets between these that no record had,
  ``[7, 9]`` for 7 and 8, ``poll``: the call it belongs to, or ``after``: the last entry
  before the step of an iteration that yielded it, with ``asked``, when the step began;
  of the first record ``written``, when the broker appended it, or ``created``, when its
  producer says that it was made, seconds since the epoch;
- ``moved``: ``tp``, ``from`` and ``next``: the position went on over what is no record;
- ``assigned``, ``revoked``, ``lost``: ``partitions``, ``generation``;
- ``hold``, ``lift``: ``scope``, ``owner``: of holds that came from elsewhere; with
  ``since`` when it was lifted, as the entry may be written a little later, and ``why``
  where nobody lifted it: expired, or ended with an ownership;
- ``parked``: ``tp``, ``bytes``, ``limit``;
- ``working``: ``order`` (partition, key, unordered): from here on a worker's handlers
  get the records, so that only those count as done of which they say so;
- ``handle`` and ``handled``: a handler begins and ends: ``tp``, ``offset``, ``id``, the
  same for both; with ``handle`` also ``lane``, the same for records that must not
  overlap, null if any may, ``attempt``, and ``epoch``, a number that is larger in each
  ownership; with ``handled`` ``ok``, false if it raised;
- ``completed``: ``tp``, ``offset``, ``why``: the record is complete although its
  handler failed: dead-letter (written when the letter is acknowledged, before anybody
  hears of it) or skipped (may be written later than others have heard of it);
- ``running``: ``records``, offsets by partition that handlers are at; written between
  the moment when a hold is in force and the entry that says so;
- ``acked``: ``tp``, ``first``, ``last``: a producer's acknowledged records;
- ``group-hold``, ``group-lift``: ``scope``, ``owner``, ``group``: acknowledged by the
  control topic, or about to be asked for; ``until`` of a hold that expires;
- ``purged``: ``tp``, ``count``, ``why``: fetched records that were thrown away; no
  ``count`` where it is not known of that partition alone;
- ``fault`` and ``heal``: ``id``, the same for both; with ``fault`` also ``kind``,
  ``targets`` (names of members, numbers of brokers, topics) and ``seconds``, how long
  it is meant to last, 0 if it is over at once: what a test did to the fleet. They are
  for pictures; no check reads them, so no fault excuses anything.

A process that is killed may leave half a line at the end; nothing else may be broken.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field, frozen

from safeconsumer.audit.fields import check, is_time
from safeconsumer.errors import JournalError

VERSION = 1

# Why a hold is over that nobody lifted.
EXPIRED, ENDED = "expired", "ended"

# Why a record is complete though its handler failed.
DEAD_LETTER, SKIPPED = "dead-letter", "skipped"

# Without the search for blanks around a document that json.loads begins and ends with.
_scan: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]


@define
class Entry:
    """
    One line of a journal; nobody changes it.

    Attributes:
        member: which process wrote it.
        number: its place in that process.
        at: seconds since the epoch.
        event: what happened.
        fields: the rest.
    """

    member: str
    number: int
    at: float
    event: str
    fields: Mapping[str, Any] = field(factory=dict)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - of any kind
        """
        Return a field; None if it is not there.
        """
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


class Source(Protocol):
    """
    Whatever tells what one member did.
    """

    @property
    def member(self) -> str:
        """
        Names the process.
        """

    @property
    def group(self) -> str:
        """
        Its consumer group.
        """

    @property
    def entries(self) -> Iterable[Entry]:
        """
        What it did, in order; may be asked for again.
        """


def read(path: Path) -> Journal:
    """
    Read one file as a whole.

    Raises:
        JournalError: it cannot be read, is of a newer version, or is broken elsewhere
            than in its last line; names the file and the line.
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
    member, group = head_of(name, lines[0])
    entries = tuple(entries_of(name, member, lines[1:]))
    return Journal(member=member, group=group, entries=entries, is_cut=is_cut)


def head_of(name: str, line: str) -> tuple[str, str]:
    """
    Read a journal's first line: whose it is, and of which group.

    Raises:
        JournalError: it is no such line, or of a newer version.
    """
    head = _document(name, 1, line)
    version = head.get("journal")
    if version != VERSION:
        message = (
            f"{name} is a journal of version {version!r}; this program reads {VERSION}"
        )
        raise JournalError(message)
    return str(head.get("member", name)), str(head.get("group", ""))


def entries_of(name: str, member: str, lines: Iterable[str]) -> Iterator[Entry]:
    """
    Read the lines after the first.

    Raises:
        JournalError: one is broken, or missing.
    """
    for number, line in enumerate(lines, start=1):
        yield entry_of(name, member, number, line)


def entry_of(name: str, member: str, number: int, line: str) -> Entry:
    """
    Read the line of the entry that should have this number.

    Raises:
        JournalError: it is broken, or another's.
    """
    document = _document(name, number + 1, line)
    n, at, event = (document.pop(key, None) for key in ("n", "at", "e"))
    if type(n) is not int or not is_time(at) or not isinstance(event, str):
        message = f"{name}, line {number + 1}: no n, at and e"
        raise JournalError(message)
    if n != number:
        message = (
            f"{name}, line {number + 1}: entry {n} stands where {number} should: lines "
            "are missing, or two processes wrote it"
        )
        raise JournalError(message)
    try:
        check(event, document)
    except JournalError as error:
        message = f"{name}, line {number + 1}: {error}"
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
