"""
Writes a journal by appending whole lines, so that entries survive a killed process.

A long journal is split into parts, each in a separate file. If another part follows,
the last line of a part has the number of the next part, which is also in that part's
head. So a reader notices a missing part, even if the last part is missing. The writer
creates the next part with its head before the old part names it and before entries are
written into it, so the journal is valid even if the process is killed at any point.
"""

import json
import logging
import os
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from safeconsumer.errors.base import JournalError
from safeconsumer.journal.format import VERSION, tp_text

_CLOCK_READINGS = 10

PART_BYTES = 256 << 20

log = logging.getLogger("safeconsumer.journal")

Running = Callable[[], Mapping[tuple[str, int], Sequence[int]]]


class JournalWriter:
    """
    Writes one member's journal into a folder; a forked child writes its own journal.

    A writer serves one consumer at a time, and each consumer has its own journal.
    If a process has several members, each of them needs its own writer; a member that
    gets only the folder creates a writer itself.

    When a call returns, the operating system has received the entry, so the entry
    survives a crash of the process, but not of the machine.

    Thread rules: any thread and signal handlers may call the methods.

    Args:
        folder: the folder of the journals, which is created if needed.
        member: names the process for people; the process id and random digits are
            appended.
        group: the group of the consumer that the writer serves.
        clock: returns seconds that never go back.
        wall: returns seconds since the epoch.
        part_bytes: once a part has this size, the next entry starts a new part; None
            for no limit.
        part_seconds: once a part has this age, the next entry starts a new part; None
            for no limit.

    Attributes:
        running: a function that returns the offsets that a worker's handlers are
            working on, by partition; None without a worker.

    Raises:
        JournalError: the folder cannot be written, or a limit is not above 0.
    """

    def __init__(  # noqa: PLR0913 - one parameter per setting
        self,
        folder: str | os.PathLike[str],
        *,
        member: str = "consumer",
        group: str = "",
        clock: Callable[[], float] | None = None,
        wall: Callable[[], float] | None = None,
        part_bytes: int | None = PART_BYTES,
        part_seconds: float | None = None,
    ) -> None:
        self._part_bytes = _checked("part_bytes", part_bytes)
        self._part_seconds = _checked("part_seconds", part_seconds)
        # the program may change its working directory later
        self._folder = Path(folder).absolute()
        self._member = member
        self._group = group
        self._clock = clock or time.monotonic
        self._wall = wall or time.time
        self._wall_offset = _wall_offset(self._clock, self._wall)
        self._is_closed = False
        self._warning = ""
        self.running: Running | None = None
        self._user: weakref.ref[object] | None = None
        self._may_end_in_part_of_line: bool
        self._has_served = False  # whether this journal has been used for a consumer
        self._is_writing: bool
        # The size and time from which the limits count: when the part was started, or
        # when an attempt to start the next part failed.
        self._limits_begin: tuple[int, float]
        self._end: _End
        self.renew()
        self._begin()
        _alive.add(self)

    @property
    def path(self) -> Path:
        """The file of the newest part, to which this process is appending."""
        return self._end.part.path

    @property
    def name(self) -> str:
        """The name of this process's journal, which the head contains as ``member``."""
        return self._name

    @property
    def number(self) -> int:
        """The number of the last entry; 0 before the first."""
        return self._end.number

    def serve(self, user: object, group: str) -> None:
        """
        Write for a consumer until :meth:`release`, or until the consumer is collected.

        If this journal has entries of an earlier consumer, start a new journal, because
        the holds, ownerships and calls of the two consumers must not be mixed.

        Raises:
            JournalError: the writer serves another consumer, the group differs, or a
                new journal cannot be started.
        """
        if group != self._group:
            message = (
                f"the JournalWriter is for the group {self._group!r}, and the consumer "
                f"is of {group!r}: give it group={group!r}"
            )
            raise JournalError(message)
        with self._lock:
            other = None if self._user is None else self._user()
            if other not in {None, user}:
                message = (
                    "the JournalWriter is in use by another consumer: close that one "
                    "first, or give each journal= the folder, where it writes a file "
                    "of its own"
                )
                raise JournalError(message)
            if self._has_served and (self._end.number or self._waiting):
                self._begin_another()
            self._has_served = True
            self._user = weakref.ref(user)

    def release(self, user: object) -> None:
        """Stop serving this consumer, so that another consumer may use the writer."""
        with self._lock:
            if self._user is not None and self._user() is user:
                self._user = None

    def now(self) -> float:
        """Return the time that an entry would have if it were written now."""
        return round(self._wall_offset + self._clock(), 6)

    def time_of(self, wall: float) -> float:
        """
        Return the time that an entry would have had at an earlier moment.

        Args:
            wall: the moment, by the wall clock; the wall clock may have been adjusted
                since.
        """
        ago = max(0.0, self._wall() - wall)
        return round(self.now() - ago, 6)

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """
        Append one entry.

        If this call raises and the journal is not closed, the entry stays queued and is
        written before the next entry. Entries that a signal handler writes during this
        call are appended when the call continues.

        Raises:
            JournalError: the entry could not be written yet, or the journal is closed.
                An incomplete journal proves nothing.
        """
        self.note(event, fields)
        self.flush()

    def note(self, event: str, fields: Mapping[str, object]) -> None:
        """
        Queue one entry, to be written before the next one; never block or take a lock.

        Raises:
            JournalError: the journal is closed.
        """
        if self._is_closed:
            message = f"{self.path} is closed: {event} cannot be written"
            raise JournalError(message)
        self._waiting.append(_json({"e": event, **fields}).removeprefix("{"))

    def flush(self) -> None:
        """
        Append the entries that could not be written earlier.

        Raises:
            JournalError: a queued entry still cannot be written.
        """
        with self._lock:
            # In a signal handler, leave the queued entries to the interrupted call.
            if self._is_writing:
                return
            self._is_writing = True
            try:
                while self._waiting:
                    self._write(self._waiting[0])
            finally:
                self._is_writing = False
            warning, self._warning = self._warning, ""
        if warning:  # logging may run other code, so log after the lock is released
            log.warning(warning)

    def write_running(self) -> None:
        """
        Append the records that handlers are working on, if ``running`` is set.

        Call this method when a hold is in force, before the entry that reports the
        hold.

        Raises:
            JournalError: as :meth:`write`.
        """
        if self.running is not None:
            at = {tp_text(tp): list(found) for tp, found in self.running().items()}
            self.write("running", {"records": at})

    def close(self) -> None:
        """
        Close the file; a second call has no effect.

        Queued entries that cannot be written now are lost.
        """
        with self._lock:
            if not self._is_closed:
                with suppress(JournalError):
                    self.flush()
                self._is_closed = True
                os.close(self._end.part.file)

    def is_locked_here(self) -> bool:
        """Return whether this thread already holds the lock, as in a signal handler."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]  # noqa: SLF001 - as threading.Condition asks it

    def renew(self) -> None:
        """Forget the consumer and calls of other threads, which a forked child lacks."""
        # A signal handler may write while the interrupted thread is writing. The lock
        # is reentrant, so the handler does not block, and its entry is queued.
        self._lock = threading.RLock()
        self._is_writing = False
        self._waiting: deque[str] = deque()
        self._user = None

    # ------------------------------------------------------------ inside

    def _write(self, text: str) -> None:
        # A signal handler may raise after any step. In that case the next call removes
        # the partial line and writes the whole line again. A single assignment stores
        # both the written line and its number.
        if os.getpid() != self._pid:
            self._begin()
        end = self._end
        if self._may_end_in_part_of_line:
            _truncate(end)
            self._may_end_in_part_of_line = False
        if end.last is not text:
            if self._is_full(end):
                end = self._begin_next_part(end)
            line = f'{{"n":{end.number + 1},"at":{self.now()!r},{text}'
            self._may_end_in_part_of_line = True
            size = end.size + _append(end.part.file, end.part.path, line)
            self._end = _End(end.part, end.number + 1, size, text)
            self._may_end_in_part_of_line = False
        self._waiting.popleft()

    # ------------------------------------------------------------ parts

    def _begin(self) -> None:
        pid = os.getpid()
        self._name = f"{self._member}-{pid}-{uuid.uuid4().hex[:8]}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._end = self._open_part(1, _NOTHING)
        except (OSError, JournalError) as error:
            message = f"no journal can be written in {self._folder}: {error}"
            raise JournalError(message) from error
        self._may_end_in_part_of_line, self._pid = False, pid

    def _begin_another(self) -> None:
        self.flush()
        before = self._end.part.file
        self._begin()
        os.close(before)

    def _is_full(self, end: "_End") -> bool:
        limit, age = self._part_bytes, self._part_seconds
        size, began = self._limits_begin
        is_long = limit is not None and end.size - size >= limit
        return is_long or (age is not None and self._clock() - began >= age)

    def _begin_next_part(self, end: "_End") -> "_End":
        old = end.part
        try:
            self._end = end = self._open_part(old.number + 1, end)
        except (OSError, JournalError) as error:
            if _is_of_a_handler(error):
                raise
            self._warning = (
                f"{old.path} stays longer than it should: the next part cannot be "
                f"written: {error}"
            )
            self._limits_begin = end.size, self._clock()  # measure the limits from now
            return end
        try:
            following = {"part": end.part.number, "after": end.number}
            _append(old.file, old.path, _json(following))
        finally:
            os.close(old.file)
        return end

    def _open_part(self, number: int, end: "_End") -> "_End":
        name = self._name if number == 1 else f"{self._name}.{number:06}"
        # Spark and other readers skip files whose names begin with a dot or an underscore.
        shown = name.replace("/", "_").lstrip("._")
        path = self._folder / f"{shown}.journal"
        head = {"journal": VERSION, "member": self._name, "group": self._group}
        now = self.now()
        if number == 1:
            self._first = now
        place = {"began": self._first, "part": number, "after": end.number}
        begins = {**head, "at": now, **({} if number == 1 else place)}
        file, size = _create_file(path, begins)
        self._limits_begin = 0, self._clock()
        return _End(_Part(number, path, file), end.number, size, end.last)


class _Part(NamedTuple):
    number: int
    path: Path
    file: int


class _End(NamedTuple):
    # The end of a journal: its last part, the number of the last entry, the size of the
    # part, and the text of the last entry.
    part: _Part
    number: int
    size: int
    last: str | None


_NOTHING = _End(_Part(0, Path(), -1), 0, 0, None)


def _truncate(end: _End) -> None:
    try:
        os.ftruncate(end.part.file, end.size)
    except OSError as error:
        message = f"{end.part.path} cannot be written: {error}"
        raise JournalError(message) from error


def _create_file(path: Path, head: Mapping[str, object]) -> tuple[int, int]:
    # The file gets its final name after its head is written; after a failure there is
    # no file.
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    file = os.open(unfinished, flags, 0o600)  # private: a journal may have record keys
    try:
        size = _append(file, unfinished, _json(head))
        unfinished.rename(path)
    except (OSError, JournalError):
        os.close(file)
        unfinished.unlink(missing_ok=True)
        raise
    return file, size


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _append(file: int, path: Path, line: str) -> int:
    data = f"{line}\n".encode()
    try:
        written = os.write(file, data)
    except OSError as error:
        if _is_of_a_handler(error):
            raise
        message = f"{path} cannot be written: {error}"
        raise JournalError(message) from error
    if written != len(data):
        message = f"{path}: {written} of {len(data)} bytes; is the disk full?"
        raise JournalError(message)
    return written


def _is_of_a_handler(error: Exception) -> bool:
    # A TimeoutError that a signal handler raised is an OSError without an errno.
    return isinstance(error, OSError) and error.errno is None


def _checked(name: str, limit: float | None) -> float | None:
    is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if limit is not None and not (is_number and limit > 0):
        message = f"{name} must be a number above 0, or None, not {limit!r}"
        raise JournalError(message)
    return limit


def _wall_offset(clock: Callable[[], float], wall: Callable[[], float]) -> float:
    # On a busy machine the process may be suspended between the readings of the two
    # clocks, which would shift the times of this journal. So use the closest of several
    # pairs of readings.
    readings = []
    for _ in range(_CLOCK_READINGS):
        before, at, after = clock(), wall(), clock()
        readings.append((after - before, at - (before + after) / 2))
    return min(readings)[1]


_alive: "weakref.WeakSet[JournalWriter]" = weakref.WeakSet()


def _renew_all() -> None:
    for one in tuple(_alive):
        one.renew()


if hasattr(os, "register_at_fork"):  # Windows has no fork and lacks this function
    os.register_at_fork(after_in_child=_renew_all)
