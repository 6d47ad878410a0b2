"""Tracks which brokers are up, and which brokers coordinate groups and transactions."""

import zlib
from collections.abc import Callable, Sequence

GROUP, TRANSACTION = 0, 1  # Kafka's key types for FindCoordinator


class Nodes:
    """
    The brokers of a cluster, numbered from 1.

    Metadata still lists a broker that is down until the other brokers have noticed
    that. Then the broker is fenced, and other brokers lead its partitions and
    coordinate its groups.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self.addresses = dict(enumerate(addresses, start=1))
        self._down: set[int] = set()
        self._fenced: set[int] = set()
        self._coordinators: dict[tuple[int, str], int] = {}

    def is_up(self, node: int) -> bool:
        """Return whether a broker accepts connections."""
        return node not in self._down

    def down(self, node: int) -> None:
        """Mark a broker as down."""
        self._down.add(node)

    def up(self, node: int) -> None:
        """Mark a broker as up again."""
        self._down.discard(node)
        self._fenced.discard(node)

    def named(self) -> list[int]:
        """Return the brokers that metadata lists."""
        return [node for node in self.addresses if node not in self._fenced]

    def fence(self, node: int) -> Callable[[int], int] | None:
        """
        Fence a broker, unless it is up again or all other brokers are down.

        Returns:
            A function that returns, for a partition's number, the broker that takes it
            over; None if ``node`` was not fenced.
        """
        others = [other for other in self.addresses if other not in self._down]
        if self.is_up(node) or not others:
            return None
        self._fenced.add(node)
        for number, (key, coordinator) in enumerate(self._coordinators.items()):
            if coordinator == node:
                self._coordinators[key] = others[number % len(others)]
        return lambda number: others[number % len(others)]

    def leader_of(self, partition: int) -> int:
        """Return the first leader of a new partition."""
        named = self.named()
        return named[partition % len(named)]

    def coordinator_of(self, kind: int, key: str) -> int:
        """Return the broker that coordinates a group or a transactional id."""
        named = self.named()
        first = named[zlib.crc32(key.encode()) % len(named)]
        return self._coordinators.setdefault((kind, key), first)

    def move_coordinator(self, kind: int, key: str, node: int) -> None:
        """Make another broker the coordinator of a group or a transactional id."""
        self._coordinators[kind, key] = node
