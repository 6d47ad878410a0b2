"""A consumer that the test polls in its own thread, and related marks and listeners."""

import pytest
from attrs import evolve
from kafka import (
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    KafkaConsumer,
    TopicPartition,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from tests.harness.kafka.patience import patient
from tests.sim.lab import GROUP
from tests.sim.world import NotYetError

EAGER, COOPERATIVE = RangePartitionAssignor, CooperativeStickyAssignor

AN_HOUR = 3600.0

both_ways = pytest.mark.parametrize("how", ["poll", "iterate"])
in_flight = pytest.mark.parametrize("in_flight", [True, False])
both_protocols = pytest.mark.parametrize(
    "assignor", [EAGER, COOPERATIVE], ids=["eager", "cooperative"]
)


def known(reason):
    """
    Mark a test that fails with kafka-python's own consumer.

    If the test passes with a later release, our workaround can be removed; see the table in
    design/.
    """
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)


def stock_fails(reason):
    """Run a test with both clients; with kafka-python's own client the test fails."""
    both = [
        pytest.param(SafeConsumer, id="ours"),
        pytest.param(KafkaConsumer, id="stock", marks=known(reason)),
    ]
    return pytest.mark.parametrize("kind", both)


def at(offset):
    """Return an offset in the form that ``commit`` accepts."""
    return OffsetAndMetadata(offset, "", -1)


def raised(call):
    """Return the class name of the error that a call raises, or ``""``."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the client may raise any error
        return type(error).__name__
    return ""


class Listener(ConsumerRebalanceListener):
    """Calls the given functions, each with a set of partitions."""

    def __init__(self, assigned=len, revoked=len, lost=None):
        self._assigned, self._revoked = assigned, revoked
        self._lost = lost or revoked

    def on_partitions_assigned(self, assigned):
        self._assigned(set(assigned))

    def on_partitions_revoked(self, revoked):
        self._revoked(set(revoked))

    def on_partitions_lost(self, lost):
        self._lost(set(lost))


class Awaiting(AsyncConsumerRebalanceListener):
    """A listener that awaits the result of a function before the member joins again."""

    def __init__(self, revoked):
        self._revoked = revoked
        self.answered = 0

    async def on_partitions_revoked(self, revoked):
        await self._revoked(set(revoked))
        self.answered += 1

    async def on_partitions_assigned(self, assigned):
        """Do nothing."""


class Reader:
    """
    Polls a consumer in the test's own thread, and keeps all its records.

    Args:
        lab: the lab of the simulated test.
        kind: a class of consumers.
        topics: the topics to subscribe to.
        tps: the partitions to assign by hand instead.
        how: "poll" or "iterate".
        assignor: how its group shares partitions.
        settings: further settings of the consumer.

    Attributes:
        consumer: the consumer.
        log: its records, in order.
    """

    def __init__(
        self, lab, kind, *topics, tps=(), how="poll", assignor=EAGER, **settings
    ):
        self.lab = lab
        self.how = how
        self.assignor = assignor
        self.log = []
        base = {
            "group_id": None if tps else GROUP,
            "client_id": "reader",
            "partition_assignment_strategy": [assignor],
        }
        self.consumer = kind(*topics, **lab.settings(**{**base, **settings}))
        if tps:
            self.consumer.assign(list(tps))

    def poll(self, seconds=0.1, limit=500):
        """Read once; return the records."""
        if self.how == "poll":
            batches = self.consumer.poll(seconds * 1000, max_records=limit)
            taken = [one for batch in batches.values() for one in batch]
        else:
            taken = self._iterated(seconds, limit)
        self.log += taken
        return taken

    def _iterated(self, seconds, limit):
        self.consumer.config["consumer_timeout_ms"] = seconds * 1000
        taken = []
        while len(taken) < limit:
            record = next(self.consumer, None)
            if record is None:
                break
            taken.append(record)
        return taken

    def until(self, condition, seconds=30.0, limit=500, each=0.1):
        """
        Read until a condition is true.

        Args:
            condition: a function that is called before each round.
            seconds: virtual seconds after which the wait fails.
            limit: the maximum number of records per round.
            each: virtual seconds that each round waits for records.

        Raises:
            NotYetError: the condition did not become true in time.
        """
        end = self.lab.now + seconds
        while not condition():
            if self.lab.now > end:
                text = f"not within {seconds:g} virtual seconds; it owns "
                raise NotYetError(text + f"{self.consumer.assignment()}")
            self.poll(each, limit)

    def owns(self, tps, **more):
        """Read until exactly these partitions are assigned."""
        wanted = set(tps)
        self.until(lambda: self.consumer.assignment() == wanted, **more)

    def shares(self, kind=KafkaConsumer, **settings):
        """Start another member; return the member and the single partition that it gets."""
        more = {"assignor": self.assignor, **settings}
        other = self.lab.member(kind, "t", name="b", **more)
        self.until(lambda: len(other.consumer.assignment()) == 1)
        (given,) = other.consumer.assignment()
        return other, given

    def take(self, count):
        """Read exactly ``count`` more records."""
        start, end = len(self.log), self.lab.now + 30
        while (missing := start + count - len(self.log)) > 0:
            assert self.lab.now < end, f"{missing} of {count} records never came"
            self.poll(limit=missing)
        return self.log[start:]

    def reads(self, tp, offsets):
        """Read from a partition, and assert that its next records have these offsets."""
        wanted, start = list(offsets), len(self.log)
        self.until(lambda: len(self.offsets(tp, start)) >= len(wanted))
        assert self.offsets(tp, start) == wanted

    def is_silent(self, *, of=None, seconds=5.0):
        """Read for some seconds; assert that these partitions (or all) deliver no record."""
        start, end = len(self.log), self.lab.now + seconds
        while self.lab.now < end:
            self.poll(1.0)
        tps = None if of is None else set(of)
        came = [one for one in self.log[start:] if tps is None or _tp(one) in tps]
        assert came == []

    def offsets(self, tp, since=0):
        return [one.offset for one in self.log[since:] if _tp(one) == tp]


def parked(lab, *, in_flight, **settings):
    """Pause a partition with fetched records, perhaps while another one is being fetched."""
    p0, p1 = lab.topic("t", 2)
    more = patient(120_000, fetch_max_wait_ms=60_000, **settings)
    reader = Reader(lab, SafeConsumer, tps=[p0, p1], retry_backoff_ms=60_000, **more)
    lab.append(p0, 10)
    reader.take(1)
    reader.consumer.pause(p0)
    if not in_flight:
        reader.consumer.pause(p1)
    reader.poll(0.5)
    return reader


def corrupt(lab, tp, records=1):
    """Append a batch to a partition, and corrupt the last byte of the batch."""
    lab.append(tp, records)
    batches = lab.cluster.log(*tp).batches
    last = batches.pop()
    batches.append(evolve(last, data=last.data[:-1] + bytes([last.data[-1] ^ 0xFF])))


def fetched_offsets(message, tp):
    """Return the offsets from which a client's request fetches a partition."""
    if message.api != "Fetch":
        return []
    return [
        one.fetch_offset
        for topic in message.body.topics
        for one in topic.partitions
        if (topic.topic, one.partition) == tp
    ]


class Watching(Reader):
    """
    Reads with a SafeConsumer, and keeps its events.

    Attributes:
        events: the events of its consumer, in order.
    """

    def __init__(self, lab, *topics, **settings):
        self.events = []
        more = {"hooks": [self.events.append], **settings}
        super().__init__(lab, SafeConsumer, *topics, **more)

    def events_of(self, kind):
        return [one for one in self.events if isinstance(one, kind)]

    def values(self, since=0):
        return [int(one.value) for one in self.log[since:]]


def _tp(record):
    return TopicPartition(record.topic, record.partition)
