"""``safeconsumer run``: what it makes of its target, without a broker."""

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
    """Have workers not run: they raise what is put into this list, or end well."""
    raised = []

    def ran(worker):
        worker.consumer.close(autocommit=False, timeout_ms=0)
        if raised:
            raise raised[0]
        return REPORT

    monkeypatch.setattr(Worker, "run", ran)
    monkeypatch.setattr(command, "existing", lambda *_: None)  # its thread would go on
    return raised


@pytest.fixture
def typed(
    ending,  # noqa: ARG001 - it keeps workers from running
    monkeypatch,
    tmp_path,
):
    """``typed(target, *options)`` types the command, in a folder with a program."""
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
def test_a_worker_of_the_program(typed, monkeypatch, target):
    """Whatever the environment says of the cluster, which is for other commands."""
    monkeypatch.setenv("SAFECONSUMER_BOOTSTRAP", "elsewhere:1")
    ended = typed(target)
    told = "6 handled, 1 dead letter, 2 skipped, 4 dropped; committed"
    assert ended.exit_code == Status.DONE, ended.output
    assert told in ended.stderr
    assert sys.modules["shop"].given.pop()["group_id"] == "mine"


def _line(ended, status=Status.USAGE):
    assert ended.exit_code == status, ended.output
    return ended.stderr.splitlines()[-1].removeprefix("safeconsumer: ")


@pytest.mark.parametrize(
    ("target", "said"),
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
def test_a_target_that_cannot_be(typed, target, said):
    """Status 2, and the last line says why; what the program raised is shown whole."""
    ended = typed(target)
    assert said in _line(ended)
    assert said.startswith("raised ") is ("Traceback" in ended.stderr)


def test_a_program_whose_broker_is_away(typed):
    assert "no answer" in _line(typed("shop:away"), Status.UNREACHABLE)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (SystemExit(3), Status.FAILED, "a handler ended the worker: SystemExit(3)"),
        (WorkerStateError("a Worker runs once"), Status.FAILED, "a Worker runs once"),
        (GroupAuthorizationFailedError("g"), Status.REFUSED, "g"),
        (WorkerSettingError("no handler for t"), Status.USAGE, "no handler for t"),
        (KeyboardInterrupt(), Status.INTERRUPTED, "interrupted"),
    ],
    ids=short,
)
def test_how_a_worker_ends_is_the_status(typed, ending, error, status, said):
    """A handler's own exit status is none of ours."""
    ending[:] = [error]
    assert said in _line(typed("shop:own"), status)


def test_a_port_that_cannot_be_had_is_wrong_usage(typed, monkeypatch):
    """Not a record that failed; nor is a package that is missing."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = typed("shop:own", f"--probes={taken.getsockname()[1]}")
    assert "a probe cannot be set up: " in _line(ended)
    for wrong in ("70000", "all", "0.0.0.0:", "-1"):
        assert typed("shop:own", f"--probes={wrong}").exit_code == Status.USAGE
    monkeypatch.delitem(sys.modules, "safeconsumer.metrics.prometheus", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    line = _line(typed("shop:own", "--probes=0"))
    assert "pip install 'safeconsumer[metrics]'" in line


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"offset": 60, "is_committed": True}, None),
        ({"offset": 0}, None),
        ({"offset": 60}, "of an added partition or a recreated topic, at the first"),
        ({"offset": 60}, "with earliest a new group reads what is there already"),
        (
            {"offset": 60, "is_reset": True},
            "at the first record that is left, or where",
        ),
        ({"offset": 60, "is_reset": True}, "records up to here may have been deleted"),
    ],
    ids=short,
)
def test_a_line_says_what_a_start_may_pass_over(more, said):
    """It names whatever may have chosen the offset: the event does not know which did."""
    event = PartitionStarted(**{"partition": "t:0", "is_committed": False, **more})
    assert (said or "None") in str(event.advice)


@pytest.mark.parametrize(
    ("gone", "said"), [(0, "0 dropped; "), (1, "0 dropped, 1 offset deleted unread; ")]
)
def test_it_says_what_is_gone(gone, said):
    counts = {**COUNTS, "dropped": 0}
    assert said in command._sentence(
        Report(**counts, gone=gone, committed=True, seconds=0.0)
    )


def test_a_missing_topic_is_named_once_a_broker_answers(monkeypatch, capsys):
    """One that was away at the start was asked once, and the topic never named."""
    error = CommandError("topic does not exist: t")
    answers = Mock(side_effect=[KafkaTimeoutError("away"), error])
    monkeypatch.setattr(command, "existing", answers)
    monkeypatch.setattr(command.time, "sleep", lambda _: None)
    command._name_missing(Mock(config={}))
    said = "safeconsumer: topic does not exist: t (the worker waits)\n"
    assert capsys.readouterr().err == said


def test_a_line_that_kafka_python_repeats_is_written_once_a_minute():
    """It wrote ten times a second that a control topic is missing, and hid what to do."""
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
