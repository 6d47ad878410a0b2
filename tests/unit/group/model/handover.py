"""
Handing a pause to the next owner: what the ticket says literally, and better ways.

One partition. Whoever owns it may pause it once; from then on nobody may deliver.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import chain, combinations
from typing import NamedTuple

from attrs import frozen


class Carrier(StrEnum):
    """How the pause travels."""

    LITERAL = "user data, marks of what is owned"
    KEPT = "user data, every mark ever heard"
    OFFSETS = "metadata of the committed offset"
    FORGETFUL = "the same, and one commit forgets it"


class World(NamedTuple):
    """Everything. ``marks``: what each member believes; ``stored``: what the broker has."""

    owner: int = 0
    marks: tuple[bool, ...] = ()
    alive: tuple[bool, ...] = ()
    is_paused: bool = False
    stored: bool = False
    revoked_by: int = -1  # cooperative: given up in round one, owned by nobody
    generations: int = 0


@frozen(kw_only=True)
class Handover:
    """
    How large the world is, and how the pause travels.

    Attributes:
        carrier: how the pause travels.
        members: how many.
        is_cooperative: two rounds: given up first, given away second.
        may_crash: whether members die without a word.
        generations: most rebalances.
    """

    carrier: Carrier
    members: int = 3
    is_cooperative: bool = False
    may_crash: bool = False
    generations: int = 4

    def first(self) -> World:
        return World(marks=(False,) * self.members, alive=(True,) * self.members)

    def is_leak(self, world: World) -> bool:
        """Tell whether the owner would deliver though the partition was paused."""
        if not world.is_paused or world.owner < 0:
            return False
        return world.alive[world.owner] and not world.marks[world.owner]

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        owner = world.owner
        if owner >= 0 and world.alive[owner] and not world.is_paused:
            paused = world._replace(is_paused=True, marks=_set(world.marks, owner))
            if self.carrier in {Carrier.OFFSETS, Carrier.FORGETFUL}:
                paused = paused._replace(stored=True)  # committed before it returns
            yield f"{owner} pauses", paused
        if self.carrier is Carrier.FORGETFUL and world.stored:
            yield f"{owner} commits plainly", world._replace(stored=False)
        if self.may_crash:
            for number, is_alive in enumerate(world.alive):
                if is_alive and sum(world.alive) > 1:
                    yield f"{number} crashes", _crashed(world, number)
        if world.generations < self.generations:
            yield from self._rebalances(world)

    def _rebalances(self, world: World) -> Iterator[tuple[str, World]]:
        living = [n for n, is_alive in enumerate(world.alive) if is_alive]
        world = world._replace(generations=world.generations + 1)
        if self.is_cooperative and world.owner in living:
            # Round one: everybody keeps what it has; it is only taken from its owner.
            heard = self._heard(world, living, given_to=-1)
            yield (
                f"{world.owner} gives it up",
                heard._replace(owner=-1, revoked_by=world.owner),
            )
            return
        for joiners in _some(living):
            for owner in joiners:
                heard = self._heard(world, joiners, given_to=owner)
                name = f"{owner} gains it, joined by {list(joiners)}"
                yield name, heard._replace(owner=owner, revoked_by=-1)

    def _heard(
        self, world: World, joiners: "tuple[int, ...] | list[int]", given_to: int
    ) -> World:
        if self.carrier in {Carrier.OFFSETS, Carrier.FORGETFUL}:
            marks = list(world.marks)
            if given_to >= 0:
                marks[given_to] = world.stored
            return world._replace(marks=tuple(marks))
        reported = any(
            world.marks[n] and (self.carrier is Carrier.KEPT or n == world.owner)
            for n in joiners
        )
        marks = tuple(
            (reported if self.carrier is Carrier.KEPT else reported and n == given_to)
            if n in joiners
            else mark
            for n, mark in enumerate(world.marks)
        )
        return world._replace(marks=marks)


def _some(living: list[int]) -> "Iterator[tuple[int, ...]]":
    sizes = range(1, len(living) + 1)
    return chain.from_iterable(combinations(living, size) for size in sizes)


def _set(marks: tuple[bool, ...], number: int) -> tuple[bool, ...]:
    return (*marks[:number], True, *marks[number + 1 :])


def _crashed(world: World, number: int) -> World:
    alive = (*world.alive[:number], False, *world.alive[number + 1 :])
    marks = (*world.marks[:number], False, *world.marks[number + 1 :])
    owner = -1 if world.owner == number else world.owner
    return world._replace(alive=alive, marks=marks, owner=owner)
