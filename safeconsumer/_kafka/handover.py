"""
Passes a pause on to the partition's next owner, in joins, as KAFKA-13463 suggests.

Each member tells what is paused here when it joins, the leader gives all of it to
everybody. It travels behind the assignor's user data, ``inner || payload || trailer``:
readers that decode from the front ignore what follows. Its limits are in
``design/hand-over.md``.
"""

import json
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from attrs import frozen
from kafka.consumer.subscription_state import SubscriptionType
from kafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.structs import TopicPartition

from safeconsumer import events
from safeconsumer._kafka.pausing.joins import HandOver
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.holds.hold import APP, WHOLE
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Owned, difference
from safeconsumer.holds.plain import may_travel
from safeconsumer.holds.scope import Partition, Topic

ARRIVED = "paused by its previous owner"
"""The reason of a pause that was taken over."""

MEMBER, LEADER = "member", "leader"
"""Who wrote the marks. Some leaders send a member's own subscription back to it."""

# The limit for the whole generation, twice every member's share: the group's metadata
# is one record of at most 1 MB, and a group that exceeds it can never rebalance again.
MOST_BYTES_OF_A_GENERATION = 128 * 1024
MOST_BYTES_INFLATED = 4 * 1024 * 1024

MAGIC = b"SAFECONS"
_VERSION = 1
_TRAILER = struct.Struct(">II8s")  # the payload's length and CRC-32, and the magic
TRAILER_BYTES = _TRAILER.size

# Every version of the assignor reads this as "nothing owned". Without it, Java's
# cooperative-sticky would take a payload's first bytes for a generation.
_NEUTRAL = {"sticky": b"\0" * 8, "cooperative-sticky": b"\xff" * 4}

# Generations. A member that restarts is away for one or two.
_KEPT_FOR = 16


@frozen(order=True)
class Mark:
    """
    The last statement about one partition; of two marks the greater one counts.

    Attributes:
        generation: when it was said.
        is_own: whether its owner says so itself, here; it is not written.
        is_paused: of two that speak at once, the one that is paused counts.
    """

    generation: int
    is_own: bool
    is_paused: bool


Marks = Mapping[TopicPartition, Mark]


def merge(left: Marks, right: Marks) -> dict[TopicPartition, Mark]:
    """Return the marks of both; of two of one partition the greater one."""
    merged = dict(left)
    for tp, mark in right.items():
        merged[tp] = max(mark, merged.get(tp, mark))
    return merged


# ---------------------------------------------------------------- bytes


def wrap(inner: bytes, marks: Marks, writer: str) -> bytes:
    """Return user data with the marks behind it; unchanged if there are none."""
    if not marks:
        return inner
    rows: dict[tuple[str, int, bool], list[int]] = {}
    for (topic, number), mark in sorted(marks.items()):
        row = (topic, mark.generation, mark.is_paused)
        rows.setdefault(row, []).append(number)
    said = {
        "version": _VERSION,
        "by": writer,
        "marks": [[*row, numbers] for row, numbers in rows.items()],
    }
    payload = zlib.compress(json.dumps(said, separators=(",", ":")).encode())
    return inner + payload + _TRAILER.pack(len(payload), zlib.crc32(payload), MAGIC)


def unwrap(data: bytes) -> tuple[bytes, str | None, Marks]:
    """
    Take the marks off. Never raises.

    Returns:
        The inner assignor's data, who wrote the marks, None where there are none that
        can be read, and the marks.
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
        said = json.loads(machine.decompress(payload, MOST_BYTES_INFLATED))
        marks: dict[TopicPartition, Mark] = {}
        for topic, generation, is_paused, numbers in said["marks"]:
            mark = Mark(_count(generation), is_own=False, is_paused=is_paused is True)
            several = {TopicPartition(_text(topic), _count(n)): mark for n in numbers}
            marks = merge(marks, several)
        readable = said["version"] == _VERSION and said["by"] in {MEMBER, LEADER}
        writer = _text(said["by"])
    except (ValueError, TypeError, LookupError, RecursionError, zlib.error):
        readable = False
    # It is ours all the same, of a later version, say, and not the inner data.
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


# ---------------------------------------------------------------- what is known


class MarkBook:
    """
    What this member knows of every partition's pause, from itself and from the group.

    Args:
        is_paused: returns whether a partition that is owned here is paused, so that the
            pause is handed over.
        owned: returns the partitions owned here.

    Thread rules: the IO thread.
    """

    def __init__(
        self,
        is_paused: Callable[[TopicPartition], bool],
        owned: Callable[[], Iterable[TopicPartition]],
    ) -> None:
        self._is_paused = is_paused
        self._owned = owned
        self._known: Marks = {}
        self._generation = 0

    def freeze(self) -> None:
        """
        Fix what the next join will tell, before it gives anything up.

        Of its own partitions the owner's word counts, of this moment. What the group
        knows as paused and the owner has resumed is reported as resumed, so that an
        older mark does not come back. It must not be called once JoinGroup is sent: a retry
        with other bytes would start one more rebalance.
        """
        own = {
            tp: Mark(self._generation, is_own=True, is_paused=self._is_paused(tp))
            for tp in self._owned()
        }
        told = {
            tp: one for tp, one in own.items() if one.is_paused or tp in self._known
        }
        self._known = {**self._known, **told}

    def forget_but(self, topics: Collection[str]) -> None:
        """
        Forget old marks of topics that are not consumed here.

        Nobody can know whether such a topic is gone or its consumers are away. The
        owner of a partition reports it at every join.
        """
        self._known = {
            tp: one
            for tp, one in self._known.items()
            if tp.topic in topics or self._generation - one.generation <= _KEPT_FOR
        }

    def known(self) -> Marks:
        """Return the marks of the last :meth:`freeze` and what was heard since then."""
        return self._known

    def hear(self, data: bytes, generation: int) -> set[TopicPartition]:
        """Take over what the leader merged; return the partitions that are paused."""
        _, writer, marks = unwrap(data)
        if writer == LEADER:  # a plain leader merges nothing
            self._known = merge(self._known, marks)
        self._generation = generation
        return {tp for tp, one in self._known.items() if one.is_paused}


class PauseCarryingAssignor(AbstractPartitionAssignor):
    """
    Wraps another assignor and adds marks to its user data; it assigns nothing itself.

    Args:
        inner: the assignor that decides.
        book: the marks that this member knows.
        arrived: called with the paused partitions when an assignment arrives.
    """

    def __init__(
        self,
        inner: Any,  # noqa: ANN401 - a class or an object, as kafka-python takes either
        book: MarkBook,
        arrived: Callable[[set[TopicPartition]], object],
    ) -> None:
        self._inner = inner
        self._book = book
        self._arrived = arrived

    @property
    def name(self) -> str:
        """The inner assignor's name, so that members without safeconsumer take part."""
        return str(self._inner.name)

    @property
    def version(self) -> int:
        return int(self._inner.version)

    def supported_protocols(self) -> Any:  # noqa: ANN401 - upstream's
        inner = self._inner() if isinstance(self._inner, type) else self._inner
        return inner.supported_protocols()

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return the inner assignor's subscription with the marks behind its user data."""
        plain = self._inner.metadata(topics)
        self._book.forget_but(frozenset(topics))
        return self._with(plain, self._book.known(), MEMBER)

    def assign(
        self,
        cluster: Any,  # noqa: ANN401 - upstream's
        members: Iterable[Any],
    ) -> dict[str, ConsumerProtocolAssignment]:
        """Let the inner assignor decide, and give every member all marks."""
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
            return assignments  # better no marks than a group that cannot rebalance
        return {
            member: self._with(one, merged, LEADER)
            for member, one in assignments.items()
        }

    def on_assignment(
        self, assignment: ConsumerProtocolAssignment, generation: int
    ) -> None:
        """Take over the marks, then give the inner assignor its own data only."""
        data = assignment.user_data or b""
        self._arrived(self._book.hear(data, generation))
        assignment.user_data = unwrap(data)[0]
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
        if not isinstance(data, bytes):  # the sticky assignor leaves it None
            data = data.encode()
        plain.user_data = wrap(data, marks, writer)
        return plain


# ---------------------------------------------------------------- a member's side


class HandOverInJoins(HandOver):
    """
    Tells at every join what is paused here, and obeys what the group tells.

    Args:
        coordinator: the consumer's; its assignors are wrapped.
        subscription: the consumer's; its ledger has the pauses.
    """

    def __init__(
        self, coordinator: ConsumerCoordinator, subscription: LedgerSubscription
    ) -> None:
        self._subscription = subscription
        self._ledger = subscription.ledger
        self._ledger.is_carried = self._is_carried
        self._in_group: frozenset[TopicPartition] = frozenset()  # as its leader said
        self._paused: frozenset[TopicPartition] = (
            frozenset()
        )  # before a join is applied
        self._owned: Owned = {}
        self._book = MarkBook(
            lambda tp: is_handed_over(self._ledger, tp),
            subscription.assigned_partitions,
        )
        coordinator._assignors = {
            name: PauseCarryingAssignor(one, self._book, self._take_over)
            for name, one in coordinator._assignors.items()
        }

    def before_join(self) -> None:
        """Fix what the join tells; the listener may have paused and resumed."""
        self._book.freeze()

    def joined(self, assignment: bytes) -> None:
        """
        Note which pauses the group knows, before any partition departs.

        A pause made since JoinGroup was sent is not among them. With a plain leader, or
        if the marks were too many, no pause is.
        """
        data = ConsumerProtocolAssignment.decode(assignment).user_data
        _, writer, marks = unwrap(data or b"")
        told = marks if writer == LEADER else {}
        self._in_group = frozenset(tp for tp, one in told.items() if one.is_paused)
        owned = self._ledger.owned()
        self._paused = frozenset(tp for tp in owned if is_handed_over(self._ledger, tp))

    def reassigned(self) -> None:
        """Report which pauses were left behind."""
        owned = self._ledger.owned()
        before, self._owned = self._owned, owned
        paused, self._paused = self._paused, frozenset()
        departed = difference(before, owned).departed
        whole = {tp for tp in departed if is_whole(self._ledger, tp)}
        left = {
            tp
            for tp in departed
            if tp not in self._in_group
            and (tp in paused or is_handed_over(self._ledger, tp))
        }
        self._warn(left - whole)
        self._warn(whole, is_whole=True)

    def _warn(
        self, left: Collection[TopicPartition], *, is_whole: bool = False
    ) -> None:
        if left:
            self._ledger.emit(
                events.PauseNotHandedOver,
                partitions=events.sorted_partitions(left),
                is_whole=is_whole,
            )

    def _is_carried(self, tp: TopicPartition) -> bool:
        # unsubscribe() and assign() are no joins: their paused partitions stay paused
        # here.
        kind = self._subscription.subscription_type
        is_member = kind in {
            SubscriptionType.AUTO_TOPICS,
            SubscriptionType.AUTO_PATTERN,
        }
        return is_member and tp in self._in_group

    def _take_over(self, paused: Collection[TopicPartition]) -> None:
        # It runs with the assignment, before any partition has a position.
        owned = self._ledger.owned()
        gained = difference(self._owned, owned).gained
        self._ledger.take_over(
            {tp: owned[tp] for tp in gained if tp in paused}, ARRIVED
        )


def is_handed_over(ledger: PauseLedger, tp: TopicPartition) -> bool:
    """Tell whether a pause is handed over: the application's own, without a time limit."""
    holds = ledger.view().holds
    hold = holds.get((Partition(tp[0], tp[1]), APP))
    is_under_whole = holds.get((Topic(tp[0]), WHOLE)) is not None
    return hold is not None and may_travel(hold) and not is_under_whole


def is_whole(ledger: PauseLedger, tp: TopicPartition) -> bool:
    """Tell whether all of its topic is paused, without a time limit: it does not travel."""
    whole = ledger.view().holds.get((Topic(tp[0]), WHOLE))
    return whole is not None and whole.expires_at is None
