"""Writes the calls of a worker's handlers and their results to the consumer's journal."""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafka.structs import TopicPartition

from safeconsumer.errors.base import HandlersCannotRunError, JournalError
from safeconsumer.journal.format import tp_text
from safeconsumer.worker.calls import done_places
from safeconsumer.worker.handlers import Context
from safeconsumer.worker.partition import Order

if TYPE_CHECKING:
    from safeconsumer.journal.recorder import Recorder

# The length, in bytes, of the longest key that an entry contains. For a longer key the
# entry contains a digest.
_LONGEST = 95


class HandlerJournal:
    """
    Writes entries for calls of handlers, and for records that complete without a call.

    Each entry is written before its consequence, which is the call of the handler or
    the completion of the record. An entry that cannot be written stops the worker,
    because no commit may be sent before all pending entries are written.

    Thread rules: any thread may call the methods. Only :meth:`completes` and
    :meth:`drops`, which postpone the write, may be called under a lock of the worker. A
    write may take long, and a signal handler that interrupts the write may need that
    lock.

    Args:
        journal: the journal of the consumer.
        fail: stops the worker with an error.
        order: which records are handled one after the other.
    """

    def __init__(
        self,
        journal: "Recorder",
        fail: Callable[[BaseException], None],
        order: Order,
    ) -> None:
        self._journal = journal
        self._fail = fail
        self._order = order
        self._ids = itertools.count(1)

    @contextmanager
    def block(self, given: Any, context: Context) -> Iterator[Any]:  # noqa: ANN401 - records
        """Write one entry when a handler's call begins, and another when it ends."""
        records = given if isinstance(given, list) else [given]
        offsets = [one.offset for one in records]
        place = {
            "tp": tp_text(context.partition),
            "offset": offsets[0],
            "id": next(self._ids),
        }
        several = {"batch": offsets} if offsets[1:] else {}
        about = {
            "lane": self._lane_of(records[0]),
            "attempt": context.attempt,
            "epoch": context._ownership,  # noqa: SLF001 - ours
        }
        self._write(self._journal.write, "handle", {**place, **several, **about})
        error: BaseException | None = None
        try:
            yield given
        except BaseException as raised:
            error = raised
            raise
        finally:
            is_call_of_all = error is None or isinstance(given, list)
            places = done_places(error, len(offsets)) if is_call_of_all else ()
            done = [offsets[at] for at in places]
            is_ok = len(done) == len(offsets)
            some = {"done": done} if several and not is_ok else {}
            self._write(self._journal.write, "handled", {**place, "ok": is_ok, **some})

    def _lane_of(self, record: Any) -> str | None:  # noqa: ANN401 - upstream's record
        # Returns the name of the group of records that are handled one after the other,
        # such as the record's key, or None if no order is required.
        if self._order is not Order.KEY:
            return None if self._order is Order.UNORDERED else "None"
        key = record.key
        if key is None or len(key) <= _LONGEST:
            return repr(key)
        return f"key {hashlib.blake2b(key, digest_size=16).hexdigest()}"

    def completes(self, tp: TopicPartition, epoch: int, offset: int, why: str) -> None:
        """Add an entry: a record of an ownership is about to complete without a handler."""
        fields = {"tp": tp_text(tp), "offset": offset, "why": why, "epoch": epoch}
        self._write(self._journal.note, "completed", fields)

    def drops(self, tp: TopicPartition, before: int) -> None:
        """Add an entry: the position was moved, and records before an offset are dropped."""
        fields = {"tp": tp_text(tp), "before": before}
        self._write(self._journal.note, "dropped", fields)

    def _write(
        self,
        write: Callable[[str, Mapping[str, object]], None],
        event: str,
        fields: Mapping[str, object],
    ) -> None:
        try:
            write(event, fields)
        except JournalError as error:
            self._fail(error)
            message = "entries about handlers cannot be written to the journal"
            # a journal that cannot be written is not a failure of the record
            raise HandlersCannotRunError(message) from error
