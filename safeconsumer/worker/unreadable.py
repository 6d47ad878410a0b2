"""Decides what to do about batches of records that cannot be read."""

from collections.abc import Callable

from attrs import define, field
from kafka.structs import TopicPartition

from safeconsumer.errors.base import RecordFailedError
from safeconsumer.errors.kafka_python import CorruptBatchError
from safeconsumer.holds.hold import Lifetime
from safeconsumer.holds.scope import Partition, partition_text
from safeconsumer.journal.format import SKIPPED
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.client import UNREADABLE, ConsumerClient
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.kept import KeptRecords
from safeconsumer.worker.partition import Epoch, UnreadableBatch
from safeconsumer.worker.tracebacks import shown

# The minimum seconds between two fetches of a batch whose retries are used up.
_RETRY_SECONDS = 1.0


@define(eq=False, slots=False)
class Unreadable:
    """
    Holds partitions whose next batch cannot be read.

    Only the polling thread may use this class.

    When the hold has expired, the batch is fetched again. It is fetched as many times
    as a failed record is tried. After that, ``on_exhausted`` applies. ``stop`` stops
    the worker once all records before the batch are done. ``skip`` skips the batch's
    offsets one by one, because only the header of the unreadable batch shows how many
    there are. ``block`` fetches the batch again every ``Retry.most`` seconds; so does
    ``skip`` if the broker cannot read its log, because it is then unknown whether the
    records are corrupt. Other partitions, and records before the batch, are processed
    as usual.
    """

    _client: ConsumerClient
    _kept: KeptRecords
    _emit: Callable[..., None]
    _clock: Callable[[], float]
    work: Decisions = field(init=False)

    def note(self, error: CorruptBatchError) -> None:
        """Handle the error of an unreadable batch that a poll has raised."""
        tp = TopicPartition(*error.partition)
        epoch = self._kept.epochs.get(tp)
        owned = self._client.membership.owned()
        if epoch is None or epoch.ownership is not owned.get(tp):
            # this ownership's epoch opens after this poll; the next poll raises the
            # error again
            return
        batch = epoch.unreadable
        if batch is None or batch.error.offset != error.offset:
            batch = epoch.unreadable = self._new(batch, error)
        batch.error = error
        batch.failures += 1
        self._judge(tp, batch)
        if batch.then == "skip":
            self._pass_over(epoch, error.offset)
        elif batch.then == "stop" and not epoch.records:
            self.work.fail(_failed(tp, error))
        else:
            self._hold(tp, batch)

    def _new(
        self, before: UnreadableBatch | None, error: CorruptBatchError
    ) -> UnreadableBatch:
        # If the offset follows a skipped one and the error's message is the same, it
        # belongs to the same batch, because the message names the batch's first offset.
        # Any other batch is fetched again first, because several corrupt batches in a
        # row may be due to the network.
        then = None
        if before is not None:
            is_next = before.error.offset + 1 == error.offset
            is_same = str(before.error.__cause__) == str(error.__cause__)
            then = before.then if is_next and is_same else None
        return UnreadableBatch(error=error, since=self._clock(), then=then)

    def _judge(self, tp: TopicPartition, batch: UnreadableBatch) -> None:
        policy = self.work.queue.policy
        if batch.then is None and policy.retry.is_final(batch.failures, batch.error):
            batch.then = policy.on_exhausted
            if batch.then == "skip" and batch.error.is_of_broker:
                batch.then = "block"
            self._report(tp, batch, batch.then)
        elif batch.then is None and batch.failures == 1:
            self._report(tp, batch, "retry")

    def _pass_over(self, epoch: Epoch, offset: int) -> None:
        if not self._client.reads_on(epoch.tp, offset):
            return  # the program has called seek(), perhaps in a hook
        if self.work.journal is not None:
            self.work.journal.completes(epoch.tp, epoch.number, offset, SKIPPED)
        self._client.go_back(epoch.tp, offset + 1)
        with self._kept.lock:
            self.work.skipped += 1
            self._kept.done += 1

    def _hold(self, tp: TopicPartition, batch: UnreadableBatch) -> None:
        policy, seconds = self.work.queue.policy, _RETRY_SECONDS
        if batch.then is None:
            seconds = max(0.001, policy.retry.delay(batch.failures, policy.draw()))
        elif batch.then == "block":
            seconds = max(seconds, policy.retry.most)
        scope, reason = Partition(*tp), "its next batch cannot be read"
        self._client.pause(scope, UNREADABLE, reason, seconds, Lifetime.WHILE_ASSIGNED)

    def problems(self, age: float) -> list[str]:
        """
        Describe the batches that have been unreadable for ``age`` seconds or more.

        Any thread may call this.
        """
        now = self._clock()
        found = [(tp, one.unreadable) for tp, one in tuple(self._kept.epochs.items())]
        return [
            f"{shown_place(tp, batch.error)} cannot be read for {now - batch.since:.1f} s: "
            f"{batch.error.__cause__}"
            for tp, batch in found
            if batch is not None and batch.then != "skip" and now - batch.since >= age
        ]

    def _report(self, tp: TopicPartition, batch: UnreadableBatch, then: str) -> None:
        self._emit(
            worker_events.BatchUnreadable,
            partition=partition_text(*tp),
            offset=batch.error.offset,
            error=shown(batch.error.__cause__),
            then=then,
        )


def shown_place(tp: TopicPartition, error: CorruptBatchError) -> str:
    """Return the partition and the first unreadable offset, as text for people."""
    return f"{partition_text(*tp)} offset {error.offset}"


def _failed(tp: TopicPartition, error: CorruptBatchError) -> RecordFailedError:
    message = (
        f"{shown_place(tp, error)} cannot be read: {error.__cause__}; repair the "
        f"partition, commit an offset behind it for this group, or set "
        f"on_exhausted='skip', which passes over every offset that cannot be read"
    )
    failed = RecordFailedError(message)
    failed.__cause__ = error
    return failed
