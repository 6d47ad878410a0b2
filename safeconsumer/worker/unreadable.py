"""Decides about batches of records that cannot be read."""

from collections.abc import Callable

from attrs import define
from kafka.structs import TopicPartition

from safeconsumer.errors.base import RecordFailedError
from safeconsumer.errors.faces import CorruptBatchError
from safeconsumer.journal.format import SKIPPED
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.client import ConsumerClient
from safeconsumer.worker.held import Held
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tracebacks import shown


@define
class _Batch:
    """
    A batch that could not be read.

    Attributes:
        ownership: the one in which it was met.
        error: the last one, with the first offset that cannot be read.
        since: when that was so first.
        failures: how often it was tried.
        until: when it is tried again.
        then: the policy that applies to it for good; None while it is tried again.
    """

    ownership: object
    error: CorruptBatchError
    since: float
    failures: int = 0
    until: float = 0.0
    then: str | None = None


class Unreadable:
    """
    The partitions whose next batch cannot be read. For the polling thread only.

    A batch is fetched again as often as a failed record is tried; then ``on_exhausted``
    applies. ``stop`` stops the worker once all before the batch is done. ``skip``
    passes over its offsets one by one: how many there are only the batch's own header
    could say. ``block`` looks again every ``Retry.most`` seconds, and so it is whatever
    the policy but ``stop`` where the broker cannot read its log: what it cannot read
    now is not known to be corrupt. Meanwhile the partition is held, and others go on.
    """

    work: Schedule

    def __init__(
        self,
        client: ConsumerClient,
        held: Held,
        emit: Callable[..., None],
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._held = held
        self._emit = emit
        self._clock = clock
        self._batches: dict[TopicPartition, _Batch] = {}

    def note(self, error: CorruptBatchError) -> None:
        """Take over what a poll has raised."""
        tp = TopicPartition(*error.partition)
        ownership = self._client.membership.owned().get(tp)
        if ownership is None:
            return
        batch = self._batches.get(tp)
        if (
            batch is None
            or batch.ownership is not ownership
            or batch.error.offset != error.offset
        ):
            batch = self._batches[tp] = self._new(tp, ownership, error)
        batch.error = error
        batch.failures += 1
        policy, now = self.work.queue.policy, self._clock()
        if batch.then is None and policy.retry.is_final(batch.failures, error):
            batch.then = policy.on_exhausted
            if batch.then == "skip" and error.is_of_broker:
                batch.then = "block"
            self._tell(tp, batch, batch.then)
        elif batch.then is None and batch.failures == 1:
            self._tell(tp, batch, "retry")
        if batch.then == "skip":
            if self.work.journal is not None:
                number = self._held.number_of(tp, ownership)
                self.work.journal.completes(tp, number, error.offset, SKIPPED)
            self._client.go_back(tp, error.offset + 1)
            with self._held.lock:
                self.work.skipped += 1
                self._held.done += 1
        elif batch.then is None:
            batch.until = now + policy.retry.delay(batch.failures, policy.draw())
        else:
            batch.until = now + max(1.0, policy.retry.most)

    def _new(
        self, tp: TopicPartition, ownership: object, error: CorruptBatchError
    ) -> _Batch:
        # The offset behind one that was passed over is of the same batch if the words
        # are the same: they name where a batch begins whose checksum is wrong. Another
        # batch is tried anew: that several in a row are wrong may be our network's fault.
        before = self._batches.get(tp)
        then = None
        if before is not None and before.ownership is ownership:
            is_next = before.error.offset + 1 == error.offset
            is_same = str(before.error.__cause__) == str(error.__cause__)
            then = before.then if is_next and is_same else None
        return _Batch(ownership, error, self._clock(), then=then)

    def turn(self) -> list[TopicPartition]:
        """Return the partitions to hold; stop the worker where it is time for that."""
        now, held = self._clock(), []
        for tp, batch in tuple(self._batches.items()):
            if self._client.membership.owned().get(tp) is not batch.ownership:
                del self._batches[tp]
            elif batch.then == "stop":
                held.append(tp)
                epoch = self._held.epochs.get(tp)
                if epoch is None or not epoch.records:
                    self.work.fail(_failed(tp, batch.error))
            elif now < batch.until:
                held.append(tp)
        return held

    def settle(self, tp: TopicPartition) -> None:
        """Note that records of a partition have come."""
        self._batches.pop(tp, None)

    def broken(self, age: float) -> list[str]:
        """Say which batches could not be read for so many seconds; any thread."""
        now = self._clock()
        return [
            f"{shown_place(tp, batch.error)} cannot be read for {now - batch.since:.1f} s: "
            f"{batch.error.__cause__}"
            for tp, batch in tuple(self._batches.items())
            if batch.then != "skip" and now - batch.since >= age
        ]

    def _tell(self, tp: TopicPartition, batch: _Batch, then: str) -> None:
        self._emit(
            worker_events.BatchUnreadable,
            partition=f"{tp.topic}:{tp.partition}",
            offset=batch.error.offset,
            error=shown(batch.error.__cause__),
            then=then,
        )


def shown_place(tp: TopicPartition, error: CorruptBatchError) -> str:
    """Name the first offset that cannot be read."""
    return f"{tp.topic}:{tp.partition} offset {error.offset}"


def _failed(tp: TopicPartition, error: CorruptBatchError) -> RecordFailedError:
    message = (
        f"{shown_place(tp, error)} cannot be read: {error.__cause__}; repair the "
        f"partition, commit an offset behind it for this group, or set "
        f"on_exhausted='skip', which passes over every offset that cannot be read"
    )
    failed = RecordFailedError(message)
    failed.__cause__ = error
    return failed
