"""Tests the targets, the exit statuses and the output of ``safeconsumer run``."""

import logging
import socket
import sys
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from kafka.errors import GroupAuthorizationFailedError, KafkaTimeoutError

from safeconsumer import Worker
from safeconsumer.cli import run as command
from safeconsumer.cli.errors import CommandError, Status
from safeconsumer.errors import WorkerSettingError, WorkerStateError
from safeconsumer.events import PartitionStarted
from safeconsumer.worker import Report
from tests.harness.kafka.offline import silent_broker
from tests.harness.listing import short

PROGRAM = """
from kafka.errors import KafkaTimeoutError
from safeconsumer import Retry, SafeConsumer, Worker

given = []

def handle(record, context):
    pass

def own(server="{server}", **settings):
    consumer = SafeConsumer("own", group_id="mine", enable_auto_commit=False,
                            bootstrap_servers=server, api_version=(2, 3))
    given.append(consumer.config)
    return Worker(consumer, handle, **settings)

def nothing():
    pass

def wrong():
    return own(retry=Retry(attempts=0))

def away():
    raise KafkaTimeoutError("no answer")

def leave():
    raise SystemExit(0)

async def later():
    return own()

class Settings:
    pass

table = {{"t": handle}}
"""

COUNTS = {
    "done": 9,
    "dropped": 4,
    "dropped_by_reason": {"lost": 4},
    "refetched": 0,
    "given_up": 0,
    "dead_letters": 1,
    "skipped": 2,
}
REPORT = Report(**COUNTS, gone=0, committed=True, seconds=0.0)


@pytest.fixture
def ending(monkeypatch):
    """Replace ``Worker.run`` with a fake that raises the first error in the returned list."""
    errors = []

    def run(worker):
        worker.consumer.close(autocommit=False, timeout_ms=0)
        if errors:
            raise errors[0]
        return REPORT

    monkeypatch.setattr(Worker, "run", run)
    # Otherwise the thread that looks for missing topics would outlive the test.
    monkeypatch.setattr(command, "existing", lambda *_: None)
    return errors


@pytest.fixture
def typed(ending, monkeypatch, tmp_path):  # noqa: ARG001 - ending keeps workers from running
    """``typed(target, *options)`` runs the command in a folder with a program."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "broken.py").write_text("def worker(")
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    (tmp_path / "lacking.py").write_text("import not_there")
    (tmp_path / "made.py").write_text("import shop\nclass Made: there = shop.own()")
    with silent_broker() as address:
        (tmp_path / "shop.py").write_text(PROGRAM.format(server=address))

        def invoke(target, *options):
            return CliRunner().invoke(command.run, [target, *options])

        yield invoke
    for name in ("shop", "broken", "exits", "lacking", "made"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("target", ["shop:own", "made:Made.there"])
def test_worker_runs_with_the_programs_own_settings(typed, monkeypatch, target):
    """The environment variables that name a cluster apply only to other commands."""
    monkeypatch.setenv("SAFECONSUMER_BOOTSTRAP", "elsewhere:1")
    ended = typed(target)
    line = "6 handled, 1 dead letter, 2 skipped, 4 dropped; committed"
    assert ended.exit_code == Status.DONE, ended.output
    assert line in ended.stderr
    assert sys.modules["shop"].given.pop()["group_id"] == "mine"


def last_line(ended, status=Status.USAGE):
    assert ended.exit_code == status, ended.output
    return ended.stderr.splitlines()[-1].removeprefix("safeconsumer: ")


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("shop", "'shop' is not MODULE:NAME"),
        ("shop.py:worker", "write it as shop:worker"),
        ("./shop/billing.py:worker", "write it as shop.billing:worker"),
        ("missing.one:worker", "there is no module missing, neither installed nor in"),
        ("shop:missing", "shop has no missing"),
        ("shop:handle", "shop:handle(record, context) cannot be called"),
        ("shop:table", "not a Worker or a function that returns one"),
        ("shop:Settings", "shop:Settings is a class, not a Worker"),
        ("shop:later", "shop:later is a coroutine function, not a Worker"),
        ("shop:nothing", "shop:nothing returned None"),
        ("shop:wrong", "raised WorkerSettingError: attempts must be"),
        ("shop:leave", "raised SystemExit"),
        ("broken:worker", "raised SyntaxError: '(' was never closed"),
        ("exits:worker", "raised SystemExit"),
        ("lacking:worker", "raised ModuleNotFoundError: No module named 'not_there'"),
    ],
    ids=short,
)
def test_target_that_is_not_a_worker_is_refused_with_the_reason(typed, target, reason):
    """The command prints a traceback for errors that the user's program raised."""
    ended = typed(target)
    assert reason in last_line(ended)
    assert reason.startswith("raised ") is ("Traceback" in ended.stderr)


def test_unreachable_broker_has_the_status_that_allows_a_retry(typed):
    assert "no answer" in last_line(typed("shop:away"), Status.UNREACHABLE)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (SystemExit(3), Status.FAILED, "a handler ended the worker: SystemExit(3)"),
        (WorkerStateError("a Worker runs once"), Status.FAILED, "a Worker runs once"),
        (GroupAuthorizationFailedError("g"), Status.REFUSED, "g"),
        (WorkerSettingError("no handler for t"), Status.USAGE, "no handler for t"),
        (KeyboardInterrupt(), Status.INTERRUPTED, "interrupted"),
    ],
    ids=short,
)
def test_error_that_ends_a_worker_has_a_status(typed, ending, error, status, reason):
    """A handler's SystemExit does not set the exit status."""
    ending[:] = [error]
    assert reason in last_line(typed("shop:own"), status)


def test_probes_with_a_bad_port_or_without_their_package_are_a_usage_error(
    typed, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = typed("shop:own", f"--probes={taken.getsockname()[1]}")
    assert "a probe cannot be set up: " in last_line(ended)
    for wrong in ("70000", "all", "0.0.0.0:", "-1"):
        assert typed("shop:own", f"--probes={wrong}").exit_code == Status.USAGE
    monkeypatch.delitem(sys.modules, "safeconsumer.metrics.prometheus", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    line = last_line(typed("shop:own", "--probes=0"))
    assert "pip install 'safeconsumer[metrics]'" in line


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"offset": 60, "is_committed": True}, None),
        ({"offset": 0}, None),
        (
            {"offset": 60},
            "at the first record of an added partition or a recreated topic",
        ),
        ({"offset": 60}, "with earliest a new group reads all existing records"),
        (
            {"offset": 60, "is_reset": True},
            "at the first remaining record, or where",
        ),
        ({"offset": 60, "is_reset": True}, "records before this offset may have"),
    ],
    ids=short,
)
def test_start_offset_that_may_skip_records_is_reported_with_advice(more, advice):
    """The advice names every possible reason for the offset."""
    event = PartitionStarted(**{"partition": "t:0", "is_committed": False, **more})
    assert (advice or "None") in str(event.advice)


@pytest.mark.parametrize(
    ("gone", "text"), [(0, "0 dropped; "), (1, "0 dropped, 1 offset deleted unread; ")]
)
def test_last_line_of_the_output_names_offsets_deleted_before_they_were_read(
    gone, text
):
    counts = {**COUNTS, "dropped": 0}
    report = Report(**counts, gone=gone, committed=True, seconds=0.0)
    assert text in command._sentence(report)


def test_missing_topic_is_named_as_soon_as_a_broker_answers(monkeypatch, capsys):
    error = CommandError("topic does not exist: t")
    answers = Mock(side_effect=[KafkaTimeoutError("away"), error])
    monkeypatch.setattr(command, "existing", answers)
    monkeypatch.setattr(command.time, "sleep", lambda _: None)
    command._name_missing(Mock(config={}))
    line = "safeconsumer: topic does not exist: t (the worker waits)\n"
    assert capsys.readouterr().err == line


def test_repeated_log_line_of_kafka_python_is_written_once_a_minute():
    once = command._OnceAMinute()

    def passes(text, at):
        record = logging.makeLogRecord({"msg": text, "created": at})
        return once.filter(record)

    assert passes("no topic a", 0.0)
    assert not any(passes("no topic a", at) for at in (0.1, 30.0, 59.9))
    assert passes("no topic b", 1.0)
    assert passes("no topic a", 60.0)
    for number in range(200):
        assert passes(f"no topic {number}", 61.0)
    assert len(once._passed) <= 100
