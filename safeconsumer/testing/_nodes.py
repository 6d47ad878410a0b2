"""Knows which brokers are up, and which broker coordinates a group."""

import zlib
from collections.abc import Callable, Sequence

GROUP, TRANSACTION = 0, 1  # Kafka's key types of FindCoordinator


class Nodes:
    """
    The brokers, numbered from 1.

    Metadata name a broker that is down until the others have noticed; then it is
    fenced, and other brokers lead its partitions and coordinate its groups.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self.addresses = dict(enumerate(addresses, start=1))
        self._down: set[int] = set()
        self._fenced: set[int] = set()
        self._coordinators: dict[tuple[int, str], int] = {}

    def is_up(self, node: int) -> bool:
        """Whether it accepts connections."""
        return node not in self._down

    def down(self, node: int) -> None:
        """Note that a broker is down."""
        self._down.add(node)

    def up(self, node: int) -> None:
        """Note that a broker is up again."""
        self._down.discard(node)
        self._fenced.discard(node)

    def named(self) -> list[int]:
        """Return the brokers that metadata name."""
        return [node for node in self.addresses if node not in self._fenced]

    def fence(self, node: int) -> Callable[[int], int] | None:
        """
        Fence a broker that is down, unless it is up again or there is no other.

        Returns:
            A function that returns a successor by a number, so that all get some.
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
        """Choose the first leader of a new partition."""
        named = self.named()
        return named[partition % len(named)]

    def coordinator_of(self, kind: int, key: str) -> int:
        """Return the broker that coordinates a group or a transactional id."""
        named = self.named()
        first = named[zlib.crc32(key.encode()) % len(named)]
        return self._coordinators.setdefault((kind, key), first)

    def move_coordinator(self, kind: int, key: str, node: int) -> None:
        """Make another broker the coordinator."""
        self._coordinators[kind, key] = node
