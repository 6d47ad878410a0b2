"""``safeconsumer run``: a worker process from the shell, and how it ends."""

import contextlib
import json
import re
import signal
import socket
import urllib.error
import urllib.request
import uuid

import pytest
from kafka import TopicPartition

from safeconsumer._kafka.network import NetworkSelector
from safeconsumer._kafka.of_group import login
from safeconsumer.cli.errors import Status
from tests.broker.cli.test_program import launched
from tests.harness.waiting import wait_for

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
    # It is a pipe that nobody reads: the next line of the log blocks whoever writes it.
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
            time.sleep(1.1)  # from then on it counts as one that does not return
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

    def tell():
        while not worker._stops:
            time.sleep(0.01)
        Path("asked").touch()

    threading.Thread(target=tell, daemon=True).start()
    return worker

def patient(handle=note, **settings):
    worker = Worker(made(), handle, drain=Drain(shutdown=3600), **settings)

    def tell():
        while worker.stats().state != "draining":
            time.sleep(0.01)
        Path("draining").touch()

    threading.Thread(target=tell, daemon=True).start()
    return worker
"""


class Program:
    """The command in a folder with handlers, on a topic of its own."""

    def __init__(self, folder, broker, topic, producer):
        self.folder, self.topic, self._producer = folder, topic, producer
        self.started = []
        self.bootstrap = broker.bootstrap
        self.client = broker.client_config
        (folder / "handlers.py").write_text(HANDLERS)
        self._config = {
            **broker.client_config,
            **broker.group_config,
            "session_timeout_ms": 30_000,  # they stay members on a slow machine
        }

    def start(self, target="handlers:noting", *more, prefix=None):
        """Start a worker; with a prefix it obeys the holds on topics of that prefix."""
        settings = {
            **self._config,
            "topic": self.topic,
            "group_id": f"g-{self.topic}",
            "auto_offset_reset": "earliest",
            "prefix": prefix,
        }
        (self.folder / "settings.json").write_text(json.dumps(settings))
        arguments = ["run", target, *more]
        process = launched(self.folder, *arguments)
        self.started.append(process)
        return process

    def kill(self):
        for process in self.started:
            with process:  # closes its pipes, too
                process.kill()

    def produce(self, *values):
        """Write values to the first partition."""
        for value in values:
            self._producer.send(self.topic, value=value, partition=0).get(SECONDS)

    def wait_seen(self, count):
        wait_for(
            lambda: len(self.seen()) >= count,
            f"{count} records seen",
            SECONDS,
            seen=self.seen,
        )

    def seen(self):
        path = self.folder / "seen"
        return path.read_text().splitlines() if path.exists() else []


def ended(process, status):
    """Wait for the end of a worker, and return what it said."""
    with process:
        try:
            _, told = process.communicate(timeout=SECONDS)
        except BaseException:
            process.kill()
            raise
    assert process.returncode == status, told
    return told


def stopped(process, status=Status.DONE):
    """Stop a worker, and return what it said."""
    process.send_signal(signal.SIGTERM)
    return ended(process, status)


@pytest.fixture
def program(tmp_path, kafka_broker, kafka_topic, make_producer):
    """Prepare the command; what a failed test left of it is killed."""
    topic = kafka_topic(partitions=2)
    program = Program(tmp_path, kafka_broker, topic, make_producer())
    yield program
    program.kill()


@pytest.mark.any_broker
def test_sigterm_drains_and_commits(program, make_consumer):
    """Status 0, and what was done is committed."""
    from kafka import KafkaConsumer  # noqa: PLC0415  0.2 s, when needed

    program.produce(b"a", b"b", b"c")
    process = program.start()
    program.wait_seen(3)
    told = stopped(process)
    assert "3 handled" in told
    asking = make_consumer(KafkaConsumer, group=f"g-{program.topic}")
    assert asking.committed(TopicPartition(program.topic, 0)) == 3


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("handlers:patient", marks=pytest.mark.any_broker),
        pytest.param("handlers:elsewhere", marks=pytest.mark.embedded_suffices),
    ],
)
def test_a_second_sigterm_stops_at_once(program, target):
    """With the status that says so, however long a handler, or a thread of it, sleeps."""
    program.produce(b"a", b"slow")
    process = program.start(target)
    program.wait_seen(2)
    process.send_signal(signal.SIGTERM)
    # Two signals before the first is taken would be one.
    wait_for((program.folder / "draining").exists, "it to drain", SECONDS)
    stopped(process, Status.FAILED)


@pytest.mark.contract("W8")
@pytest.mark.any_broker
def test_second_sigterm_ends_process_whose_loop_never_returns(program):
    """Nothing can be committed then."""
    process = program.start("handlers:standing")
    wait_for((program.folder / "stands").exists, "it to stand", SECONDS)
    process.send_signal(signal.SIGTERM)
    wait_for((program.folder / "asked").exists, "it to be asked", SECONDS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == Status.FAILED


@pytest.mark.contract("W8")
@pytest.mark.any_broker
def test_one_sigterm_ends_process_whose_hook_never_returns(program):
    """What was done is committed; the last line names the hook."""
    program.produce(b"a")
    process = program.start("handlers:hanging")
    program.wait_seen(1)
    told = stopped(process)
    assert re.search(r"1 handled.*; committed, .*does not return: <function hang", told)


@pytest.mark.contract("W8")
@pytest.mark.embedded_suffices
def test_a_hook_that_never_returns_to_a_handlers_thread_is_named_once(program):
    program.produce(b"a")
    process = program.start("handlers:hanging_beside")
    wait_for((program.folder / "hangs").exists, "the hook to hang", SECONDS)
    told = stopped(process)
    assert re.findall(r"does not return: <function (\w+)", told) == ["hanging_beside"]


@pytest.mark.contract("W8")
@pytest.mark.any_broker
def test_one_sigterm_ends_process_whose_stderr_nobody_reads(program, make_consumer):
    """What was done is committed, and the group is left."""
    from kafka import KafkaAdminClient, KafkaConsumer  # noqa: PLC0415  0.2 s, when needed

    program.produce(b"a")
    process = program.start("handlers:clogged")
    wait_for((program.folder / "filled").exists, "stderr to be full", SECONDS)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == Status.DONE
    group = f"g-{program.topic}"
    asking = make_consumer(KafkaConsumer, group=group)
    assert asking.committed(TopicPartition(program.topic, 0)) == 1
    with contextlib.closing(KafkaAdminClient(**program.client)) as admin:
        assert not admin.describe_groups([group])[group]["members"]


@pytest.mark.embedded_suffices
def test_a_bad_record_ends_it_with_a_status(program):
    program.produce(b"a", b"bad")
    process = program.start("handlers:waiting")
    told = ended(process, Status.FAILED)
    assert f"{program.topic}:0 offset 1 failed for good" in told


@pytest.mark.any_broker
def test_a_topic_that_does_not_exist_is_named_with_the_nearest(program):
    """And waited for: nothing else told a worker that has no work from one that errs."""
    process = program.start("handlers:misspelt")
    name = f"{program.topic}x"
    line = (
        f"safeconsumer: topic does not exist: {name}; did you mean {program.topic}? "
        "(the worker waits)\n"
    )
    while process.stderr.readline() != line:
        assert process.poll() is None
    stopped(process)


@pytest.mark.embedded_suffices
def test_probes_say_that_the_loop_turns(program):
    program.produce(b"a", b"slow")
    process = program.start("handlers:hasty", "--probes=0")
    assert process.stderr is not None
    said = next(line for line in process.stderr if "probes at" in line)
    port = int(said.rpartition(":")[2])
    program.wait_seen(2)
    well = (200, {"alive": True, "reasons": []})
    for path in ("live", "healthy"):
        wait_for(lambda path=path: probed(port, path) == well, path, SECONDS)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        of_this_one = rb'running_records{client_id="[^"]+",group="[^"]+"} 1.0\n'
        assert re.search(of_this_one, answer.read())
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/else")
    refused.value.close()  # an answer, too: Python 3.14 complains of an open one
    stopped(process, Status.FAILED)


def probed(port, path):
    """Return the status and what a probe says, be it well or not."""
    try:
        answer = urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}")
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status, json.load(answer)


@pytest.mark.any_broker
def test_it_says_where_each_partition_starts(program):
    """As a line of its log, which it writes where the program has not set up its own."""
    said = []
    for count in (1, 2):
        program.produce(b"v")
        process = program.start()
        program.wait_seen(count)
        told = stopped(process)
        said.append([line for line in told.splitlines() if "partition_started" in line])
    assert [sorted(map(_start, lines)) for lines in said] == [
        [(f"{program.topic}:{n}", "0", "False") for n in (0, 1)],
        [(f"{program.topic}:0", "1", "True"), (f"{program.topic}:1", "0", "True")],
    ]


def _start(line):
    fields = dict(one.split("=", 1) for one in line.split() if "=" in one)
    return tuple(
        fields[one].strip("'") for one in ("partition", "offset", "is_committed")
    )


def test_ctrl_c_before_a_broker_has_answered(tmp_path):
    """130, as of every command."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(SECONDS)
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        process = launched(tmp_path, "status", "--bootstrap", server)
        asked, _ = silent.accept()
        with asked:
            process.send_signal(signal.SIGINT)
            assert ended(process, Status.INTERRUPTED) == "safeconsumer: interrupted\n"


SILENT = """
from safeconsumer import SafeConsumer, Worker

def worker():
    consumer = SafeConsumer("t", group_id="g", bootstrap_servers="{}")
    return Worker(consumer, print)
"""


def test_sigterm_before_a_broker_has_answered_a_worker(tmp_path):
    """The signal killed it (-15): whoever started it took that for a crash."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(SECONDS)
        server = f"127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "shop.py").write_text(SILENT.format(server))
        process = launched(tmp_path, "run", "shop:worker")
        asked, _ = silent.accept()
        with asked:
            line = "safeconsumer: stopped before the worker ran\n"
            assert stopped(process).endswith(line)


def test_ctrl_c_in_the_lines_that_lock_the_loop(monkeypatch):
    """Before the ``try`` that would unlock it: closing failed, and hid the interrupt."""

    def interrupted(loop, _timeout=None):
        if not loop._poll_lock.acquire(blocking=False):
            message = "Concurrent access to net.poll!"
            raise RuntimeError(message)
        raise KeyboardInterrupt

    monkeypatch.setattr(NetworkSelector, "_poll_once", interrupted)
    with pytest.raises(KeyboardInterrupt):
        login.trouble({"bootstrap_servers": "127.0.0.1:1"}, 1.0)


@pytest.mark.any_broker
def test_an_operators_hold_is_obeyed(program):
    """It takes part: ``wait quiet`` hears from it that it obeys."""
    prefix = f"p-{uuid.uuid4().hex[:8]}-"
    where = (f"--bootstrap={program.bootstrap}", f"--topic-prefix={prefix}")

    def done(*arguments):
        ended(launched(program.folder, *arguments, *where), Status.DONE)

    done("control", "init")
    program.produce(b"v")
    process = program.start("handlers:noting", prefix=prefix)
    program.wait_seen(1)
    group = f"--group=g-{program.topic}"
    done("pause", program.topic, "--reason=test", group)
    done("wait", "quiet", "--timeout=30s", group)
    stopped(process)
