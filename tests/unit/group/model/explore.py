"""Looks at every state that a small protocol can reach, breadth first."""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from attrs import frozen

S = TypeVar("S", bound=Hashable)
Step = tuple[str, S]


@frozen(kw_only=True)
class Explored(Generic[S]):
    """
    What was seen.

    Attributes:
        states: how many different ones.
        is_complete: whether these are all there are.
        trace: the shortest way to a bad state, step by step; empty if none was met.
    """

    states: int
    is_complete: bool
    trace: tuple[str, ...] = ()


def explore(
    first: S,
    steps: Callable[[S], Iterable[Step[S]]],
    is_bad: Callable[[S], bool],
    *,
    most: int = 2_000_000,
) -> Explored[S]:
    """Follow every interleaving until a bad state is met or nothing is new."""
    came_from: dict[S, tuple[S, str] | None] = {first: None}
    front = [first]
    while front:
        reached = []
        for state in front:
            if is_bad(state):
                trace = _trace(came_from, state)
                return Explored(states=len(came_from), is_complete=False, trace=trace)
            for name, after in steps(state):
                if after not in came_from:
                    came_from[after] = (state, name)
                    reached.append(after)
        if len(came_from) > most:
            return Explored(states=len(came_from), is_complete=False)
        front = reached
    return Explored(states=len(came_from), is_complete=True)


def _trace(came_from: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    names = []
    while (step := came_from[state]) is not None:
        state, name = step
        names.append(name)
    return tuple(reversed(names))
