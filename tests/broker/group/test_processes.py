"""Commands as processes of their own, with streams that take nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from safeconsumer.cli.errors import Status
from tests.harness.group.operating import run, where
from tests.harness.group.team import Team

pytestmark = pytest.mark.any_broker


@pytest.mark.parametrize("as_json", [(), ("-o", "json")])
@pytest.mark.parametrize("command", ["pause", "extend", "resume"])
def test_what_was_written_is_said_though_it_cannot_be_printed(
    team: Team, command: str, as_json: tuple[str, ...]
) -> None:
    """A full disk is told on stderr, beside that the hold is placed all the same."""
    asked = [command, "@all", "--group", team.group, "--owner", "alice", *as_json]
    asked += {
        "pause": ["--reason", "x", "--future"],
        "extend": ["--for", "2h"],
        "resume": [],
    }[command]
    if command != "pause":
        team.operator_holds("@all", owner="alice", for_=60)
    with Path("/dev/full").open("w") as disk:
        ended = in_a_process(team, asked, stdout=disk)
    done = {"pause": "held", "extend": "extended", "resume": "lifted"}[command]
    line = (
        f"safeconsumer: {done} and acknowledged: @all; but the rest is not shown: "
        "this system refuses: [Errno 28] No space left on device\n"
    )
    assert (ended.returncode, ended.stderr) == (Status.FAILED, line)


@pytest.mark.parametrize("command", ["pause", "status", "resume"])
def test_without_any_output_a_command_does_what_it_should(
    team: Team, command: str
) -> None:
    """As programs are started that nobody listens to: no stdin, no stdout."""
    asked = ["--group", team.group]
    asked += ["@all", "--reason", "x", "--future"] if command == "pause" else []
    asked += ["@all"] if command == "resume" else []
    if command != "pause":
        team.operator_holds("@all", owner="alice")
    owner = ["--owner", "alice"] if command in {"pause", "resume"} else []
    ended = in_a_process(
        team, [command, *asked, *owner], first="import os; os.close(0); os.close(1); "
    )
    assert (ended.returncode, ended.stderr) == (Status.DONE, "")
    past = json.loads(run(team, "history", "--group", team.group, "-o", "json").stdout)[
        "records"
    ]
    assert past[-1]["is_held"] == (command != "resume")


def in_a_process(
    team: Team, arguments: list[str], *, stdout: IO[str] | None = None, first: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell does: streams are what they are there."""
    # Descriptors are closed before Python looks at its streams.
    code = "import sys; from safeconsumer.cli.main import main; main()"
    program = [sys.executable, "-c", code, *arguments, *where(team)]
    if first:
        closing = f"{first}os.execv(sys.executable, sys.argv[1:])"
        program = [sys.executable, "-c", f"import sys; {closing}", *program]
    return subprocess.run(  # noqa: S603 - our own code
        program,
        stdout=stdout or subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
