"""Reads journals of any length, and joins their parts."""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, NoReturn, Protocol

from safeconsumer.audit.entries import (
    Deliver,
    End,
    Entry,
    Line,
    Other,
    decoded,
    head_of,
)
from safeconsumer.errors.base import JournalError

_BUFFER = 1 << 16
_LONGEST = 1 << 24  # the maximum length of an entry, in bytes

Tail = tuple[int, int | None]
"""
The number of a part's last entry, and the number of the next part, if it has one.
"""


class Source(Protocol):
    """A source of one member's entries, of any kind."""

    @property
    def member(self) -> str:
        """The name of the process."""

    @property
    def group(self) -> str:
        """The consumer group of the process."""

    @property
    def entries(self) -> Iterable[Entry | Other]:
        """The entries in order; a second iteration yields them again."""


class Part:
    """
    One file of a journal.

    Args:
        name: the file's name in error messages.
        open_: opens the file for reading.

    Attributes:
        name: the file's name in errors.
        head: the file's first line.

    Raises:
        JournalError: the file cannot be read, or has another version of the format.
    """

    def __init__(self, name: str, open_: Callable[[], BinaryIO]) -> None:
        self.name = name
        self._open = open_
        _, text = next(self._texts(), (1, b""))
        if not text:
            message = f"{name} has no whole line: it is no journal, or it is empty"
            raise JournalError(message)
        self.head = head_of(name, text[: text.index(b"\n")])

    def entries(self) -> Generator[Entry | Other, None, Tail]:
        """
        Yield the entries of this part; return its tail.

        Raises:
            JournalError: a line is broken, or missing.
        """
        last, at, following = self.head.after, -math.inf, None
        for number, text in self._texts():
            first = text.index(b"\n") + 1 if number == 1 else 0
            for entry in decoded(self.name, max(number, 2), text[first:]):
                if isinstance(entry, End) or entry.n != last + 1 or following:
                    following = self._end_of(entry, last, is_over=bool(following))
                    continue
                if entry.at < at:
                    self._refuse(entry, f"its time goes back, from {at} to {entry.at}")
                if type(entry) is Deliver and entry.gaps and not entry.has_sound_gaps:
                    self._refuse(
                        entry, f"gaps {entry.gaps} are not between its offsets"
                    )
                last, at = entry.n, entry.at
                yield entry
        return last, following

    def _refuse(self, entry: Entry | Other, why: str) -> NoReturn:
        message = f"{self.name}, entry {entry.n}: {why}"
        raise JournalError(message)

    def _end_of(self, line: Line, last: int, *, is_over: bool) -> int:
        if is_over:
            what = "a line follows the end of its part"
        elif not isinstance(line, End):
            what = (
                f"entry {line.n} follows entry {last}: lines are missing, or "
                "two processes wrote it"
            )
        elif line.after != last:
            what = (
                f"the part ends with entry {line.after}, and {last} comes before it: "
                "lines are missing"
            )
        else:
            return line.part
        message = f"{self.name}: {what}"
        raise JournalError(message)

    def _texts(self) -> Iterator[tuple[int, bytes]]:
        # Yield complete lines in large groups, each group with the number of its first
        # line; leave out an unfinished last line.
        number, rest = 1, b""
        try:
            with self._open() as file:
                while text := file.read(_BUFFER):
                    whole, end, cut = text.rpartition(b"\n")
                    if end:
                        lines = rest + whole + end
                        yield number, lines
                        number, rest = number + lines.count(b"\n"), b""
                    rest += cut
                    if len(rest) > _LONGEST:
                        message = f"{self.name}: a line has more than {_LONGEST} bytes"
                        raise JournalError(message)
        except OSError as error:
            message = f"{self.name} cannot be read: {error}"
            raise JournalError(message) from error


class Joined:
    """
    One member's journal, joined from its parts.

    Args:
        parts: the parts, sorted by their first entries.

    Attributes:
        member: names the process.
        group: the process's consumer group.
        began: when the journal began, seconds since the epoch; with ``member`` and
            ``group`` this time identifies the journal.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.member, self.group, self.began, _ = _place(parts[0])

    @property
    def entries(self) -> Iterator[Entry | Other]:
        """
        The entries in order; an entry that several parts contain is yielded once.

        Raises:
            JournalError: a part is broken or missing.
        """
        last, following, name = 0, None, ""
        for part in self._parts:
            tail = yield from _beyond(last, part)
            if tail[0] >= last:
                (last, following), name = tail, part.name
        if following is not None:
            message = (
                f"{name} continues after entry {last} in part {following}, which "
                "is missing"
            )
            raise JournalError(message)


def _beyond(last: int, part: Part) -> Generator[Entry | Other, None, Tail]:
    head, entries = part.head, part.entries()
    if head.after == last:  # the usual case
        return (yield from entries)
    if head.after > last:
        message = (
            f"{part.name} is part {head.part} of the journal of {head.member}: entries "
            f"{last + 1} to {head.after} are in a part that is missing"
        )
        raise JournalError(message)
    while True:
        try:
            entry = next(entries)
        except StopIteration as end:
            tail: Tail = end.value
            return tail
        if entry.n > last:
            yield entry


def sources(files: Mapping[str, Path]) -> tuple[list[Joined], list[str]]:
    """
    Return the journals in the files, and for each unreadable file the reason.

    Args:
        files: the files, by the names that error messages use for them.
    """
    parts: list[Part] = []
    troubles: list[str] = []
    for name, path in files.items():
        try:
            parts.append(_file(name, path))
        except JournalError as error:
            troubles.append(str(error))
    parts.sort(key=_place)
    journals = [
        Joined(list(own)) for _, own in groupby(parts, lambda one: _place(one)[:-1])
    ]
    return journals, troubles


def _place(part: Part) -> tuple[str, str, float, int]:
    head = part.head
    began = head.at if head.began is None else head.began
    return head.member, head.group, began, head.after


def _file(name: str, path: Path) -> Part:
    if path.exists() and not path.is_file():
        message = (
            f"{name} is not a regular file: journals are read several times, which a "
            "pipe cannot be"
        )
        raise JournalError(message)
    return Part(name, lambda: path.open("rb"))
