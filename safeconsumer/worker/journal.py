"""Writes what a worker does with records into its consumer's journal."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafka.structs import TopicPartition

from safeconsumer.errors import JournalError
from safeconsumer.journal.format import tp_text
from safeconsumer.worker.calls import is_async, refuse_undone, spared
from safeconsumer.worker.handlers import Context, Handler, HandlersFailError
from safeconsumer.worker.lanes import Indexes, Lane
from safeconsumer.worker.progress import record_at
from safeconsumer.worker.tasks import Task

if TYPE_CHECKING:
    from safeconsumer.journal.recorder import Recorder


class HandlerJournal:
    """
    Writes when handlers begin and end, and which records are complete without them.

    Each entry comes before what follows from it: before the handler is called, and
    before the record counts as complete. What cannot be written stops the worker: no
    commit is sent before all that was noted is written.

    Thread rules: any thread. Only :meth:`completes` and :meth:`drops`, which write
    nothing by themselves, under a lock of the worker's: a write may take long, and a
    signal handler that interrupts it may want that lock.

    Args:
        journal: the consumer's.
        fail: stops the worker for an error.
        is_batch: whether handlers take batches.
    """

    def __init__(
        self,
        journal: "Recorder",
        fail: Callable[[BaseException], None],
        *,
        is_batch: bool,
    ) -> None:
        self._journal = journal
        self._fail = fail
        self._is_batch = is_batch
        self._ids = itertools.count(1)

    def around(self, handle: Handler, task: Task) -> Handler:
        """Return the handler for a task's records, called one by one or as a batch."""
        lanes = {
            offset: lane
            for lane, indexes in task.bundle
            for offset in _offsets(task, indexes)
        }

        @contextmanager
        def noted(given: Any) -> Iterator[None]:  # noqa: ANN401 - records
            offsets = [one.offset for one in (given if self._is_batch else [given])]
            end = self._begin(task, lanes.get(offsets[0], task.lane), offsets)
            error: BaseException | None = None
            try:
                yield
            except BaseException as raised:
                error = raised
                raise
            finally:
                end([offsets[at] for at in spared(error, len(offsets))])

        def call(given: Any, context: Context) -> None:  # noqa: ANN401 - records
            with noted(given):
                refuse_undone(handle(given, context))

        async def call_async(given: Any, context: Context) -> None:  # noqa: ANN401 - records
            with noted(given):
                refuse_undone(await handle(given, context))

        return call_async if is_async(handle) else call

    def _begin(
        self, task: Task, lane: Lane, offsets: Sequence[int]
    ) -> Callable[[Collection[int]], None]:
        # Returns a function that takes the offsets that the handler is done with.
        place = {"tp": tp_text(task.epoch.tp), "offset": offsets[0]}
        place["id"] = next(self._ids)
        several = {"batch": offsets} if offsets[1:] else {}
        about = {"attempt": task.attempt, "epoch": task.epoch.number}
        self._tell(
            self._journal.tell,
            "handle",
            {**place, **several, "lane": _named(lane), **about},
        )

        def end(all_done: Collection[int]) -> None:
            done = [one for one in offsets if one in all_done]
            is_ok = len(done) == len(offsets)
            some = {"done": done} if several and not is_ok else {}
            self._tell(self._journal.tell, "handled", {**place, "ok": is_ok, **some})

        return end

    def completes(self, tp: TopicPartition, epoch: int, offset: int, why: str) -> None:
        """Note that a record of an ownership is about to be complete without a handler."""
        said = {"tp": tp_text(tp), "offset": offset, "why": why, "epoch": epoch}
        self._tell(self._journal.note, "completed", said)

    def drops(self, tp: TopicPartition, before: int) -> None:
        """Note that the position was moved: what came before an offset is dropped."""
        said = {"tp": tp_text(tp), "before": before}
        self._tell(self._journal.note, "dropped", said)

    def _tell(
        self,
        tell: Callable[[str, Mapping[str, object]], None],
        event: str,
        fields: Mapping[str, object],
    ) -> None:
        try:
            tell(event, fields)
        except JournalError as error:
            self._fail(error)
            message = "what handlers do cannot be written to the journal"
            raise HandlersFailError(message) from error  # no failure of the record


def _offsets(task: Task, indexes: Indexes) -> Sequence[int]:
    return [record_at(task.chunk, index).offset for index in indexes]


def _named(lane: Lane) -> str | None:
    if lane.is_shared or lane in lane.epoch.apart:  # nothing waits for its records
        return None
    return repr(lane.key) if lane.is_light else f"lane {id(lane)}"
