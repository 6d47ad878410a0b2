"""
The simplest thing that could be called a ledger: a dict that is scanned in full.

It shares no line with the ledger it judges.
"""

import re

from safeconsumer.holds.hold import Hold, Lifetime
from safeconsumer.holds.scope import (
    Everything,
    Partition,
    Pattern,
    Scope,
    Topic,
    TopicPartition,
)


def covers(scope: Scope, tp: TopicPartition) -> bool:
    """Tell whether a scope covers a partition, from the definition."""
    match scope:
        case Partition(topic, number):
            return (topic, number) == tp
        case Topic(topic):
            return topic == tp[0]
        case Pattern(text):
            return re.fullmatch(text, tp[0]) is not None
        case Everything():
            return True


class NaiveLedger:
    """Holds by scope and owner; every question looks at all of them."""

    def __init__(self) -> None:
        self.holds: dict[tuple[str, str], Hold] = {}

    def place(self, holds: list[Hold]) -> list[Hold]:
        placed = []
        for hold in holds:
            key = str(hold.scope), hold.owner
            before = self.holds.get(key)
            timed = hold.deadline is not None or (
                before is not None and before.deadline is not None
            )
            if (
                before is None
                or timed
                or (before.reason, before.lifetime) != (hold.reason, hold.lifetime)
            ):
                self.holds[key] = hold
                placed.append(hold)
        return placed

    def remove(self, keys: list[tuple[Scope, str]]) -> list[Hold]:
        found = [self.holds.pop((str(scope), owner), None) for scope, owner in keys]
        return [hold for hold in found if hold is not None]

    def expire(self, now: float) -> list[Hold]:
        return self.remove(
            [
                hold.key
                for hold in self.holds.values()
                if hold.deadline is not None and hold.deadline <= now
            ]
        )

    def end_assignment(
        self, departed: frozenset[TopicPartition], assigned: list[TopicPartition]
    ) -> list[Hold]:
        return self.remove(
            [
                hold.key
                for hold in self.holds.values()
                if hold.lifetime is Lifetime.WHILE_ASSIGNED
                and any(covers(hold.scope, tp) for tp in departed)
                and not any(covers(hold.scope, tp) for tp in assigned)
            ]
        )

    def covering(self, tp: TopicPartition) -> list[Hold]:
        return [hold for hold in self.holds.values() if covers(hold.scope, tp)]
