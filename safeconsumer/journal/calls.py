"""Writes calls and their returns as entries of a journal."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from safeconsumer.journal.writer import JournalWriter


class Answer(Protocol):
    """Writes the return of a call, once."""

    def __call__(self, *, is_done: bool) -> None:
        """Raise JournalError if it could not be written."""


class Calls:
    """
    Writes when a call began and when it returned, with the same number.

    Thread rules: any thread.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._ids = itertools.count(1)

    def begin(self, op: str, fields: Mapping[str, object]) -> Answer:
        """
        Write the call; return a function that writes its return.

        Args:
            op: the operation that is called.
            fields: the arguments of the call.

        Raises:
            JournalError: it could not be written.
        """
        call = {"op": op, "id": next(self._ids), **fields}
        self._journal.write("call", call)

        def answer(*, is_done: bool) -> None:
            self._journal.write("return", call if is_done else {**call, "ok": False})

        return answer

    @contextmanager
    def around(self, op: str, fields: Mapping[str, object]) -> Iterator[None]:
        """
        Write the call, run the block, write the return.

        Raises:
            JournalError: one of them could not be written.
        """
        answer = self.begin(op, fields)
        is_done = False
        try:
            yield
            is_done = True
        finally:
            answer(is_done=is_done)
