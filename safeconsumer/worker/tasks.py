"""Defines tasks and outcomes, which travel between a queue and its handlers."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from attrs import field, frozen

from safeconsumer.worker.handlers import Failure
from safeconsumer.worker.lanes import Lane
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Ordinals
from safeconsumer.worker.records import AnyRecord

Indexes: TypeAlias = Sequence[int]
"""Records of a task, by their places in it."""


@frozen(eq=False)
class Task:
    """
    Records of one ownership that a handler works on, in this order.

    Attributes:
        lane: the lane they come from, or the first of several.
        ordinals: the records, as the ownership knows them.
        records: the records themselves; None where one is complete. The caller that has
            the task marks it so, on any thread and without a lock.
        keys: the keys on which no other task may work meanwhile, as a mapping's keys.
        attempt: the number of this attempt, from 1.
        tried: the offset of its only record, if that has failed before, or may have.
        letter: the sink is called with its only record, and not the handler; None for
            the handler.
    """

    lane: Lane
    ordinals: Ordinals
    records: list[AnyRecord | None]
    keys: Mapping[object, None] = field(factory=dict)
    attempt: int = 1
    tried: int | None = None
    letter: Failure | None = None

    @property
    def epoch(self) -> Epoch:
        """The epoch it belongs to."""
        return self.lane.epoch

    @property
    def indexes(self) -> range:
        """The places of its records."""
        return range(len(self.records))

    def record(self, index: int) -> AnyRecord:
        """Return one of its records that is not complete."""
        record = self.records[index]
        assert record is not None  # noqa: S101 - see above
        return record

    def finish(self, index: int) -> None:
        """Mark one of its records complete."""
        self.records[index] = None

    def done(self) -> int:
        """Return how many of its records are complete."""
        return sum([record is None for record in self.records])

    def ordinals_of(self, indexes: Indexes) -> Ordinals:
        """Return some of its records as the ownership knows them."""
        if type(indexes) is range:
            return self.ordinals[indexes.start : indexes.stop]
        return [self.ordinals[index] for index in indexes]


@frozen(kw_only=True)
class Outcome:
    """
    The result of a task.

    Attributes:
        task: the task.
        finished: indexes of the records that are done, and marked so.
        failed: indexes of failed records, with their errors.
        left: indexes of records that were not begun.
        seconds: how long all of it took.
        failing: how many of these seconds failed calls took.
        is_suspect: whether several records failed together and any of them, but not
            all, may be the cause: they are tried one by one, and none counts as failed
            yet.
    """

    task: Task
    finished: Indexes = ()
    failed: Sequence[tuple[int, BaseException]] = ()
    left: Indexes = ()
    seconds: float = 0.0
    failing: float = 0.0
    is_suspect: bool = False
