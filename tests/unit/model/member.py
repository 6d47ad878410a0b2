"""One member with its consumer: everything a user, a broker or time can do to it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable
from typing import Any

from kafka.errors import KafkaError
from kafka.future import Future
from kafka.structs import TopicPartition

from safeconsumer import events
from safeconsumer.holds.hold import Hold, Lifetime
from safeconsumer.holds.scope import Everything, Scope
from safeconsumer.holds.scope import partition as partition_scope
from tests.unit.model import checks
from tests.unit.model.broker import RAISES, Broker, How
from tests.unit.model.group import Group, Join, Kind, Partitions
from tests.unit.model.truth import Truth

TOPICS = ("a", "b", "c")
ALL_RECORDS = 10_000


class Mode(enum.Enum):
    """Who assigns."""

    GROUP = "the group"
    MANUAL = "the user"
    SOLO = "the IO thread, at any time: a subscription without a group"


class ModelMember:
    """
    A consumer, and the truth about it.

    Args:
        make_subject: takes the truth, gives what makes and drives the consumer.
        mode: who assigns.
        iterates: whether records are read by iteration instead of ``poll``.
        parked_max_bytes: as ``SafeConsumer``'s.
        is_slow: as the group's.
    """

    def __init__(
        self,
        make_subject: Callable[[Truth], Any],
        mode: Mode,
        *,
        iterates: bool,
        parked_max_bytes: int,
        is_slow: bool,
    ) -> None:
        self.broker = Broker()
        self.truth = Truth(self.broker)
        self.subject = make_subject(self.truth)
        self.mode = mode
        self.iterates = iterates
        self.parked_max_bytes = parked_max_bytes
        self.is_slow = is_slow
        self.interruptions: list[tuple[str, Callable[[], None]]] = []
        self.raises: list[type[KafkaError]] = []
        self.early: dict[tuple[str, str], Scope] = {}
        self.current: TopicPartition | None = None
        self.told_by_itself: events.Event | None = None
        self.start(start_paused=False)

    @property
    def sights(self) -> Any:  # noqa: ANN401 - a Counter
        """What was seen, counted."""
        return self.broker.sights

    # ------------------------------------------------------------ life

    def start(self, *, start_paused: bool) -> None:
        """Make a consumer; what an earlier one left in the group stays."""
        self.interruptions.clear()
        self.raises.clear()
        self.early.clear()
        self.consumer = self.subject.make(
            self,
            self._hook,
            group_id=None if self.mode is Mode.SOLO else "g",
            parked_max_bytes=self.parked_max_bytes,
            start_paused=start_paused,
        )
        self.fetcher = self.consumer._fetcher
        commits = self.mode is not Mode.SOLO
        self.group = Group(
            self.truth, self.consumer, commits=commits, is_slow=self.is_slow
        )
        checks.watch(self, self.fetcher)
        if start_paused and self.subject.checks_all:
            self.truth.holds.place([Hold(scope=Everything(), reason="start_paused")])
        self.ensure_subscribed()

    def stop(self) -> None:
        """Close the consumer; A8: nothing is left in it."""
        self.consumer.close()
        self.group.join = None
        self.truth.reassign((), commits=False)
        self.truth.holds.holds.clear()
        self.truth.end_call()
        checks.check_empty(self)
        self.broker.forget_client()

    def ensure_subscribed(self) -> None:
        """Subscribe, where that is how partitions come."""
        if self.mode is not Mode.MANUAL and not self.consumer.subscription():
            self.early.clear()
            self.consumer.subscribe(TOPICS, listener=self.group)

    def _hook(self, event: events.Event) -> None:
        self.sights[event.name] += 1
        if isinstance(event, events.ParkedDataDropped):
            self.truth.forget_buffers(map(tuple, event.partitions))
        if isinstance(event, events.PauseForgotten):
            self.told_by_itself = event

    # ------------------------------------------------------------ the network's peer

    def partitions(self, topic: str) -> set[int]:
        """Return the partitions of a topic."""
        return self.broker.partitions(topic)

    def receive(self, node: int, request: object) -> Future:
        """Take a request, and judge it if it is a fetch."""
        pending = self.broker.take(node, request)
        for tp, offset in pending.offsets.items():
            pending.stamps[tp] = self._asked(tp, offset)
        if self.subject.checks_all:
            for tp in pending.starts():
                self.truth.asked_for_start(tp)
        return pending.future

    def _asked(self, tp: TopicPartition, offset: int) -> int:
        if self.subject.checks_all:
            return self.truth.asked(tp, offset)
        return self.truth.owned[tp].number if tp in self.truth.owned else -1

    def interrupt(self, point: str) -> None:
        """Do what happens elsewhere while the consumer is at this point."""
        due = [one for one in self.interruptions if one[0] == point]
        for one in due:
            self.interruptions.remove(one)
            self.sights[f"interrupted at {point}"] += 1
            one[1]()

    def answer(self, at: int, how: How, batches: int) -> None:
        """Answer one request."""
        if how is How.CORRUPT and not self.subject.checks_all:
            how = How.DATA  # upstream's fetcher would never come back from it
        for one in self.broker.answer(at, how, batches):
            if one.how in RAISES:
                self.raises.append(RAISES[one.how])
            position = checks.position(self.consumer, one.tp)
            self.truth.told(one, position)

    def answer_all(self) -> None:
        """Answer every request with all there is."""
        while self.broker.pending:
            self.answer(0, How.DATA, ALL_RECORDS)

    # ------------------------------------------------------------ reading

    def read(self, n: int) -> int:
        """Poll for, or iterate over, up to ``n`` records; return how many came."""
        count = 0
        try:
            if self.iterates:
                while count < n and self._read_next():
                    count += 1
                    checks.check(self)
            else:
                count = self._poll(n)
        except tuple(RAISES.values()) as error:
            if type(error) not in self.raises:
                raise
            self.raises.remove(type(error))
            self.sights["a poll raised"] += 1
            self.truth.forget_buffers(self.truth.owned)
        finally:
            self.truth.end_call()
            self.interruptions.clear()
        checks.check(self)
        return count

    def _poll(self, n: int) -> int:
        polled = self.consumer.poll(0, max_records=n)
        records = [record for one in polled.values() for record in one]
        for record in records:
            self.truth.deliver(record)
        return len(records)

    def _read_next(self) -> bool:
        record = next(self.consumer, None)
        if record is not None:
            self.truth.deliver(record)
        self.truth.end_call()
        return record is not None

    # ------------------------------------------------------------ the user's calls

    def pause(
        self, scope: Scope, owner: str, for_: float | None, lifetime: Lifetime
    ) -> None:
        """Place a hold, in the product and in the truth."""
        if not self.subject.checks_all:
            owner, for_, lifetime = "app", None, Lifetime.UNTIL_RESUMED
        truth = self.truth
        if not self._may_pause(scope):
            checks.check_refused(self, scope)
            return
        deadline = None if for_ is None else truth.now + for_
        hold = Hold(scope=scope, owner=owner, lifetime=lifetime, deadline=deadline)
        if not self.consumes_anything():
            self.early[str(scope), owner] = scope
        checks.look_at_pause(self, scope)
        truth.holds.expire(truth.now)
        truth.holds.place([hold])
        self.subject.pause(
            self.consumer, scope, owner=owner, for_=for_, lifetime=lifetime
        )

    def pause_this(self) -> None:
        """Pause the partition that is being read."""
        if self.current is not None:
            scope = partition_scope(*self.current)
            self.pause(scope, "app", None, Lifetime.UNTIL_RESUMED)

    def _may_pause(self, scope: Scope) -> bool:
        if (
            self.mode is not Mode.MANUAL
            or not self.subject.checks_all
            or not self.consumes_anything()
        ):
            return True
        return checks.is_consumed(scope, self.truth.owned)

    def consumes_anything(self) -> bool:
        """Tell whether anything is subscribed or assigned by hand."""
        return bool(self.truth.owned or self.consumer.subscription())

    def resume(self, scope: Scope, owner: str) -> None:
        """Lift a hold, in the product and in the truth."""
        if not self.subject.checks_all:
            owner = "app"
        truth = self.truth
        truth.holds.expire(truth.now)
        if truth.holds.remove([(scope, owner)]):
            checks.look_at_resume(self, scope)
        truth.lifted(scope, owner)
        remaining = self.subject.resume(self.consumer, scope, owner)
        if self.subject.checks_all:
            checks.check_remaining(self, scope, remaining)

    def seek(self, tp: TopicPartition, offset: int | None) -> None:
        """Seek to an offset, or (None) to the beginning by a reset."""
        if tp not in self.truth.owned:
            return
        offset = None if offset is None else min(offset, self.broker.logs[tp].end)
        self.truth.move(tp, offset or 0)
        if offset is None:
            self.truth.owned[tp].is_placed = False
            self.truth.owned[tp].is_rewinding = True
            self.consumer.seek_to_beginning(tp)
        else:
            self.consumer.seek(tp, offset)

    def commit(self) -> None:
        """Commit the positions; not in a rebalance, where a coordinator refuses."""
        if self.mode is not Mode.SOLO and self.group.join is None:
            self.consumer.commit()

    # ------------------------------------------------------------ assignments

    def rebalance(
        self,
        partitions: Partitions,
        kind: Kind,
        *,
        is_split: bool,
        listener: Callable[[Partitions], None],
    ) -> None:
        """Hand over partitions the way of the mode; in a group the next poll does it."""
        match self.mode:
            case Mode.GROUP:
                self.ensure_subscribed()
                self.group.join = Join(kind, partitions, is_split, listener)
            case Mode.MANUAL:
                self._assign(partitions)
            case Mode.SOLO:
                self.assign_from_elsewhere(partitions)

    def _assign(self, partitions: Partitions) -> None:
        if self.subject.checks_all and checks.must_refuse(self, partitions):
            return
        if partitions:
            self.early.clear()
        self.consumer.assign(sorted(partitions))
        self.truth.reassign(partitions, commits=True)

    def assign_from_elsewhere(self, partitions: Collection[TopicPartition]) -> None:
        """Assign as the IO thread does for a subscription without a group."""
        if self.mode is Mode.SOLO:
            self.ensure_subscribed()
            self.consumer._subscription.assign_from_subscribed(sorted(partitions))
            self.truth.reassign(partitions, commits=False)

    def unsubscribe(self) -> None:
        """Give everything up; a join under way is forgotten."""
        self.group.join = None
        self.consumer.unsubscribe()
        self.truth.reassign((), commits=False)

    def consume_elsewhere(self, tp: TopicPartition, count: int) -> None:
        """Let another member own, read and commit what is not owned here."""
        if tp in self.truth.owned or self.mode is Mode.SOLO:
            return
        committed = self.broker.committed.get(tp, 0)
        found = self.broker.logs[tp].between(committed, ALL_RECORDS)[:count]
        if found:
            self.truth.delivered.setdefault(tp, set()).update(found)
            self.broker.committed[tp] = found[-1] + 1

    def existing(self) -> list[TopicPartition]:
        """Return all partitions there are."""
        return sorted(self.broker.logs)

    def mask(self, partitions: Collection[TopicPartition]) -> int:
        """Return bits from which :meth:`pick` makes these partitions."""
        return sum(1 << at for at, tp in enumerate(self.existing()) if tp in partitions)

    def pick(self, mask: int) -> Partitions:
        """Return the partitions whose bits are set."""
        found: Iterable[tuple[int, TopicPartition]] = enumerate(self.existing())
        return frozenset(tp for at, tp in found if mask >> at & 1)
