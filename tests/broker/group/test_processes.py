"""Runs commands in processes whose streams are full, closed or not read."""

import fcntl
import json
import os
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from safeconsumer.cli.commands import WHERE
from safeconsumer.cli.errors import Status
from safeconsumer.group.wire import MAX_OWNER_LENGTH, MAX_REASON_BYTES
from tests.harness.group.team import run, where
from tests.harness.processes import ran
from tests.harness.waiting import output_of

pytestmark = pytest.mark.any_broker


@pytest.mark.parametrize("as_json", [(), ("-o", "json")])
@pytest.mark.parametrize("command", ["pause", "extend", "resume"])
def test_acknowledged_change_is_reported_if_the_output_disk_is_full(
    team, command, as_json
):
    asked = [command, "@all", "--group", team.group, "--owner", "alice", *as_json]
    asked += {
        "pause": ["--reason", "x", "--future"],
        "extend": ["--for", "2h"],
        "resume": [],
    }[command]
    if command != "pause":
        team.operator_holds("@all", owner="alice", for_=60)
    with Path("/dev/full").open("w") as disk:
        ended = in_a_process([*asked, *where(team)], stdout=disk)
    done = {"pause": "held", "extend": "extended", "resume": "lifted"}[command]
    line = (
        f"safeconsumer: {done} and acknowledged: @all; but the rest is not shown: "
        "this system refuses: [Errno 28] No space left on device\n"
    )
    assert (ended.returncode, ended.stderr) == (Status.FAILED, line)


def test_history_follow_exits_once_its_pipe_is_closed(team):
    """The command exits even if there is no change to print."""
    team.operator_holds("@all", owner="alice")
    reading, writing = os.pipe()
    following = subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-m", "safeconsumer", "history", "--follow", *where(team)],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    with following:
        with os.fdopen(reading) as pipe:
            assert "alice" in pipe.readline()
        printed = output_of(following)[1]
    assert (following.returncode, printed) == (Status.CLOSED, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_stops_history_follow_while_it_blocks_on_a_full_pipe(team, number):
    """A pager that shows its first page stops reading, so the command's write blocks."""
    # In JSON each of these letters takes six bytes, so the line does not fit into the
    # pipe.
    owner, reason = "\u00e9" * MAX_OWNER_LENGTH, "\u00e9" * (MAX_REASON_BYTES // 2)
    team.operator_holds("@all", owner=owner, reason=reason)
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    command = [
        sys.executable,
        "-m",
        "safeconsumer",
        "history",
        "--follow",
        "-o",
        "json",
    ]
    following = subprocess.Popen(  # noqa: S603 - our own code
        [*command, *where(team)], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    with following:
        assert select.select([reading], [], [], 60)[0]
        following.send_signal(number)
        try:
            printed = output_of(following)[1]
        finally:
            following.kill()
            os.close(reading)
    assert (following.returncode, printed) == (Status.DONE, "")


@pytest.mark.parametrize("command", ["pause", "status", "resume"])
def test_command_works_without_stdin_and_stdout(team, command):
    asked = ["--group", team.group]
    asked += ["@all", "--reason", "x", "--future"] if command == "pause" else []
    asked += ["@all"] if command == "resume" else []
    if command != "pause":
        team.operator_holds("@all", owner="alice")
    owner = ["--owner", "alice"] if command in {"pause", "resume"} else []
    ended = in_a_process(
        [command, *asked, *owner, *where(team)],
        first="import os; os.close(0); os.close(1); ",
    )
    assert (ended.returncode, ended.stderr) == (Status.DONE, "")
    past = json.loads(run(team, "history", "--group", team.group, "-o", "json").stdout)[
        "records"
    ]
    assert past[-1]["is_held"] == (command != "resume")


REASON = "db \u65e5\u672c"
ESCAPED = REASON.encode("ascii", "backslashreplace").decode()

# All commands except those that run until they are stopped; ``folder`` has a journal.
TYPED = {
    "pause": f"@all --group {{group}} --reason '{REASON}' --replace --future",
    "extend": "@all --group {group} --for 2h",
    "status": "--group {group}",
    "wait": "quiet --group {group} --timeout 0s",
    "history": "--group {group}",
    "doctor": "--group {group}",
    "reset-offsets": "{topic} --group {group} --to earliest --dry-run",
    "resume": "@all --group {group}",
    "control": "init",
    "dead-letters": "list {topic}",
    "monitoring": "{folder}",
    "audit": "{folder}",
}
ENDLESS = {"console", "run", "demo"}
SHOWING = ("pause", "status", "history")  # commands that print reasons


@pytest.mark.parametrize(
    ("command", "encoding"),
    [
        # On an ASCII stream click writes UTF-8, so Latin-1 is the more critical
        # encoding.
        *((name, "latin-1") for name in SHOWING),
        # Each process takes a second of CPU time, so most cases run only at night.
        *(pytest.param(name, "ascii", marks=pytest.mark.nightly) for name in TYPED),
    ],
)
def test_command_works_on_a_terminal_without_unicode(team, command, encoding, tmp_path):
    """The command prints a reason in Japanese either as escapes or as UTF-8."""
    for owner in ("alice", "bob"):
        whose = ("--group", team.group, "--owner", owner, "--for", "1h")
        run(team, "pause", "@all", *whose, "--reason", REASON, "--future")
    with team.member(journal=tmp_path) as member:
        member.assign(team.partitions)
        member.pause(team.topic, reason=REASON)
    typed = TYPED[command].format(group=team.group, topic=team.topic, folder=tmp_path)
    ended = in_a_process(
        [command, *shlex.split(typed)],
        stdout=subprocess.PIPE,
        PYTHONIOENCODING=encoding,
        SAFECONSUMER_BOOTSTRAP=where(team)[1],
        SAFECONSUMER_TOPIC_PREFIX=team.prefix,
        SAFECONSUMER_OWNER="alice",
    )
    assert ended.returncode == Status.DONE, (ended.stdout, ended.stderr)
    if command in SHOWING:
        assert REASON in ended.stdout or ESCAPED in ended.stdout


def test_every_command_is_tested_on_a_terminal_without_unicode():
    assert TYPED.keys() | ENDLESS == WHERE.keys()


def in_a_process(arguments, *, stdout=None, first="", **environment):
    """Run a command with real streams, as a shell does."""
    # A first process closes descriptors, and then becomes the Python process that runs
    # the command.
    code = "import sys; from safeconsumer.cli.main import main; main()"
    program = [sys.executable, "-c", code, *arguments]
    if first:
        closing = f"{first}os.execv(sys.executable, sys.argv[1:])"
        program = [sys.executable, "-c", f"import sys; {closing}", *program]
    return ran(
        *program,
        stdout=stdout or subprocess.DEVNULL,
        env={**os.environ, **environment},
        encoding="utf-8",
    )
