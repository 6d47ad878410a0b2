"""Checks holds that were placed before the first ``subscribe`` or ``assign``."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from safeconsumer.holds.hold import Hold, HoldKey
from safeconsumer.holds.scope import Partition, Scope, Topic, TopicPartition
from safeconsumer.holds.state import LedgerState

Fits = Callable[[Scope], bool]


class EarlyHolds:
    """
    Remembers which holds are still to be checked; each is checked once.

    Thread rules: any thread, and a signal handler; it takes no lock. Holds that another
    thread adds during a check are left for the next check.
    """

    def __init__(self) -> None:
        self._unchecked: dict[HoldKey, None] = {}

    def __len__(self) -> int:
        return len(self._unchecked)

    def add(self, keys: Iterable[HoldKey]) -> None:
        """Note holds that were placed while nothing was consumed."""
        self._unchecked.update(dict.fromkeys(keys))

    def forget(self, keys: Iterable[HoldKey]) -> None:
        """Forget holds that were checked, or are about to be lifted."""
        for key in keys:
            self._unchecked.pop(key, None)

    def keys(self) -> tuple[HoldKey, ...]:
        """Return the holds to be checked now, in the order in which they were placed."""
        return tuple(self._unchecked)


def first_unfit(keys: Iterable[HoldKey], state: LedgerState, fits: Fits) -> Hold | None:
    """Return the first hold that is in force and does not fit; None if all do."""
    for scope, owner in keys:
        for hold in state.of(scope):
            if hold.owner == owner and not fits(scope):
                return hold
    return None


def fits_assignment(partitions: Collection[TopicPartition]) -> Fits:
    """Make the rule of ``assign``: a held partition, or one of a held topic, is assigned."""

    def fits(scope: Scope) -> bool:
        if not isinstance(scope, Partition | Topic):
            return True
        return any(scope.covers(tp) for tp in partitions)

    return fits


def fits_subscription(topics: object, pattern: str | None) -> Fits:
    """
    Make the rule of ``subscribe``: the topic is named, or the pattern finds it.

    Every hold fits a subscription that upstream will refuse: upstream's error says
    more.
    """
    is_legal = bool(pattern) != bool(topics) and (
        bool(pattern) or (isinstance(topics, Sequence) and not isinstance(topics, str))
    )

    def fits(scope: Scope) -> bool:
        if not is_legal or not isinstance(scope, Partition | Topic):
            return True
        if pattern:
            return re.match(pattern, scope.topic) is not None
        return isinstance(topics, Sequence) and scope.topic in topics

    return fits
