"""Runs a queue and its decisions without a broker, without threads and without real time."""

from attrs import field, frozen
from kafka.structs import TopicPartition

from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Everything
from safeconsumer.worker import Retry
from safeconsumer.worker.calls import all_done
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.kept import KeptRecords
from safeconsumer.worker.partition import Order, Outcome
from safeconsumer.worker.queue import Policy, Queue
from tests.harness.holds.lab import Clock, assign_to

TP = TopicPartition("orders", 0)
KEYS = 3
# Each order, with and without batches; the order by key allows no batches.
KINDS = [
    (order, is_batch)
    for order in Order
    for is_batch in (False, True)
    if not (is_batch and order is Order.KEY)
]


@frozen
class Record:
    """The record attributes that a worker reads; by default the key is one of three keys."""

    topic: str
    partition: int
    offset: int
    key: bytes = field()
    leader_epoch: int = 0
    serialized_key_size: int = 1
    serialized_value_size: int = 100
    serialized_header_size: int = -1

    @key.default
    def _of_its_offset(self):
        return b"%d" % (self.offset % KEYS)


class Desk:
    """
    A queue for one partition, with its decisions and the clock that both use.

    Attributes:
        kinds: the kinds of all events, in order.
        events: all events, in order.
    """

    make_decisions = Decisions

    def __init__(self, order, key=None, breaker=None, records=0, clock=None, **policy):
        self.clock = clock or Clock()
        self.kept = KeptRecords(self.clock)
        self.ledger = PauseLedger((), clock=self.clock, wall=self.clock)
        assign_to(self.ledger, [TP])
        settings = {"retry": Retry(attempts=3, first=1.0, jitter=False), **policy}
        self.kinds = []
        self.events = []
        self.decisions = self.make_decisions(
            Queue(
                self.kept,
                order,
                Policy(**settings),
                self.clock,
                self.ledger,
            ),
            self.emit,
            self.place,
            breaker,
        )
        self.ledger.observers.append(self.decisions.obey)
        self.epoch = self.kept.open(TP, 1, 0, 0)
        self.key = key
        self._next = 0
        if records:
            self.admit(records)

    def emit(self, kind, **fields):
        self.kinds.append(kind)
        self.events.append(kind(**fields))

    def place(self, scope, owner, reason, seconds):
        """Hold a scope as a worker's consumer does."""
        self.ledger.place([scope], owner=owner, reason=reason, for_=seconds)

    def admit(self, count):
        records = [self._record(self._next + n) for n in range(count)]
        self._next += count
        self.kept.admit(self.epoch, records)
        self.decisions.queue.admit(self.epoch)
        return records

    def _record(self, offset):
        record = Record(*TP, offset)
        if self.key is None:
            return record
        return Record(*TP, offset, key=str(self.key(record)).encode())

    @property
    def failures(self):
        """Return the number of failures of each record, by offset."""
        return {at: one.count for at, one in self.epoch.failed.items()}

    def regain(self):
        """Lose the partition, and get it back with its first record as the next record."""
        self.kept.close(self.epoch)
        self.epoch = self.kept.open(TP, self.epoch.number + 1, 0, 0)
        self._next = 0

    def pause(self, owner="app", for_=None):
        self.ledger.place([Everything()], owner=owner, for_=for_)

    def resume(self, owner="app"):
        self.ledger.remove([(Everything(), owner)])

    def work(self):
        """Complete all records that can be claimed; return their offsets."""
        found = []
        while task := self.decisions.queue.claim():
            found += done_by(self.decisions, task)
        return sorted(found)

    def pass_time(self, seconds):
        self.clock.now += seconds
        self.decisions.turn()


def done_by(decisions, task):
    """Complete a task; return the offsets of its records."""
    found = [task.record(at).offset for at in task.indexes]
    decisions.complete(ended(task))
    return found


def ended(task):
    """Return the outcome of a task whose handler or sink succeeded."""
    if task.letter is None:
        return all_done(task, 0.0)
    return Outcome(task=task, finished=task.indexes)


def incomplete(progress):
    """List the ordinals of all records that are not released yet."""
    ordinals = range(progress.floor(), progress.admitted)
    found = zip(ordinals, progress.records(ordinals), strict=True)
    return [ordinal for ordinal, record in found if record is not None]
