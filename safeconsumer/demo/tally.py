"""Counts for each record whether it was lost, leaked or delivered twice."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.demo.results import Counts

Wish = Callable[[TopicPartition], bool]
"""Whether the program wants a partition paused at this moment."""


@frozen(kw_only=True)
class Row:
    """What became of one partition's records so far."""

    tp: TopicPartition
    produced: int
    delivered: int
    wrong: int
    is_wished_paused: bool


class Tally:
    """
    Judges deliveries by what the program asked for, never by what a client claims.

    Thread rules: every method may be called by any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._produced: dict[TopicPartition, set[int]] = defaultdict(set)
        self._delivered: dict[TopicPartition, dict[int, str]] = defaultdict(dict)
        self._ownership: Counter[tuple[str, TopicPartition]] = Counter()
        self._seen: set[tuple[str, TopicPartition, int, int]] = set()
        self._owned: dict[str, frozenset[TopicPartition]] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._leaked: Counter[TopicPartition] = Counter()
        self._duplicated: Counter[TopicPartition] = Counter()
        self._after_resume: int | None = None
        self._wish: Wish | None = None

    # ------------------------------------------------------------ taking notes

    def watched(self, tps: Iterable[TopicPartition]) -> None:
        """Note partitions that belong to the play, before there are records in them."""
        with self._lock:
            for tp in tps:
                self._produced[tp] |= set()

    def produced(self, tp: TopicPartition, offset: int) -> None:
        """Note a record that the broker acknowledged."""
        with self._lock:
            self._produced[tp].add(offset)

    def paused(self, wish: Wish) -> None:
        """Judge deliveries by this wish from now on."""
        with self._lock:
            self._wish = wish

    def resumed(self) -> None:
        """Wish for no pause any more, and count deliveries as those after the resume."""
        with self._lock:
            self._wish = _nothing
            self._after_resume = 0

    def owned(self, member: str, tps: Iterable[TopicPartition]) -> None:
        """Note what a member works on, by its own account."""
        with self._lock:
            now = frozenset(tps)
            self._begin(member, now - self._owned.get(member, frozenset()))
            self._owned[member] = now

    def assigned(self, member: str, tps: Iterable[TopicPartition]) -> None:
        """Note that a member was assigned partitions, some of which it may have had."""
        with self._lock:
            self._begin(member, tps)

    def _begin(self, member: str, tps: Iterable[TopicPartition]) -> None:
        self._ownership.update((member, tp) for tp in tps)

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note offsets that the broker accepted: nothing below them may come again."""
        with self._lock:
            self._committed.update(offsets)

    def delivered(self, member: str, tp: TopicPartition, offset: int) -> None:
        """Judge one delivery."""
        with self._lock:
            if self._wish is not None and self._wish(tp):
                self._leaked[tp] += 1
            if self._after_resume is not None:
                self._after_resume += 1
            self._duplicated[tp] += self._is_duplicate(member, tp, offset)
            self._delivered[tp].setdefault(offset, member)

    def _is_duplicate(self, member: str, tp: TopicPartition, offset: int) -> bool:
        key = (member, tp, self._ownership[member, tp], offset)
        is_again = key in self._seen
        self._seen.add(key)
        first = self._delivered[tp].get(offset, member)
        is_by_both = first != member and tp in self._owned.get(first, ())
        return is_again or is_by_both or offset < self._committed.get(tp, 0)

    # ------------------------------------------------------------ asking

    def missing(self, tp: TopicPartition | None = None) -> int:
        """Return how many produced records, of one partition or all, nobody was given."""
        with self._lock:
            tps = list(self._produced) if tp is None else [tp]
            return sum(map(self._missing_of, tps))

    def _missing_of(self, tp: TopicPartition) -> int:
        return len(self._produced[tp] - self._delivered[tp].keys())

    def rows(self) -> list[Row]:
        """Return every partition, in order."""
        with self._lock:
            return [self._row(tp) for tp in sorted(self._produced)]

    def _row(self, tp: TopicPartition) -> Row:
        return Row(
            tp=tp,
            produced=len(self._produced[tp]),
            delivered=len(self._delivered[tp]),
            wrong=self._leaked[tp] + self._duplicated[tp],
            is_wished_paused=self._wish is not None and self._wish(tp),
        )

    def counts(self) -> Counts:
        """Return what became of all records so far."""
        missing = self.missing()
        with self._lock:
            return Counts(
                produced=sum(map(len, self._produced.values())),
                while_paused=None if self._wish is None else self._leaked.total(),
                after_resume=self._after_resume,
                missing=missing,
                duplicated=self._duplicated.total(),
            )


def _nothing(_: TopicPartition) -> bool:
    return False
