"""Keeps what a coordinator knows of commits: missing ones, and those in flight."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

from kafka.future import Future
from kafka.structs import OffsetAndMetadata, TopicPartition

Partitions = frozenset[TopicPartition]


class KnownCommits:
    """
    Counts commits by partition, and remembers which partitions have none.

    An answer about committed offsets for which nobody waited is used only if nothing
    has changed since the request; upstream 3.0.12 keeps it, and may start from it hours
    and generations later.

    Thread rules: the coroutines on the IO thread; :meth:`given_to_producer`,
    :meth:`elsewhere`, :meth:`without`, :meth:`forget_all_but`, :meth:`floor` and
    :meth:`is_in_flight` on any thread.
    """

    def __init__(self) -> None:
        self._without: set[TopicPartition] = set()
        self._answered: Counter[TopicPartition] = Counter()
        self._begun: Counter[TopicPartition] = Counter()
        self._in_flight: Counter[TopicPartition] = Counter()
        self._settled = Future()
        self._asked: dict[Partitions, tuple[object, ...]] = {}
        self._given: dict[TopicPartition, int] = {}
        self._is_elsewhere = False

    # ------------------------------------------------------------ in flight

    @contextmanager
    def sending(self, partitions: Collection[TopicPartition]) -> Iterator[None]:
        """Count a commit as in flight while the block runs."""
        keys = tuple(partitions)  # with a mapping a Counter would add up the values
        self._begun.update(keys)
        self._in_flight.update(keys)
        try:
            yield
        finally:
            self._in_flight.subtract(keys)
            settled, self._settled = self._settled, Future()
            settled.success(None)

    def begun(self, tp: TopicPartition) -> int:
        """Return how many commits of the partition were begun so far."""
        return self._begun[tp]

    def is_in_flight(self, tp: TopicPartition) -> bool:
        """Tell whether a commit of the partition is in flight."""
        return self._in_flight[tp] > 0

    async def none_in_flight(self, partitions: Collection[TopicPartition]) -> None:
        """Return once no commit of any of the partitions is in flight."""
        while any(map(self.is_in_flight, partitions)):
            await self._settled

    # ------------------------------------------------------------ who has none

    def answered(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the broker answered a commit, in whatever way."""
        self._answered.update(tuple(partitions))

    def has(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that these partitions have a committed offset."""
        self._without.difference_update(partitions)

    def lack(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that, by the broker's answer, these partitions have no committed offset."""
        self._without.update(partitions)

    def given_to_producer(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Note offsets that a producer may commit at any time from now on."""
        for tp, one in offsets.items():
            self._given[tp] = max(one.offset, self._given.get(tp, 0))

    def elsewhere(self) -> None:
        """Note that offsets may be committed by somebody other than this consumer."""
        self._is_elsewhere = True

    def floor(self, tp: TopicPartition) -> int:
        """Return the highest offset of the partition given to a producer; -1 if none was."""
        return self._given.get(tp, -1)

    def without(self, partitions: Partitions) -> Partitions:
        """Return those that certainly have no committed offset."""
        if self._is_elsewhere:
            return frozenset()
        return partitions & self._without - self._given.keys()

    def forget_all_but(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what is known of all other partitions: their next owners commit."""
        self._without.intersection_update(partitions)

    # ------------------------------------------------------------ questions

    def is_outdated(
        self,
        partitions: Partitions,
        since: tuple[object, ...],
        waiting: Collection[Partitions],
    ) -> bool:
        """
        Tell whether the request about these partitions must be sent again; note it.

        Upstream keeps a request under its partitions alone. One that outlasted its poll
        must be found by the next poll, and must not be found after that.

        Args:
            partitions: the partitions of the request.
            since: equal as long as the answer to an earlier request can be used.
            waiting: the requests that upstream keeps.
        """
        counts = tuple(self._answered[tp] for tp in sorted(partitions))
        now = (since, counts)
        kept = self._asked.keys() & waiting
        self._asked = {key: self._asked[key] for key in kept}
        if self._asked.get(partitions) == now:
            return False
        self._asked[partitions] = now
        return True

    def forget_question(self, partitions: Partitions) -> None:
        """Forget a request that was answered."""
        self._asked.pop(partitions, None)
