"""Defines what travels between a queue and its handlers: tasks and outcomes."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

from attrs import frozen

from safeconsumer.worker.handlers import Failure
from safeconsumer.worker.lanes import Indexes, Lane
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Chunk

Place: TypeAlias = tuple[Chunk, int]


@frozen
class Task:
    """
    Records of one lane that a handler works on, in this order.

    Attributes:
        attempt: the number of this attempt, from 1.
        tried: the offset of its only record, if that has failed before, or may have.
        bundle: several lanes' records of one chunk that travel together, lane by lane;
            ``indexes`` are all of theirs, and ``lane`` is the first.
        places: where its records are, if a batch has records of several chunks:
            ``chunk`` consists of copies then, and ``indexes`` are all of it.
        letter: the sink is called with its only record, and not the handler; None for
            the handler.
    """

    lane: Lane
    chunk: Chunk
    indexes: Indexes
    attempt: int = 1
    tried: int | None = None
    bundle: Sequence[tuple[Lane, Indexes]] = ()
    places: Sequence[Place] = ()
    letter: Failure | None = None

    @property
    def lanes(self) -> Collection[Lane]:
        """The lanes of its records."""
        return [lane for lane, _ in self.bundle] or (self.lane,)

    @property
    def epoch(self) -> Epoch:
        """The epoch it belongs to."""
        return self.lane.epoch

    def place(self, index: int) -> Place:
        """Return where one of its records is queued: a chunk, and the index there."""
        return self.places[index] if self.places else (self.chunk, index)

    def runs(self, indexes: Indexes) -> Iterator[tuple[Chunk, Indexes]]:
        """Yield some of its records by the chunks in which they are queued."""
        if not self.places:
            yield self.chunk, indexes
            return
        places = [self.places[index] for index in indexes]
        for _, some in itertools.groupby(places, lambda place: id(place[0])):
            found = list(some)
            yield found[0][0], [index for _, index in found]

    def finish(self, index: int) -> None:
        """Mark one of its records complete."""
        self.chunk.finish(index)
        if self.places:
            chunk, at = self.places[index]
            chunk.finish(at)


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
