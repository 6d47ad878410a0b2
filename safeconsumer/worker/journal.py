"""Writes what a worker does with records into its consumer's journal."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka.structs import TopicPartition

from safeconsumer.errors import JournalError, WorkerStateError
from safeconsumer.journal.format import tp_text
from safeconsumer.journal.writer import Running
from safeconsumer.worker.calls import Answer, is_async, refuse_undone, spared
from safeconsumer.worker.handlers import Context, Handler, HandlersFailError
from safeconsumer.worker.lanes import Indexes, Lane, Order
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import record_at
from safeconsumer.worker.tasks import Task

if TYPE_CHECKING:
    from safeconsumer.journal.recorder import Recorder

Offsets = Sequence[int]


class HandlerJournal:
    """
    Writes when handlers begin and end, and which records are complete without them.

    Each entry is written before what follows from it: before the handler is called, and
    before the record counts as complete, so before it is committed and before a later
    one of its lane begins. An entry that cannot be written stops the worker; its record
    stays incomplete. Several records that begin together, as a batch or in another
    process, have one entry.

    Thread rules: any thread, under no lock of the worker's: a write may take long, and
    a signal handler that interrupts it may want that lock.

    Args:
        journal: the consumer's.
        order: the worker's.
        fail: stops the worker for an error.
    """

    def __init__(
        self,
        journal: "Recorder",
        order: Order,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._journal = journal
        self._order = order
        self._fail = fail
        self._ids = itertools.count(1)
        self._has_begun = False

    def begin(self, running: Running) -> None:
        """
        Write that a worker gets the records, and with each hold what its handlers are at.

        Raises:
            JournalError: it cannot be written.
            WorkerStateError: another worker writes into this journal now.
        """
        writer = self._journal.writer
        if writer.running is not None:
            message = (
                "another Worker writes into this journal: give each consumer its own "
                "JournalWriter, or a folder"
            )
            raise WorkerStateError(message)
        self._journal.tell("working", {"order": self._order.value})
        writer.running, self._has_begun = running, True

    def end(self) -> None:
        """Let holds be written without the records that handlers are at."""
        if self._has_begun:
            self._journal.writer.running = None

    # ------------------------------------------------------------ handlers

    def around(self, handle: Handler, task: Task) -> Handler:
        """Return the handler for the records of a task, called in this process."""
        lanes = _lanes(task)

        def call(given: Any, context: Context) -> None:  # noqa: ANN401 - records
            with _Call(self, task, lanes, given):
                refuse_undone(handle(given, context))

        async def call_async(given: Any, context: Context) -> None:  # noqa: ANN401 - records
            with _Call(self, task, lanes, given):
                refuse_undone(await handle(given, context))

        return call_async if is_async(handle) else call

    def around_answer(
        self, ask: Callable[[], Answer], task: Task, *, is_batch: bool
    ) -> Answer:
        """Hand the records of a task over to another process, and return its answer."""
        begun = [
            (self.began(task, lane, offsets), offsets)
            for lane, indexes in task.bundle or [(task.lane, task.indexes)]
            if (offsets := _offsets(task, indexes))
        ]
        offsets = _offsets(task, task.indexes)
        answer: Answer = 0, HandlersFailError("it has no answer")
        try:
            answer = ask()
        finally:
            count, error = answer
            done, left = offsets[:count], offsets[count + (error is not None) :]
            if is_batch:
                done, left = [offsets[at] for at in spared(error, len(offsets))], []
            for number, own in begun:
                self.ended(task, number, own, _of(done, own), _of(left, own))
        return answer

    def began(self, task: Task, lane: Lane, offsets: Offsets) -> int:
        """
        Write that a handler begins with these records; return the number of the call.

        Raises:
            HandlersFailError: it cannot be written.
        """
        number = next(self._ids)
        said = {
            **_place(task.epoch, offsets[0]),
            "id": number,
            "lane": self._named(lane),
        }
        if offsets[1:]:
            said["offsets"] = list(offsets)
        about = {"attempt": task.attempt, "epoch": task.epoch.number}
        self._must_write("handle", {**said, **about})
        return number

    def ended(
        self,
        task: Task,
        number: int,
        offsets: Offsets,
        done: Offsets,
        left: Offsets = (),
    ) -> None:
        """
        Write that a handler has ended.

        Args:
            task: its task.
            number: the number of the call.
            offsets: all of its records.
            done: those that it is done with.
            left: those that it has not begun.

        Raises:
            HandlersFailError: it cannot be written.
        """
        is_done = len(done) == len(offsets)
        said = {**_place(task.epoch, offsets[0]), "id": number, "ok": is_done}
        if offsets[1:] and not is_done:
            said |= {"done": list(done), "left": list(left)}
        self._must_write("handled", said)

    # ------------------------------------------------------------ without handlers

    def completes(self, tp: TopicPartition, number: int, offset: int, why: str) -> bool:
        """
        Write that a record is complete though it failed; False if that is not possible.

        Args:
            tp: its partition.
            number: the number of the ownership.
            offset: its offset.
            why: ``DEAD_LETTER`` or ``SKIPPED``.
        """
        said = {"tp": tp_text(tp), "offset": offset, "why": why, "epoch": number}
        return self._writes("completed", said)

    def drops(self, tp: TopicPartition, before: int) -> None:
        """Write that the position was moved: what came before an offset is dropped."""
        said = {"tp": tp_text(tp), "before": before}
        self._writes("dropped", said)

    # ------------------------------------------------------------ writing

    def _named(self, lane: Lane) -> str | None:
        # Keys of the user's own classes may look alike without being equal.
        if self._order is Order.UNORDERED:
            return None
        return repr(lane.key) if lane.is_light else f"lane {id(lane)}"

    def _must_write(self, event: str, said: Mapping[str, object]) -> None:
        if not self._writes(event, said):
            message = "what handlers do cannot be written to the journal"
            raise HandlersFailError(message)

    def _writes(self, event: str, said: Mapping[str, object]) -> bool:
        try:
            self._journal.tell(event, said)
        except JournalError as error:
            self._fail(error)
            return False
        return True


class _Call:
    """One call of a handler in this process, with one record or a batch."""

    def __init__(
        self,
        journal: HandlerJournal,
        task: Task,
        lanes: Mapping[int, Lane],
        given: Any,  # noqa: ANN401 - records
    ) -> None:
        self._journal = journal
        self._task = task
        self._offsets = (
            [one.offset for one in given] if type(given) is list else [given.offset]
        )
        self._lane = lanes.get(self._offsets[0], task.lane)

    def __enter__(self) -> None:
        self._number = self._journal.began(self._task, self._lane, self._offsets)

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: object
    ) -> None:
        offsets = self._offsets
        done = [offsets[at] for at in spared(error, len(offsets))]
        self._journal.ended(self._task, self._number, offsets, done)


def _lanes(task: Task) -> Mapping[int, Lane]:
    # The lane of each record, if they are not all of the task's own.
    return {
        offset: lane
        for lane, indexes in task.bundle
        for offset in _offsets(task, indexes)
    }


def _offsets(task: Task, indexes: Indexes) -> Offsets:
    return [record_at(task.chunk, index).offset for index in indexes]


def _of(some: Offsets, offsets: Offsets) -> Offsets:
    among = frozenset(some)
    return [one for one in offsets if one in among]


def _place(epoch: Epoch, offset: int) -> dict[str, object]:
    return {"tp": tp_text(epoch.tp), "offset": offset}
