"""
Runs random histories of one consumer, and judges them by the program's calls.

The judge tracks the next record, the paused partitions and the content of each log; it
shares no code with the product. When a position may have moved automatically (by a reset,
a truncated log or a new ownership), the next record tells the judge the new position.
"""

import random

from kafka import TopicPartition
from kafka.errors import IllegalStateError, KafkaError

from safeconsumer import SafeConsumer, events
from safeconsumer.testing._batches import NewRecord
from tests.sim.random_logs import RandomLogs
from tests.sim.reading import COOPERATIVE, EAGER

# Error codes after which a client retries: not the leader, not the coordinator,
# rebalance in progress.
_ERRORS = {"Fetch": 6, "ListOffsets": 6, "OffsetCommit": 16, "Heartbeat": 27}
_REQUESTS = (*_ERRORS, "Metadata", "*")
_MOST_PARTITIONS = 4

WEIGHTS = {
    "poll": 35,
    "step": 15,
    "peek": 3,
    "append": 7,
    "produce_in_a_transaction": 4,
    "end_transactions": 4,
    "pause": 8,
    "resume": 10,
    "seek": 3,
    "seek_to_an_end": 1,
    "seek_to_a_time": 0.5,
    "position": 1,
    "commit": 1.5,
    "commit_async": 1,
    "move_leader": 1,
    "delete_records": 0.5,
    "compact": 1,
    "fail_requests": 0.5,
    "truncate_the_log": 0.5,
    "add_a_partition": 0.3,
    "choose": 1,
    "wait": 0.5,
    "stop_a_broker": 0.5,
    "wake_up": 1.5,
}


class History(RandomLogs):
    """
    A consumer of one topic, its brokers, and the judge's knowledge of both.

    Attributes:
        weights: the operations, each with its relative frequency.
        kind: the class of the consumer.
    """

    weights = WEIGHTS
    kind = SafeConsumer

    def __init__(self, lab):
        rng = random.Random(lab.world.seed)  # noqa: S311 - nothing is secret
        super().__init__(lab, rng, lab.topic("t", rng.choice([1, 2, 3])))
        self.events = []
        self.is_member = rng.random() < 0.6
        self.has_group = self.is_member or rng.random() < 0.5
        self.sees_committed = rng.random() < 0.5
        for tp in self.tps:
            self._append(tp, rng.choice([0, 1, 10, 40]))
        self.consumer = self._consumer()
        # The next offset of each partition; None means that the next record decides it.
        self.next = dict.fromkeys(self.tps)
        self.held = {}  # the paused partitions, by scope and owner
        self.seen = 0

    def _consumer(self):
        rng, more = self.rng, {}
        if self.has_group:
            strategy = [rng.choice([EAGER, COOPERATIVE])]
            more = {"group_id": "g", "partition_assignment_strategy": strategy}
        settings = self.lab.settings(
            auto_offset_reset=rng.choice(["earliest", "latest"]),
            isolation_level=f"read_{'' if self.sees_committed else 'un'}committed",
            max_poll_records=rng.choice([1, 3, 500]),
            parked_max_bytes=rng.choice([0, 1, 300, 1 << 20]),
            max_partition_fetch_bytes=rng.choice([100, 1000, 1 << 20]),
            decoder=rng.choice(["python", "compiled"]),
            enable_auto_commit=self.has_group and rng.random() < 0.3,
            auto_commit_interval_ms=300,
            metadata_max_age_ms=rng.choice([2000, 300_000]),
            retry_backoff_ms=50,
            consumer_timeout_ms=100,
            hooks=[self.on_event],
            log=False,
            **more,
            **self.more_settings(),
        )
        consumer = self.kind(**settings)
        if self.is_member:
            self.subscribe(consumer)
        else:
            consumer.assign(self.tps)
        return consumer

    def subscribe(self, consumer, **more):
        """Subscribe to the topic by its name, or by a pattern."""
        how = self.rng.choice([{"topics": ["t"]}, {"pattern": "t$"}])
        consumer.subscribe(**how, **more)

    def on_event(self, event):
        self.events.append(event)

    def more_settings(self):
        """Return further settings of the consumer."""
        return {}

    # ------------------------------------------------------------ judging

    def got(self, tp, offset, way):
        """Assert that a record is the next of its partition, which must not be paused."""
        assert not any(tp in some for some in self.held.values()), f"P1: {tp} by {way}"
        self.follows(tp, offset, way)
        self.next[tp] = offset + 1

    def follows(self, tp, offset, way):
        """Assert that a record is the next one of its partition."""
        following = self.next[tp]
        if following is not None:
            assert offset >= following, f"P8: {tp} comes again, {offset} by {way}"
            missed = self._between(tp, following, offset)
            assert not missed, f"P8: {tp} lost {missed[:5]}, {offset} came by {way}"

    def not_passed(self, tp, offset, what):
        """Assert that a position or committed offset is not ahead of delivered records."""
        following = self.next[tp]
        if following is not None:
            missed = self._between(tp, following, offset)
            assert not missed, f"P8: {what} of {tp} is {offset}, {missed[:5]} not come"

    def visible(self, tp):
        """Return the offsets of all records that the consumer must deliver."""
        log = self.lab.cluster.log(*tp)
        end = log.stable_end if self.sees_committed else log.end
        return [
            record.offset
            for batch in log.batches
            if not batch.header.is_control_batch
            for record in batch.records()
            if log.start <= record.offset < end
            and not (self.sees_committed and _is_aborted(log, batch, record.offset))
        ]

    def _between(self, tp, first, end):
        return [one for one in self.visible(tp) if first <= one < end]

    def note_moves(self):
        """Set the next offset after each event about a moved position; see ``begin_of``."""
        new, self.seen = self.events[self.seen :], len(self.events)
        for event in new:
            if isinstance(event, events.RebalanceCompleted):
                moved = {*event.gained, *event.revoked, *event.lost}
            else:
                moved = {getattr(event, "partition", None)}
            for tp in self.tps:
                if tp in moved:
                    self.next[tp] = self.begin_of(tp, event)

    def begin_of(self, tp, event):
        """Return the next offset after a move, or None if only the next record shows it."""
        del tp, event

    # ------------------------------------------------------------ reading

    def poll(self):
        most = self.rng.choice([None, 1, 3, 20])
        found = self.consumer.poll(self.rng.choice([0, 20, 300]), max_records=most)
        self.note_moves()
        for tp, records in found.items():
            for record in records:
                self.got(tp, record.offset, "poll")

    def step(self):
        for _ in range(self.rng.choice([1, 2, 6])):
            record = next(self.consumer, None)
            self.note_moves()
            if record is None:
                return
            tp = TopicPartition(record.topic, record.partition)
            self.got(tp, record.offset, "iteration")

    def peek(self):
        found = self.consumer.poll(self.rng.choice([0, 200]), update_offsets=False)
        held = set().union(*self.held.values())
        assert not held.intersection(found), "P1: by poll(update_offsets=False)"

    # ------------------------------------------------------------ pausing

    def pause(self):
        owner, tp = self.rng.choice(["app", "app", "ops"]), self.rng.choice(self.tps)
        match self.rng.choice(["one", "one", "topic", "all", "assigned"]):
            case "one":
                try:
                    self.consumer.pause(tp, owner=owner)
                except IllegalStateError:  # the partition is not assigned
                    return
                self.held[f"t:{tp.partition}", owner] = {tp}
            case "topic":
                self.consumer.pause("t", owner=owner)
                self.held["t", owner] = set(self.tps)
            case "all":
                self.consumer.pause_all(owner=owner)
                self.held["@all", owner] = set(self.tps)
            case "assigned":
                assigned = self.consumer.assignment()
                self.consumer.pause(*assigned)
                for one in assigned:
                    self.held[f"t:{one.partition}", "app"] = {one}
                if assigned:
                    self.held["t", "whole"] = set(self.tps)

    def resume(self):
        owner, tp = self.rng.choice(["app", "ops"]), self.rng.choice(self.tps)
        if owner == "app":
            self._ended_by_any_resume()
        if self.rng.random() < 0.5:
            self.consumer.resume_all(owner)
            self._forget(lambda key: key[1] == owner)
        else:
            self.consumer.resume(tp, owner=owner)
            self._forget(lambda key: key == (f"t:{tp.partition}", owner))

    def _ended_by_any_resume(self):
        here = self.consumer.assignment()
        self._forget(lambda key: key[1] == "whole")
        self._forget(lambda key: _is_plain(key) and not self.held[key] <= here)

    def _forget(self, ends):
        self.held = {key: tps for key, tps in self.held.items() if not ends(key)}

    # ------------------------------------------------------------ positions

    def seek(self):
        tp = self.rng.choice(self.tps)
        log = self.lab.cluster.log(*tp)
        if tp in self.consumer.assignment():
            to = self.rng.randint(log.start, log.end)
            self.moves_to(tp, to)
            self.consumer.seek(tp, to)

    def seek_to_an_end(self):
        tp = self.rng.choice(self.tps)
        if tp in self.consumer.assignment():
            calls = self.consumer.seek_to_beginning, self.consumer.seek_to_end
            self.moves_to(tp, None)
            self.rng.choice(calls)(tp)

    def moves_to(self, tp, offset):
        """Record that the program seeks to an offset, or, if None, to an end of the log."""
        self.next[tp] = offset

    def seek_to_a_time(self):
        tp = self.rng.choice(self.tps)
        if tp not in self.consumer.assignment():
            return
        log, ms = self.lab.cluster.log(*tp), self.lab.cluster.now_ms()
        ms -= self.rng.choice([0, 1, 100, 3000, 60_000])
        try:
            found = self.consumer.offsets_for_times({tp: ms}, timeout_ms=2000)[tp]
        except KafkaError:
            return
        if found is not None and tp in self.consumer.assignment():
            assert found.timestamp >= ms
            early = [one for one in _times(log) if one[0] < found.offset]
            assert not [at for at, time in early if time >= ms]
            self.moves_to(tp, found.offset)
            self.consumer.seek(tp, found.offset)

    def position(self):
        tp = self.rng.choice(self.tps)
        if tp in self.consumer.assignment():
            try:
                at = self.consumer.position(tp, timeout_ms=2000)
            except KafkaError:  # for example while a broker is down, as in kafka-python
                return
            self.note_moves()
            following = self.next[tp]
            if at is not None and following is not None:
                assert at >= following, f"P8: position of {tp} is {at}, not {following}"
                self.not_passed(tp, at, "the position")

    def commit_async(self):
        if self.has_group:
            self.consumer.commit_async()

    def commit(self):
        if not self.has_group:
            return
        assigned = self.consumer.assignment()  # empty if the membership was lost
        try:
            self.consumer.commit(timeout_ms=3000)
        except KafkaError:
            return
        self.note_moves()
        for tp in assigned:
            at = self.lab.committed(tp, "g")
            if at is not None:
                self.not_passed(tp, at, "the committed offset")

    # ------------------------------------------------------------ the assignment

    def choose(self):
        """Make a member join again, or assign random partitions if there is no group."""
        if self.is_member:
            self.consumer._coordinator.request_rejoin()
            return
        before = self.consumer.assignment()
        some = self.rng.sample(self.tps, self.rng.randint(1, len(self.tps)))
        self.consumer.assign(some)
        for tp in self.tps:
            if tp not in some or tp not in before:
                self.next[tp] = None
        self._forget(lambda key: key[1] == "whole")
        self._forget(lambda key: _is_plain(key) and not self.held[key] <= set(some))

    # ------------------------------------------------------------ the cluster

    def add_a_partition(self):
        count = len(self.tps)
        if count >= _MOST_PARTITIONS:
            return
        self.lab.cluster.add_partitions("t", count + 1)
        tp = TopicPartition("t", count)
        self.tps.append(tp)
        self.producing[tp], self.next[tp] = set(), None
        for scope, owner in self.held:
            if scope in {"t", "@all"}:
                self.held[scope, owner] = {*self.held[scope, owner], tp}
        self._append(tp, self.rng.choice([0, 1, 20]))

    def append(self):
        self._append(self.rng.choice(self.tps), self.rng.choice([1, 2, 5, 30]))

    def _append(self, tp, count):
        first = self.lab.cluster.log(*tp).end
        records = [self._record(first + one) for one in range(count)]
        if records:
            self.lab.cluster.append(*tp, records)

    def _record(self, offset):
        rng = self.rng
        value = None if rng.random() < 0.05 else b"%d" % offset * rng.choice([1, 1, 20])
        key = b"k%d" % rng.randrange(6) if rng.random() < 0.8 else None
        return NewRecord(value=value, key=key, headers=[("h", b"x")])

    def _transactional(self, offset):
        return self._record(offset)

    def truncate_the_log(self):
        if (tp := super().truncate_the_log()) is not None:
            self.next[tp] = None

    def fail_requests(self):
        request = self.rng.choice(_REQUESTS)
        how = self.rng.choice(
            [{"is_cut": True}, {"is_lost": True}, {"delay": 1.0}, {"error": 0}]
        )
        if "error" in how:
            how = {"error": _ERRORS[request]} if request in _ERRORS else {"delay": 0.3}
        self.lab.cluster.fail(request, count=self.rng.choice([1, 2, 3]), **how)

    def stop_a_broker(self):
        node, cluster = self.rng.randint(1, len(self.lab.hosts)), self.lab.cluster
        if len(self.lab.hosts) > 1 and cluster.nodes.is_up(node):
            cluster.down(node, failover=self.rng.choice([1.0, 9.0]))
            self.lab.world.call_later(
                self.rng.choice([2.0, 15.0]), lambda: self._up(node)
            )

    def _up(self, node):
        if not self.lab.cluster.nodes.is_up(node):
            self.lab.cluster.up(node)

    def wait(self):
        self.lab.sleep(self.rng.choice([0.1, 2.0, 5.0]))

    def wake_up(self):
        self.consumer.wakeup()

    # ------------------------------------------------------------ playing

    def play(self, steps):
        """Make this many operations, then end all holds and faults and read all records."""
        names, weights = zip(*self.weights.items(), strict=True)
        for name in self.rng.choices(names, weights, k=steps):
            self.do(name)
            self.note_moves()
        self._let_all_flow()
        self._read_all()
        self.consumer.close(autocommit=False)

    def do(self, name):
        getattr(self, name)()

    def _let_all_flow(self):
        self.end_transactions()
        self.lab.cluster.faults.clear()
        for node in range(1, len(self.lab.hosts) + 1):
            self._up(node)
        for owner in ("app", "ops"):
            self.consumer.resume_all(owner)
        self.held = {}
        if not self.is_member:
            before = self.consumer.assignment()
            self.consumer.assign(self.tps)
            self.next |= dict.fromkeys(tp for tp in self.tps if tp not in before)

    def _read_all(self):
        read, until = self.rng.choice([self.poll, self.step]), self.lab.now + 120
        while self.lab.now < until and (left := self._left()):
            read()
            is_late, decided = self.lab.now > until - 90, self._left() != left
            if is_late and not (decided or any(left.values())):
                break  # no record arrived to determine a position
        late = {tp: offsets for tp, offsets in self._left().items() if offsets}
        assert not late, f"P10: {late} never came"

    def _left(self):
        # The next undelivered offsets; an empty list as long as they are unknown.
        left = {}
        for tp, following in self.next.items():
            rest = [] if following is None else self._between(tp, following, 1 << 62)
            if following is None or rest:
                left[tp] = rest[:5]
        return left


def _times(log):
    return [
        (record.offset, record.timestamp)
        for batch in log.batches
        if not batch.header.is_control_batch
        for record in batch.records()
        if record.offset >= log.start
    ]


def _is_aborted(log, batch, offset):
    producer = batch.header.producer_id
    return producer >= 0 and any(
        one.producer_id == producer and one.first <= offset <= one.last
        for one in log.aborted
    )


def _is_plain(key):
    scope, owner = key
    return owner == "app" and scope.startswith("t:")
