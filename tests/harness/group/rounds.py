"""
Resets the offsets of a running group of processes while members and brokers fail.

Each round starts once all records are delivered and committed. A round holds topics,
writes some records, resets the group during a failure, waits until the reset is
complete, causes another failure, and lifts the hold. Then each partition must deliver
the records from its target onwards exactly once, and no other records. After a last
failure the group must deliver only new records. Only ``tests/sim/group`` tests late
commits, transactions, early lifts and repeated resets.
"""

import itertools
import time
from collections import Counter
from datetime import UTC, datetime

from attrs import field, frozen
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer.cli.errors import Status
from tests.harness.group.printing import PrintingMember
from tests.harness.group.team import Team, run
from tests.harness.waiting import LIMIT, wait_for

MEMBERS = 4
RECORDS = 5
KINDS = (
    "nothing",
    "join",
    "leave",
    "kill",
    "kill-all",
    "freeze",
    "all-down",
    "broker",
    "restart",
)
"""
The failures during a reset.
"""
OF_A_CLUSTER = ("coordinator", "coordinator-freeze")
"""
Further failures, which need several brokers.
"""
TARGETS = ("earliest", "latest", "back", "offset", "time")
_SESSION = 6.0


@frozen(kw_only=True)
class Result:
    """
    The result of a round.

    Attributes:
        kind: the failure that occurs during the reset.
        target: the target of the reset, as an argument of the command.
        moved: the number of partitions that were reset.
        seconds: the time from the command until the last partition was reset.
        faults: the broken promises, in human-readable form.
    """

    kind: str
    target: str
    moved: int
    seconds: float
    faults: list[str] = field(factory=list)


class Rounds:
    """
    A group of processes, with its topics and its broker; a context manager.

    Args:
        broker: the broker; the kind ``broker`` needs one that can be killed, and the
            kinds in ``OF_A_CLUSTER`` need a cluster.
        chance: the generator of all random draws.
        assignor: ``eager`` or ``cooperative``.
        is_static: whether the members have static ids.
        is_right: if False, a fault is planted in each member.
        log: the file to which the members log.
    """

    def __init__(  # noqa: PLR0913 - a round has many parameters
        self, broker, chance, assignor, log, *, is_static=False, is_right=True
    ):
        self._broker, self._chance, self._assignor = broker, chance, assignor
        self._is_static, self._is_right, self._log = is_static, is_right, log
        self._team = Team(broker, records=0)
        self._other = f"{self._team.topic}-other"
        broker.create_topic(self._other, 2)
        self._tps = [
            *self._team.partitions,
            *(TopicPartition(self._other, number) for number in range(2)),
        ]
        self._members, self._gone = {}, []
        self._names = (f"m{number}" for number in itertools.count())
        self._ends = dict.fromkeys(self._tps, 0)
        self._began = {tp: [] for tp in self._tps}
        self._expected = Counter()

    def __enter__(self):
        self._team.__enter__()
        self._produce(self._tps)
        for _ in range(MEMBERS):
            self._start()
        self._expect(dict.fromkeys(self._tps, 0))
        return self

    def __exit__(self, *_):
        for one in self._members.values():
            one.kill()
        self._team.__exit__()

    # ------------------------------------------------------------ members

    def _start(self, name=None):
        name = name or next(self._names)
        static = {"group_instance_id": name} if self._is_static else {}
        team = self._team
        settings = {
            **team.broker.client_config,
            "client_id": name,
            "group_id": team.group,
            "auto_commit_interval_ms": 200,
            "auto_offset_reset": "earliest",
            "partition_assignment_strategy": self._assignor,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 500,
            **static,
        }
        self._members[name] = PrintingMember(
            "kafka-python",
            settings,
            team.prefix,
            [team.topic, self._other],
            is_right=self._is_right,
            log=self._log,
        )

    def _any(self):
        return self._chance.choice(sorted(self._members))

    def _kill(self, name=None):
        name = name or self._any()
        self._members[name].kill()
        self._gone.append(self._members.pop(name))
        return name

    def _leave(self):
        one = self._members.pop(self._any())
        one.end(LIMIT)
        self._gone.append(one)

    def _let_all_leave(self):
        """Let all members leave; wait for the session timeouts of the killed members."""
        while self._members:
            self._leave()
        wait_for(self._is_empty, "the end of their sessions", pause=0.5)

    def _is_empty(self):
        return not self._team.look().facts.members

    def _replace(self):
        """Start or stop members until the group has its usual size."""
        while len(self._members) < MEMBERS:
            self._start()
        while len(self._members) > MEMBERS:
            self._leave()

    def arrived(self):
        """Return how many times each record was delivered, by partition and offset."""
        return Counter(
            (TopicPartition(topic, partition), offset)
            for one in self._all()
            for _, topic, partition, offset in list(one.lines)
        )

    def _all(self):
        return [*self._gone, *self._members.values()]

    # ------------------------------------------------------------ the operator

    def _operate(self, command, *arguments, is_tried=False):
        ended = run(
            self._team,
            command,
            *("--group", self._team.group, "--owner", "alice"),
            *arguments,
        )
        if not is_tried:
            assert (ended.exit_code, ended.stderr) == (Status.DONE, ""), ended.output
        return ended

    def committed(self):
        """Return the offsets that the group has committed."""
        with KafkaAdminClient(**self._broker.client_config) as admin:
            (found,) = admin.list_group_offsets([self._team.group]).values()
        return {tp: one.offset for tp, one in found.items() if tp in self._ends}

    def _has_committed(self, targets):
        committed = self.committed()
        return all(committed.get(tp) == at for tp, at in targets.items())

    def _produce(self, partitions):
        producer = KafkaProducer(**self._broker.client_config)
        try:
            time.sleep(0.002)  # lookups by time are precise to a millisecond
            now = datetime.now(UTC)
            for tp in partitions:
                self._began[tp].append((now, self._ends[tp]))
                for _ in range(RECORDS):
                    producer.send(tp.topic, b"x", partition=tp.partition)
                self._ends[tp] += RECORDS
            producer.flush(LIMIT)
            time.sleep(0.002)
        finally:
            producer.close(LIMIT)

    def _targets(self, kind, partitions, committed):
        """Draw a target; return the command's argument and each partition's target offset."""
        least = min(committed[tp] for tp in partitions)
        if kind == "earliest":
            return kind, dict.fromkeys(partitions, 0)
        if kind == "latest":
            return kind, {tp: self._ends[tp] for tp in partitions}
        if kind == "back":
            number = self._chance.randrange(1, least + 1)
            return f"-{number}", {tp: committed[tp] - number for tp in partitions}
        if kind == "offset":
            offset = self._chance.randrange(1, least + RECORDS + 1)
            return str(offset), dict.fromkeys(partitions, offset)
        several = self._began[partitions[0]]
        at, _ = self._chance.choice(several)
        offsets = {
            tp: next((first for then, first in self._began[tp] if then >= at), None)
            for tp in partitions
        }
        offsets = {
            tp: self._ends[tp] if one is None else one for tp, one in offsets.items()
        }
        return at.replace(tzinfo=None).isoformat(), offsets

    # ------------------------------------------------------------ a round

    def play(self, kind, target):
        """Play a round; return its result."""
        committed = self.committed()
        covered, scope = [*self._tps], "@all"
        if self._chance.random() < 0.5:
            covered, scope = [*self._team.partitions], self._team.topic
        self._operate("pause", scope, "--reason", "x")
        # Do not wait with a command, because a command would also wait for killed
        # members.
        wait_for(
            lambda: self._team.are_quiet(self._members, covered), "quiet", pause=0.2
        )
        self._produce(covered)
        typed, targets = self._targets(target, covered, committed)
        before = time.monotonic()
        faults = self._move(kind, typed, targets)
        faults += self._wait_until_moved()
        seconds = time.monotonic() - before
        faults += self._fail_again(targets)
        self._resume(scope)
        faults += self._expect(targets) + self._judge_more()
        return Result(
            kind=kind,
            target=typed,
            moved=len(covered),
            seconds=seconds,
            faults=faults + self._last_failure(),
        )

    def _move(self, kind, typed, targets):
        """Reset partitions during a failure; return the broken promises."""
        topics, faults = sorted({tp.topic for tp in targets}), []
        is_frozen = kind.endswith("freeze")
        frozen_one = self._members[self._any()] if is_frozen else None
        if is_frozen:
            frozen_one.freeze()
        if kind == "all-down":
            self._let_all_leave()
        forced = ["--force"] * is_frozen
        self._operate("reset-offsets", *topics, "--to", typed, *forced)
        if kind == "all-down" and not self._has_committed(targets):
            faults.append(f"not by the command itself: {self.committed()}")
        time.sleep(self._chance.choice([0.0, 0.05, 0.2, 0.4, 1.0]))
        self._fail(kind, frozen_one)
        return faults

    def _fail_again(self, targets):
        """Cause another failure after the reset; return the broken promises."""
        self._fail(self._chance.choice(["nothing", "join", "leave", "kill"]), None)
        self._replace()
        faults = self._wait_until_moved()
        if self.arrived() != self._expected:
            faults.append(f"came while held: {self.arrived() - self._expected}")
        if not self._has_committed(targets):
            faults.append(f"committed {self.committed()}, not {targets}")
        return faults

    def _resume(self, scope):
        """Lift the hold; retry while the command refuses the lift because of a rebalance."""

        def is_done():
            ended = self._operate("resume", scope, is_tried=True)
            reasons.append(ended.stderr)
            return ended.exit_code == Status.DONE

        reasons = []
        wait_for(is_done, "the lift", seen=lambda: reasons[-1], pause=0.5)

    def _fail(self, kind, frozen_one):
        if kind == "join":
            self._start()
        elif kind == "leave":
            self._leave()
        elif kind in {"kill", "kill-all"}:
            for name in [self._any()] if kind == "kill" else sorted(self._members):
                self._kill(name)
        elif kind == "restart":
            self._start(self._kill())
        elif kind == "broker":
            self._broker.kill()
            self._broker.restart()
        elif kind in OF_A_CLUSTER:
            self._move_coordinator(frozen_one)
        elif kind == "freeze":
            time.sleep(_SESSION + 2)
            frozen_one.thaw()
        if kind != "join":
            self._replace()

    def _move_coordinator(self, frozen_one):
        """Kill the group's coordinator; restart it after another broker has taken over."""
        cluster, group = self._broker, self._team.group
        fallen = cluster.coordinator_of(group)
        fallen.kill()
        wait_for(
            lambda: cluster.coordinator_of(group) not in {None, fallen},
            "another coordinator",
        )
        if frozen_one is not None:
            frozen_one.thaw()
        fallen.restart()
        wait_for(cluster.are_in_sync, "replicas in sync", pause=0.5)

    def _wait_until_moved(self):
        ended = run(
            self._team,
            *("wait", "moved", "--group", self._team.group, "--timeout", "90s"),
        )
        return [] if ended.exit_code == Status.DONE else [f"never: {ended.output}"]

    # ------------------------------------------------------------ judging

    def _expect(self, firsts):
        """Wait for the records from these offsets onwards; return the broken promises."""
        expected = Counter(
            (tp, offset)
            for tp, first in firsts.items()
            for offset in range(first, self._ends[tp])
        )
        self._expected += expected
        try:
            wait_for(lambda: self.arrived() >= self._expected, "all came", pause=0.2)
            wait_for(lambda: self.committed() == self._ends, "all committed", pause=0.2)
        except Exception as error:  # noqa: BLE001 - a round reports every error as a breach
            return [f"{error}: {self._expected - self.arrived()}; {self.committed()}"]
        return []

    def _judge_more(self):
        more = self.arrived() - self._expected
        self._expected += more
        return [f"came twice: {more}"] if more else []

    def _last_failure(self):
        """Cause a failure once all records are read; it must not repeat the reset."""
        kind = self._chance.choice(["nothing", "leave", "kill", "kill-all", "join"])
        self._fail(kind, None)
        self._replace()
        self._produce(self._tps)
        firsts = {tp: self._ends[tp] - RECORDS for tp in self._tps}
        faults = self._expect(firsts) + self._judge_more()
        return [f"after {kind}: {one}" for one in faults]
