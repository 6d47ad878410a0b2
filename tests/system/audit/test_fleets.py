"""Runs fleets on Apache Kafka, kills their pods, and audits their journals."""

import json
import threading
import time
from contextlib import ExitStack, closing, suppress
from uuid import uuid4

import pytest
from click.testing import CliRunner
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer.cli.commands import safeconsumer
from tests.harness.audit.journals import read
from tests.harness.group.team import Team
from tests.harness.processes import Process, module
from tests.system.audit.pod import FLEETS

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.real_broker,
    pytest.mark.contract("S5"),
    pytest.mark.timeout(900),
]

PODS = PARTITIONS = 3
ROUNDS = 6
# Seconds between two kills; for comparison, a log cleaner checks for work every 15 s.
ROUND = 12.0
KEYS = 7
# The number of records that each transaction writes to each partition; an aborted
# transaction leaves a gap.
PER_TURN = 10
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
}


class Fleets:
    """
    The fleets' topics, their producers and their pods; a context manager.

    Attributes:
        topics: the topic of each fleet.
        groups: the group of each fleet.
    """

    def __init__(self, broker, folder):
        self._broker, self._folder = broker, folder
        self._closing, self._over = ExitStack(), threading.Event()
        self.team = self._closing.enter_context(Team(broker, PARTITIONS, records=0))
        made = {fleet: f"{fleet}-{uuid4().hex[:8]}" for fleet in FLEETS}
        self.topics = made | {"held": self.team.topic}
        self.groups = made | {"held": self.team.group}
        self._admin = KafkaAdminClient(**broker.client_config)
        self._closing.callback(self._admin.close)
        self._plain = KafkaProducer(**broker.client_config)
        self._closing.callback(self._plain.close)
        self._pods = {}
        self._producing = threading.Thread(target=self._produce)

    def __enter__(self):
        count = {"num_partitions": PARTITIONS, "replication_factor": -1}
        wanted = {
            name: {**count, "configs": COMPACTED if fleet == "compacted" else {}}
            for fleet, name in self.topics.items()
            if fleet != "held"
        }
        self._admin.create_topics(wanted, wait_for_metadata=True)
        self._producing.start()
        for number in range(PODS):
            self.start(number)
        return self

    def __exit__(self, *_):
        self._over.set()
        for pod in self._pods.values():
            pod.kill()
        self._producing.join()
        self._closing.close()

    # ------------------------------------------------------------ records

    def _produce(self):
        settings = {**self._broker.client_config, "transactional_id": uuid4().hex}
        with closing(KafkaProducer(**settings)) as transactional:
            transactional.init_transactions()
            number = 0
            while not self._over.wait(0.5):
                number += 1
                transactional.begin_transaction()
                for fleet, topic in self.topics.items():
                    by = transactional if fleet == "compacted" else self._plain
                    self._write(by, topic, number)
                if number % 3:
                    transactional.commit_transaction()
                else:
                    transactional.abort_transaction()

    @staticmethod
    def _write(producer, topic, number):
        for at in range(PER_TURN * PARTITIONS):
            key = b"%d" % ((number + at) % KEYS)
            producer.send(topic, b"x", key=key, partition=at % PARTITIONS)

    def delete(self):
        """Delete most of the records that the slow fleet has not read yet."""
        tps = [TopicPartition(self.topics["deleted"], n) for n in range(PARTITIONS)]
        ends = self._admin.list_partition_offsets(dict.fromkeys(tps, -1))
        self._admin.delete_records({tp: max(0, ends[tp].offset - 30) for tp in tps})

    # ------------------------------------------------------------ pods

    def start(self, number, groups=None):
        """Start a pod with a member in each of these groups, by default in every fleet's."""
        plan = {
            "number": number,
            "folder": str(self._folder),
            "topics": self.topics,
            "groups": groups or self.groups,
            "prefix": self.team.prefix,
            "client": self._broker.client_config,
        }
        log = self._folder.parent / f"pod-{number}.log"
        command = [*module("tests.system.audit.pod"), json.dumps(plan)]
        self._pods[number] = Process(command, log=log)
        assert self._pods[number].take(120.0) == "runs"

    def kill(self, number):
        """Kill a pod with SIGKILL."""
        self._pods[number].kill()

    def end(self):
        """Stop all pods; return for each whether it exited in time and without an error."""
        for pod in self._pods.values():
            pod.begin_to_end()
        return [
            pod.wait(120.0) and pod._popen.returncode == 0
            for pod in self._pods.values()
        ]


def play(fleets):
    """In each round kill a pod and delete records; in some rounds also hold a group."""
    for number in range(ROUNDS):
        if number == 1:
            fleets.team.operator_holds("@all")
        elif number == ROUNDS - 2:
            fleets.team.operator_lifts("@all")
        time.sleep(ROUND)
        with suppress(KafkaError):
            fleets.delete()
        fleets.kill(number % PODS)
        fleets.start(number % PODS)
    fleets.start(PODS, {"compacted": f"late-{uuid4().hex[:8]}"})
    time.sleep(ROUND)


def judged(fleets, folder, *more):
    where = ("--bootstrap", fleets.team.broker.bootstrap)
    done = CliRunner().invoke(safeconsumer, ["audit", str(folder), *where, *more])
    return done.exit_code, done.output


def events_of(folder):
    journals = [read(path) for path in folder.glob("*.journal")]
    return {one.event for journal in journals for one in journal.lines}


def widest_gap(folder):
    """Return the length of the longest run of offsets without a record."""
    holes = [(0, 0)]
    for one in (one for path in folder.glob("*.journal") for one in read(path).lines):
        if one.event == "deliver":
            holes += [(one["from"], one["first"]), *(one["gaps"] or ())]
    return max(end - start for start, end in holes)


def named_by_others(folder):
    """Return the journals that other journals name in the notes of committed offsets."""
    journals = [read(path) for path in folder.glob("*.journal")]
    notes = {
        note.rpartition("#")[0]
        for journal in journals
        for one in journal.lines
        if one.event == "committed"
        for note in (one["notes"] or {}).values()
        if not note.startswith(f"{journal.member}#")
    }
    return sorted(
        path for path in folder.glob("*.journal") if read(path).member in notes
    )


def test_audit_passes_fleets_whose_pods_were_killed(kafka_broker, tmp_path):
    """The audit passes every kind of fleet, and names a journal that the test has deleted."""
    folder = tmp_path / "journals"
    with Fleets(kafka_broker, folder) as fleets:
        play(fleets)
        assert all(fleets.end())
        control = (
            "--control",
            "--topic-prefix",
            fleets.team.prefix,
            "--patience",
            "20s",
        )
        verdicts = {
            fleet: judged(fleets, folder / fleet, *(control if fleet == "held" else ()))
            for fleet in FLEETS
        }
        (tmp_path / "verdicts.json").write_text(json.dumps(verdicts, indent=1))
        assert {fleet: one for fleet, one in verdicts.items() if one[0]} == {}
        assert "log_start" in events_of(folder / "deleted")
        assert "transactional" in events_of(folder / "compacted")
        assert widest_gap(folder / "compacted") > 2 * PER_TURN
        assert "dropped" in events_of(folder / "working")
        gone = named_by_others(folder / "dynamic")[0]
        name = read(gone).member
        gone.unlink()
        status, output = judged(fleets, folder / "dynamic")
    assert status == 2
    assert f"the journal of {name} is missing" in output
