"""Reads journals of any length line by line, and puts their parts together."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Protocol

from safeconsumer.audit.journal import (
    Entry,
    Head,
    Tail,
    check_begins,
    check_ends,
    entries_of,
    head_of,
)
from safeconsumer.errors import JournalError

_BUFFER = 1 << 20


class Part(Protocol):
    """A part of a journal: one member's entries from one number to another."""

    @property
    def name(self) -> str:
        """The name of the part in error messages."""

    @property
    def head(self) -> Head:
        """The first line, with the member and the place of the part."""

    def read(self) -> Generator[Entry, None, Tail]:
        """Yield its entries, and return how it ends."""

    @property
    def size(self) -> int:
        """How many bytes it has."""


def opened(path: Path) -> "Joined":
    """
    Return the journal in a file; its entries are read when they are asked for.

    Raises:
        JournalError: it cannot be read, or is of a newer version. Faults further on are
            found and reported while it is read.
    """
    (source,) = joined([Lines(path)])
    return source


def sources(paths: Iterable[Path]) -> tuple[list["Joined"], list[str]]:
    """Return the journals in files, with parts put together, and the unreadable files."""
    parts: list[Part] = []
    troubles: list[str] = []
    for path in paths:
        try:
            parts.append(Lines(path))
        except JournalError as error:
            troubles.append(str(error))
    return joined(parts), troubles


def joined(parts: Iterable[Part]) -> list["Joined"]:
    """
    Put parts together; they may come in any order.

    Entries that two parts share count once: the parts are copies, such as a journal
    that is packed and still there. Missing entries are found and reported while the
    journal is read; so are contradictions, from a copy that was written separately.
    """
    found = sorted(parts, key=_place)
    return [
        Joined(list(own)) for _, own in groupby(found, lambda one: _place(one)[:-1])
    ]


def _place(part: Part) -> tuple[str, str, float, int]:
    head = part.head
    return head.member, head.group, head.began, head.after


class Joined:
    """
    One member's journal, put together.

    Args:
        parts: the parts, sorted by where they begin.

    Attributes:
        member: names the process.
        group: its consumer group.
        began: when its first part began, seconds since the epoch.
        is_shared: whether one process after the other appends to it, so that a copy may
            be written separately.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        head = parts[0].head
        self.member, self.group, self.began = head.member, head.group, head.began
        self.is_shared = head.is_shared

    @property
    def names(self) -> Sequence[str]:
        """The names of its parts."""
        return [part.name for part in self._parts]

    @property
    def size(self) -> int:
        """How many bytes its parts have."""
        return sum(part.size for part in self._parts)

    @property
    def entries(self) -> Iterator[Entry]:
        """
        Its entries in order.

        Raises:
            JournalError: a part is broken or missing, or two parts contradict.
        """
        tail = Tail(0, None)
        name = ""
        for count, part in enumerate(self._parts):
            check_begins(part.head, part.name, tail.last)
            ended = yield from _beyond(tail.last, part, self._parts[:count])
            if ended.last >= tail.last:
                tail, name = ended, part.name
        check_ends(tail, name)


def _beyond(
    last: int, part: Part, before: Sequence[Part]
) -> Generator[Entry, None, Tail]:
    if part.head.after == last:  # as is nearly always the case
        return (yield from part.read())
    known = _numbered(before, part.head.after)
    reading = part.read()
    while True:
        try:
            entry = next(reading)
        except StopIteration as end:
            ended: Tail = end.value
            return ended
        if entry.number > last:
            yield entry
        elif next(known, None) != entry:
            message = (
                f"{part.name} has another entry {entry.number} of {entry.member} than "
                f"{before[0].name}: a journal that was copied goes on in both places"
            )
            raise JournalError(message)


def _numbered(parts: Sequence[Part], last: int) -> Iterator[Entry]:
    # Reads the entries after a number once more.
    for part in parts:
        for entry in part.read():
            if entry.number > last:
                yield entry
                last = entry.number


class Lines:
    """
    A part that is a file of JSON lines.

    Raises:
        JournalError: it cannot be read, or is of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        first = next(self._whole_lines(), None)
        if first is None:
            message = f"{path} has no whole line: it is no journal, or it is empty"
            raise JournalError(message)
        self.head = head_of(self.name, first)

    def read(self) -> Generator[Entry, None, Tail]:
        """Yield its entries, and return how it ends."""
        lines = self._whole_lines()
        next(lines, None)
        return (yield from entries_of(self.name, self.head, lines))

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._path.stat().st_size

    def _whole_lines(self) -> Iterator[str]:
        try:
            with self._path.open(
                encoding="utf-8", errors="replace", newline="\n", buffering=_BUFFER
            ) as file:
                for line in file:
                    if line.endswith("\n"):
                        yield line[:-1]
        except OSError as error:
            message = f"{self.name} cannot be read: {error}"
            raise JournalError(message) from error
