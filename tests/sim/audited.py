"""Group members that make random calls, as correct programs do, each with a journal."""

from contextlib import suppress

from kafka import TopicPartition
from kafka.errors import KafkaError
from kafka.serializer import Deserializer
from kafka.structs import OffsetAndMetadata

from safeconsumer import Lifetime, SafeConsumer
from safeconsumer.cli.control_topics import read_control
from safeconsumer.errors import SafeConsumerError
from safeconsumer.testing._batches import NewRecord
from tests.sim.group.operating import CONTROL, SILENT, Operator
from tests.sim.lab import GROUP
from tests.sim.meddling import elsewhere
from tests.sim.random_logs import RandomLogs
from tests.sim.reading import COOPERATIVE, EAGER, Listener

_ERRORS = {  # for each request type, an error code that a broker may return
    "Fetch": 6,
    "ListOffsets": 6,
    "OffsetCommit": 16,
    "OffsetFetch": 14,
    "Heartbeat": 27,
    "JoinGroup": 14,
}


class _UnreadableError(Exception):
    """The error that a program's deserializer raises."""


class _Hindered(Deserializer):
    """Calls a given function once, before it deserializes a record."""

    def __init__(self):
        self.act, self.after = None, 0

    def deserialize(self, topic, headers, data):
        del topic, headers
        if self.act is not None:
            self.after -= 1
            if self.after < 0:
                act, self.act = self.act, None
                act()
        return data


class Program:
    """
    A member in a separate process that makes random calls until the test drains it.

    Args:
        lab: the lab of the simulated test.
        name: the name of the client and of its process.
        avoided: the names of operations that the member must not choose.
        by_hand: the partitions that the member assigns to itself; None if it subscribes.
        settings: further settings of the consumer.
    """

    def __init__(self, lab, name, avoided=(), by_hand=None, **settings):
        self.lab, self.name, self.by_hand = lab, name, by_hand
        self.is_draining = self.is_over = False
        self.error = None
        self.drawn = []
        self._delivered = {}
        self._hindered = _Hindered()
        base = {
            "group_id": GROUP,
            "client_id": name,
            "value_deserializer": self._hindered,
            "consumer_timeout_ms": 100,
            "hooks": [self._note_move],
            "log": False,
        }
        self._settings = lab.settings(**{**base, **settings})
        kept = {name: one for name, one in WEIGHTS.items() if name not in avoided}
        self._names, self._weights = list(kept), list(kept.values())
        self.process, self.thread = lab.start(name, self._live)

    def _live(self):
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - the test raises it again
            self.error = error

    def _run(self):
        self.consumer = SafeConsumer(**self._settings)
        self._subscribe(["t"])
        while not self.is_draining:
            (name,) = self.lab.rng.choices(self._names, self._weights)
            self.drawn.append((round(self.lab.now, 2), name))
            try:
                getattr(self, name)()
            except (KafkaError, ValueError, SafeConsumerError) as error:
                self.drawn.append((round(self.lab.now, 2), repr(error)[:200]))
            except (KeyboardInterrupt, _UnreadableError) as error:
                self.drawn.append((round(self.lab.now, 2), repr(error)[:200]))
        self._hindered.act = None
        if self.consumer._subscription.subscribed_pattern is not None:
            self.consumer.unsubscribe()
        self._subscribe(["t"])
        for owner in ("app", "ops"):
            self.consumer.resume_all(owner=owner)
        while not self.is_over:
            # An error of an earlier call may still be pending.
            with suppress(KafkaError, _UnreadableError):
                self._read(500)
        with suppress(KafkaError):
            self.consumer.commit()
        self.consumer.close()

    def _some(self):
        owned = sorted(self.consumer.assignment())
        return [tp for tp in owned if self.lab.rng.random() < 0.5]

    def _note(self, records):
        for one in records:
            self._delivered[TopicPartition(one.topic, one.partition)] = one.offset + 1

    def _note_move(self, event):
        # An automatically moved position does not show which records were delivered.
        self._delivered.pop(getattr(event, "partition", None), None)

    # ------------------------------------------------------------ reading

    def poll(self):
        wait = self.lab.rng.choice((0, 50, 500))
        most = self.lab.rng.choice((None, 1, 3))
        self._read(wait, most)

    def _read(self, wait, most=None):
        for batch in self.consumer.poll(wait, max_records=most).values():
            self._note(batch)

    def peek(self):
        self.consumer.poll(50, update_offsets=False)

    def iterate(self):
        for _ in range(self.lab.rng.randrange(8)):
            record = next(self.consumer, None)
            if record is None:
                return
            self._note([record])

    def hinder(self):
        """Make something happen during a later poll or iteration step."""

        def interrupt():
            raise KeyboardInterrupt

        def fail():
            raise _UnreadableError

        acts = (
            *(interrupt, fail),
            *(lambda: elsewhere(self._quietly(self.pause)),) * 2,
            *(lambda: elsewhere(self._quietly(self.resume)),) * 2,
            lambda: elsewhere(self._quietly(self.seek)),
            lambda: elsewhere(self._quietly(self.seek_to_an_end)),
        )
        self._hindered.act = self.lab.rng.choice(acts)
        self._hindered.after = self.lab.rng.randrange(6)

    def _quietly(self, call):
        def quiet():
            with suppress(KafkaError, ValueError, SafeConsumerError):
                call()

        return quiet

    # ------------------------------------------------------------ pausing

    def pause(self):
        rng = self.lab.rng
        owned = self.consumer.assignment()
        target = rng.choice(
            (self._some(), self._some(), owned, ["t"], ["re:t.*"], ["@all"])
        )
        more = {"owner": rng.choice(("app", "app", "ops"))}
        if rng.random() < 0.3:
            more["for_"] = rng.choice((0.01, 0.2, 1, 5))
        if rng.random() < 0.2:
            more["lifetime"] = rng.choice(
                (Lifetime.WHILE_ASSIGNED, Lifetime.UNTIL_RESUMED)
            )
        self.consumer.pause(*target, **more)

    def resume(self):
        owner = self.lab.rng.choice(("app", "app", "ops"))
        match self.lab.rng.choice(("all", "some", "topic", "paused", "none")):
            case "all":
                self.consumer.resume_all(owner)
            case "some":
                self.consumer.resume(*self._some(), owner=owner)
            case "topic":
                self.consumer.resume(*self._some(), "t", owner=owner)
            case "paused":
                self.consumer.resume(*self.consumer.paused())
            case "none":
                self.consumer.resume()

    def hold_for_a_block(self):
        with self.consumer.held(*(self._some() or ["t"]), reason="block"):
            for _ in range(self.lab.rng.randrange(4)):
                self.lab.rng.choice((self.poll, self.iterate, self.commit))()

    # ------------------------------------------------------------ positions

    def seek(self):
        for tp in self._some():
            at = self.consumer.position(tp, timeout_ms=100)
            if at:
                # A position beyond the end of the log would be reset.
                end = self.consumer.highwater(tp) or at
                to = max(0, min(at + self.lab.rng.randrange(-4, 3), end))
                self.consumer.seek(tp, to)
                self._delivered[tp] = to

    def seek_to_an_end(self):
        go = self.consumer.seek_to_beginning, self.consumer.seek_to_end
        some = self._some()
        if some:
            self.lab.rng.choice(go)(*some)
            for tp in some:
                self._delivered.pop(tp, None)

    def seek_to_a_time(self):
        ms = self.lab.cluster.now_ms() - self.lab.rng.choice((0, 100, 5000, 60_000))
        for tp, found in self.consumer.offsets_for_times(
            dict.fromkeys(self._some(), ms), timeout_ms=1000
        ).items():
            if found is not None and tp in self.consumer.assignment():
                self.consumer.seek(tp, found.offset)
                self._delivered[tp] = found.offset

    def position(self):
        for tp in self._some():
            self.consumer.position(tp, timeout_ms=500)

    def commit(self):
        self.lab.rng.choice((self.consumer.commit, self.consumer.commit_async))()

    def commit_offsets(self):
        """Commit the delivered records by passing their offsets to ``commit()``."""
        self._commit_delivered(self._some(), self.consumer.commit)

    def _commit_delivered(self, partitions, commit):
        offsets = {}
        for tp in partitions:
            at = self._delivered.get(tp)
            # Retention or a truncation may have moved the position back.
            if at is not None and at <= (self.consumer.position(tp, timeout_ms=0) or 0):
                offsets[tp] = OffsetAndMetadata(at, "", -1)
        if offsets:
            commit(offsets)

    # ------------------------------------------------------------ the subscription

    def subscribe(self):
        topics = self.lab.rng.choice((["t"], ["t", "u"]))
        if self.lab.rng.random() < 0.4:
            self.consumer.unsubscribe()
            self._delivered.clear()
            if self.lab.rng.random() < 0.5:
                self.consumer.commit()
        self._subscribe(topics)

    def _subscribe(self, topics):
        listener = Listener(self._assigned, self._revoked, self._forget)
        if self.by_hand is not None:
            kept = [tp for tp in self.by_hand if tp.topic in topics]
            self._forget({*self.consumer.assignment()} - {*kept})
            self.consumer.assign(kept)
        elif self.consumer.subscription() or self.lab.rng.random() < 0.7:
            self.consumer.subscribe(topics, listener=listener)
        else:
            self.consumer.subscribe(pattern=f"({'|'.join(topics)})$", listener=listener)

    def _assigned(self, partitions):
        self._forget(partitions)  # another call may have run since the revocation
        some = [tp for tp in sorted(partitions) if self.lab.rng.random() < 0.2]
        if some and not self.is_draining:
            self.lab.rng.choice(
                (
                    lambda: self.consumer.pause(*some),
                    lambda: self.consumer.resume(*some),
                    lambda: self.consumer.seek_to_beginning(*some),
                    lambda: self.consumer.seek(some[0], 3),
                )
            )()

    def _revoked(self, partitions):
        some = [tp for tp in sorted(partitions) if self.lab.rng.random() < 0.5]
        self._commit_delivered(some, self.consumer.commit_async)
        self._forget(partitions)

    def _forget(self, partitions):
        for tp in partitions:
            self._delivered.pop(tp, None)

    def rejoin(self):
        if self.by_hand is None:
            self.consumer._coordinator.request_rejoin()

    def wait(self):
        self.lab.sleep(self.lab.rng.random() * 3)


WEIGHTS = {
    "poll": 30,
    "iterate": 10,
    "peek": 3,
    "hinder": 4,
    "pause": 8,
    "resume": 9,
    "hold_for_a_block": 2,
    "seek": 4,
    "seek_to_an_end": 1,
    "seek_to_a_time": 0.5,
    "position": 1,
    "commit": 4,
    "commit_offsets": 4,
    "subscribe": 0.5,
    "rejoin": 0.5,
    "wait": 4,
}


class Group(RandomLogs):
    """
    A group of random programs, and random events in its cluster.

    Attributes:
        settings: the settings of all members.
        running: the members that the test has not stopped.
    """

    def __init__(self, lab, folder, avoided=(), **more):
        rng, self._avoided = lab.rng, avoided
        self.operator = Operator(lab)
        self.control = None  # the contents of the holds topic at the end
        self._is_controlled = rng.random() < 0.5
        self._is_by_hand = rng.random() < 0.15
        lab.cluster.creates_topics = False
        if self._is_controlled:
            more = {"control": rng.choice((CONTROL, SILENT)), **more}
        self._held, self._resets = set(), 0
        super().__init__(lab, rng, [*lab.topic("t", 3), *lab.topic("u", 1)])
        for tp in self.tps:
            self._append(tp, rng.choice((0, 10, 40)))
        self.settings = {
            "journal": folder,
            "partition_assignment_strategy": [rng.choice((EAGER, COOPERATIVE))],
            "enable_auto_commit": rng.random() < 0.5,
            "auto_commit_interval_ms": 700,
            "auto_offset_reset": rng.choice(("earliest", "earliest", "latest")),
            "isolation_level": rng.choice(("read_committed", "read_uncommitted")),
            "max_poll_records": rng.choice((1, 5, 500)),
            "parked_max_bytes": rng.choice((0, 300, 1 << 20)),
            "max_partition_fetch_bytes": rng.choice((100, 1000, 1 << 20)),
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 1000,
            "retry_backoff_ms": 50,
            **more,
        }
        self._count = 0
        self.running, self.all = [], []
        self.log = []
        self.join()
        self.join()

    def play(self, events):
        names = [name for name in EVENTS if name not in self._avoided]
        weights = [EVENTS[name] for name in names]
        for name in self.rng.choices(names, weights, k=events):
            self.log.append((round(self.lab.now, 2), name))
            getattr(self, name)()
            self.lab.sleep(self.rng.random() * 4)
        self.end_transactions()
        self.lab.cluster.faults.clear()
        for scope in sorted(self._held):
            self.operator.lift(scope)
        for one in self.running:
            one.is_draining = True
        self.lab.sleep(40)
        for one in self.running:
            one.is_over = True
        for one in self.all:
            if not one.process.is_dead:
                one.thread.join()
            if one.error:
                raise one.error
        if self._is_controlled:
            self.control = read_control(self.lab.connection, "ops")

    # ------------------------------------------------------------ members

    def join(self):
        if len(self.running) < 4:
            name = f"m{self._count}"
            self._count += 1
            by_hand = self._free() if self._is_by_hand else None
            one = Program(self.lab, name, self._avoided, by_hand, **self.settings)
            self.running.append(one)
            self.all.append(one)

    def _free(self):
        """Return up to two partitions that no living member has assigned to itself."""
        living = [one for one in self.all if one.thread.is_alive()]
        taken = {tp for one in living for tp in one.by_hand}
        return [tp for tp in self.tps if tp not in taken][:2]

    def kill(self):
        if len(self.running) > 1:
            one = self.running.pop(self.rng.randrange(len(self.running)))
            self.lab.kill(one.process)

    def leave(self):
        if len(self.running) > 1:
            one = self.running.pop(self.rng.randrange(len(self.running)))
            one.is_draining = one.is_over = True

    def hang(self):
        one = self.rng.choice(self.running)
        self.lab.freeze(one.process)
        self.lab.sleep(self.rng.choice((2, 8)))
        self.lab.thaw(one.process)

    # ------------------------------------------------------------ the operator

    def hold(self):
        if self._is_controlled:
            scope = self.rng.choice(("t", "t:0", "u", "@all"))
            self.operator.hold(scope, for_=self.rng.choice((None, None, 3.0)))
            self._held.add(scope)

    def lift(self):
        if self._held:
            scope = self.rng.choice(sorted(self._held))
            self.operator.lift(scope)
            self._held.remove(scope)

    def reset(self):
        """Reset a topic's offsets under a hold that may end before all offsets are reset."""
        if self._is_controlled:
            targets = {}
            for tp in self.tps[:3]:
                log = self.lab.cluster.log(*tp)
                targets[tp] = self.rng.randint(log.start, log.stable_end)
            self._held.add("t")
            self._resets += 1
            self.operator.reset(targets, hold_id=f"h{self._resets}")

    # ------------------------------------------------------------ the logs

    def append(self):
        for tp in self.tps:
            self._append(tp, self.rng.choice((0, 1, 5, 20)))

    def _append(self, tp, count):
        for at in range(count):
            if at % 7 == 0:
                records = [self._record() for _ in range(min(7, count - at))]
                self.lab.cluster.append(*tp, records)

    def _record(self):
        return NewRecord(key=b"k%d" % self.rng.randrange(6), value=b"v")

    def _transactional(self, _offset):
        return NewRecord(key=b"k", value=b"v")

    def add_a_partition(self):
        count = len({tp for tp in self.tps if tp.topic == "u"})
        if count < 3:
            self.lab.cluster.add_partitions("u", count + 1)
            self.tps.append(TopicPartition("u", count))
            self.producing[self.tps[-1]] = set()
            self._append(self.tps[-1], self.rng.choice((0, 10)))

    def recreate(self):
        """Delete a topic, and create it again."""
        topic = self.rng.choice(("t", "u"))
        tps = [tp for tp in self.tps if tp.topic == topic]
        self.lab.cluster.delete_topic(topic)
        self.lab.sleep(self.rng.choice((0.0, 0.5, 5.0)))
        self.lab.topic(topic, len(tps))
        for tp in tps:
            self.producing[tp].clear()
            self._append(tp, self.rng.choice((0, 1, 20)))

    # ------------------------------------------------------------ the brokers

    def fail_requests(self):
        request = self.rng.choice(tuple(_ERRORS))
        how = self.rng.choice(
            ({"is_cut": True}, {"is_lost": True}, {"delay": 1.0}, {"error": 0})
        )
        if "error" in how:
            how = {"error": _ERRORS[request]}
        self.lab.cluster.fail(request, count=self.rng.choice((1, 2, 3)), **how)

    def stop_a_broker(self):
        cluster = self.lab.cluster
        node = self.rng.randint(1, len(self.lab.hosts))
        if len(self.lab.hosts) > 1:
            cluster.down(node, failover=self.rng.choice((1.0, 9.0)))
            self.lab.sleep(self.rng.choice((2.0, 15.0)))
            cluster.up(node)


EVENTS = {
    "append": 10,
    "join": 3,
    "kill": 1,
    "leave": 1,
    "hang": 1,
    "hold": 2,
    "lift": 2,
    "reset": 1.5,
    "produce_in_a_transaction": 3,
    "end_transactions": 3,
    "delete_records": 1,
    "compact": 1,
    "truncate_the_log": 0.5,
    "add_a_partition": 0.5,
    "recreate": 0.5,
    "move_leader": 1,
    "fail_requests": 2,
    "stop_a_broker": 0.5,
}
