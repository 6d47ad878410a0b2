"""A consumer, its group and its broker in one, driven by hand; time stands still."""

from collections.abc import Callable, Mapping

from attrs import define, frozen
from kafka.errors import CommitFailedError
from kafka.structs import TopicPartition

from safeconsumer.holds.hold import Lifetime
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Everything, partition
from safeconsumer.worker.progress import Watermark
from tests.harness.holds.lab import assign_to

TOPIC = "orders"
EVERY = tuple(TopicPartition(TOPIC, number) for number in range(4))
BYTES = 100
KEYS = 3


@frozen
class FakeRecord:
    """A record with what is asked of one."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = 0
    serialized_key_size: int = 1
    serialized_value_size: int = BYTES
    serialized_header_size: int = -1

    @property
    def key(self):
        return b"%d" % (self.offset % KEYS)


class Clock:
    """Time that moves when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@define
class Pending:
    """A commit that was sent and not answered."""

    marks: Mapping[TopicPartition, Watermark]
    then: Callable[[Exception | None], None]
    generation: int


class FakeClient:
    """One member of a group of two; the other takes what this one does not have."""

    is_cooperative = False

    def __init__(self, clock, *, most):
        self.clock = clock
        self.most = most
        self.membership = self
        self.ledger = PauseLedger((), clock=clock, wall=clock)
        self.log = dict.fromkeys(EVERY, 0)
        self.positions = {}
        self.committed = dict.fromkeys(EVERY, 0)
        self.resets = {}
        self.generation = 0
        self.losses = 0
        self.wanted = frozenset()
        self.needs_join = False
        self._is_lost = True
        self._ask = None
        self.pending = []

    def owned(self):
        return self.ledger.owned()

    def is_lost(self):
        return self._is_lost

    def is_joining(self):
        return False

    def why_nothing(self):
        return None

    def ask_before_join(self, ask):
        self._ask = ask

    def pass_over_nothing(self):
        pass

    @property
    def gone(self):
        return 0

    def revokes_on_join(self):
        return frozenset(self.positions)

    def rebalance(self, *wanted):
        """Have the next poll join, which assigns these."""
        self.wanted = frozenset(wanted)
        self.needs_join = True

    def lose(self):
        """Be evicted: the other member gets everything, and works on it."""
        self.losses += 1
        self._is_lost = True
        self.needs_join = True

    def _join(self):
        if self._ask is not None:
            self._ask()
        if self._is_lost:
            self._assign(frozenset())
        self.needs_join = False
        self._is_lost = False
        self.generation += 1
        self._assign(self.wanted)

    def _assign(self, wanted):
        assign_to(self.ledger, sorted(wanted))
        self.positions = {
            tp: self.positions.get(tp, self.committed[tp]) for tp in sorted(wanted)
        }

    def poll(self, timeout, records):
        if self.needs_join:
            self._join()
        if self._is_lost:
            self.clock.now += timeout
            return {}
        quiet = self.ledger.view().quiet
        polled = {}
        for tp, at in self.positions.items():
            upto = min(self.log[tp], at + records)
            if tp in quiet or upto <= at or records <= 0:
                continue
            records -= upto - at
            polled[tp] = [FakeRecord(*tp, offset) for offset in range(at, upto)]
            self.positions[tp] = upto
        if not polled:
            self.clock.now += timeout
        return polled

    def position(self, tp):
        return self.positions.get(tp)

    def go_back(self, tp, offset):
        """Have what a poll returned come again; it was handed out to nobody."""
        self.positions[tp] = offset

    def leader_epoch(self, _):
        return 0

    def lacks_commit(self, _):
        return False

    def reset_number(self, tp):
        return self.resets.get(tp, 0)

    def reset(self, tp, offset):
        """Find that the position is out of range, and go on elsewhere."""
        self.resets[tp] = self.resets.get(tp, 0) + 1
        self.positions[tp] = offset

    def lagging(self):
        return [tp for tp, at in self.positions.items() if at < self.log[tp]]

    def pause(self, scope, owner, reason, seconds):
        """Hold a scope for a time, as a worker's consumer does."""
        self.ledger.place([scope], owner=owner, reason=reason, for_=seconds)

    def holds(self):
        return tuple(self.ledger.view().holds)

    def hold(self, owners, wanted):
        there = {
            (hold.owner, hold.scope) for hold in self.holds() if hold.owner in owners
        }
        scopes = {(owner, _scope(tp)) for owner, tp in wanted}
        self.ledger.remove([(scope, owner) for owner, scope in there - scopes])
        for owner, scope in scopes - there:
            kept = scope == Everything()
            lifetime = Lifetime.UNTIL_RESUMED if kept else Lifetime.WHILE_ASSIGNED
            self.ledger.place([scope], owner=owner, lifetime=lifetime)

    def lift_all(self, owner):
        self.ledger.remove([(Everything(), owner)])

    def commit(self, marks, _):
        self.answer_all()
        self._apply_commit(marks, self.generation)

    def commit_soon(self, marks, then):
        self.pending.append(Pending(dict(marks), then, self.generation))

    def answer_all(self):
        """Answer what was sent, in order."""
        pending, self.pending = self.pending, []
        for one in pending:
            try:
                self._apply_commit(one.marks, one.generation)
            except CommitFailedError as error:
                one.then(error)
            else:
                one.then(None)

    def _apply_commit(self, marks, generation):
        if self._is_lost or generation != self.generation:
            raise CommitFailedError
        for tp, mark in marks.items():
            assert tp in self.positions, f"{tp} is committed, and others own it"
            self.committed[tp] = mark.offset


def _scope(tp):
    return Everything() if tp is None else partition(tp.topic, tp.partition)
