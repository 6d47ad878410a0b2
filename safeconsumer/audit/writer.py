"""
Writing a journal: whole lines, appended, so that a killed process leaves what it did.
"""

import json
import os
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from safeconsumer.audit.journal import VERSION
from safeconsumer.audit.reading import tp_text
from safeconsumer.errors import JournalError
from safeconsumer.holds.scope import TopicPartition

_LOOKS = 10

Running = Callable[[], Mapping[TopicPartition, Sequence[int]]]


class JournalWriter:
    """
    Writes one member's journal into a folder; a forked child writes one of its own.

    Several members in one process have a writer each.

    What was written is with the operating system when the call returns: it survives the
    death of the process, not that of the machine.

    Thread rules: any thread, and signal handlers.

    Args:
        folder: where journals are kept; made if it is not there.
        member: names the process for people; a random part is added.
        group: its consumer group.
        clock: seconds that never go back.
        wall: seconds since the epoch.

    Attributes:
        running: returns the offsets that a worker's handlers are at, by partition;
            None if nobody can tell.

    Raises:
        JournalError: the folder cannot be written.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        member: str = "consumer",
        group: str = "",
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folder = Path(folder)
        self._member = member
        self._group = group
        self._clock = clock
        self._wall = wall
        self._offset = _offset(clock, wall)
        self._is_closed = False
        self.running: Running | None = None
        self._is_writing: bool
        self.renew()
        self._begin()
        _alive.add(self)

    @property
    def path(self) -> Path:
        """
        The file of this process.
        """
        return self._path

    @property
    def number(self) -> int:
        """
        The number of the last entry; 0 before the first.
        """
        return self._number

    def now(self) -> float:
        """
        Return the time that an entry written now would have.
        """
        return round(self._offset + self._clock(), 6)

    def time_of(self, wall: float) -> float:
        """
        Return the time that an entry would have had which was written at a moment.

        Args:
            wall: the moment, by the wall clock, which may have been set since then.
        """
        ago = max(0.0, self._wall() - wall)
        return round(self.now() - ago, 6)

    def write(self, event: str, fields: Mapping[str, object]) -> None:
        """
        Append one entry.

        What a signal handler writes in the middle of this very call is appended when
        the call goes on, or before the next one.

        Raises:
            JournalError: it could not be written, or the journal is closed; what is
                done unseen proves nothing.
        """
        with self._lock:
            if self._is_writing:
                self._interrupting.append((event, fields))
                return
            self._is_writing = True
            try:
                self._write_interrupting()
                self._write(event, fields)
                self._write_interrupting()
            finally:
                self._is_writing = False

    def write_running(self) -> None:
        """
        Append what handlers are at, if anybody can tell.

        To be called once a hold is in force, and before it is written that it is.

        Raises:
            JournalError: as :meth:`write`.
        """
        if self.running is not None:
            at = {tp_text(tp): list(found) for tp, found in self.running().items()}
            self.write("running", {"records": at})

    def close(self) -> None:
        """
        Close the file; a second call does nothing.
        """
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._file)

    def renew(self) -> None:
        """
        Forget what threads are in the middle of; in a forked child, which has none.
        """
        # A signal handler may write while this thread does: it gets in, and waits.
        self._lock = threading.RLock()
        self._is_writing = False
        self._interrupting: deque[tuple[str, Mapping[str, object]]] = deque()

    # ------------------------------------------------------------ inside

    def _write_interrupting(self) -> None:
        while self._interrupting:
            self._write(*self._interrupting.popleft())

    def _write(self, event: str, fields: Mapping[str, object]) -> None:
        if self._is_closed:
            message = f"{self._path} is closed: {event} cannot be written"
            raise JournalError(message)
        if os.getpid() != self._pid:
            self._begin()
        self._number += 1
        head = {"n": self._number, "at": self.now(), "e": event}
        self._append({**head, **fields})

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._number = 0
        member = f"{self._member}-{self._pid}-{uuid.uuid4().hex[:8]}"
        self._path = self._folder / f"{member.replace('/', '_')}.journal"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, flags, 0o644)
        except OSError as error:
            message = f"no journal can be written in {self._folder}: {error}"
            raise JournalError(message) from error
        head = {"journal": VERSION, "member": member, "group": self._group}
        self._append({**head, "at": self.now()})

    def _append(self, document: Mapping[str, object]) -> None:
        line = json.dumps(document, separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._file, line)
        except OSError as error:
            message = f"{self._path} cannot be written: {error}"
            raise JournalError(message) from error
        if written != len(line):
            message = f"{self._path}: {written} of {len(line)} bytes; is the disk full?"
            raise JournalError(message)


def _offset(clock: Callable[[], float], wall: Callable[[], float]) -> float:
    # On a busy machine a process may have to wait between two looks at clocks, and its
    # journal would differ from others by as much: the closest of several looks counts.
    looks = []
    for _ in range(_LOOKS):
        before, at, after = clock(), wall(), clock()
        looks.append((after - before, at - (before + after) / 2))
    return min(looks)[1]


_alive: "weakref.WeakSet[JournalWriter]" = weakref.WeakSet()


def _renew_all() -> None:
    for one in tuple(_alive):
        one.renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_renew_all)
