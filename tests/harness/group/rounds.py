"""
Rounds of resets: a live group of processes is moved while somebody hurts it.

Each round begins where everything is delivered and committed. It holds topics, writes
some records, moves the group, hurts it, waits until it is moved, hurts it again, and
lifts the hold. After that each partition must have given the records from its target on,
once, and nothing else; and once more after a last blow.
"""

import itertools
import json
import time
from collections import Counter
from datetime import UTC, datetime

from attrs import field, frozen
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from safeconsumer.cli.errors import Status
from tests.harness.group.team import Team, run
from tests.harness.processes import Process, module
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
    "twice",
    "lift-early",
    "late-commit",
    "transaction",
)
"""
What is done to a group while it is moved.
"""
OF_A_CLUSTER = ("coordinator", "coordinator-freeze")
"""
More of them, where there are several brokers.
"""
TARGETS = ("earliest", "latest", "back", "offset", "time")
_SESSION = 6.0


@frozen(kw_only=True)
class Result:
    """
    How a round went.

    Attributes:
        kind: what was done to the group.
        target: where it was moved, as a command takes it.
        moved: how many partitions were moved.
        seconds: how long that took, from the command on.
        faults: what was wrong, as text for people.
    """

    kind: str
    target: str
    moved: int
    seconds: float
    faults: list[str] = field(factory=list)


class Rounds:
    """
    A group of processes, its topics and its broker; a context manager.

    Args:
        broker: the broker; one that can be killed, for the kind ``broker``; a cluster for
            the kinds of a cluster.
        chance: draws.
        assignor: ``eager`` or ``cooperative``.
        is_static: whether members are static.
        is_right: False plants a fault in each member.
        log: where members write their log lines.
    """

    def __init__(  # noqa: PLR0913 - a round is of all of them
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
        self.kills = 0

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
        configs = {
            **team.broker.client_config,
            "client_id": name,
            "group_id": team.group,
            **static,
        }
        topics = [team.topic, self._other]
        given = (self._assignor, team.prefix, topics, self._is_right, configs)
        command = module(
            "tests.harness.group.resetting_member", *map(json.dumps, given)
        )
        self._members[name] = Process(command, read=json.loads, log=self._log)

    def _any(self):
        return self._chance.choice(sorted(self._members))

    def _kill(self, name=None):
        name = name or self._any()
        self.kills += 1
        self._members[name].kill()
        self._gone.append(self._members.pop(name))
        return name

    def _leave(self):
        one = self._members.pop(self._any())
        one.end(LIMIT)
        self._gone.append(one)

    def _let_all_leave(self):
        """Leave the group without members: one that was killed goes with its session."""
        while self._members:
            self._leave()
        wait_for(self._is_empty, "the end of their sessions", pause=0.5)

    def _is_empty(self):
        return not self._team.look().facts.members

    def _replace(self):
        """Start what is missing, and let those leave that are too many."""
        while len(self._members) < MEMBERS:
            self._start()
        while len(self._members) > MEMBERS:
            self._leave()

    def came(self):
        """Return how often each record came, by partition and offset."""
        said = (line for one in self._all() for line in one.lines)
        return Counter(
            (TopicPartition(topic, partition), offset)
            for topic, partition, offset in (
                one["record"] for one in said if "record" in one
            )
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
            time.sleep(0.002)  # a time is looked up by milliseconds
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
        """Draw where partitions are moved; return it as a command takes it, and offsets."""
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
        """Play a round, and return its result."""
        committed = self.committed()
        covered, scope = [*self._tps], "@all"
        if self._chance.random() < 0.5:
            covered, scope = [*self._team.partitions], self._team.topic
        self._operate("pause", scope, "--reason", "x")
        # Commands also await those that were killed.
        wait_for(
            lambda: self._team.are_quiet(self._members, covered), "quiet", pause=0.2
        )
        self._produce(covered)
        typed, targets = self._targets(target, covered, committed)
        before = time.monotonic()
        faults = self._move(kind, typed, targets)
        if kind == "lift-early":
            self._operate("resume", scope, "--force")
            seconds = 0.0
            faults += self._judge_lifted(committed, targets)
        else:
            faults += self._wait_until_moved()
            seconds = time.monotonic() - before
            faults += self._hurt_again(kind, committed, targets)
            self._resume(scope)
            faults += self._judge(targets)
            if kind == "late-commit":
                faults += self._commit_late(targets, is_held=False)
        return Result(
            kind=kind,
            target=typed,
            moved=len(covered),
            seconds=seconds,
            faults=faults + self._last_blow(),
        )

    def _move(self, kind, typed, targets):
        """Move partitions while somebody hurts the group; return what is wrong."""
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
        if kind == "twice":
            targets |= self._again(topics)
        self._hurt(kind, frozen_one)
        return faults

    def _hurt_again(self, kind, committed, targets):
        """Hurt a group that was moved, under the hold; return what is wrong."""
        faults = []
        if kind == "late-commit":
            faults += self._commit_late(committed, is_held=True)
        elif kind == "transaction":
            faults += self._commit_in_a_transaction(committed, targets)
        else:
            self._hurt(self._chance.choice(["nothing", "join", "leave", "kill"]), None)
            self._replace()
        faults += self._wait_until_moved()
        if self.came() != self._expected:
            faults.append(f"came while held: {self.came() - self._expected}")
        if not self._has_committed(targets):
            faults.append(f"committed {self.committed()}, not {targets}")
        return faults

    def _resume(self, scope):
        """Lift the hold; while the group rebalances it is refused, with that reason."""

        def is_done():
            ended = self._operate("resume", scope, is_tried=True)
            reasons.append(ended.stderr)
            return ended.exit_code == Status.DONE

        reasons = []
        wait_for(is_done, "the lift", seen=lambda: reasons[-1], pause=0.5)

    def _again(self, topics):
        """Move one of the topics once more, under the same hold."""
        topic = self._chance.choice(topics)
        offset = self._chance.randrange(1, RECORDS + 1)
        self._operate("reset-offsets", topic, "--to", str(offset))
        return {tp: offset for tp in self._tps if tp.topic == topic}

    def _hurt(self, kind, frozen_one):
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
        """Kill the coordinator's broker; it comes back when another one coordinates."""
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

    def _commit_late(self, offsets, *, is_held):
        """Let members commit what is from before the reset; it must be refused."""
        offsets = {
            tp: at if is_held else at - 1 for tp, at in offsets.items() if at > 0
        }
        before = self.committed()
        offsets = {tp: at for tp, at in offsets.items() if before[tp] != at}
        line = json.dumps([[*tp, at] for tp, at in offsets.items()])
        for one in self._members.values():
            one.lines.append({"asked": line})
            one.tell(line)

        def answers(one):
            last = max(n for n, said in enumerate(one.lines) if "asked" in said)
            return [said["refused"] for said in one.lines[last:] if "refused" in said]

        members = [*self._members.values()]
        wait_for(
            lambda: all(len(answers(one)) == len(offsets) for one in members),
            "answers to late commits",
        )
        if all(None not in answers(one) for one in members):
            return []
        return [f"an old commit was accepted: {line}; committed: {self.committed()}"]

    def _commit_in_a_transaction(self, offsets, targets):
        producer = KafkaProducer(
            **self._broker.client_config, transactional_id=self._team.group
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
            old = {tp: OffsetAndMetadata(at, "", -1) for tp, at in offsets.items()}
            producer.send_offsets_to_transaction(old, self._team.group)
            producer.commit_transaction()
        finally:
            producer.close(LIMIT)
        wait_for(
            lambda: self._has_committed(targets),
            "put right",
            seen=self.committed,
            pause=0.5,
        )
        return []

    # ------------------------------------------------------------ judging

    def _expect(self, firsts):
        """Wait for the records from some offsets on; return what is wrong."""
        expected = Counter(
            (tp, offset)
            for tp, first in firsts.items()
            for offset in range(first, self._ends[tp])
        )
        self._expected += expected
        try:
            wait_for(lambda: self.came() >= self._expected, "all came", pause=0.2)
            wait_for(lambda: self.committed() == self._ends, "all committed", pause=0.2)
        except Exception as error:  # noqa: BLE001 - a round judges
            return [f"{error}: {self._expected - self.came()}; {self.committed()}"]
        return []

    def _judge(self, targets):
        faults = self._expect(targets)
        return faults + self._judge_more()

    def _judge_more(self):
        more = self.came() - self._expected
        self._expected += more
        return [f"came twice: {more}"] if more else []

    def _judge_lifted(self, before, targets):
        """Judge a hold that was lifted at once: each partition is moved, or is not."""
        came = self._expected.copy()

        def has_ended():
            return all((tp, self._ends[tp] - 1) in self.came() - came for tp in waited)

        waited = [tp for tp in targets if targets[tp] < self._ends[tp]]
        try:
            wait_for(lambda: self.committed() == self._ends, "committed", pause=0.2)
            wait_for(has_ended, "all came", pause=0.2)
        except Exception as error:  # noqa: BLE001 - a round judges
            return [f"{error}: {self.came() - came}; {self.committed()}"]
        time.sleep(1.0)  # what is committed was said, and is being read
        firsts = {}
        for tp, target in targets.items():
            found = [offset for other, offset in (self.came() - came) if other == tp]
            is_moved = not found or min(found) == target
            firsts[tp] = target if is_moved else before[tp]
        return self._expect(firsts) + self._judge_more()

    def _last_blow(self):
        """Hurt a group that has read all: nobody moves it again."""
        kind = self._chance.choice(["nothing", "leave", "kill", "kill-all", "join"])
        self._hurt(kind, None)
        self._replace()
        self._produce(self._tps)
        firsts = {tp: self._ends[tp] - RECORDS for tp in self._tps}
        faults = self._expect(firsts) + self._judge_more()
        return [f"after {kind}: {one}" for one in faults]
