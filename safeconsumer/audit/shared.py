"""
A journal that short processes append to, one after the other: an operator's commands.

It is one file, in parts if it grows long, as every journal
(:mod:`safeconsumer.audit.journal`). Whoever appends holds a lock on the first part, so
that two processes never write at once, and begins behind the last whole line: half a
line is what a killed process left.
"""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from safeconsumer.audit.journal import VERSION
from safeconsumer.audit.writer import PART_BYTES, append, begun
from safeconsumer.errors import JournalError

_SUFFIX = ".journal"

# Appending takes milliseconds; whoever is stopped in the middle is waited for so long.
_LOCK_SECONDS = 10.0
_LOOK_SECONDS = 0.01

# More than a line has: as much is looked at from either end of a file.
_LINES = 1 << 20

_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)

# What a head begins with, of which a killed process may have left a part.
_BEGINS = b'{"journal":'

Line = tuple[str, Mapping[str, object]]


class SharedJournal:
    """
    Appends to a journal that others append to as well, now or later.

    What was written is with the operating system when the call returns: it survives the
    death of the process, not that of the machine.

    Thread rules: any thread.

    Args:
        path: the file, ``NAME.journal``; made if it is not there. Its folder must be.
        part_bytes: a part of this size or more is followed by ``NAME.000002.journal``.
        wall: seconds since the epoch.

    Raises:
        JournalError: the name has another ending, or is that of a folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        part_bytes: int = PART_BYTES,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._path = Path(path)
        self._part_bytes = part_bytes
        self._wall = wall
        if self._path.suffix != _SUFFIX or self._path.is_dir():
            message = (
                f"{self._path}: name a file that ends in {_SUFFIX}, so that whoever "
                "audits its folder finds it"
            )
            raise JournalError(message)

    def write(self, entries: Sequence[Line]) -> None:
        """
        Append entries, in one piece.

        Raises:
            JournalError: they could not be written, somebody else has been writing for
                long, or the file is no journal, or that of one process.
        """
        try:
            with self._locked() as first, self._last(first) as end:
                at = self._now()
                append(
                    end.file,
                    end.path,
                    *(
                        {"n": number, "at": at, "e": event, **fields}
                        for number, (event, fields) in enumerate(entries, end.last + 1)
                    ),
                )
        except OSError as error:
            message = f"{self._path} cannot be written: {error}"
            raise JournalError(message) from error

    def _now(self) -> float:
        return round(self._wall(), 6)

    # ------------------------------------------------------------ which file

    @contextmanager
    def _locked(self) -> Iterator[int]:
        import fcntl  # noqa: PLC0415 - not on Windows, where commands work without

        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            file = os.open(self._path, _FLAGS | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_there(self._path, file):
                    yield file  # the lock ends with the file, or with the process
                    return
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    message = (
                        f"{self._path}: another process has been writing there for "
                        f"{_LOCK_SECONDS:g} s"
                    )
                    raise JournalError(message) from error
                time.sleep(_LOOK_SECONDS)
            finally:
                os.close(file)

    @contextmanager
    def _last(self, first: int) -> Iterator["_End"]:
        """
        Open the part in which the last entry stands, or the next one if that is long.

        Args:
            first: the first part, which is locked.
        """
        parts = sorted(self._path.parent.glob(f"{self._path.stem}.[0-9]*{_SUFFIX}"))
        file = os.open(parts[-1], _FLAGS) if parts else first
        try:
            end = self._end(file, parts[-1] if parts else self._path)
            if end.size < self._part_bytes:
                yield end
                return
            following = self._go_on(end)
            try:
                yield following
            finally:
                os.close(following.file)
        finally:
            if file != first:
                os.close(file)

    def _end(self, file: int, path: Path) -> "_End":
        begins, ends, size = _ends_of(file)
        if not size and begins[: len(_BEGINS)] == _BEGINS[: len(begins)]:
            return self._begin(file, path)
        known = _document(begins, path)
        if known.get("journal") != VERSION or not known.get("shared"):
            message = f"{path} is no operators' journal: name another file"
            raise JournalError(message)
        os.ftruncate(file, size)  # less half a line
        last = known if ends == begins else _document(ends, path)
        number = last.get("after", 0) if last is known else last.get("n")
        if not isinstance(number, int):
            message = f"{path} goes on in a part that is missing, or is broken"
            raise JournalError(message)
        return _End(file, path, known, number, size)

    def _begin(self, file: int, path: Path) -> "_End":
        # No two journals name one process; and each hold says of whose group it is.
        head = {"journal": VERSION, "member": f"{path.stem}-{uuid.uuid4().hex[:8]}"}
        head |= {"group": "", "shared": True, "at": self._now()}
        os.ftruncate(file, 0)
        return _End(file, path, head, 0, append(file, path, head))

    def _go_on(self, end: "_End") -> "_End":
        # In the order of steps of JournalWriter: a process may be killed after any.
        follows = {"part": end.head.get("part", 1) + 1, "after": end.last}
        path = self._path.with_name(f"{self._path.stem}.{follows['part']:06}{_SUFFIX}")
        began = end.head.get("began", end.head["at"])
        head = {**end.head, "at": self._now(), "began": began, **follows}
        file, size = begun(path, head)
        append(end.file, end.path, follows)
        return _End(file, path, head, end.last, size)


@frozen
class _End:
    """
    Where the next entry is appended: behind the last one of a part.
    """

    file: int
    path: Path
    head: Mapping[str, Any]
    last: int
    size: int


def _is_there(path: Path, file: int) -> bool:
    # Somebody may have moved it away meanwhile.
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _ends_of(file: int) -> tuple[bytes, bytes, int]:
    # The first and the last whole line, and where that ends.
    size = os.fstat(file).st_size
    first = os.pread(file, _LINES, 0).partition(b"\n")[0]
    text = os.pread(file, _LINES, max(0, size - _LINES))
    whole = text[: text.rfind(b"\n") + 1]
    last = whole.rstrip(b"\n").rpartition(b"\n")[2]
    return first, last, size - len(text) + len(whole)


def _document(line: bytes, path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        message = f"{path} is no journal, or broken: {line[:60]!r}"
        raise JournalError(message)
    return found
