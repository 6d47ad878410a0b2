"""``safeconsumer run``: a worker process from the shell, and how it ends."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError
from kafka.net.selector import NetworkSelector
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka import login
from safeconsumer.cli import cluster
from safeconsumer.cli.errors import Status
from safeconsumer.cli.run import run
from tests.broker.cli.test_program import Drain, launched
from tests.harness.waiting import wait_for

SECONDS = 60
HANDLERS = """
import time

def note(record, context):
    with open("seen", "a") as file:
        file.write(f"{record.partition} {record.offset}\\n")
    if record.value == b"slow":
        time.sleep(3600)
    if record.value == b"bad":
        raise ValueError("planted")

def say(record, context):
    print("handled", record.offset, flush=True)
    note(record, context)

def hook(event):
    with open("events", "a") as file:
        file.write(f"{event.name}\\n")

class Invalid(Exception):
    pass

def refuse(record, context):
    note(record, context)
    raise Invalid

async def wait(record, context):
    note(record, context)

def leave(record, context):
    raise SystemExit(3)
"""


class Program:
    """The command in a folder with handlers, on a topic of its own."""

    def __init__(self, folder: Path, broker: Any, topic: str, producer: Any) -> None:  # noqa: ANN401
        self.folder, self.topic, self._producer = folder, topic, producer
        self.started: list[subprocess.Popen[str]] = []
        self.bootstrap = broker.bootstrap
        self.connection = ("--bootstrap", broker.bootstrap)
        (folder / "handlers.py").write_text(HANDLERS)
        # They stay members however slow the machine is.
        stays = {"session_timeout_ms": 30_000}
        config = {**broker.client_config, **broker.group_config, **stays}
        del config["bootstrap_servers"]
        self._settings = [
            f"--set={name}={json.dumps(value)}" for name, value in config.items()
        ]

    def start(
        self,
        handler: str = "handlers:note",
        *more: str,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
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
        process = launched(self.folder, *arguments, stdout=stdout, stderr=stderr)
        self.started.append(process)
        return process

    def kill(self) -> None:
        for process in self.started:
            with process:  # closes its pipes, too
                process.kill()

    def produce(self, *values: bytes) -> None:
        """Write values to the first partition."""
        for value in values:
            self._producer.send(self.topic, value=value, partition=0).get(SECONDS)

    def wait_seen(self, count: int) -> None:
        wait_for(
            lambda: len(self.seen()) >= count,
            f"{count} records seen",
            SECONDS,
            seen=self.seen,
        )

    def seen(self) -> list[str]:
        return self._lines("seen")

    def events(self) -> list[str]:
        return self._lines("events")

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def ended(process: subprocess.Popen[str], status: Status) -> str:
    """Wait for the end of a worker, and return what it said."""
    with process:
        try:
            _, told = process.communicate(timeout=SECONDS)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == status, told
    return told


def stopped(process: subprocess.Popen[str], status: Status = Status.DONE) -> str:
    """Stop a worker, and return what it said."""
    process.send_signal(signal.SIGTERM)
    return ended(process, status)


@pytest.fixture
def program(
    tmp_path: Path,
    kafka_broker: Any,  # noqa: ANN401
    kafka_topic: Callable[..., str],
    make_producer: Callable[..., Any],
) -> Iterator[Program]:
    """Prepare the command; what a failed test left of it is killed."""
    topic = kafka_topic(partitions=2)
    program = Program(tmp_path, kafka_broker, topic, make_producer())
    yield program
    program.kill()


@pytest.mark.any_broker
def test_sigterm_drains_and_commits(
    program: Program, make_consumer: Callable[..., Any]
) -> None:
    """Status 0, and what was done is committed."""
    from kafka import KafkaConsumer  # noqa: PLC0415  0.2 s, when needed

    program.produce(b"a", b"b", b"c")
    process = program.start()
    program.wait_seen(3)
    told = stopped(process)
    assert "3 handled" in told
    asking = make_consumer(KafkaConsumer, group=f"g-{program.topic}")
    assert asking.committed(TopicPartition(program.topic, 0)) == 3


@pytest.mark.any_broker
def test_a_second_sigterm_stops_at_once(program: Program) -> None:
    """With the status that says so, however long the handler sleeps."""
    program.produce(b"a", b"slow")
    process = program.start("handlers:note", "--watch", "--drain=3600")
    assert process.stderr is not None
    program.wait_seen(2)
    process.send_signal(signal.SIGTERM)
    # Two signals before the first is taken would be one.
    assert any(line.startswith("draining") for line in process.stderr)
    stopped(process, Status.GIVEN_UP)


@pytest.mark.embedded_suffices
def test_a_bad_record_ends_it_with_a_status(program: Program) -> None:
    """And one line that names the record."""
    program.produce(b"a", b"bad")
    process = program.start("handlers:wait", "--attempts=1")
    told = ended(process, Status.FAILED)
    assert f"{program.topic}:0 offset 1 failed for good" in told


@pytest.mark.embedded_suffices
def test_probes_say_that_the_loop_turns(program: Program, tmp_path: Path) -> None:
    """The file is there and fresh, both paths answer, and the file goes at the end."""
    from safeconsumer.testing._ports import free_port  # noqa: PLC0415 - only here

    program.produce(b"a", b"slow")
    port, file = free_port(), tmp_path / "alive"
    process = program.start(
        "handlers:note",
        f"--probe-port={port}",
        f"--probe-file={file}",
        "--watch",
        "--drain=0.1",
    )
    program.wait_seen(2)
    well = (200, {"alive": True, "reasons": []})
    for path in ("live", "healthy"):
        wait_for(lambda path=path: probed(port, path) == well, path, SECONDS)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert b"safeconsumer_worker_running_records 1.0\n" in answer.read()
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/else")
    refused.value.close()  # an answer, too: Python 3.14 complains of an open one
    os.utime(file, (0, 0))
    wait_for(lambda: file.stat().st_mtime > 0, "the file to be touched", SECONDS)
    told = stopped(process, Status.GIVEN_UP)
    assert "/s lag=" in told
    assert not file.exists()


def probed(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Return the status and what a probe says, be it well or not."""
    try:
        answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}")
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, json.load(answer)


@pytest.mark.embedded_suffices
def test_what_was_skipped_was_not_handled(program: Program) -> None:
    """The last line counts each record once."""
    program.produce(b"bad", b"a")
    process = program.start("handlers:note", "--attempts=1", "--on-exhausted=skip")
    program.wait_seen(2)
    assert "1 handled, 0 dead letters, 1 skipped" in stopped(process)


@pytest.mark.embedded_suffices
def test_a_port_that_is_taken_is_wrong_usage(program: Program) -> None:
    """Not a record that failed."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = program.start(
            "handlers:note", f"--probe-port={taken.getsockname()[1]}"
        )
        told = ended(process, Status.USAGE)
    assert "a probe cannot be set up: " in told


@pytest.mark.embedded_suffices
def test_a_hook_gets_every_event(program: Program) -> None:
    """Those of the worker and those of its consumer."""
    program.produce(b"v")
    process = program.start("handlers:note", "--hook=handlers:hook")
    program.wait_seen(1)
    stopped(process)
    assert {"rebalance_completed", "worker_stopped"} <= set(program.events())


@pytest.mark.any_broker
def test_it_says_where_each_partition_starts(program: Program) -> None:
    """A committed offset, or where ``auto_offset_reset`` has put it."""
    said = []
    for count in (1, 2):
        program.produce(b"v")
        process = program.start()
        program.wait_seen(count)
        told = stopped(process)
        said.append([line for line in told.splitlines() if " starts at " in line])
    reset = "the group has no committed offset, auto_offset_reset=earliest"
    assert [sorted(lines) for lines in said] == [
        [f"safeconsumer: {program.topic}:{n} starts at 0: {reset}" for n in (0, 1)],
        [
            f"safeconsumer: {program.topic}:0 starts at 1: committed",
            f"safeconsumer: {program.topic}:1 starts at 0: committed",
        ],
    ]


@pytest.mark.any_broker
def test_it_says_how_to_read_what_it_leaves_out(program: Program) -> None:
    """A new group begins behind what is there already, unless told otherwise."""
    program.produce(b"v")
    process = program.start("handlers:note", "--set=auto_offset_reset=latest")
    assert process.stderr is not None
    said: dict[int, str] = {}
    while len(said) < 2:
        line = process.stderr.readline()
        if found := re.search(rf"{program.topic}:(\d) starts at", line):
            said[int(found[1])] = line.rstrip()
    stopped(process)
    reset = "the group has no committed offset, auto_offset_reset=latest"
    more = (
        "; a new group with --set auto_offset_reset=earliest "
        "reads what is there already"
    )
    assert said[0].endswith(f":0 starts at 1: {reset}{more}")
    assert said[1].endswith(f":1 starts at 0: {reset}")
    new = program.start("handlers:note", f"--group=new-{program.topic}")
    program.wait_seen(1)
    stopped(new)


@pytest.mark.any_broker
def test_it_says_so_when_what_is_committed_is_out_of_range(
    program: Program, make_consumer: Callable[..., Any]
) -> None:
    """Where it really starts is the last that it says."""
    from kafka import KafkaConsumer  # noqa: PLC0415  0.2 s, when needed

    program.produce(b"v")
    tp = TopicPartition(program.topic, 0)
    asking = make_consumer(KafkaConsumer, group=f"g-{program.topic}")
    asking.assign([tp])
    asking.commit({tp: OffsetAndMetadata(1000, "", -1)})
    asking.close(autocommit=False)
    process = program.start()
    program.wait_seen(1)
    told = stopped(process)
    lines = [line for line in told.splitlines() if f"{tp.topic}:0 starts" in line]
    assert lines[-1].endswith(
        ":0 starts at 0: the committed offset is out of range, "
        "auto_offset_reset=earliest"
    )


@pytest.mark.any_broker
def test_a_topic_that_does_not_exist(program: Program) -> None:
    """Status 7 with its name, and it is not made."""
    program.topic = missing = f"{program.topic}-missing"
    for _ in range(2):
        process = program.start()
        told = ended(process, Status.MISSING)
        assert f"topic does not exist: {missing};" in told


@pytest.mark.any_broker
def test_a_topic_of_letters_that_does_not_exist(program: Program) -> None:
    """Rather than with the first record that fails."""
    missing = f"{program.topic}-missing"
    process = program.start("handlers:note", f"--dead-letter={missing}")
    told = ended(process, Status.MISSING)
    assert f"topic does not exist: {missing};" in told


@pytest.mark.embedded_broker
def test_a_letter_without_an_answer_does_not_hold_up_the_end(
    program: Program,
    kafka_topic: Callable[..., str],
    kafka_broker: Any,  # noqa: ANN401 - any kind
) -> None:
    """Nor does it take the place of the report, and of its status."""
    program.produce(b"bad")
    dead = kafka_topic(partitions=1)
    with kafka_broker.hold("Produce") as hold:
        process = program.start(
            "handlers:note",
            f"--dead-letter={dead}",
            "--drain=1",
            "--attempts=1",
        )
        hold.wait(1, SECONDS)
        process.send_signal(signal.SIGTERM)
        # A letter is waited for twice as long, by kafka-python's default.
        _, said = process.communicate(timeout=SECONDS)
    assert "KafkaTimeoutError" not in said
    assert "committed" in said.splitlines()[-1]
    assert process.returncode == 0


@pytest.mark.embedded_suffices
def test_a_handler_that_exits_has_no_status_of_its_own(program: Program) -> None:
    """3 would say that no broker answers, and nothing was committed."""
    program.produce(b"a")
    process = program.start("handlers:leave")
    told = ended(process, Status.FAILED)
    assert "safeconsumer: a handler ended the worker: SystemExit(3)" in told


def test_ctrl_c_before_a_broker_has_answered(tmp_path: Path) -> None:
    """130, as of every command."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(SECONDS)
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        asking = ("run", "handlers:note", "t", "--group=g", "--bootstrap", server)
        process = launched(tmp_path, *asking)
        asked, _ = silent.accept()
        with asked:
            process.send_signal(signal.SIGINT)
            assert ended(process, Status.INTERRUPTED) == "safeconsumer: interrupted\n"


def test_ctrl_c_in_the_lines_that_lock_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the ``try`` that would unlock it: closing failed, and hid the interrupt."""

    def interrupted(loop: Any, _timeout: float | None = None) -> None:  # noqa: ANN401 - kafka-python's
        if not loop._poll_lock.acquire(blocking=False):
            message = "Concurrent access to net.poll!"
            raise RuntimeError(message)
        raise KeyboardInterrupt

    monkeypatch.setattr(NetworkSelector, "_poll_once", interrupted)
    with pytest.raises(KeyboardInterrupt):
        login.trouble({"bootstrap_servers": "127.0.0.1:1"}, 1.0)


@pytest.mark.embedded_suffices
@pytest.mark.parametrize("options", [(), ("--watch",)])
def test_a_handlers_output_goes_to_stdout(
    program: Program, options: tuple[str, ...]
) -> None:
    """Also while the screen is drawn on."""
    program.produce(b"a", b"b")
    ours, its = pty.openpty()
    process = program.start("handlers:say", *options, stderr=its)
    os.close(its)
    drawn = Drain(ours)
    program.wait_seen(2)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=SECONDS)
    told = drawn.text()
    assert process.returncode == Status.DONE, told
    assert output == "handled 0\nhandled 1\n"
    assert "handled 0" not in told


@pytest.mark.embedded_suffices
def test_a_handlers_output_on_the_terminal_that_is_drawn_on(program: Program) -> None:
    """Above the drawing, where it stays to be read."""
    program.produce(b"a", b"b")
    ours, its = pty.openpty()
    process = program.start("handlers:say", "--watch", stdout=its, stderr=its)
    os.close(its)
    drawn = Drain(ours)
    program.wait_seen(2)
    process.send_signal(signal.SIGTERM)
    process.wait(SECONDS)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", drawn.text()).split()
    assert (process.returncode, lines.count("handled")) == (Status.DONE, 2)


def test_no_broker(tmp_path: Path) -> None:
    """Status 3."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    asking = ("run", "handlers:note", "t", "--bootstrap=127.0.0.1:1", "--group=g")
    told = ended(launched(tmp_path, *asking), Status.UNREACHABLE)
    assert "no Kafka broker answers" in told


@pytest.mark.embedded_suffices
def test_a_broker_that_falls_silent_before_the_topics_are_looked_at(
    kafka_broker: Any,  # noqa: ANN401 - any kind
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Status 3, too: the worker has not begun."""

    def silent(*_: object) -> None:
        error = "no answer in 30 s"
        raise KafkaTimeoutError(error)

    (tmp_path / "quietly.py").write_text(HANDLERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(cluster, "existing", silent)
    where = f"--bootstrap={kafka_broker.bootstrap}"
    ended = CliRunner().invoke(run, ["quietly:note", "t", where, "--group=g"])
    assert ended.exit_code == Status.UNREACHABLE, ended.output
    assert "no answer in 30 s" in ended.stderr


@pytest.mark.embedded_suffices
def test_metrics_without_their_package(program: Program, tmp_path: Path) -> None:
    """The probes answer, at a free port that is told; the metrics say what to install."""
    (tmp_path / "prometheus_client.py").write_text("raise ImportError\n")
    program.produce(b"a")
    process = program.start("handlers:note", "--probe-port=0")
    assert process.stderr is not None
    said = next(line for line in process.stderr if "probes at" in line)
    port = int(said.rpartition(":")[2])
    program.wait_seen(1)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
    with refused.value as answer:
        assert answer.code == 501
        assert b"pip install 'safeconsumer[metrics]'" in answer.read()
    wait_for(lambda: probed(port, "live?now=1")[1]["alive"], "it to be alive", SECONDS)
    stopped(process)
