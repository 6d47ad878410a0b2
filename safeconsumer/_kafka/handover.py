"""
Hands a pause over to the partition's next owner in joins, as KAFKA-13463 suggests.

Each member sends the paused partitions when it joins, and the leader sends all of these
partitions to every member. The marks follow the assignor's user data, ``inner ||
payload || trailer``, so readers that decode from the front ignore the marks.
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
from safeconsumer.holds.plain import travels

ARRIVED = "paused by its previous owner"
"""The reason of a pause that was taken over."""

MEMBER, LEADER = "member", "leader"
"""The writers of marks. Some leaders send a member's own subscription back to the member."""

# The limit for twice the bytes of all members' marks. A group's metadata is one record
# of at most 1 MB, and a group that exceeds this size can never rebalance again.
MOST_BYTES_OF_A_GENERATION = 128 * 1024
MOST_BYTES_INFLATED = 4 * 1024 * 1024

MAGIC = b"SAFECONS"
_VERSION = 1
_TRAILER = struct.Struct(">II8s")  # the payload's length and CRC-32, and the magic
TRAILER_BYTES = _TRAILER.size

# Every version of the assignor reads these bytes as "nothing owned". Without them,
# Java's cooperative-sticky would read a payload's first bytes as a generation.
_NEUTRAL = {"sticky": b"\0" * 8, "cooperative-sticky": b"\xff" * 4}

# The number of generations for which a mark is kept. A member that restarts misses one
# or two generations.
_KEPT_FOR = 16


@frozen(order=True)
class Mark:
    """
    A record of whether a partition is paused; of two marks the greater one counts.

    Attributes:
        generation: the generation in which the mark was made.
        is_own: whether this member owns the partition; joins do not send this value.
        is_paused: whether the partition is paused; of two marks of one generation the
            paused one counts.
    """

    generation: int
    is_own: bool
    is_paused: bool


Marks = Mapping[TopicPartition, Mark]


def paused(marks: Marks) -> set[TopicPartition]:
    return {tp for tp, mark in marks.items() if mark.is_paused}


def merge(left: Marks, right: Marks) -> dict[TopicPartition, Mark]:
    """Return all marks, and for a partition with two marks the greater one."""
    merged = dict(left)
    for tp, mark in right.items():
        merged[tp] = max(mark, merged.get(tp, mark))
    return merged


# ---------------------------------------------------------------- bytes


def wrap(inner: bytes, marks: Marks, writer: str) -> bytes:
    """Return user data followed by the marks; without marks the data stays unchanged."""
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
        The inner assignor's data, the writer of the marks (None if no marks can be
        read), and the marks.
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
    # Unreadable marks, for example of a later version, are not part of the inner data.
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
    The marks that this member knows, those of its own pauses and those from the group.

    Each join sends these marks; this member takes over the pauses in the group's marks.

    Args:
        ledger: the ledger of the consumer.

    Thread rules: only the IO thread uses this object.
    """

    def __init__(self, ledger: PauseLedger) -> None:
        self._ledger = ledger
        self._ledger.carried = frozenset()
        self._generation = 0
        self._before: Owned = {}
        # The marks of the last :meth:`before_join`, and those received since then.
        self.known: Marks = {}

    def before_join(self) -> None:
        """
        Choose the marks of the next join, both before and after the listener is called.

        The mark of an owned partition shows whether the partition is paused now. If the
        group knows a partition as paused and its owner has resumed it, the mark says
        so; otherwise an older mark would win. Do not call this method after JoinGroup
        was sent, because a retry with other bytes would start another rebalance.
        """
        holds = self._ledger.view().holds
        own = {
            TopicPartition(*tp): Mark(
                self._generation, is_own=True, is_paused=travels(holds, tp)
            )
            for tp in self._ledger.owned()
        }
        sent = {tp: one for tp, one in own.items() if one.is_paused or tp in self.known}
        self.known = {**self.known, **sent}

    def forget_except(self, topics: Collection[str]) -> None:
        """
        Forget old marks of topics that are not consumed here.

        Such a topic may have been deleted, or its consumers may have stopped. The owner
        of a partition sends the partition's mark in every join.
        """
        self.known = {
            tp: one
            for tp, one in self.known.items()
            if tp.topic in topics or self._generation - one.generation <= _KEPT_FOR
        }

    def joined(self, data: bytes, generation: int) -> None:
        """
        Store the leader's marks before any partition departs.

        The marks lack pauses that are newer than JoinGroup. A leader without
        safeconsumer sends no marks, and neither does a leader that has too many marks.
        """
        _, writer, marks = unwrap(data)
        received = marks if writer == LEADER else {}
        self._ledger.carried = frozenset(paused(received))
        self.known = merge(self.known, received)
        self._generation, self._before = generation, self._ledger.owned()

    def take_over(self) -> None:
        """Pause the gained partitions with paused marks before they have a position."""
        owned = self._ledger.owned()
        gained = difference(self._before, owned).gained
        arrived = {tp: owned[tp] for tp in paused(self.known) if tp in gained}
        self._ledger.take_over(arrived, ARRIVED)


def hand_over(coordinator: Any) -> None:  # noqa: ANN401 - ours, which imports this
    """Let a consumer's coordinator send pauses in each join, and take pauses over."""
    handover = coordinator.handover = HandOver(coordinator.ledger)
    coordinator._assignors = {
        name: PauseCarryingAssignor(one, handover)
        for name, one in coordinator._assignors.items()
    }


class PauseCarryingAssignor(AbstractPartitionAssignor):
    """
    Wraps another assignor and adds marks to its user data, but assigns nothing itself.

    Args:
        inner: the assignor that decides the assignment.
        handover: the marks that this member knows.
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
        """The inner assignor's name, so that members without safeconsumer can take part."""
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
        """Let the inner assignor decide, and send all marks to every member."""
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
        """Take pauses over, and then pass the inner assignor its own data."""
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
        if not isinstance(data, bytes):  # the sticky assignor sets None
            data = data.encode()
        plain.user_data = wrap(data, marks, writer)
        return plain
