"""``safeconsumer run``: what its options become, and what is refused, without a broker."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from safeconsumer import Breaker, Commit, Drain, Limits, Report, Retry, Worker
from safeconsumer._kafka import login
from safeconsumer._kafka.fixes import producers
from safeconsumer.cli import cluster
from safeconsumer.cli import run as command
from safeconsumer.cli.errors import Status
from tests.harness.kafka.offline import silent_broker
from tests.harness.listing import each

HANDLERS = """
import contextlib

def note(record, context):
    pass

async def wait(record, context):
    pass

@contextlib.contextmanager
def alive():
    yield

def first(record):
    return record.value[:1]

class Invalid(Exception):
    pass

class Noting:
    def __call__(self, record, context):
        pass

by_topic = {"t": note, "re:.*": note}
only_other = {"other": note}
mixed = {"other": note, "@all": wait}
nothing = None
"""

Typed = Callable[..., Result]


class Given(dict[str, Any]):
    """What the worker was given."""


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Given]:
    """Have workers made and not run, in a folder with handlers."""
    (tmp_path / "handlers.py").write_text(HANDLERS)
    (tmp_path / "broken.py").write_text("def note(")
    (tmp_path / "exits.py").write_text("raise SystemExit(0)")
    found = Given()

    def worker(consumer: Any, **settings: Any) -> Worker:  # noqa: ANN401 - any
        found.update(settings)
        return Worker(consumer, **settings)

    def ran(_: Worker, **__: object) -> Report:
        counts = {"done": 1, "dropped": 0, "given_up": 0, "dead_letters": 0}
        return Report(**counts, skipped=0, gone=0, committed=True, seconds=0.0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(command, "Worker", worker)
    monkeypatch.setattr(Worker, "run", ran)
    monkeypatch.setattr(login, "trouble", lambda *_: None)
    monkeypatch.setattr(command, "reach", lambda *_, **__: None)
    monkeypatch.setattr(cluster, "existing", lambda *_: None)
    yield found
    for name in ("handlers", "broken", "exits"):
        sys.modules.pop(name, None)


@pytest.fixture
def typed(given: Given) -> Iterator[Typed]:
    """``typed(handler, *options)`` types the command."""
    with silent_broker() as address:

        def invoke(handler: str, *options: str) -> Result:
            given.clear()
            fixed = [
                "t",
                "--group=g",
                "--bootstrap",
                address,
                "--set=api_version=[2,3]",
            ]
            return CliRunner().invoke(command.run, [handler, *fixed, *options])

        yield invoke


def _named(name: str) -> Any:  # noqa: ANN401 - whatever is called so
    return getattr(sys.modules["handlers"], name)


@each(
    ("options", "name", "expected"),
    [
        (
            ("--retry=attempts=3,first=0,jitter=false",),
            "retry",
            lambda: Retry(attempts=3, first=0, jitter=False),
        ),
        (
            ("--attempts=2", "--retry=first=0.01"),
            "retry",
            lambda: Retry(attempts=2, first=0.01),
        ),
        (
            ("--retry=attempts=3,never=handlers:Invalid+builtins:KeyError",),
            "retry",
            lambda: Retry(attempts=3, never=(_named("Invalid"), KeyError)),
        ),
        (
            ("--breaker=on=handlers:Invalid+builtins:OSError,failures=2,first=0.5m",),
            "breaker",
            lambda: Breaker(on=(_named("Invalid"), OSError), failures=2, first=30),
        ),
        (
            ("--commit=every=0.1,records=1",),
            "commit",
            lambda: Commit(every=0.1, records=1),
        ),
        (
            ("--drain=shutdown=0.1,revoke=1",),
            "drain",
            lambda: Drain(shutdown=0.1, revoke=1),
        ),
        (("--drain=0.1",), "drain", lambda: Drain(shutdown=0.1)),
        (
            ("--limit-records=600", "--limit-bytes=2000000"),
            "limits",
            lambda: Limits(records=600, bytes=2_000_000),
        ),
        (("--rate=1/h",), "rate", lambda: 1 / 3600),
        (("--batch=3", "--batch-within=1h"), "batch", lambda: 3),
        (("--batch=3", "--batch-within=1h"), "batch_within", lambda: 3600.0),
        (("--topic-concurrency=re:.*=1",), "topic_concurrency", lambda: {"re:.*": 1}),
        (("--lifespan=handlers:alive",), "lifespan", lambda: _named("alive")),
        (("--order=key", "--key=handlers:first"), "key", lambda: _named("first")),
        ((), "handle", lambda: _named("note")),
        ((), "executor", lambda: "thread"),
    ],
)
def test_an_option_becomes_a_setting_of_the_worker(
    typed: Typed,
    given: Given,
    options: tuple[str, ...],
    name: str,
    expected: Callable[[], object],
) -> None:
    """What the worker makes of it is proved with workers."""
    ended = typed("handlers:note", *options)
    assert ended.exit_code == Status.DONE, ended.output
    assert given[name] == expected()


def test_spans_are_asked_for(typed: Typed, given: Given) -> None:
    """Whether OpenTelemetry is there is the worker's to say."""
    typed("handlers:note", "--trace")
    assert given["trace"] is True


def test_letters_are_acknowledged_and_a_silent_broker_takes_no_cpu(
    typed: Typed, given: Given
) -> None:
    """kafka-python's producer took a third of a core until the broker answered again."""
    ended = typed("handlers:note", "--dead-letter=dead")
    assert ended.exit_code == Status.DONE, ended.output
    config = given["dead_letter"].producer.config
    assert (given["dead_letter"].topic, config["acks"]) == ("dead", -1)
    assert config["kafka_client"] is producers.PatientClient


def test_what_a_handler_is_decides_where_it_runs(typed: Typed, given: Given) -> None:
    """A coroutine function in a loop; a dict is one handler for each topic."""
    ended = typed("handlers:wait", "--handler-timeout=0.1s")
    assert (ended.exit_code, given["executor"]) == (Status.DONE, "asyncio")
    assert (given["handle"], given["handler_timeout"]) == (_named("wait"), 0.1)
    assert typed("handlers:by_topic").exit_code == Status.DONE
    assert given["handlers"] == _named("by_topic")


def _line(ended: Result) -> str:
    assert ended.exit_code == Status.USAGE, ended.output
    (line,) = ended.stderr.splitlines()
    return line


@each(
    ("handler", "said"),
    [
        ("handlers", "is not MODULE:HANDLER"),
        ("handlers.py:note", "write it as handlers:note"),
        ("./shop/handlers.py:note", "write it as shop.handlers:note"),
        ("missing:note", "cannot be imported"),
        ("handlers:missing", "cannot be imported"),
        ("handlers:nothing", "must be callable"),
        ("broken:note", "cannot be imported: SyntaxError"),
        ("exits:note", "cannot be imported: SystemExit"),
        ("handlers:Noting", "is the class Noting"),
        ("handlers:first", "called with (record, context)"),
        ("handlers:only_other", "handlers has nothing for t"),
    ],
)
def test_a_handler_that_cannot_be(typed: Typed, handler: str, said: str) -> None:
    """Status 2, and one line."""
    assert said in _line(typed(handler))


@each(
    "setting",
    [
        "no_such_setting=1",
        "max_poll_records=many",
        "session_timeout_ms=[1]",
        "check_crcs=yes",
        "isolation_level=some",
        "decoder=other",
        "auto_offset_reset=7",
        "auto_offset_reset=first",
        "group_id=other",
        "enable_auto_commit=true",
        "partition_assignment_strategy=range",
        "max_poll_interval_ms=1000",
    ],
)
def test_a_setting_that_cannot_be(typed: Typed, setting: str) -> None:
    """Status 2, and one line too."""
    assert _line(typed("handlers:note", f"--set={setting}"))


@each(
    "option",
    [
        "--retry=attempts",
        "--retry=tries=3",
        "--retry=first=soon",
        "--retry=first=1d1",
        "--retry=first=1,first=2",
        "--retry=never=handlers:missing",
        "--drain=shutdown=long",
        "--hook=handlers",
        "--hook=handlers:nothing",
        "--rate=",
        "--rate=0",
        "--rate=10/d",
        "--batch-within=soon",
        "--batch-within=5",
        "--topic-concurrency=orders",
        "--topic-concurrency=orders=many",
        "--topic-concurrency==1",
        "--handler-timeout=0s",
        "--lifespan=handlers",
        "--lifespan=handlers:nothing",
        "--key=handlers:nothing",
        "--breaker=",
        "--breaker=failures=3",
        "--breaker=on=handlers:missing",
        "--breaker=on=handlers:Invalid,first=long",
        "--set=nothing",
    ],
)
def test_an_option_that_says_nothing(typed: Typed, option: str) -> None:
    """Told in one line with its name, before a broker is asked."""
    line = _line(typed("handlers:note", option))
    assert line.startswith(f"safeconsumer: {option.partition('=')[0]}: ")


@each(
    ("options", "said"),
    [
        (("--dead-letter=t",), "is consumed here"),
        (("--retry=attempts=0",), "attempts"),
        (("--retry=jitter=1",), "jitter"),
        (("--retry=never=handlers:note",), "never must be"),
        (("--attempts=1", "--retry=attempts=1"), "the same setting"),
        (("--drain=-1",), "shutdown"),
        (("--limit-records=0",), "records"),
        (("--batch-within=1s",), "batch_within needs batch"),
        (("--topic-concurrency=t=0",), "concurrency of 't' must be 1 or more"),
        (("--topic-concurrency=@all=1",), "'@all' is not a topic"),
        (("--breaker=on=handlers:Invalid,failures=0",), "failures must be"),
        (("--breaker=on=handlers:Invalid,rate=2",), "rate must be"),
        (("--breaker=on=handlers:note",), "exception"),
    ],
)
def test_options_that_no_worker_can_have(
    typed: Typed, options: tuple[str, ...], said: str
) -> None:
    """Status 2, and one line that says which."""
    assert said in _line(typed("handlers:note", *options))


def test_options_that_click_refuses(typed: Typed) -> None:
    """Status 2, before anything is imported; a handler that fits no executor, too."""
    assert typed("handlers:note", "--probe-port=70000").exit_code == Status.USAGE
    mixed = _line(typed("handlers:mixed", "--executor=thread"))
    assert "is a coroutine function" in mixed
