"""Knows the brokers of a cluster: who is up, who leads, who coordinates what."""

import zlib
from collections.abc import Callable, Sequence

GROUP, TRANSACTION = 0, 1  # Kafka's numbers for what a coordinator is asked for


class Nodes:
    """
    The brokers, numbered from 1.

    A broker that is down is still named to clients until the others have noticed;
    then it is fenced, and what it led or coordinated is another's.
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
        """Let it be out of reach."""
        self._down.add(node)

    def up(self, node: int) -> None:
        """Let it be there again."""
        self._down.discard(node)
        self._fenced.discard(node)

    def named(self) -> list[int]:
        """Return those that clients hear of."""
        return [node for node in self.addresses if node not in self._fenced]

    def fence(self, node: int) -> Callable[[int], int] | None:
        """
        Notice that a broker is down, unless it is up again or there is no other.

        Returns who takes the place of whom, by a number that shares them out.
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
