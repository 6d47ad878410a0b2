"""
``safeconsumer run``: a worker process from the shell, and how it ends.
"""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import TopicPartition

from safeconsumer.cli.run import Status
from tests.cli.test_program import command

SECONDS = 60
HANDLERS = """
import time

def note(record, context):
    with open("seen", "a") as file:
        file.write(f"{record.partition} {record.offset}\\n")
    if record.value == b"slow":
        time.sleep(60)
    if record.value == b"bad":
        raise ValueError("planted")

async def wait(record, context):
    note(record, context)

nothing = None
"""


class Program:
    """
    The command in a folder with handlers, on a topic of its own.
    """

    def __init__(self, folder: Path, broker: Any, topic: str) -> None:  # noqa: ANN401
        self.folder, self.topic = folder, topic
        self.bootstrap = broker.bootstrap
        self.connection = ("--bootstrap", broker.bootstrap)
        (folder / "handlers.py").write_text(HANDLERS)
        (folder / "broken.py").write_text("def note(")
        config = {**broker.client_config, **broker.group_config}
        del config["bootstrap_servers"]
        self._settings = [
            f"--set={name}={json.dumps(value)}" for name, value in config.items()
        ]

    def start(
        self, handler: str = "handlers:note", *more: str
    ) -> subprocess.Popen[str]:
        arguments = [
            "run",
            handler,
            self.topic,
            *self.connection,
            "--group",
            f"g-{self.topic}",
            "--set=auto_offset_reset=earliest",
            *self._settings,
            *more,
        ]
        return subprocess.Popen(  # noqa: S603 - our own code
            command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    def wait_seen(self, count: int) -> None:
        deadline = time.monotonic() + SECONDS
        while len(self.seen()) < count:
            assert time.monotonic() < deadline, self.seen()
            time.sleep(0.02)

    def seen(self) -> list[str]:
        path = self.folder / "seen"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def program(
    tmp_path: Path,
    kafka_broker: Any,  # noqa: ANN401
    kafka_topic: Callable[..., str],
) -> Program:
    """
    Prepare the command.
    """
    return Program(tmp_path, kafka_broker, kafka_topic(partitions=2))


@pytest.fixture
def produce(program: Program, make_producer: Callable[..., Any]) -> Callable[..., None]:
    """
    Write values to the first partition.
    """
    producer = make_producer()

    def write(*values: bytes) -> None:
        for value in values:
            producer.send(program.topic, value=value, partition=0).get(SECONDS)

    return write


@pytest.mark.any_broker
def test_sigterm_drains_and_commits(
    program: Program,
    produce: Callable[..., None],
    make_consumer: Callable[..., Any],
) -> None:
    """
    Status 0, and what was done is committed.
    """
    from kafka import KafkaConsumer  # noqa: PLC0415  0.2 s, when needed

    produce(b"a", b"b", b"c")
    process = program.start()
    program.wait_seen(3)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == Status.DRAINED, told
    assert "3 done" in told
    asking = make_consumer(KafkaConsumer, group=f"g-{program.topic}")
    assert asking.committed(TopicPartition(program.topic, 0)) == 3


@pytest.mark.any_broker
def test_a_second_sigterm_stops_at_once(
    program: Program, produce: Callable[..., None]
) -> None:
    """
    With the status that says so, however long the handler sleeps.
    """
    produce(b"a", b"slow")
    process = program.start()
    program.wait_seen(2)
    process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.0)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == Status.GIVEN_UP, told
    assert time.monotonic() - began < 10


@pytest.mark.any_broker
def test_a_bad_record_ends_it_with_a_status(
    program: Program, produce: Callable[..., None]
) -> None:
    """
    And one line that names the record.
    """
    produce(b"a", b"bad")
    process = program.start("handlers:wait", "--attempts=1")
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == Status.FAILED, told
    assert f"{program.topic}:0 offset 1 failed for good" in told


@pytest.mark.any_broker
def test_probes_say_that_the_loop_turns(
    program: Program, produce: Callable[..., None], tmp_path: Path
) -> None:
    """
    The file is there and fresh, both paths answer, and the file goes at the end.
    """
    from safeconsumer.testing._ports import free_port  # noqa: PLC0415 - only here

    produce(b"a", b"slow")
    port, file = free_port(), tmp_path / "alive"
    process = program.start(
        "handlers:note",
        f"--probe-port={port}",
        f"--probe-file={file}",
        "--watch",
        "--drain=0.1",
    )
    program.wait_seen(2)
    for path in ("live", "healthy"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
            assert json.load(answer) == {"alive": True, "reasons": []}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert b"safeconsumer_worker_running_records 1\n" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/else")
    refused.value.close()  # an answer, too: Python 3.14 complains of an open one
    assert time.time() - file.stat().st_mtime < 10
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == Status.GIVEN_UP, told
    assert "/s lag=" in told
    assert not file.exists()


@pytest.mark.any_broker
@pytest.mark.parametrize(
    ("handler", "said"),
    [
        ("handlers", "is not MODULE:HANDLER"),
        ("missing:note", "cannot be imported"),
        ("handlers:missing", "cannot be imported"),
        ("handlers:nothing", "must be callable"),
        ("broken:note", "cannot be imported: SyntaxError"),
    ],
)
def test_a_handler_that_cannot_be(program: Program, handler: str, said: str) -> None:
    """
    Status 2, and one line.
    """
    process = program.start(handler)
    _, told = process.communicate(timeout=SECONDS)
    assert (process.returncode, said in told) == (Status.USAGE, True), told


@pytest.mark.any_broker
@pytest.mark.parametrize(
    "setting",
    [
        "no_such_setting=1",
        "max_poll_records=many",
        "session_timeout_ms=[1]",
        "check_crcs=yes",
        "isolation_level=some",
        "decoder=other",
        "auto_offset_reset=7",
        "group_id=other",
        "enable_auto_commit=true",
        "partition_assignment_strategy=range",
        "max_poll_interval_ms=1000",
    ],
)
def test_a_setting_that_cannot_be(program: Program, setting: str) -> None:
    """
    Status 2, and one line too.
    """
    process = program.start("handlers:note", f"--set={setting}")
    _, told = process.communicate(timeout=SECONDS)
    assert (process.returncode, "Traceback" in told) == (Status.USAGE, False), told
    assert len([line for line in told.splitlines() if "safeconsumer: " in line]) == 1


@pytest.mark.any_broker
def test_a_dead_letter_topic_among_the_consumed(program: Program) -> None:
    """
    Status 2: one bad record would go round for ever.
    """
    process = program.start("handlers:note", f"--dead-letter={program.topic}")
    _, told = process.communicate(timeout=SECONDS)
    assert (process.returncode, "is consumed here" in told) == (Status.USAGE, True)


@pytest.mark.any_broker
def test_the_cluster_may_stand_in_a_file(
    program: Program, produce: Callable[..., None]
) -> None:
    """
    As for the other commands: a password does not belong in ``ps``.
    """
    produce(b"v")
    (program.folder / "client.properties").write_text(
        f"bootstrap.servers={program.bootstrap}\n"
    )
    program.connection = ("--config", "client.properties")
    process = program.start()
    program.wait_seen(1)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=SECONDS)
    assert process.returncode == Status.DRAINED, told


def test_no_broker(tmp_path: Path) -> None:
    """
    Status 3.
    """
    (tmp_path / "handlers.py").write_text(HANDLERS)
    done = subprocess.run(  # noqa: S603 - our own code
        command("run", "handlers:note", "t", "--bootstrap=127.0.0.1:1", "--group=g"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == Status.UNREACHABLE
    assert "no Kafka broker answers" in done.stderr
