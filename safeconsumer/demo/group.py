"""An operator pauses a whole group, and its members are restarted one after another."""

import json
import subprocess
import sys
import threading
import time
from typing import Any

from kafka import TopicPartition

from safeconsumer.demo.clients import SAFE
from safeconsumer.demo.stage import Stage
from safeconsumer.group import clients, topics
from safeconsumer.group.publisher import changes, new_hold, publish

_MEMBERS = 3
_PARTITIONS = 6
_RECORDS = 30
_WRITE_TIMEOUT = 10.0
# Longer than a fetch: what should not come would have come.
_LINGER = 1.0
_END_TIMEOUT = 10.0


def whole_group(stage: Stage) -> None:
    """Pause a group of three processes, restart each of them, and resume."""
    topic = stage.topic("orders", _PARTITIONS, records=_RECORDS)
    team = _Team(stage, topic)
    stage.at_end(team.close)
    stage.say("three processes join the group", team)
    for _ in range(_MEMBERS):
        team.start()
    team.until(team.is_settled, "three members with all partitions")
    team.until(lambda: stage.tally.missing() == 0, "the first records")
    team.pause()
    team.until(team.is_quiet, "the whole group to be quiet")
    stage.tally.paused(lambda _: True)
    team.say("paused; the members are restarted, one by one")
    stage.produce(records=_RECORDS)
    for _ in range(_MEMBERS):
        team.replace_first()
        team.until(team.is_settled, "a restarted member to have its share")
    team.until(lambda: team.has_lingered(_LINGER), "nothing")
    stage.tally.resumed()
    team.say("resumed")
    team.resume()
    team.until(lambda: stage.tally.missing() == 0, "all records")


class _Process:
    """One member's process, and its last report."""

    def __init__(self, name: str, popen: "subprocess.Popen[str]") -> None:
        self.name = name
        self.popen = popen
        self.owned: frozenset[int] = frozenset()
        self.quiet: frozenset[int] = frozenset()

    def tell(self, word: str) -> None:
        if self.popen.stdin is not None and self.popen.poll() is None:
            self.popen.stdin.write(word + "\n")
            self.popen.stdin.flush()


class _Team:
    """The processes of one group, and their operator."""

    def __init__(self, stage: Stage, topic: str) -> None:
        self._stage = stage
        self._topic = topic
        self._is_safe = stage.client.name == SAFE.name
        self._connection, self._member = stage.connection()
        self._topics = [
            stage.control_topic("ops", topics.HOLDS_SETTINGS),
            stage.control_topic("own", topics.HOLDS_SETTINGS),
            stage.control_topic("said", topics.STATUS_SETTINGS),
        ]
        self._processes: list[_Process] = []
        self._count = 0
        self._changed = time.monotonic()
        self._operator = clients.producer(self._connection, _WRITE_TIMEOUT)

    # what the panels ask of a consumer

    def assignment(self) -> set[TopicPartition]:
        return self._partitions("owned")

    def paused(self) -> set[TopicPartition]:
        return self._partitions("quiet")

    def _partitions(self, which: str) -> set[TopicPartition]:
        return {
            TopicPartition(self._topic, number)
            for one in tuple(self._processes)
            for number in getattr(one, which)
        }

    # ------------------------------------------------------------ processes

    def start(self) -> None:
        self._count += 1
        name = f"member-{self._count}"
        ops, own, said = self._topics
        options = {
            "client": self._stage.client.name,
            "topic": self._topic,
            "configs": {**self._member, "client_id": name},
            "control": {
                "operator_topic": ops,
                "group_topic": own,
                "status_topic": said,
                "client_configs": {"fetch_max_wait_ms": 50},
            },
        }
        popen = subprocess.Popen(  # noqa: S603 - our own module
            [
                sys.executable,
                "-m",
                "safeconsumer.demo.group_member",
                json.dumps(options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        process = _Process(name, popen)
        self._processes.append(process)
        threading.Thread(target=self._hear, args=(process,), daemon=True).start()

    def replace_first(self) -> None:
        first = self._processes.pop(0)
        self._end(first)
        self.start()

    def close(self) -> None:
        for one in self._processes:
            self._end(one)
        self._operator.close(timeout=2)

    def _end(self, one: _Process) -> None:
        one.tell("end")
        try:
            one.popen.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            one.popen.kill()
            one.popen.wait(_END_TIMEOUT)
        for pipe in (one.popen.stdin, one.popen.stdout):
            if pipe is not None:
                pipe.close()

    def _hear(self, process: _Process) -> None:
        try:
            for line in process.popen.stdout or ():
                self._note(process, json.loads(line))
        except ValueError:  # closed while it was read: it has ended
            return

    def _note(self, process: _Process, said: dict[str, Any]) -> None:
        tally = self._stage.tally
        for number, offset in said.get("committed", {}).items():
            tally.committed({TopicPartition(self._topic, int(number)): offset})
        if "owned" not in said:
            return
        for number, offsets in said["delivered"].items():
            for offset in offsets:
                tp = TopicPartition(self._topic, int(number))
                tally.delivered(process.name, tp, offset)
        process.owned = frozenset(said["owned"])
        process.quiet = frozenset(said["quiet"])
        self._changed = time.monotonic()

    # ------------------------------------------------------------ the operator

    def pause(self) -> None:
        """With the stock client somebody must tell every process; none will remember."""
        if self._is_safe:
            self._write(new_hold("db migration", None))
        else:
            self._tell("pause")

    def resume(self) -> None:
        if self._is_safe:
            self._write(None)
        else:
            self._tell("resume")

    def _write(self, hold: Any) -> None:  # noqa: ANN401 - or None
        wanted = changes(self._stage.prefix + "group", "operator", ["@all"], hold)
        publish(lambda: self._operator, self._topics[0], wanted, _WRITE_TIMEOUT)

    def _tell(self, word: str) -> None:
        for one in self._processes:
            one.tell(word)

    # ------------------------------------------------------------ waiting

    def say(self, step: str) -> None:
        self._stage.say(step, self)

    def until(self, condition: Any, what: str) -> None:  # noqa: ANN401 - a function
        def turn() -> None:
            self._stage.rest(0.05)
            self._stage.show(self)

        self._stage.until(condition, what, turn)

    def is_settled(self) -> bool:
        owned = [number for one in self._processes for number in one.owned]
        return len(owned) == _PARTITIONS == len(set(owned)) and all(
            one.owned for one in self._processes
        )

    def is_quiet(self) -> bool:
        return self.is_settled() and self.paused() == self.assignment()

    def has_lingered(self, seconds: float) -> bool:
        return time.monotonic() - self._changed > seconds
