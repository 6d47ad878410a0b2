"""
Hands pauses over to a partition's next owner when members join (see KAFKA-13463).

When a member joins, it sends a mark for each of its paused partitions, and the leader
sends all marks to every member. The marks are appended to the assignor's user data, as
``inner || payload || trailer``, so readers that decode from the front ignore them.
``design/hand-over.md`` describes the limits.
"""

import json
import struct
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from attrs import frozen
from kafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.structs import TopicPartition

from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Owned, difference
from safeconsumer.holds.plain import is_handed_over

ARRIVED = "paused by its previous owner"
"""The reason of a pause that was taken over."""

MEMBER, LEADER = "member", "leader"
"""The writers of marks. Some leaders send a member's own subscription back to the member."""

# Twice the total size of all members' marks may not exceed this many bytes. A group's
# metadata is one record of at most 1 MB, and a group with a larger record can never
# rebalance again.
MOST_BYTES_OF_A_GENERATION = 128 * 1024
MOST_BYTES_INFLATED = 4 * 1024 * 1024

MAGIC = b"SAFECONS"
_VERSION = 1
_TRAILER = struct.Struct(">II8s")  # the payload's length and CRC-32, and the magic
TRAILER_BYTES = _TRAILER.size

# Every version of these assignors reads these bytes as "nothing owned". Without them,
# Java's cooperative-sticky assignor would read the payload's first bytes as a
# generation.
_NEUTRAL = {"sticky": b"\0" * 8, "cooperative-sticky": b"\xff" * 4}

# The number of generations for which a mark is kept. A member that restarts misses one
# or two generations.
_KEPT_FOR = 16


@frozen(order=True)
class Mark:
    """
    States whether a partition is paused; if two marks differ, the greater one applies.

    Attributes:
        generation: the generation in which the mark was made.
        is_own: whether this member owns the partition; this value is not sent to the
            group.
        is_paused: whether the partition is paused; if two marks of the same generation
            differ, the paused one applies.
    """

    generation: int
    is_own: bool
    is_paused: bool


Marks = Mapping[TopicPartition, Mark]


def paused(marks: Marks) -> set[TopicPartition]:
    return {tp for tp, mark in marks.items() if mark.is_paused}


def merge(left: Marks, right: Marks) -> dict[TopicPartition, Mark]:
    """Return all marks; if a partition has two marks, return the greater one."""
    merged = dict(left)
    for tp, mark in right.items():
        merged[tp] = max(mark, merged.get(tp, mark))
    return merged


# ---------------------------------------------------------------- bytes


def wrap(inner: bytes, marks: Marks, writer: str) -> bytes:
    """Return user data followed by the pause marks; without marks the data is unchanged."""
    if not marks:
        return inner
    rows: dict[tuple[str, int, bool], list[int]] = {}
    for (topic, number), mark in sorted(marks.items()):
        row = (topic, mark.generation, mark.is_paused)
        rows.setdefault(row, []).append(number)
    document = {
        "version": _VERSION,
        "by": writer,
        "marks": [[*row, numbers] for row, numbers in rows.items()],
    }
    payload = zlib.compress(json.dumps(document, separators=(",", ":")).encode())
    return inner + payload + _TRAILER.pack(len(payload), zlib.crc32(payload), MAGIC)


def unwrap(data: bytes) -> tuple[bytes, str | None, Marks]:
    """
    Separate the marks from the user data. Never raises.

    Returns:
        The inner assignor's data, the writer of the marks, and the marks. The writer is
        None if no marks can be read.
    """
    at = len(data) - _TRAILER.size
    if at < 0 or not data.endswith(MAGIC):
        return data, None, {}
    length, check, _ = _TRAILER.unpack_from(data, at)
    payload = data[max(0, at - length) : at]
    if len(payload) != length or zlib.crc32(payload) != check:
        return data, None, {}
    try:
        machine = zlib.decompressobj()
        document = json.loads(machine.decompress(payload, MOST_BYTES_INFLATED))
        marks: dict[TopicPartition, Mark] = {}
        for topic, generation, is_paused, numbers in document["marks"]:
            mark = Mark(_count(generation), is_own=False, is_paused=is_paused is True)
            several = {TopicPartition(_text(topic), _count(n)): mark for n in numbers}
            marks = merge(marks, several)
        by, version = document["by"], document["version"]
        readable = version == _VERSION and by in {MEMBER, LEADER}
        writer = _text(by)
    except (ValueError, TypeError, LookupError, RecursionError, zlib.error):
        readable = False
    # Marks that cannot be read, for example from a later version, are removed from the
    # inner data, too.
    inner = data[: at - length]
    return (inner, writer, marks) if readable else (inner, None, {})


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**31:
        raise TypeError
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


# ---------------------------------------------------------------- one member


class HandOver:
    """
    The marks that this member knows: those of its own pauses, and those from the group.

    The member sends these marks in each join, and adopts the pauses in the group's
    marks.

    Args:
        ledger: the ledger of the consumer.

    Thread rules: only the IO thread uses this object.
    """

    def __init__(self, ledger: PauseLedger) -> None:
        self._ledger = ledger
        self._ledger.carried = frozenset()
        self._generation = 0
        self._before: Owned = {}
        # The marks chosen by the last :meth:`before_join`, and those received since
        # then.
        self.known: Marks = {}

    def before_join(self) -> None:
        """
        Choose the pause marks for the next join; called before and after the listener.

        The mark of an owned partition shows whether the partition is paused now. If the
        group has a mark for a paused partition that its owner has since resumed, the
        new mark states that it is resumed; otherwise the older mark would win. Do not
        call this method after JoinGroup was sent, because a retry with different bytes
        would start another rebalance.
        """
        holds = self._ledger.view().holds
        own = {
            TopicPartition(*tp): Mark(
                self._generation, is_own=True, is_paused=is_handed_over(holds, tp)
            )
            for tp in self._ledger.owned()
        }
        sent = {tp: one for tp, one in own.items() if one.is_paused or tp in self.known}
        self.known = {**self.known, **sent}

    def forget_except(self, topics: Collection[str]) -> None:
        """
        Forget old marks of topics that this consumer does not consume.

        Such a topic may have been deleted, or its consumers may have stopped. This is
        safe, because the owner of a partition sends the partition's mark in every join.
        """
        self.known = {
            tp: one
            for tp, one in self.known.items()
            if tp.topic in topics or self._generation - one.generation <= _KEPT_FOR
        }

    def joined(self, data: bytes, generation: int) -> None:
        """
        Store the leader's pause marks before any partition leaves the assignment.

        These marks do not include pauses that were placed after JoinGroup was sent. A
        leader without safeconsumer sends no marks; nor does a leader that has too many
        marks.
        """
        _, writer, marks = unwrap(data)
        received = marks if writer == LEADER else {}
        self._ledger.carried = frozenset(paused(received))
        self.known = merge(self.known, received)
        self._generation, self._before = generation, self._ledger.owned()

    def take_over(self) -> None:
        """Pause gained partitions that are marked as paused, before they have a position."""
        owned = self._ledger.owned()
        gained = difference(self._before, owned).gained
        arrived = {tp: owned[tp] for tp in paused(self.known) if tp in gained}
        self._ledger.take_over(arrived, ARRIVED)


def hand_over(coordinator: Any) -> None:  # noqa: ANN401 - ours, which imports this
    """Make a consumer's coordinator send its pauses in each join, and adopt others'."""
    handover = coordinator.handover = HandOver(coordinator.ledger)
    coordinator._assignors = {
        name: PauseCarryingAssignor(one, handover)
        for name, one in coordinator._assignors.items()
    }


class PauseCarryingAssignor(AbstractPartitionAssignor):
    """
    Wraps another assignor, and adds pause marks to its user data; assigns nothing.

    Args:
        inner: the assignor that determines the assignment.
        handover: the pause marks that this member knows.
    """

    def __init__(
        self,
        inner: Any,  # noqa: ANN401 - a class or an object, as kafka-python takes either
        handover: HandOver,
    ) -> None:
        self._inner = inner
        self._handover = handover

    @property
    def name(self) -> str:
        """The inner assignor's name, so that members without safeconsumer can join, too."""
        return str(self._inner.name)

    @property
    def version(self) -> int:
        return int(self._inner.version)

    def supported_protocols(self) -> Any:  # noqa: ANN401 - upstream's
        inner = self._inner() if isinstance(self._inner, type) else self._inner
        return inner.supported_protocols()

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return the inner assignor's subscription, with the marks after its user data."""
        plain = self._inner.metadata(topics)
        self._handover.forget_except(frozenset(topics))
        return self._with(plain, self._handover.known, MEMBER)

    def assign(
        self,
        cluster: Any,  # noqa: ANN401 - upstream's
        members: Iterable[Any],
    ) -> dict[str, ConsumerProtocolAssignment]:
        """Let the inner assignor assign partitions, and send all marks to every member."""
        members = list(members)
        merged: Marks = {}
        for member in members:
            inner, writer, marks = unwrap(member.metadata.user_data or b"")
            member.metadata.user_data = inner
            if writer == MEMBER:
                merged = merge(merged, marks)
        assignments: dict[str, ConsumerProtocolAssignment]
        assignments = self._inner.assign(cluster, members)
        size = len(wrap(b"", merged, LEADER))
        if 2 * size * len(members) > MOST_BYTES_OF_A_GENERATION:
            # send no marks, so that the group can still rebalance
            return assignments
        return {
            member: self._with(one, merged, LEADER)
            for member, one in assignments.items()
        }

    def on_assignment(
        self, assignment: ConsumerProtocolAssignment, generation: int
    ) -> None:
        """Adopt the group's pauses, and then pass the inner assignor its own data."""
        self._handover.take_over()
        assignment.user_data, _, _ = unwrap(assignment.user_data or b"")
        self._inner.on_assignment(assignment, generation)

    def _with(
        self,
        plain: Any,  # noqa: ANN401 - either message
        marks: Marks,
        writer: str,
    ) -> Any:  # noqa: ANN401 - the same
        if not marks:
            return plain
        data = plain.user_data or _NEUTRAL.get(self.name, b"")
        if not isinstance(data, bytes):  # the sticky assignor sets this to None
            data = data.encode()
        plain.user_data = wrap(data, marks, writer)
        return plain
