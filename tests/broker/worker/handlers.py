"""
Defines handlers for every executor; the handlers leave traces in a folder.

Other processes can import these handlers, because they are defined at the top level of
a module. The traces are files, because every process can write files.
"""

import asyncio
import os
import signal
import time
from pathlib import Path

from attrs import frozen

from safeconsumer.worker import Pause, Reject, RetryLater
from tests.harness.waiting import repeat_until


@frozen
class Trace:
    partition: int
    offset: int
    key: str
    attempt: int
    began: float
    ended: float


@frozen
class Recording:
    """
    A handler that obeys the commands in a record's value and logs each call.

    A value is a list of commands, separated by ``;``: ``touch=name`` (create a file of
    this name in the folder), ``until=name`` (wait for such a file), ``fail``,
    ``fail=2`` (fail only this many attempts), ``reject``, and, in the first attempt
    only, ``later=0.1``, ``pause=0.1`` and ``kill`` (kill the handler's process).
    """

    folder: Path

    def __call__(self, record, context):
        began = time.monotonic()
        try:
            for seconds in self._obey(record, context):
                time.sleep(seconds)
        finally:
            self._note(record, context, began)

    def _obey(self, record, context):  # noqa: C901 - a table of commands
        for order in filter(None, record.value.decode().split(";")):
            name, _, value = order.partition("=")
            match name:
                case "touch":
                    (self.folder / value).touch()
                case "until":
                    there = (self.folder / value).exists
                    yield from (0.01 for _ in repeat_until(there, value))
                case "fail":
                    if not value or context.attempt <= int(value):
                        message = f"on request, at attempt {context.attempt}"
                        raise ValueError(message)
                case "later":
                    if self._is_first(record):
                        raise RetryLater(float(value))
                case "pause":
                    if self._is_first(record):
                        raise Pause(float(value))
                case "reject":
                    message = "planted"
                    raise Reject(message)
                case "kill":
                    if self._is_first(record):
                        self._note(record, context, time.monotonic())
                        os.kill(os.getpid(), signal.SIGKILL)

    def _is_first(self, record):
        return not any(
            (one.partition, one.offset) == (record.partition, record.offset)
            for one in self.traces()
        )

    def _note(self, record, context, began):
        key = (record.key or b"-").decode()
        line = (
            f"{record.partition} {record.offset} {key} {context.attempt} "
            f"{began} {time.monotonic()}\n"
        )
        path = self.folder / f"{os.getpid()}.trace"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, line.encode())
        os.close(fd)

    def traces(self):
        """Return all calls so far, in the order in which they started."""
        lines = [
            line.split()
            for path in self.folder.glob("*.trace")
            for line in path.read_text().splitlines()
        ]
        traces = [
            Trace(int(a), int(b), key, int(n), float(s), float(e))
            for a, b, key, n, s, e in lines
        ]
        return sorted(traces, key=lambda one: one.began)

    def offsets(self):
        found = {}
        for one in self.traces():
            found.setdefault(one.partition, []).append(one.offset)
        return found


@frozen
class AsyncRecording(Recording):
    async def __call__(self, record, context):
        began = time.monotonic()
        try:
            for seconds in self._obey(record, context):
                await asyncio.sleep(seconds)
        finally:
            self._note(record, context, began)
