"""The benchmark of the Spark source runs, whatever it measures."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient

from tests.bench.stage import send

_ROOT = Path(__file__).parents[3]
_ROWS = ["read-1000-lz4"]
_TIMEOUT = 240.0


@pytest.mark.spark
@pytest.mark.real_broker
@pytest.mark.timeout(_TIMEOUT + 30)
def test_rows_are_measured_and_reported_as_json(
    kafka_broker: Any,  # noqa: ANN401 - any real one
    tmp_path: Path,
) -> None:
    """A small run of one row gives its figures; it has a session of its own."""
    path = tmp_path / "figures.json"
    bootstrap = ",".join(kafka_broker.client_config["bootstrap_servers"])
    command = [sys.executable, "-m", "tests.bench", "spark", "--smoke"]
    command += ["--bootstrap", bootstrap, "--json", str(path)]
    done = subprocess.run(  # noqa: S603 - our own module
        [*command, "--only-spark", *_ROWS],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(path.read_text(encoding="utf-8"))
    assert list(dict.fromkeys(one["row"] for one in result["figures"])) == _ROWS
    assert all(one["measured"] > 0 for one in result["figures"])
    with KafkaAdminClient(**kafka_broker.client_config) as admin:
        left = [name for name in admin.list_topics() if name.startswith("bench-")]
    assert left == []


class Full:
    """A producer whose queue has room for one record until it is polled."""

    def __init__(self) -> None:
        self.queue: list[object] = []
        self.sent: list[object] = []

    def produce(self, topic: str, *, value: object) -> None:
        if self.queue:
            raise BufferError(topic)
        self.queue.append(value)

    def poll(self, _: float) -> None:
        self.sent += self.queue
        self.queue.clear()


def test_a_full_queue_is_waited_for() -> None:
    """Every record gets in, in order: a broker may be slower than a loop in Python."""
    producer: Any = Full()
    for number in range(3):
        send(producer, "orders", value=number)
    assert producer.sent + producer.queue == [0, 1, 2]
