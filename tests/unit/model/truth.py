"""
What must be, worked out beside the product: holds, ownerships, what comes next.

It sees only what a user or a broker could see, and shares no code with what it judges
but the values that name scopes and holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define
from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import TopicPartition

from safeconsumer.holds.scope import Partition, Scope, Topic
from tests.unit.holds.naive import NaiveLedger, covers
from tests.unit.model.broker import Answered, Broker, How


class Violation(AssertionError):
    """A broken invariant, by its number."""

    def __init__(self, number: str, text: str) -> None:
        super().__init__(f"{number}: {text}")
        self.number = number


@define(eq=False)
class Ownership:
    """
    One time of owning one partition.

    Attributes:
        number: never used twice.
        cursor: the offset from which the next record counts.
        buffered: the offsets that the last good answer brought: from, to; None if
            it was thrown away rightly, or there was none.
        may_reset: whether a broker called an offset out of range.
        is_placed: whether a position was seen.
        is_rewinding: whether the user asked for the beginning, and it is not known.
        largest: the most bytes that one answer brought.
        is_begun: whether a record was delivered since the last answer.
    """

    number: int
    cursor: int
    buffered: tuple[int, int] | None = None
    may_reset: bool = False
    is_placed: bool = False
    is_rewinding: bool = False
    largest: int = 0
    is_begun: bool = False

    @property
    def has_buffered(self) -> bool:
        """Tell whether records that count were brought and not delivered."""
        return self.buffered is not None and self.cursor < self.buffered[1]


class Truth:
    """
    The reference of one member of the group, through restarts.

    Args:
        broker: where the logs and commits are.
    """

    is_lenient = False
    """Whether only A1, A2 and L1 are asked for: enough for a stock consumer."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.holds = NaiveLedger()
        self.owned: dict[TopicPartition, Ownership] = {}
        self.delivered: dict[TopicPartition, set[int]] = {}
        self.skipped: dict[TopicPartition, set[int]] = {}
        self.gated: set[TopicPartition] = set()
        self.left_in_call: dict[TopicPartition, set[int]] = {}
        self.assignments = 0
        self._parked_at_loss: set[TopicPartition] = set()
        self._known: set[TopicPartition] = set()
        self.now = 1000.0
        self._numbers = 0
        self._in_call = False
        self._gates = False
        self._stood_for: set[tuple[str, str]] = set()
        self._named: list[Scope] = []

    # ------------------------------------------------------------ holds

    def pass_time(self, seconds: float) -> None:
        """Let time pass; what is due expires."""
        self.now += seconds
        expired = self.holds.expire(self.now)
        for hold in expired:
            self.lifted(hold.scope, hold.owner)
        if expired and self._in_call:
            self.broker.sights["a hold expired in mid call"] += 1

    def lifted(self, scope: Scope, owner: str) -> None:
        """
        Note that an owner speaks for a scope.

        Gates there open if only this owner is left of those who held everything when
        the call began; all gates open if nobody is.
        """
        if not self._gates:
            return
        self._stood_for.discard((str(scope), owner))
        owners = {one for _, one in self._stood_for}
        if not owners:
            opened = set(self.gated)
            self._gates = False
        elif owners == {owner}:
            opened = {tp for tp in self.gated if covers(scope, tp)}
            self._named.append(scope)
        else:
            return
        self.gated -= opened
        self.broker.sights["a gate was opened by a resume"] += bool(opened)

    def is_held(self, tp: TopicPartition) -> bool:
        """Tell whether a hold covers the partition at this moment."""
        self.holds.expire(self.now)
        return bool(self.holds.covering(tp))

    def quiet(self) -> set[TopicPartition]:
        """Return the owned partitions that a hold covers."""
        return {tp for tp in self.owned if self.is_held(tp)}

    def paused(self) -> set[TopicPartition]:
        """Return what is quiet, and what the application paused by partition elsewhere."""
        elsewhere = {
            TopicPartition(hold.scope.topic, hold.scope.partition)
            for hold in self.holds.holds.values()
            if isinstance(hold.scope, Partition) and hold.owner == "app"
        }
        return self.quiet() | (elsewhere - self.owned.keys())

    def flowing_buffered(self) -> list[TopicPartition]:
        """Return what flows and has records waiting here, half-read batches first."""
        found = [
            tp
            for tp, own in self.owned.items()
            if own.has_buffered and not self.is_held(tp)
        ]
        return sorted(found, key=lambda tp: not self.owned[tp].is_begun)

    # ------------------------------------------------------------ calls

    def begin_call(self) -> None:
        """Note what the poll that begins may deliver (P7)."""
        self.end_call()
        self._in_call = True
        self._gates = bool(self.owned) and len(self.quiet()) == len(self.owned)
        self._named = []
        self._stood_for = {
            (str(hold.scope), hold.owner)
            for tp in self.owned
            for hold in self.holds.covering(tp)
        }

    def end_call(self) -> None:
        """Note that the poll has returned: gates open."""
        self._in_call = self._gates = False
        self.gated.clear()
        self.left_in_call.clear()

    # ------------------------------------------------------------ ownership

    def reassign(self, partitions: Iterable[TopicPartition], *, commits: bool) -> None:
        """Own these from now on; what stays stays as it is."""
        after = sorted(partitions)
        self.assignments += 1
        departed = set(self.owned).difference(after)
        gained = [tp for tp in after if tp not in self.owned]
        self.holds.expire(self.now)
        self.holds.end_assignment(frozenset(departed), after)
        for tp in departed:
            self._lose(tp)
        for tp in gained:
            self._gain(tp, self.broker.committed.get(tp, 0) if commits else 0)

    def _lose(self, tp: TopicPartition) -> None:
        gone = self.owned.pop(tp)
        self.left_in_call.setdefault(tp, set()).add(gone.number)
        self.gated.discard(tp)
        if gone.has_buffered and self.is_held(tp):
            self._parked_at_loss.add(tp)

    def _gain(self, tp: TopicPartition, start: int) -> None:
        self._numbers += 1
        self.owned[tp] = Ownership(self._numbers, start)
        is_named = any(covers(scope, tp) for scope in self._named)
        if self._in_call and self._gates and not is_named:
            self.gated.add(tp)
            self.broker.sights["a gained partition was gated"] += 1
        if any(isinstance(one.scope, Topic) for one in self.holds.covering(tp)):
            is_new = tp not in self._known
            self.broker.sights["the topic's hold met a new partition"] += is_new
        self._known.add(tp)
        if tp in self._parked_at_loss and self.is_held(tp):
            self.broker.sights["lost and regained while parked"] += 1
        self._parked_at_loss.discard(tp)

    def move(self, tp: TopicPartition, offset: int) -> None:
        """Follow a seek."""
        own = self.owned[tp]
        between = self.broker.logs[tp].between(own.cursor, offset)
        self.skipped.setdefault(tp, set()).update(between)
        own.cursor = offset
        if own.buffered:
            self.broker.sights["a seek over buffered data"] += 1
            own.buffered = None

    # ------------------------------------------------------------ data

    def asked(self, tp: TopicPartition, offset: int) -> int:
        """Judge a fetch that is sent now, and return whose it is."""
        own = self.owned.get(tp)
        if own is None:
            raise Violation("P9", f"{tp} is fetched and not owned")
        if self.is_held(tp) or tp in self.gated:
            raise Violation("P11", f"{tp} is fetched and quiet")
        if own.buffered and own.buffered[0] <= offset < own.buffered[1]:
            raise Violation("P8", f"{tp} is fetched again at {offset}: {own.buffered}")
        return own.number

    def asked_for_start(self, tp: TopicPartition) -> None:
        """Judge a question for the beginning of a log, which follows a lost position."""
        own = self.owned.get(tp)
        if own is None or own.is_rewinding:
            return
        if own.may_reset:
            self.broker.sights["a position out of range"] += 1
            own.cursor, own.buffered = 0, None
            own.may_reset = own.is_placed = False
        elif own.is_placed:
            raise Violation("A4", f"{tp} is reset, and nobody asked for it")

    def told(self, answered: Answered, position: int | None) -> None:
        """Note what one partition was told."""
        own, tp = self.owned.get(answered.tp), answered.tp
        sights = self.broker.sights
        if own is None or own.number != answered.stamp:
            if own and position == answered.offset and answered.end > answered.offset:
                sights["a stale answer after regain at the same offset"] += 1
            return
        if self.is_held(tp):
            sights["an answer for what was paused in flight"] += 1
            if answered.how not in {How.DATA, How.EMPTY}:
                sights["an error for what is paused"] += 1
        if answered.how is How.OUT_OF_RANGE:
            own.may_reset = True
        own.largest = max(own.largest, answered.size)
        own.is_begun = False
        if answered.how is How.DATA and position == answered.offset:
            own.buffered = answered.offset, answered.end

    def forget_buffers(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that buffered data was thrown away rightly."""
        for tp in partitions:
            if tp in self.owned:
                self.owned[tp].buffered = None

    def deliver(self, record: ConsumerRecord) -> None:
        """Judge a record that the application is given now."""
        tp = TopicPartition(record.topic, record.partition)
        if self.is_held(tp):
            raise Violation("A1", f"{tp}@{record.offset} is delivered and held")
        self.delivered.setdefault(tp, set()).add(record.offset)
        self.broker.sights["records delivered"] += 1
        if self.is_lenient:
            self.owned[tp].cursor = record.offset + 1
        else:
            self._check_order(tp, record)

    def _check_order(self, tp: TopicPartition, record: ConsumerRecord) -> None:
        if tp in self.gated:
            raise Violation("P7", f"{tp}@{record.offset} is delivered and gated")
        log, own, stamp = self.broker.logs[tp], self.owned.get(tp), record.leader_epoch
        if log.value(record.offset) != record.value:
            raise Violation("A3", f"{tp}@{record.offset} says {record.value!r}")
        if stamp in self.left_in_call.get(tp, ()):
            self.broker.sights["drained before the partition left"] += 1
        elif own is None or own.number != stamp:
            raise Violation("P9", f"{tp}@{record.offset} is of an ended ownership")
        else:
            expected = log.next_from(own.cursor)
            if record.offset != expected:
                number = "A6" if record.offset < own.cursor else "A3"
                raise Violation(number, f"{tp}@{record.offset}, expected {expected}")
            own.cursor, own.is_begun = record.offset + 1, True

    def commit(self, offsets: dict[TopicPartition, int]) -> None:
        """Judge a commit, and take it over."""
        for tp, offset in offsets.items():
            over = self.broker.logs[tp].between(self.owned[tp].cursor, offset)
            if over and not self.is_lenient:
                raise Violation("A5", f"{tp} is committed over {over}")
            self.broker.committed[tp] = offset
