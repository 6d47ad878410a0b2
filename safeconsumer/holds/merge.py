"""
Merges what several places know about holds, in any order and any number of times.

A register is the latest statement about one thing; of two that differ the greater one
counts, in a total order. So merging is commutative, associative and idempotent.
"""

from collections.abc import Hashable, Mapping
from typing import TypeVar

from attrs import frozen

K = TypeVar("K", bound=Hashable)


@frozen(order=True)
class Register:
    """
    The latest statement about one hold. The order of the fields decides which is later.

    Attributes:
        stamp: the topic's incarnation and the record's offset, or a generation.
        is_held: of two with the same stamp, the one that is held wins.
        at_ms: the broker's time of the record, milliseconds since the epoch.
        body: the other fields, as they were written.
    """

    stamp: tuple[int, int]
    is_held: bool
    at_ms: int = 0
    body: bytes = b""


def merge(left: Mapping[K, Register], right: Mapping[K, Register]) -> dict[K, Register]:
    """Combine two sets of registers; for each key the greater register is kept."""
    merged = dict(left)
    for key, register in right.items():
        known = merged.get(key)
        if known is None or known < register:
            merged[key] = register
    return merged


def held(registers: Mapping[K, Register]) -> frozenset[K]:
    """Return the keys that are held."""
    return frozenset(key for key, one in registers.items() if one.is_held)
