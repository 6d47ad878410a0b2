"""The command: its options, its exit statuses, its output."""

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from click.testing import Result as Run

from safeconsumer.cli import brokers, demo
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.demo import SCENARIOS, Failure, Result, Scenario
from tests.harness.cli.results import as_known, result
from tests.harness.listing import each

Plays = Callable[[str], Sequence[Result]]


def run(*arguments: str) -> Run:
    return CliRunner().invoke(safeconsumer, ["demo", *arguments])


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Callable[[Plays], None]:
    """Make every scenario end at once, as told."""

    @contextmanager
    def no_broker(_bootstrap: str | None) -> Iterator[None]:
        yield

    def ending_as(told: Plays) -> None:
        def ended(scenario: Scenario, *_: object) -> Sequence[Result]:
            return told(scenario.name)

        monkeypatch.setattr(demo, "open_broker", no_broker)
        monkeypatch.setattr(demo, "play_side_by_side", ended)

    return ending_as


def leaking(name: str) -> Sequence[Result]:
    return [*as_known(name)[:1], result(name, "safe", Failure.LEAKED)]


def holding(name: str) -> Sequence[Result]:
    return [result(name, "stock"), result(name, "safe")]


def cut(name: str) -> Sequence[Result]:
    return [*as_known(name)[:1], result(name, "safe", error="waited 20 s in vain")]


@pytest.mark.parametrize(
    ("told", "status"),
    [
        (as_known, Status.DONE),
        (leaking, Status.FAILED),
        (holding, Status.NOT_SHOWN),
        (cut, Status.NOT_PLAYED),
    ],
)
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_exit_status_says_how_it_ended(
    plays: Callable[[Plays], None], told: Plays, status: Status, options: Sequence[str]
) -> None:
    """With a table and with JSON alike."""
    plays(told)

    assert run(*options).exit_code == status


def test_json_is_all_there_is_on_stdout(plays: Callable[[Plays], None]) -> None:
    """Progress goes to stderr; the document holds both clients of each scenario."""
    plays(as_known)

    ended = run("--json")

    document = json.loads(ended.stdout)
    assert document["schema"] == "safeconsumer.demo/1"
    assert 2 * len(SCENARIOS) == len(document["results"])
    assert "[1/10] ticket-loop" in ended.stderr


def test_a_play_cut_short_says_why(plays: Callable[[Plays], None]) -> None:
    """Below the table, by scenario and client."""
    plays(cut)

    ended = run("--scenario", "moved-away")

    assert "moved-away, SafeConsumer: waited 20 s in vain" in ended.stdout


def test_picked_scenarios_are_played_in_their_order(
    plays: Callable[[Plays], None],
) -> None:
    """However they were given, and no other."""
    played: list[str] = []

    def noting(name: str) -> Sequence[Result]:
        played.append(name)
        return as_known(name)

    plays(noting)
    run("--scenario", "topic-pause", "--scenario", "ticket-loop")

    assert played == ["ticket-loop", "topic-pause"]


def test_list_plays_nothing() -> None:
    """Names and titles only; no broker is started."""
    ended = run("--list")

    assert ended.exit_code == 0
    assert [one.name for one in SCENARIOS] == [
        line.split()[0] for line in ended.stdout.splitlines()
    ]


@each(
    "arguments",
    [
        ("--scenario", "nope"),
        ("--bootstrap", "localhost"),
        ("--bootstrap", "localhost:kafka"),
        ("--bootstrap", "a:9092,b"),
        ("extra",),
    ],
)
def test_wrong_usage_is_status_2(arguments: Sequence[str]) -> None:
    """Told by the option's name, before anything is started."""
    ended = run(*arguments)

    assert ended.exit_code == Status.USAGE
    assert arguments[-1].rpartition(",")[2] in ended.stderr


def test_no_broker_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names it, status 3, and nothing on stdout."""
    monkeypatch.setattr(brokers, "_REACH_MS", 300)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run("--bootstrap", address)

    assert (ended.exit_code, ended.stdout) == (Status.UNREACHABLE, "")
    assert ended.stderr == f"safeconsumer: no Kafka broker answers at {address}\n"


def test_help_lists_every_exit_status() -> None:
    """A script's author need not look elsewhere."""
    text = run("--help").stdout

    ends = {"DONE", "FAILED", "USAGE", "UNREACHABLE", "NOT_SHOWN", "NOT_PLAYED"}
    assert all(f"{Status[name]:>3}  " in text for name in {*ends, "INTERRUPTED"})
