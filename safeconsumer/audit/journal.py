"""Reads delivery journals, whose format :mod:`safeconsumer.journal.format` defines."""

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field, frozen

from safeconsumer.audit.fields import check, is_time
from safeconsumer.errors import JournalError
from safeconsumer.journal.format import VERSION

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
