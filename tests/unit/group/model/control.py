"""
The control topic and its barrier as a state machine: one partition, some members.

A record is (key, is it a hold). A write is acknowledged when it is on the log. What a
member does is what ``Barrier``, ``Reader`` and ``ControlState`` do, one step at a time,
with everything that can come between them.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from attrs import frozen

Record = tuple[int, bool]

# Where a gated member stands with its question.
UNASKED, ON_ITS_WAY = -2, -1


class Flaw(StrEnum):
    """A way to get it wrong; each must be found by the exploration."""

    NONE = "none"
    NO_BARRIER = "what is gained flows at once"
    ASK_FIRST = "the end is asked before the assignment"
    ANY_ANSWER = "an answer for an earlier ownership counts"
    FAIL_OPEN = "a gate opens when the topic cannot be reached"
    DELETING = "cleanup.policy=delete"
    ABSENCE_LIFTS = "a topic made again lifts what it lacks"


class MemberState(NamedTuple):
    """One process."""

    is_alive: bool = True
    is_reaching: bool = True
    ownership: int = 0  # its serial; 0: owns nothing
    began: int = 0  # where the log ended when this ownership began
    is_gated: bool = False
    asked: int = UNASKED  # or the end offset that was answered
    answers: tuple[tuple[int, int], ...] = ()  # on their way: serial, end
    applied: int = 0
    holds: frozenset[int] = frozenset()


class World(NamedTuple):
    """Everything."""

    log: tuple[Record | None, ...] = ()  # None: compacted away
    written: tuple[int, ...] = ()  # how many of its actions each operator has done
    owner: int = -1
    members: tuple[MemberState, ...] = ()
    generations: int = 0
    faults: int = 0


@frozen(kw_only=True)
class Protocol:
    """
    How large the world is, and what is wrong with the protocol.

    Attributes:
        members: how many processes.
        actions: what each operator does, in order; its number is its key.
        generations: most assignments.
        faults: most crashes, cuts and zombies, together.
        flaw: what is wrong, if anything.
    """

    members: int = 2
    actions: tuple[tuple[bool, ...], ...] = ((True, False), (True,))
    generations: int = 2
    faults: int = 2
    flaw: Flaw = Flaw.NONE

    def first(self) -> World:
        """Return the world before anything happened."""
        return World(
            written=(0,) * len(self.actions), members=(MemberState(),) * self.members
        )

    def is_leak(self, world: World) -> bool:
        """
        Tell whether a member can deliver what G2 forbids.

        From an ownership that began after a hold was acknowledged that still stands.
        """
        return any(
            member.is_alive
            and member.ownership
            and not member.is_gated
            and not member.holds
            and any(key in self._standing(world) for key in _held(world, member.began))
            for member in world.members
        )

    def _standing(self, world: World) -> set[int]:
        return {
            key
            for key, done in enumerate(world.written)
            if done and self.actions[key][done - 1]
        }

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield everything that can happen next."""
        yield from self._operators(world)
        yield from self._cleaner(world)
        for number, member in enumerate(world.members):
            yield from self._group(world, number, member)
            if member.is_alive:
                yield from self._reading(world, number, member)
                yield from self._gate(world, number, member)
                yield from self._faults(world, number, member)

    # ------------------------------------------------------------ the topic

    def _operators(self, world: World) -> Iterator[tuple[str, World]]:
        for key, done in enumerate(world.written):
            if done < len(self.actions[key]):
                is_held = self.actions[key][done]
                written = (*world.written[:key], done + 1, *world.written[key + 1 :])
                after = world._replace(
                    log=(*world.log, (key, is_held)), written=written
                )
                yield f"operator {key} {'holds' if is_held else 'lifts'}", after

    def _cleaner(self, world: World) -> Iterator[tuple[str, World]]:
        for offset, record in enumerate(world.log):
            if record is None:
                continue
            is_superseded = any(
                later is not None and later[0] == record[0]
                for later in world.log[offset + 1 :]
            )
            if is_superseded or self.flaw is Flaw.DELETING:
                log = (*world.log[:offset], None, *world.log[offset + 1 :])
                yield f"offset {offset} is cleaned away", world._replace(log=log)

    # ------------------------------------------------------------ the group

    def _group(
        self, world: World, number: int, member: MemberState
    ) -> Iterator[tuple[str, World]]:
        if not member.is_alive:
            yield f"{number} restarts", _with(world, number, MemberState())
            return
        if world.owner == number or world.generations >= self.generations:
            return
        yield f"{number} gains it", self._assigned(world, number, is_told=True)
        if world.owner >= 0 and world.faults < self.faults:
            after = self._assigned(world, number, is_told=False)
            yield (
                f"{number} gains it, a zombie stays",
                after._replace(faults=after.faults + 1),
            )

    def _assigned(self, world: World, number: int, *, is_told: bool) -> World:
        if world.owner >= 0 and is_told:
            world = _with(world, world.owner, _released(world.members[world.owner]))
        member = world.members[number]
        serial = world.generations + 1
        early = self.flaw is Flaw.ASK_FIRST and member.asked >= 0
        gained = member._replace(
            ownership=serial,
            began=len(world.log),
            is_gated=self.flaw is not Flaw.NO_BARRIER,
            asked=member.asked if early else UNASKED,
        )
        return _with(world, number, gained)._replace(owner=number, generations=serial)

    # ------------------------------------------------------------ a member

    def _reading(
        self, world: World, number: int, member: MemberState
    ) -> Iterator[tuple[str, World]]:
        if member.is_reaching and member.applied < len(world.log):
            record, holds = world.log[member.applied], member.holds
            if record is not None:
                key, is_held = record
                holds = holds | {key} if is_held else holds - {key}
            after = member._replace(applied=member.applied + 1, holds=holds)
            yield f"{number} reads offset {member.applied}", _with(world, number, after)
        if member.applied and self.flaw is Flaw.ABSENCE_LIFTS:
            forgot = member._replace(holds=frozenset())
            yield f"{number} takes it for another topic", _with(world, number, forgot)

    def _gate(
        self, world: World, number: int, member: MemberState
    ) -> Iterator[tuple[str, World]]:
        may_ask = member.is_gated or self.flaw is Flaw.ASK_FIRST
        if may_ask and member.is_reaching and member.asked == UNASKED:
            after = member._replace(asked=ON_ITS_WAY, answers=member.answers)
            answer = (member.ownership, len(world.log))
            after = after._replace(answers=(*member.answers, answer)[-2:])
            yield f"{number} asks, the end is {answer[1]}", _with(world, number, after)
        for answer in member.answers:
            left = tuple(one for one in member.answers if one is not answer)
            serial, end = answer
            counts = serial == member.ownership or self.flaw in {
                Flaw.ANY_ANSWER,
                Flaw.ASK_FIRST,
            }
            heard = member._replace(answers=left)
            if counts and (member.is_gated or self.flaw is Flaw.ASK_FIRST):
                heard = heard._replace(asked=end)
            yield f"{number} hears {end}", _with(world, number, heard)
        if member.is_gated and 0 <= member.asked <= member.applied:
            yield (
                f"{number} opens",
                _with(world, number, member._replace(is_gated=False)),
            )
        if self.flaw is Flaw.FAIL_OPEN and member.is_gated and not member.is_reaching:
            yield (
                f"{number} runs on",
                _with(world, number, member._replace(is_gated=False)),
            )

    # ------------------------------------------------------------ faults

    def _faults(
        self, world: World, number: int, member: MemberState
    ) -> Iterator[tuple[str, World]]:
        if not member.is_reaching:
            again = member._replace(
                is_reaching=True,
                answers=(),
                asked=UNASKED if member.is_gated else member.asked,
            )
            yield f"{number} reaches the topic", _with(world, number, again)
        if member.ownership and world.owner != number:
            yield f"{number} learns it lost it", _with(world, number, _released(member))
        if world.faults >= self.faults:
            return
        worse = world._replace(faults=world.faults + 1)
        if member.is_reaching:
            cut = member._replace(is_reaching=False)
            yield f"{number} is cut off", _with(worse, number, cut)
        owner = -1 if world.owner == number else world.owner
        dead = _with(worse, number, MemberState(is_alive=False))
        yield f"{number} crashes", dead._replace(owner=owner)


def _held(world: World, before: int) -> set[int]:
    """Return the keys whose last record below an offset is a hold, cleaned away or not."""
    return {
        record[0] for record in world.log[:before] if record is not None and record[1]
    } | (_deleted(world, before))


def _deleted(world: World, before: int) -> set[int]:
    # A hold that was deleted by retention was acknowledged all the same.
    is_gone = any(record is None for record in world.log[:before])
    there = {record[0] for record in world.log if record is not None}
    return (
        {key for key, done in enumerate(world.written) if done and key not in there}
        if is_gone
        else set()
    )


def _released(member: MemberState) -> MemberState:
    return member._replace(ownership=0, began=0, is_gated=False, asked=UNASKED)


def _with(world: World, number: int, member: MemberState) -> World:
    members = (*world.members[:number], member, *world.members[number + 1 :])
    return world._replace(members=members)
