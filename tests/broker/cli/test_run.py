"""Tests the command ``safeconsumer run``, which runs a worker, and how it exits."""

import contextlib
import json
import re
import signal
import socket
import uuid

import httpx2
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from safeconsumer.cli.errors import Status
from tests.harness.program import launched
from tests.harness.waiting import code_of, output_of, wait_for

SECONDS = 60
HANDLERS = """
import asyncio
import json
import os
import threading
import time
from pathlib import Path

from safeconsumer import Commit, Control, Drain, Retry, SafeConsumer, Worker
from safeconsumer._kafka.of_group.no_topics import NoTopicsClient

def made(kind=SafeConsumer):
    settings = json.loads(Path("settings.json").read_text())
    topic, prefix = settings.pop("topic"), settings.pop("prefix")
    control = None if prefix is None else Control.prefixed(prefix)
    return kind(topic, enable_auto_commit=False, control=control, **settings)

def note(record, context):
    with open("seen", "a") as file:
        file.write(f"{record.partition} {record.offset}\\n")
    if record.value == b"slow":
        time.sleep(3600)
    if record.value == b"bad":
        raise ValueError("planted")

def touch_once(condition, name):
    def wait():
        while not condition():
            time.sleep(0.01)
        Path(name).touch()

    threading.Thread(target=wait, daemon=True).start()

async def wait(record, context):
    note(record, context)

def noting():
    return Worker(made(), note)

def misspelt():
    settings = json.loads(Path("settings.json").read_text())
    topic, _ = settings.pop("topic"), settings.pop("prefix")
    settings |= {"enable_auto_commit": False, "kafka_client": NoTopicsClient}
    return Worker(SafeConsumer(f"{topic}x", **settings), note)

def waiting():
    return Worker(made(), wait, executor="asyncio", retry=Retry(attempts=1))

def hasty():
    return Worker(made(), note, drain=Drain(shutdown=0.1))

async def in_a_thread(record, context):
    await asyncio.to_thread(note, record, context)

def elsewhere():
    return patient(in_a_thread, executor="asyncio")

def fill_stderr():
    # Nobody reads stderr, a pipe, so the next log line blocks the thread that writes
    # it.
    os.set_blocking(2, False)
    try:
        while True:
            os.write(2, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(2, True)

def note_and_fill(record, context):
    note(record, context)
    fill_stderr()
    Path("filled").touch()

def clogged():
    return Worker(made(), note_and_fill, commit=Commit(every=3600))

def hanging():
    def hook(event):
        if type(event).__name__ == "WorkDrained":
            threading.Event().wait()

    return Worker(made(), note, on_event=hook, commit=Commit(every=3600))

def hanging_beside():
    def hook(event):
        if type(event).__name__ == "RecordRetried":
            time.sleep(1.1)  # after a second a hook counts as hanging
            Path("hangs").touch()
            threading.Event().wait()

    def fail(record, context):
        note(record, context)
        raise ValueError

    return Worker(made(), fail, on_event=hook)

class Standing(SafeConsumer):
    def poll(self, *given, **named):
        Path("stands").touch()
        while True:
            time.sleep(3600)

def standing():
    worker = Worker(made(Standing), note)

    touch_once(lambda: worker._stops, "asked")
    return worker

def patient(handle=note, **settings):
    worker = Worker(made(), handle, drain=Drain(shutdown=3600), **settings)

    touch_once(lambda: worker.stats().state == "draining", "draining")
    return worker
"""


class Program:
    """The command ``run`` in a folder with handlers, and the topic for its worker."""

    def __init__(self, folder, broker, topic, producer):
        self.folder, self.topic, self._producer = folder, topic, producer
        self.group = f"g-{topic}"
        self.started = []
        self.broker = broker
        (folder / "handlers.py").write_text(HANDLERS)

    def start(self, target="handlers:noting", *more, prefix=None):
        """Start a worker; with a prefix it obeys the control topics that have this prefix."""
        settings = {
            **self.broker.client_config,
            **self.broker.group_config,
            "session_timeout_ms": 30_000,  # long enough for a slow machine
            "topic": self.topic,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "prefix": prefix,
        }
        (self.folder / "settings.json").write_text(json.dumps(settings))
        process = launched(self.folder, "run", target, *more)
        self.started.append(process)
        return process

    def kill(self):
        for process in self.started:
            with process:  # this also closes the process's pipes
                process.kill()

    def produce(self, *values):
        """Write values to the first partition."""
        for value in values:
            self._producer.send(self.topic, value=value, partition=0).get(SECONDS)

    def wait_seen(self, count):
        """Wait until handlers have received this many records."""
        file = self.folder / "seen"

        def seen():
            return file.read_text().splitlines() if file.exists() else []

        wait_for(lambda: len(seen()) >= count, "the records", SECONDS, seen=seen)

    def wait_file(self, name):
        """Wait until the program has created a file."""
        wait_for((self.folder / name).exists, name, SECONDS)


def ended(process, status):
    """Wait until a process exits with this status; return its stderr."""
    with process:
        try:
            _, errors = output_of(process)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == status, errors
    return errors


def stopped(process, status=Status.DONE):
    """Stop a worker with SIGTERM; return its stderr."""
    process.send_signal(signal.SIGTERM)
    return ended(process, status)


@pytest.fixture
def program(tmp_path, kafka_broker, kafka_topic, make_producer):
    """Prepare the command; finally kill any processes that a failed test has left running."""
    topic = kafka_topic(partitions=2)
    program = Program(tmp_path, kafka_broker, topic, make_producer())
    yield program
    program.kill()


@pytest.mark.any_broker
def test_worker_finishes_its_handlers_and_commits_after_sigterm(program, make_consumer):
    program.produce(b"a", b"b", b"c")
    process = program.start()
    program.wait_seen(3)
    assert "3 handled" in stopped(process)
    consumer = make_consumer(KafkaConsumer, group=program.group)
    assert consumer.committed(TopicPartition(program.topic, 0)) == 3


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("handlers:patient", marks=pytest.mark.any_broker),
        pytest.param("handlers:elsewhere", marks=pytest.mark.embedded_suffices),
    ],
)
def test_worker_abandons_running_handlers_after_a_second_sigterm(program, target):
    program.produce(b"a", b"slow")
    process = program.start(target)
    program.wait_seen(2)
    process.send_signal(signal.SIGTERM)
    # Wait until the first signal is handled, because two pending SIGTERMs count as one.
    program.wait_file("draining")
    stopped(process, Status.FAILED)


@pytest.mark.contract("W8")
@pytest.mark.any_broker
def test_second_sigterm_ends_a_worker_whose_poll_never_returns(program):
    """A worker whose poll never returns cannot commit."""
    process = program.start("handlers:standing")
    program.wait_file("stands")
    process.send_signal(signal.SIGTERM)
    program.wait_file("asked")
    process.send_signal(signal.SIGTERM)
    assert code_of(process) == Status.FAILED


@pytest.mark.contract("W8")
@pytest.mark.any_broker
def test_one_sigterm_ends_a_worker_whose_hook_never_returns(program):
    """The worker commits the handled records, and its last line names the hook."""
    program.produce(b"a")
    process = program.start("handlers:hanging")
    program.wait_seen(1)
    line = r"1 handled.*; committed, .*does not return: <function hang"
    assert re.search(line, stopped(process))


@pytest.mark.contract("W8")
@pytest.mark.embedded_suffices
def test_hook_that_blocks_a_handlers_thread_is_named_once(program):
    program.produce(b"a")
    process = program.start("handlers:hanging_beside")
    program.wait_file("hangs")
    hooks = re.findall(r"does not return: <function (\w+)", stopped(process))
    assert hooks == ["hanging_beside"]


@pytest.mark.contract("W8")
@pytest.mark.any_broker
def test_one_sigterm_ends_a_worker_whose_stderr_is_full(program, make_consumer):
    """The worker commits the handled records, and leaves its group."""
    program.produce(b"a")
    process = program.start("handlers:clogged")
    program.wait_file("filled")
    process.send_signal(signal.SIGTERM)
    assert code_of(process) == Status.DONE
    consumer = make_consumer(KafkaConsumer, group=program.group)
    assert consumer.committed(TopicPartition(program.topic, 0)) == 1
    with contextlib.closing(KafkaAdminClient(**program.broker.client_config)) as admin:
        assert not admin.describe_groups([program.group])[program.group]["members"]


@pytest.mark.embedded_suffices
def test_last_line_of_a_worker_names_a_record_that_failed_for_good(program):
    program.produce(b"a", b"bad")
    errors = ended(program.start("handlers:waiting"), Status.FAILED)
    assert f"{program.topic}:0 offset 1 failed for good" in errors


@pytest.mark.any_broker
def test_worker_names_a_missing_topic_with_the_most_similar_name_and_waits(program):
    """The worker may suggest further names, because other topics may be similar, too."""
    process = program.start("handlers:misspelt")
    nearest = (
        f"safeconsumer: topic does not exist: {program.topic}x; did you mean "
        f"{program.topic}"
    )
    line = next(one for one in process.stderr if one.startswith(nearest))
    assert line.endswith("? (the worker waits)\n")
    stopped(process)


@pytest.mark.embedded_suffices
def test_probes_and_metrics_respond_over_http(program):
    program.produce(b"a", b"slow")
    process = program.start("handlers:hasty", "--probes=0")
    line = next(line for line in process.stderr if "probes at" in line)
    program.wait_seen(2)
    well = (200, {"alive": True, "reasons": []})
    with httpx2.Client(base_url=line.split()[-1]) as client:

        def probe(path):
            answer = client.get(path)
            return answer.status_code, answer.json()

        for path in ("/live", "/healthy"):
            wait_for(lambda path=path: probe(path) == well, path, SECONDS)
        of_this_one = r'running_records{client_id="[^"]+",group="[^"]+"} 1.0\n'
        assert re.search(of_this_one, client.get("/metrics").text)
        assert client.get("/else").status_code == 404
    stopped(process, Status.FAILED)


@pytest.mark.any_broker
def test_log_shows_the_start_offset_of_each_partition(program):
    starts = []
    for count in (1, 2):
        program.produce(b"v")
        process = program.start()
        program.wait_seen(count)
        lines = stopped(process).splitlines()
        starts.append(
            sorted(_start(one) for one in lines if "partition_started" in one)
        )
    assert starts == [
        [(f"{program.topic}:{n}", "0", "False") for n in (0, 1)],
        [(f"{program.topic}:0", "1", "True"), (f"{program.topic}:1", "0", "True")],
    ]


def _start(line):
    fields = dict(one.split("=", 1) for one in line.split() if "=" in one)
    return tuple(
        fields[one].strip("'") for one in ("partition", "offset", "is_committed")
    )


SILENT = """
from safeconsumer import SafeConsumer, Worker

def worker():
    consumer = SafeConsumer("t", group_id="g", bootstrap_servers="{}")
    return Worker(consumer, print)
"""


@pytest.mark.parametrize(
    ("arguments", "number", "status", "line"),
    [
        (["status"], signal.SIGINT, Status.INTERRUPTED, "interrupted"),
        (["run", "shop:worker"], signal.SIGTERM, Status.DONE, "stopped before the "),
    ],
    ids=["command", "worker"],
)
def test_signal_before_a_broker_responds_ends_the_program_with_its_usual_status(
    tmp_path, arguments, number, status, line
):
    """A supervisor would count a worker that a signal kills (status -15) as crashed."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(SECONDS)
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "shop.py").write_text(SILENT.format(server))
        where = [] if "run" in arguments else ["--bootstrap", server]
        process = launched(tmp_path, *arguments, *where)
        connection, _ = silent.accept()
        with connection:
            process.send_signal(number)
            last = ended(process, status).splitlines()[-1]
    assert last.startswith(f"safeconsumer: {line}")


@pytest.mark.any_broker
def test_worker_obeys_an_operators_hold_and_reports_quiet_partitions(program):
    prefix = f"p-{uuid.uuid4().hex[:8]}-"
    where = (f"--bootstrap={program.broker.bootstrap}", f"--topic-prefix={prefix}")

    def do(*arguments):
        ended(launched(program.folder, *arguments, *where), Status.DONE)

    do("control", "init")
    program.produce(b"v")
    process = program.start(prefix=prefix)
    program.wait_seen(1)
    group = f"--group={program.group}"
    do("pause", program.topic, "--reason=test", group)
    do("wait", "quiet", "--timeout=30s", group)
    stopped(process)
