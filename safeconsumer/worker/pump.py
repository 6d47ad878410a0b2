"""
The worker's loop for those who own theirs: batches out, completions back in.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from kafka.structs import TopicPartition

from safeconsumer.errors import WorkerStateError
from safeconsumer.events.dispatch import Hook
from safeconsumer.worker.client import ConsumerClient, Emitter, Others, covers
from safeconsumer.worker.loop import Engine
from safeconsumer.worker.partition import Epoch, Held
from safeconsumer.worker.progress import Chunk
from safeconsumer.worker.settings import Commit, Drain, Limits, check_consumer


class Batch:
    """
    Records of one partition that one poll returned, in order.

    Attributes:
        partition: where they come from.
        records: kafka-python's ``ConsumerRecord``.
        assignment_epoch: grows each time this member gains the partition.
    """

    def __init__(self, held: Held, epoch: Epoch, chunk: Chunk) -> None:
        self._held = held
        self._epoch = epoch
        self._chunk = chunk
        self.partition: TopicPartition = epoch.tp
        self.records: tuple[Any, ...] = tuple(chunk.records)
        self.assignment_epoch = epoch.number

    @property
    def is_revoked(self) -> bool:
        """
        Whether the partition is being taken away: what is done now may be repeated.
        """
        return self._epoch.revoked.is_set()

    def done(self, *indexes: int) -> None:
        """
        Complete records of the batch, or all of it; any thread, in any order.

        Completing one again, or one of a partition that is gone, changes nothing.

        Raises:
            IndexError: there is no such record.
        """
        chunk = self._chunk
        for index in indexes:
            if not 0 <= index < len(self.records):
                message = f"the batch has {len(self.records)} records, not {index}"
                raise IndexError(message)
        with self._held.lock:
            new = [
                index
                for index in indexes or range(len(self.records))
                if chunk.finish(index)
            ]
            self._held.release(self._epoch, chunk, new)
            if not self._epoch.records:
                self._held.idle.notify_all()
        self._held.tell_low()

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        tp = self.partition
        return f"Batch({tp.topic}:{tp.partition}, {len(self.records)} records)"


class _HandOut:
    """
    Keeps batches until they are asked for; counts what is out as running.
    """

    def __init__(self, held: Held, others: Others) -> None:
        self._held = held
        self._others = others
        self._batches: deque[Batch] = deque()
        self._is_halted = False

    def admit(self, epoch: Epoch, chunk: Chunk) -> None:
        self._batches.append(Batch(self._held, epoch, chunk))

    def take(self) -> list[Batch]:
        if self._is_halted:
            return []
        view = self._others.look()
        batches: list[Batch] = []
        kept: deque[Batch] = deque()
        for one in self._batches:
            if one._epoch.is_closed:  # noqa: SLF001 - a class of this module
                continue
            # One that was revoked is not handed out, and does not run until it is
            # dropped; one of a held partition waits.
            is_kept = one.is_revoked or covers(view, one.partition)
            (kept if is_kept else batches).append(one)
        self._batches = kept
        return batches

    def drop_queued(self, epochs: Sequence[Epoch]) -> None:
        for epoch in epochs:
            epoch.revoked.set()

    def halt(self) -> None:
        self._is_halted = True

    def go_on(self) -> None:
        self._is_halted = False

    def running(self, epochs: Sequence[Epoch] | None = None) -> int:
        open_ = tuple(self._held.epochs.values() if epochs is None else epochs)
        kept = sum(
            len(one)
            for one in self._batches
            if one._epoch in open_  # noqa: SLF001 - a class of this module
        )
        return sum(epoch.records for epoch in open_) - kept

    def busy(self) -> frozenset[TopicPartition]:
        held = tuple(self._held.epochs.values())
        return frozenset(epoch.tp for epoch in held if self.running([epoch]))

    def has_waiting(self, _epoch: Epoch) -> bool:
        return False

    def is_starving(self, epoch: Epoch | None) -> bool:
        return epoch is None or not epoch.records


class Pump:
    """
    Polls with bounded memory and commits what is done, while you do the work.

    ``with Pump(consumer) as pump: for batch in pump: ...``. Iterating polls; whoever
    works on a batch calls :meth:`Batch.done`, from any thread. While too much is out
    the iteration goes on polling, with everything held, and waits. Leaving the block
    waits for what is out, up to ``Drain.shutdown``, and commits. The consumer stays
    yours: close it afterwards.

    Args:
        consumer: a ``SafeConsumer`` of a group, with ``enable_auto_commit=False``.
        limits: how much may be out.
        drain: how long what is out is waited for.
        commit: when to commit.
        on_event: takes every event; they become structlog lines anyway.

    Raises:
        WorkerSettingError: a setting is impossible; the message says why.

    Thread rules: one thread iterates; ``stop`` on any, and in a signal handler.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - upstream has no types
        *,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        drain: Drain = Drain(),  # noqa: B008 - frozen
        commit: Commit = Commit(),  # noqa: B008 - frozen
        on_event: Hook | None = None,
    ) -> None:
        check_consumer(consumer, limits, drain)
        config = consumer.config
        emit = Emitter(on_event, config["client_id"], config["group_id"])
        client = ConsumerClient(consumer)
        self._engine = Engine(
            client,
            limits=limits,
            drain=drain,
            commit=commit,
            emit=emit,
        )
        self._out = _HandOut(self._engine.held, client.others)
        client.others.report_busy(self._out.busy)
        self._drain = drain
        self._is_stop_asked = False
        self._is_open = False
        self._was_open = False

    def __enter__(self) -> Self:
        if self._was_open:
            message = "a Pump can be used once; make another one"
            raise WorkerStateError(message)
        self._is_open = self._was_open = True
        self._engine.begin(self._out)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._engine.stop(self._drain.shutdown)
        broken: Exception | None = None
        try:
            while not self._engine.is_drained():
                try:
                    self._engine.turn()
                except Exception as raised:  # noqa: BLE001 - raised below
                    broken = broken or raised
                    self._engine.rest()
        finally:
            self._is_open = False
            self._engine.conclude()
        if broken is not None and error is None:
            raise broken

    def stop(self) -> None:
        """
        End the iteration; any thread, a signal handler too.
        """
        self._is_stop_asked = True

    def __iter__(self) -> Iterator[Batch]:
        while not self._is_stop_asked:
            yield from self.turn()

    def turn(self) -> list[Batch]:
        """
        Poll once, for at most 0.25 s, and return what may be worked on now.

        For a loop that has other things to do; iteration calls it again and again.

        Raises:
            WorkerStateError: outside of the ``with`` block.
        """
        if not self._is_open:
            message = "a Pump works inside of its with block only"
            raise WorkerStateError(message)
        self._engine.turn()
        return self._out.take()

    @property
    def held_records(self) -> int:
        """
        How many records are out or wait to be taken.
        """
        return self._engine.held.records

    def __repr__(self) -> str:
        held = self._engine.held
        return f"Pump({len(held.epochs)} partitions, {held.records} records held)"
