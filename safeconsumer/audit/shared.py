"""
Appends to a journal that short processes share, such as an operator's commands.

It is one file, in parts if it grows long, as every journal
(:mod:`safeconsumer.audit.journal`). A process that appends holds a lock on the first
part, so that two processes never write at once, and begins after the last whole line: a
killed process may have left half a line. The journal's head has the id of the cluster
whose holds it is about; otherwise calls to another cluster would be taken for calls to
this one.
"""

import json
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from safeconsumer.errors import JournalError
from safeconsumer.journal.format import VERSION
from safeconsumer.journal.writer import PART_BYTES, append, begun

try:
    import fcntl
except ModuleNotFoundError:  # on Windows
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

_SUFFIX = ".journal"

# Seconds to wait for another writer; appending takes milliseconds unless it is stopped.
_LOCK_SECONDS = 10.0
_LOOK_SECONDS = 0.01

# More bytes than a line has; this many are read from either end of a file.
_LINES = 1 << 20

_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)

# Readable and writable as the umask allows, and by the group of a folder whose group
# shares its files: a second operator of the machine must be able to hold something too.
_MODE = 0o666
_SHARED_FOLDER = stat.S_ISGID | stat.S_IWGRP
_FOR_THE_GROUP = stat.S_IRGRP | stat.S_IWGRP

# The beginning of a head; a killed process may have left a part of it.
_BEGINS = b'{"journal":'

Line = tuple[str, Mapping[str, object]]


class SharedJournal:
    """
    Appends to a journal that other processes append to as well, now or later.

    When a call returns, the operating system has the entries: they survive the death of
    the process, but not that of the machine.

    Thread rules: any thread.

    Args:
        path: the file, ``NAME.journal``, created if needed; its folder must exist.
        part_bytes: a part of this size or more is followed by ``NAME.000002.journal``.
        wall: seconds since the epoch.

    Attributes:
        path: the file.

    Raises:
        JournalError: the name has another ending, or is that of a folder; or this
            system has no file locks (Windows).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        part_bytes: int = PART_BYTES,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self.path = Path(path)
        self._part_bytes = part_bytes
        self._wall = wall or time.time
        if self.path.suffix != _SUFFIX or self.path.is_dir():
            message = (
                f"{self.path}: name a file that ends in {_SUFFIX}, so that whoever "
                "audits its folder finds it"
            )
            raise JournalError(message)
        if not _HAS_LOCKS:
            message = (
                f"{self.path}: this system has no locks that several commands need to "
                "share a journal; without one everything else works"
            )
            raise JournalError(message)

    def write(self, entries: Sequence[Line], cluster: str | None = None) -> None:
        """
        Append entries, in one piece: all of them, or none.

        Args:
            entries: the events, each with its fields.
            cluster: the id of the cluster in which it happened; None if it has none.

        Raises:
            JournalError: they could not be written, another process has been writing
                for long, or the file is not a journal, or is the journal of one process
                or of another cluster.
        """
        with self._locked() as first, self._last(first, cluster) as end:
            at = self._now()
            lines = (
                {"n": number, "at": at, "e": event, **fields}
                for number, (event, fields) in enumerate(entries, end.last + 1)
            )
            try:
                append(end.file, end.path, *lines)
            except (JournalError, KeyboardInterrupt):
                # After an error, readers must not find half of the entries.
                os.ftruncate(end.file, end.size)
                raise

    def check(self, cluster: str | None = None) -> None:
        """
        Check that entries could be appended now, without appending any.

        Args:
            cluster: the id of their cluster; None for any.

        Raises:
            JournalError: as :meth:`write`.
        """
        with self._locked() as first:
            end = self._end(first, self.path)
            if end is not None and cluster is not None:
                self._check_cluster(end, cluster)

    def _now(self) -> float:
        return round(self._wall(), 6)

    # ------------------------------------------------------------ which file

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            with self._opened() as (file, is_made):
                try:
                    yield file
                finally:
                    # The file is locked: a process that waits for it sees that it is
                    # gone, and creates it.
                    if is_made and not os.fstat(file).st_size:
                        self.path.unlink(missing_ok=True)
        except OSError as error:
            message = f"{self.path} cannot be written: {error}"
            raise JournalError(message) from error

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, bool]]:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            file, is_made = self._open()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_there(self.path, file):
                    yield file, is_made  # the lock ends with the file, or the process
                    return
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    message = (
                        f"{self.path}: another process has been writing there for "
                        f"{_LOCK_SECONDS:g} s"
                    )
                    raise JournalError(message) from error
                time.sleep(_LOOK_SECONDS)
            finally:
                os.close(file)

    def _open(self) -> tuple[int, bool]:
        with suppress(FileNotFoundError):
            return os.open(self.path, _FLAGS), False
        try:
            file = os.open(self.path, _FLAGS | os.O_CREAT | os.O_EXCL, _MODE)
        except FileExistsError:  # another process was quicker, or a link is dangling
            return os.open(self.path, _FLAGS | os.O_CREAT, _MODE), False
        mode = os.fstat(file).st_mode
        if self.path.parent.stat().st_mode & _SHARED_FOLDER == _SHARED_FOLDER:
            os.fchmod(file, stat.S_IMODE(mode) | _FOR_THE_GROUP)
        return file, True

    @contextmanager
    def _last(self, first: int, cluster: str | None) -> Iterator["_End"]:
        """
        Open the part with the last entry, or the next one if that part is long.

        Args:
            first: the first part, which is locked.
            cluster: the id of the cluster that the journal must be of.
        """
        with ExitStack() as closing:
            end = self._end(first, self.path) or self._begin(first, cluster)
            self._check_cluster(end, cluster)
            while end.next is not None:
                end = self._following(end)
                closing.callback(os.close, end.file)
            following = self._go_on(end) if end.size >= self._part_bytes else None
            if following is not None:
                end = following
                closing.callback(os.close, end.file)
            yield end

    def _check_cluster(self, end: "_End", cluster: str | None) -> None:
        own = end.head.get("cluster")
        if own == cluster:
            return
        if own is None:
            message = (
                f"{self.path} does not say of which cluster it is: name another file, "
                "or move it away, and a new one is begun"
            )
            raise JournalError(message)
        which = f"is {cluster}" if cluster else "does not say which it is"
        message = (
            f"{self.path} is of the cluster {own}, and this one {which}: name another "
            "file"
        )
        raise JournalError(message)

    def _end(self, file: int, path: Path, part: int = 1) -> "_End | None":
        """Return the end of a part without half a line; None if the part is empty."""
        begins, ends, size = _ends_of(file)
        if not size and begins[: len(_BEGINS)] == _BEGINS[: len(begins)]:
            return None
        known = _document(begins, path)
        if known.get("journal") != VERSION or not known.get("shared"):
            message = f"{path} is no operators' journal: name another file"
            raise JournalError(message)
        if known.get("part", 1) != part:
            message = f"{path} is a later part of a journal: name the first one"
            raise JournalError(message)
        os.ftruncate(file, size)
        last = known if ends == begins else _document(ends, path)
        goes_on = last is not known and "n" not in last
        number = last.get("n" if "n" in last else "after", 0)
        if not isinstance(number, int) or (goes_on and last.get("part") != part + 1):
            message = f"{path} is broken: it ends with {ends[:60]!r}"
            raise JournalError(message)
        return _End(file, path, known, number, size, part + 1 if goes_on else None)

    def _begin(self, file: int, cluster: str | None) -> "_End":
        # No two journals name the same process; and each hold's entry names its group.
        name = f"{self.path.stem}-{uuid.uuid4().hex[:8]}"
        head = {"journal": VERSION, "member": name, "group": "", "shared": True}
        head |= {"at": self._now()} | ({"cluster": cluster} if cluster else {})
        os.ftruncate(file, 0)
        try:
            size = append(file, self.path, head)
        except (JournalError, KeyboardInterrupt):
            os.ftruncate(file, 0)
            raise
        return _End(file, self.path, head, 0, size)

    # ------------------------------------------------------------ parts

    def _part(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.stem}.{number:06}{_SUFFIX}")

    def _following(self, end: "_End") -> "_End":
        found = self._opened_part(end)
        if found is None or not _follows(found, end):
            if found is not None:
                os.close(found.file)
            message = f"{end.path} goes on in a part that is missing, or is broken"
            raise JournalError(message)
        return found

    def _opened_part(self, end: "_End") -> "_End | None":
        number = end.head.get("part", 1) + 1
        path = self._part(number)
        try:
            file = os.open(path, _FLAGS)
        except FileNotFoundError:
            return None
        try:
            found = self._end(file, path, number)
        except JournalError:
            found = None
        if found is None:
            os.close(file)
        return found

    def _go_on(self, end: "_End") -> "_End | None":
        """Begin the next part; None if another journal has its name: this one grows then."""
        # The steps are those of JournalWriter: a process may be killed after any.
        follows = {"part": end.head.get("part", 1) + 1, "after": end.last}
        path = self._part(follows["part"])
        if path.exists() and not self._is_left_over(end):
            return None
        began = end.head.get("began", end.head["at"])
        head = {**end.head, "at": self._now(), "began": began, **follows}
        file, size = begun(path, head)
        with suppress(OSError):  # with the permissions of the first part
            os.fchmod(file, stat.S_IMODE(self.path.stat().st_mode))
        try:
            append(end.file, end.path, follows)
        except BaseException:
            os.close(file)
            raise
        return _End(file, path, head, end.last, size)

    def _is_left_over(self, end: "_End") -> bool:
        # Left by a process that was killed before the previous part named this one.
        found = self._opened_part(end)
        if found is None:
            return False
        os.close(found.file)
        is_ours = found.head.get("member") == end.head.get("member")
        return is_ours and found.last == found.head.get("after") and not found.next


@frozen
class _End:
    """
    The place where the next entry is appended: after the last one of a part.

    Attributes:
        file: the open file of the part.
        path: its path.
        head: its first line.
        last: the number of the last entry.
        size: its size in bytes.
        next: the part in which it continues; None if it is the last one.
    """

    file: int
    path: Path
    head: Mapping[str, Any]
    last: int
    size: int
    next: int | None = None


def _follows(part: _End, end: _End) -> bool:
    # The first part may have been moved away without the others.
    head, before = part.head, end.head
    began = before.get("began", before["at"])
    return (head.get("member"), head.get("began"), head.get("after")) == (
        *(before.get("member"), began, end.last),
    )


def _is_there(path: Path, file: int) -> bool:
    # It may have been moved away meanwhile.
    try:
        return os.path.samestat(path.stat(), os.fstat(file))
    except FileNotFoundError:
        return False


def _ends_of(file: int) -> tuple[bytes, bytes, int]:
    # Returns the first and the last whole line, and where that ends.
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
