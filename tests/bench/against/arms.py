"""Members of the frameworks as processes, and what a group has done."""

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from attrs import frozen
from confluent_kafka.admin import AdminClient

from tests.bench.against.venvs import python_of

_ROOT = Path(__file__).parents[3]
_START_TIMEOUT = 120.0
_END_TIMEOUT = 40.0


@frozen
class Arm:
    """
    A way of running handlers.

    Attributes:
        name: for the table.
        framework: which.
        settings: what its loop is told beside the rest.
    """

    name: str
    framework: str
    settings: Mapping[str, object] = {}


class FrameworkMember:
    """A process; see :mod:`tests.bench.against.member`."""

    def __init__(self, arm: Arm, folder: Path, told: Mapping[str, object]) -> None:
        settings = {"session_ms": 6_000, "poll_ms": 300_000, **told, **arm.settings}
        self._name = arm.name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as we do
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [
                python_of(arm.framework, folder),
                "-m",
                "tests.bench.against.member",
                json.dumps({"framework": arm.framework, **settings}),
            ],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def wait_began(self) -> None:
        """
        Return once it has handled a record.

        Raises:
            RuntimeError: it ended before.
        """
        timer = threading.Timer(_START_TIMEOUT, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            self._errors.seek(0)
            errors = self._errors.read().decode("utf-8", "replace")
            message = f"{self._name} did not begin: {errors[-2000:]}"
            raise RuntimeError(message)

    def measured(self) -> dict[str, float]:
        """Wait for its end, and return what it measured; empty if it told nothing."""
        out, _ = self._process.communicate(timeout=_START_TIMEOUT)
        self._errors.close()
        lines = [json.loads(line) for line in out.splitlines()]
        return lines[-1] if lines and "count" in lines[-1] else {}

    @property
    def is_over(self) -> bool:
        """Whether it has ended, asked or not."""
        return self._process.poll() is not None

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a signal and wait for its end; by force if it does not come."""
        self._process.send_signal(number)
        try:
            self._process.communicate(timeout=_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._errors.close()


@frozen
class Account:
    """
    What a group has done with a topic's records.

    Attributes:
        handled: records handled at least once.
        again: how often one was handled that had been handled before, or will be: it is
            handled, and not committed at the end.
        lost: records below the committed offsets that nobody has handled.
    """

    handled: int
    again: int
    lost: int


def account(bootstrap: str, group: str, topic: str, trace: Path) -> Account:
    """Compare what was handled with what was committed."""
    lines = trace.read_text().splitlines() if trace.exists() else []
    seen = Counter(tuple(map(int, line.split())) for line in lines)
    committed = {
        one.partition: max(0, one.offset) for one in _committed(bootstrap, group, topic)
    }
    lost = sum(
        (partition, offset) not in seen
        for partition, end in committed.items()
        for offset in range(end)
    )
    again = sum(seen.values()) - len(seen)
    to_be = sum(offset >= committed[partition] for partition, offset in seen)
    return Account(len(seen), again + to_be, lost)


def _committed(bootstrap: str, group: str, topic: str) -> Any:  # noqa: ANN401 - untyped
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group}
    )
    try:
        parts = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        asked = [confluent_kafka.TopicPartition(topic, number) for number in parts]
        return consumer.committed(asked, timeout=10)
    finally:
        consumer.close()


class Roll:
    """
    Counts the members that a group has, three times a second, until it is closed.

    Attributes:
        members: every member id seen.
        empty: how often there was none, after the first.
    """

    def __init__(self, bootstrap: str, group: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._group = group
        self._over = threading.Event()
        self.members: set[str] = set()
        self.empty = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.33):
            asked = self._admin.describe_consumer_groups([self._group])
            try:
                there = {one.member_id for one in asked[self._group].result(5).members}
            except confluent_kafka.KafkaException:
                continue
            self.empty += bool(self.members and not there)
            self.members |= there

    def close(self) -> None:
        """Count no more."""
        self._over.set()
        self._thread.join()
