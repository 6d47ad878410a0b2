"""The simulated world of a churn test, with its cluster, its judge and random events."""

import threading
from collections import deque
from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType

from attrs import frozen
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.serializer import Deserializer

from safeconsumer import Limits, Retry, SafeConsumer
from tests.harness.churn.member import Iterating, Member, Working
from tests.harness.churn.nemesis import Nemesis
from tests.harness.churn.outsiders import Operator
from tests.harness.scopes import short
from tests.sim.churn.judge import Judge
from tests.sim.churn.logs import Logs
from tests.sim.churn.transactional import Transactional
from tests.sim.group import operating
from tests.sim.group.operating import CONTROL
from tests.sim.lab import GROUP
from tests.sim.meddling import elsewhere
from tests.sim.reading import Listener

TOPICS = {"t": 4, "u": 2, "v": 1}
NODES = 3
_MOST_MEMBERS, _MOST_WORKERS = 4, 2
_MOST_PARTITIONS = 6  # of one topic
_ASSIGNORS = (
    RangePartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
    CooperativeStickyAssignor,
)
_ERRORS = {  # for each request type, the error codes that a broker may return
    "Heartbeat": (15, 16, 27),
    "JoinGroup": (14, 15, 16),
    "SyncGroup": (15, 16, 27),
    "OffsetFetch": (14, 16),
    "OffsetCommit": (14, 16, 27),
    "FindCoordinator": (15,),
    "Fetch": (6, 5),
    "ListOffsets": (6,),
    "Metadata": (5,),
}


@frozen(kw_only=True)
class Churn:
    """
    The settings of a churn test.

    Attributes:
        minutes: virtual minutes until all faults are repaired.
        are_workers: whether members are Workers; other members poll and iterate.
        is_controlled: whether operators hold the group; if None, the seed decides.
        poll_ms: how many milliseconds a poll waits, and a Fetch waits at a broker.
        wanted: the events that must have happened, and how often.
    """

    minutes: float = 30.0
    are_workers: bool = False
    is_controlled: bool | None = None
    poll_ms: int = 10_000
    wanted: Mapping[str, int] = MappingProxyType({"delivered": 20, "gained": 3})


class Meddler(Deserializer):
    """
    Lets another thread make calls between fetch and delivery.

    Attributes:
        todo: the calls, which finish before the next record is deserialized.
    """

    def __init__(self):
        self.todo = deque()

    def deserialize(self, topic, headers, data):
        del topic, headers
        while self.todo:
            elsewhere(self.todo.popleft())
        return data


class SimulatedNemesis(Nemesis):
    """A churn test in one world, with its brokers, programs, judge and random events."""

    every = 8
    owners = ("app", "ops", "guard")
    limits = (None, None, None, 5.0, 60.0)
    blocks = (1, 20, 120)
    naps = (1, 20, 60, 290, 310, 400)
    freezes = (1, 10, 44, 46, 100, 320)
    failures = (1.0, 6.0)  # seconds until the other brokers take over
    failing = (3, 40)
    group_scopes = ("@all", "t", "u", "t:0")
    # Settings of programs:
    batches = (1, 7, 50)
    closing_ms = None
    tolerated = ()
    ordering = nullcontext()

    def __init__(self, lab, churn):
        super().__init__(lab.rng)
        self.lab, self.churn = lab, churn
        self.sleep = self.idle = lab.sleep
        self.serial = lab.world.serial
        self.most = _MOST_WORKERS if churn.are_workers else _MOST_MEMBERS
        self._names = (f"m{number}" for number in range(10**6))
        self._assignor = self.rng.choice(_ASSIGNORS)
        self._is_static = self.rng.random() < 0.3
        self.is_controlled = self.rng.random() < 0.3
        if churn.is_controlled is not None:
            self.is_controlled = churn.is_controlled
        self._down = None
        for topic, count in TOPICS.items():
            lab.topic(topic, count, records=20)
        self.logs = Logs(lab.cluster, GROUP, tuple(TOPICS))
        self.judge = Judge(lab=lab, logs=self.logs)
        self.judge.begin()
        if self.is_controlled:
            self.operator = self._started_operator()
        self.transactional = Transactional(self, lab)

    def _started_operator(self):
        writer, judge = operating.Operator(self.lab), self.judge

        def write(scope, *, is_held):
            (writer.hold if is_held else writer.lift)(scope)

        return Operator(self, write, placed=judge.group_held, lifted=judge.group_lifted)

    def weights(self):
        """Return the calls and faults to choose from, and the weight of each."""
        always = {
            self.pause: 8,
            self.resume: 10,
            self.held: 1,
            self.produce: 4,
            self.write_transaction: 1.5,
            self.join: 2,
            self.leave: 1.5,
            self.kill: 0.7,
            self.freeze: 1.5,
            self.reset: 1,
            self.isolate: 2,
            self.slow: 0.5,
            self.answer_badly: 1,
            self.broker_fails: 0.3,
            self.move: 1,
            self.retention: 1,
            self.add_partition: 0.1,
        }
        if self.operator is not None:
            always |= {self.group_hold: 1.5, self.group_lift: 1.5}
        if not self.churn.are_workers:
            always |= {self.commit: 3, self.seek: 2, self.nap: 2}
            always |= {self.step_aside: 2, self.pause_late: 2}
            # After a member unsubscribes from a topic, the eager sticky assignor of
            # kafka-python 3.0.12 keeps assigning the topic's partitions to the member,
            # which refuses them ten times a second.
            if self._assignor is not StickyPartitionAssignor:
                always[self.subscribe] = 0.7
            if self.operator is not None:
                always[self.lag] = 1
        return always

    @property
    def now(self):
        return self.lab.now

    def forget_ended(self):
        """Forget members that have ended; raise the judge's verdict, if it has one."""
        if self.judge.verdict is not None:
            raise self.judge.verdict
        self.members = [one for one in self.members if not one.has_ended]
        for one in self.members:
            one.book.count_held()

    # Programs

    def start_program(self, name, main):
        _, thread = self.lab.start(name, main)
        return thread

    def beside(self, member, call):
        if member.process.is_able and member.consumer is not None:
            self._in_another_thread(member, lambda: member.has_ended or call())

    def _in_another_thread(self, member, call):
        thread = threading.Thread(target=call, name="other")
        self.lab.world.spawn(thread.start, "other's start", member.process)

    def listener(self, book):
        return Listener(book.assigned, book.revoked, book.lost)

    def worker_settings(self):
        return {
            "order": "partition",
            "concurrency": self.rng.choice((1, 4, 8)),
            "limits": Limits(records=self.rng.choice((20, 200))),
            "retry": Retry(attempts=10),
        }

    def work(self):
        """Handle a record, which may fail."""
        if self.rng.random() < 0.02:
            self.sleep(self.rng.choice((10, 100, 400)))
        elif self.rng.random() < 0.5:
            self.sleep(self.rng.uniform(0, 2))
        if self.rng.random() < 0.05:
            message = "once more"
            raise ValueError(message)

    # Members

    def started(self):
        """Start a member with random settings."""
        name, churn = next(self._names), self.churn
        settings = {
            "group_id": GROUP,
            "client_id": name,
            "log": False,
            "partition_assignment_strategy": [self._assignor],
            "heartbeat_interval_ms": 10_000,
            "fetch_max_wait_ms": churn.poll_ms,
            "consumer_timeout_ms": churn.poll_ms,
            "metadata_max_age_ms": 120_000,
            "max_partition_fetch_bytes": self.rng.choice((300, 1 << 20)),
            "isolation_level": self.rng.choice(("read_committed", "read_uncommitted")),
            "enable_auto_commit": not churn.are_workers and self.rng.random() < 0.4,
            "control": CONTROL if self.is_controlled else None,
        }
        if self._is_static:
            taken = {one.instance for one in self.members}
            free = (f"i{number}" for number in range(self.most + 1))
            settings["group_instance_id"] = next(i for i in free if i not in taken)
        return self._member(name, settings)

    def _member(self, name, settings):
        book = self.judge.book(
            name,
            is_cooperative=self._assignor is CooperativeStickyAssignor,
            is_committed=settings["isolation_level"] == "read_committed",
            patience=1.0 + 2 * self.churn.poll_ms / 1000,
        )
        kind = Working
        if self.churn.are_workers:
            settings["max_poll_records"] = 20
        else:
            kind = self.rng.choice((Member, Member, Iterating))
        meddler = settings["value_deserializer"] = Meddler()
        one = kind(
            self,
            book,
            lambda: SafeConsumer(**self.lab.settings(**settings)),
            list(TOPICS),
        )
        one.meddler, one.instance = meddler, settings.get("group_instance_id")
        one.process, one.thread = self.lab.start(name, one.live)
        return one

    def stop(self, one):
        one.stop()

    def end_at_once(self, one):
        """Kill a member's process, or switch off its whole machine."""
        self.rng.choice((self.lab.kill, self.lab.lose))(one.process)

    def freeze_for(self, one, seconds):
        if one.process.is_able:
            one.book.log(f"frozen for {seconds} s")
            self.lab.freeze(one.process)
            self._disturb(one, seconds, lambda: self.lab.thaw(one.process))

    def calm(self, one):
        one.book.log("all is repaired")
        if one.is_worker:
            self._in_another_thread(one, one.calm_down)
        else:
            one.call("calm_down")
            one.call("subscribe", list(TOPICS))

    # Calls that only programs of this world make

    def scope(self):
        partitions = [f"{tp.topic}:{tp.partition}" for tp in self.logs.partitions()]
        return self.rng.choice([*partitions, *TOPICS, "@all", "re:t|x", "re:.*"])

    def pause_late(self):
        """Place a hold while a poll has read records but not yet returned them."""
        one = self.one()
        one.call("lift_all")  # otherwise the poll would read no records
        later = self.lab.world.call_later
        later(15, lambda: one.todo.append(lambda: self._pause_within_poll(one)))

    def _pause_within_poll(self, one):
        """Place a hold on some partitions during a poll that reads several partitions."""
        owner, tps = self.rng.choice(self.owners), sorted(one.book.owned)
        if one.is_calm or not tps:
            return
        for tp in tps:
            self.lab.append(tp, 5)
        one.nap(1)  # all responses arrive before the next poll
        scope = self.rng.choice([*TOPICS, *map(short, tps)])
        one.meddler.todo.append(lambda: one.is_calm or one.pause(owner, scope, None))
        self.lab.world.call_later(30, lambda: one.call("resume", owner, scope))

    def step_aside(self):
        """Commit and hold everything, and perhaps leave and rejoin, like a busy program."""
        one = self.one()
        topics = one.topics
        one.call("commit", "offsets")
        one.call("pause", "guard", "@all", None)
        if topics and self.rng.random() < 0.5:
            one.call("unsubscribe")
            one.call("subscribe", topics)
        for tp in sorted(one.book.owned):  # to stop it in the middle of a batch
            self.lab.append(tp, 60)

    def commit(self):
        """Commit, in one of three ways."""
        one, kind = self.one(), self.rng.choice(("sync", "async", "offsets"))
        one.call("commit", kind)

    def seek(self):
        self.one().call("seek")

    def subscribe(self):
        one = self.one()
        topics = self.rng.choice((["t"], ["t", "u"], ["u", "v"], list(TOPICS), []))
        if topics:
            one.call("subscribe", topics)
        else:
            one.call("unsubscribe")

    # Records and topics

    def produce(self):
        """Append records to most partitions."""
        for tp in self.logs.partitions():
            if self.rng.random() < 0.6:
                self.lab.append(tp, self.rng.choice((1, 3, 15, 60)))

    def write_transaction(self):
        partitions = [(topic, n) for topic in TOPICS for n in range(TOPICS[topic])]
        records = self.rng.choices(partitions, k=self.rng.choice((1, 4, 12)))
        self.transactional.call("write", records, self.rng.random() < 0.5)

    def retention(self):
        """Delete old records of a partition."""
        tp = self.rng.choice(sorted(self.logs.partitions()))
        log = self.logs.log(tp)
        self.logs.look()
        to = self.rng.randint(log.start, log.stable_end)
        self.lab.cluster.delete_before(*tp, to)
        self.logs.look()

    def add_partition(self):
        topic = self.rng.choice(list(TOPICS))
        count = len(self.lab.partitions(topic))
        if count < _MOST_PARTITIONS:
            self.lab.cluster.add_partitions(topic, count + 1)

    # Holds of the group

    def lag(self):
        """Delay a member's control topics, to let partitions arrive before a hold."""
        one, scope = self.one(), self.rng.choice(("@all", "t"))
        name = one.book.name
        late = self.lab.cluster.fail(
            "Fetch", delay=20, origin=name, client_id=f"{name}-control"
        )
        one.book.log("it reads the control topics late")
        self._disturb(one, 60, late.end)
        self.operator.call("hold", scope)
        self.operator.todo.append(lambda: self._subscribe_again(one))
        self.lab.world.call_later(60, self.group_lift)

    def _subscribe_again(self, one):
        """Let a member give up its partitions, and gain them again."""
        topics = one.topics
        if topics and not one.is_calm:
            one.call("unsubscribe")
            one.call("subscribe", topics)

    # Faults

    def _disturb(self, one, seconds, end):
        """Record a fault of one member, and end it later; several faults may overlap."""
        self._until(seconds, one.book.disturbance, end)

    def _trouble(self, seconds, end):
        """Record a fault of brokers, and end it later."""
        self._until(seconds, self.judge.trouble, end)

    def _until(self, seconds, disturbance, end):
        disturbance.begin()

        def over():
            disturbance.end(self.lab.now)
            end()

        self.lab.world.call_later(seconds, over)

    def reset(self):
        one = self.one()
        one.book.log("its connections are reset")
        self.lab.network.reset(one.process)

    def isolate(self):
        """Cut a process off from all brokers or from one, perhaps in one direction only."""
        hosts = self.rng.choice((self.lab.hosts, [self.rng.choice(self.lab.hosts)]))
        one, seconds = self.one(), self.rng.choice((2, 20, 50, 100))
        ways = self.rng.choice((("in", "out"), ("in", "out"), ("in",), ("out",)))
        one.book.log(f"isolated from {hosts} ({ways}) for {seconds} s")
        network, process = self.lab.network, one.process
        network.isolate(process, *hosts, ways=ways)
        self._disturb(one, seconds, lambda: network.heal(process, *hosts, ways=ways))

    def slow(self):
        """Slow down the network of a process, or restore its speed."""
        one = self.one()
        self.lab.network.slow(one.process, *self.rng.choice(((0, 0), (0.05, 0.4))))
        one.book.disturbance.note(self.lab.now)

    def answer_badly(self):
        """Make brokers answer with errors, late, or never."""
        api = self.rng.choice(sorted(_ERRORS))
        how = {"error": self.rng.choice(_ERRORS[api])}
        if self.rng.random() < 0.4:
            late = self.rng.choice((0.5, 5, 40))
            how = self.rng.choice(({"delay": late}, {"is_lost": True}))
        fault = self.lab.cluster.fail(api, count=self.rng.randint(1, 4), **how)
        self._log(f"{api} is answered with {how}")
        self._trouble(60, fault.end)

    def are_brokers_well(self):
        return self._down is None

    def fail_broker(self, node, failover, seconds):
        """Stop a broker; other brokers take over unless it returns earlier."""
        self._down = node
        self._log(f"broker {node} is down")
        self.lab.cluster.down(node, failover)
        self._trouble(seconds, self._up)

    def _up(self):
        node, self._down = self._down, None
        if node is not None:
            self.lab.cluster.up(node)

    def move(self):
        """Move a partition's leader, or the group's coordinator."""
        node = self.rng.randint(1, NODES)
        if node == self._down:
            return
        self.judge.trouble.note(self.lab.now)
        if self.rng.random() < 0.3:
            self._log(f"broker {node} coordinates")
            self.lab.cluster.move_coordinator(GROUP, node)
        else:
            tp = self.rng.choice(sorted(self.logs.partitions()))
            self._log(f"broker {node} leads {tp.topic}:{tp.partition}")
            self.lab.cluster.lead(*tp, node)

    def _log(self, line):
        for one in self.members:
            one.book.log(line)

    # The end

    def heal(self):
        self.lab.cluster.faults.clear()
        self._up()
        for one in [*self.members, *self.leaving]:
            self.lab.thaw(one.process)
            self.lab.network.heal(one.process)
            self.lab.network.slow(one.process, 0)

    def finish(self):
        """Wait until everything is delivered or committed; then stop all programs."""
        try:
            self.lab.until(self._is_all_read, 3000, "all is delivered")
        except AssertionError:
            self.forget_ended()
            self.members[-1].book.fail("P10", self._picture())
        members = [*self.members, *self.leaving]
        for one in members:
            one.stop()
        for outsider in (self.transactional, self.operator):
            if outsider is not None:
                outsider.is_over = True
        for one in members:
            one.thread.join(600)
            if one.thread.is_alive():
                one.book.fail("W8", "it did not end in 600 s")
        self.forget_ended()

    def _is_all_read(self):
        self.forget_ended()
        if not self.members:
            self.join()
        is_read = self._is_committed if self.churn.are_workers else self._is_delivered
        return all(is_read(tp) for tp in self.logs.partitions())

    def _is_committed(self, tp):
        at = self.logs.committed.get(tp, 0)
        return self.logs.has_read_all(tp, at, is_committed=False)

    def _is_delivered(self, tp):
        for one in self.members:
            mine = one.book.owned.get(tp)
            if mine is not None and one.book.held_since(tp) is None:
                at = min(mine.firsts) if mine.next is None else mine.next
                is_committed = one.book.is_committed
                return self.logs.has_read_all(tp, at, is_committed=is_committed)
        return False

    def _picture(self):
        """Return each partition's offsets and owners, to show why the test did not end."""
        lines = [f"{self.lab.cluster.groups.find(GROUP).state}"]
        for tp in self.logs.partitions():
            log = self.logs.log(tp)
            owned = {m.book.name: m.book.owned.get(tp) for m in self.members}
            at = self.logs.committed.get(tp)
            lines.append(f"{tp}: {log.start}-{log.end}, committed {at}, {owned}")
        return "\n  ".join(lines)


def churn(lab, what):
    """Run a churn test in a world; return the judge, which has found no violation."""
    nemesis = SimulatedNemesis(lab, what)
    # A controlled group takes five times as long to simulate, because each member
    # also reads the control topic.
    share = 1 / 3 if nemesis.is_controlled else 1.0
    nemesis.run(60 * what.minutes * share)
    nemesis.finish()
    nemesis.judge.check_coverage(what.wanted)
    return nemesis.judge
