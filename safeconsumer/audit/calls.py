"""Writes calls and their returns as entries of a journal."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from safeconsumer.journal.writer import JournalWriter

Seen = Callable[[], Mapping[str, object]]


class Calls:
    """
    Writes when a call began and when it returned, with the same number.

    Thread rules: any thread.
    """

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._ids = itertools.count(1)

    def begin(self, op: str, said: Mapping[str, object] | None = None) -> "Answer":
        """
        Write the call; return a function that writes its return.

        Raises:
            JournalError: it could not be written.
        """
        return self._begin(next(self._ids), op, said)

    @contextmanager
    def around(
        self,
        op: str,
        said: Mapping[str, object] | None = None,
        seen: Seen | None = None,
    ) -> Iterator[int]:
        """
        Write the call, run the block, write the return; yield the number.

        Args:
            op: the operation that is called.
            said: the arguments of the call, as fields.
            seen: called after the block; returns further fields of the return.

        Raises:
            JournalError: one of them could not be written.
        """
        number = next(self._ids)
        answer = self._begin(number, op, said)
        is_done = False
        try:
            yield number
            is_done = True
        finally:
            answer(is_done=is_done, seen=seen() if seen and is_done else {})

    def _begin(
        self, number: int, op: str, said: Mapping[str, object] | None
    ) -> "Answer":
        head = {"op": op, "id": number, **(said or {})}
        self._journal.write("call", head)

        def answer(*, is_done: bool, seen: Mapping[str, object] | None = None) -> None:
            said = head if is_done else {**head, "ok": False}
            self._journal.write("return", {**said, **(seen or {})})

        return answer


class Answer(Protocol):
    """Writes the return of a call, once."""

    def __call__(
        self, *, is_done: bool, seen: Mapping[str, object] | None = None
    ) -> None:
        """Raise JournalError if it could not be written."""
