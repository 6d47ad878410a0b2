"""The program as a user starts it: in a process of its own."""

import os
import re
import signal
import subprocess
import sys
from email.message import Message
from pathlib import Path

import pytest

import safeconsumer
from safeconsumer.cli import main
from safeconsumer.cli.errors import Status
from tests.harness.brokers.java import tied_to_us
from tests.harness.processes import begun

SECONDS = 60
# Takes nothing that is written to it.
FULL = Path("/dev/full")
START = "from safeconsumer.cli.main import main; main()"
# What a shell runs in the background ignores Ctrl-C, and so would all it starts.
HEARS_CTRL_C = "import signal; signal.signal(2, signal.default_int_handler); "


def command(*arguments, first=""):
    # Not the installed script: this is the same, and works where nothing is installed.
    code = f"import sys; sys.argv[0] = 'safeconsumer'; {first}{START}"
    return tied_to_us([sys.executable, "-c", code, *arguments])


def run(*arguments, first="", stdout=subprocess.PIPE):
    return subprocess.run(  # noqa: S603 - our own code
        command(*arguments, first=first),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def launched(folder, *arguments, **streams):
    """Start the program in a folder that may have handlers."""
    return subprocess.Popen(  # noqa: S603 - our own code
        command(*arguments),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


def test_it_ends_with_the_tests_that_started_it():
    """Also where these are killed: a worker would read its topic for ever."""
    started = command(first="import time; print('up', flush=True); time.sleep(60); ")
    code = f"import subprocess; subprocess.run({started})"
    asking = [sys.executable, "-c", code]
    with begun(asking, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout.readline() == "up\n"
        tests.kill()
        tests.communicate(timeout=20)  # until the program has closed it, too


def test_a_missing_package_is_told_in_one_line():
    """With the command that installs it, and status 2."""
    ended = run("demo", first="sys.modules['click'] = None; ")

    expected = (
        "safeconsumer: the command needs click: pip install 'safeconsumer[group]'\n"
    )
    assert (Status.USAGE, "", expected) == (
        ended.returncode,
        ended.stdout,
        ended.stderr,
    )


def test_without_the_audit_s_package_all_others_are_listed():
    """And the audit says in one line what it needs: its extra is one of several."""
    hidden = "sys.modules['msgspec'] = None; "
    listed = run("--help", first=hidden)
    assert (listed.returncode, listed.stderr) == (Status.DONE, "")
    assert "needs msgspec" in listed.stdout
    assert "pause" in listed.stdout
    line = "the command needs msgspec: pip install 'safeconsumer[audit]'"
    ended = run("audit", ".", first=hidden)
    assert ended.returncode == Status.USAGE
    assert ended.stderr == f"safeconsumer: {line}\n"


def test_another_import_error_is_not_hidden():
    ended = run("demo", first="sys.modules['json'] = None; ")

    assert ended.returncode == Status.BROKEN
    assert "ModuleNotFoundError" in ended.stderr
    assert "not foreseen" in ended.stderr


RAISES = """
import safeconsumer.cli.audit as audit
def load(_): raise {error}
audit.load = load
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("KeyError('who knows')", "KeyError: 'who knows': that was not foreseen"),
        ("ValueError('two\\nlines')", "ValueError: two lines: that was not foreseen"),
        ("ValueError", "ValueError: that was not foreseen"),
        ("OSError(28, 'full')", "this system refuses: [Errno 28] full\n"),
    ],
)
def test_an_error_that_no_command_foresees_is_no_outcome(
    error, said, monkeypatch, tmp_path
):
    """One line, and a status of its own: 1 would say that promises were broken."""
    first = f"exec({RAISES.format(error=error)!r}); "
    monkeypatch.delenv("SAFECONSUMER_TRACEBACK", raising=False)
    ended = run("audit", str(tmp_path), first=first)
    assert (ended.returncode, ended.stdout) == (Status.BROKEN, "")
    assert ended.stderr.startswith(f"safeconsumer: {said}")
    assert ended.stderr.count("\n") == 1
    monkeypatch.setenv("SAFECONSUMER_TRACEBACK", "1")
    whole = run("audit", str(tmp_path), first=first)
    assert whole.returncode == Status.BROKEN
    assert whole.stderr.startswith("Traceback (most recent call last):\n")
    assert whole.stderr.endswith(ended.stderr)


def test_it_says_where_to_report_a_defect(monkeypatch):
    """As the package's own data say; a checkout has no address."""
    told = Message()
    told["Project-URL"] = "Homepage, https://example.com/x"
    told["Project-URL"] = "Issues, https://example.com/x/issues"
    monkeypatch.setattr("importlib.metadata.metadata", lambda _: told)
    assert main._address() == " at https://example.com/x/issues"
    del told["Project-URL"]
    assert main._address() == ""


def test_a_command_imports_no_other():
    """All together take a second."""
    told = (
        "; print([one for one in sys.modules if one.endswith(('.holding', '.audit'))])"
    )
    code = f"import sys; from safeconsumer.cli import commands{told}"
    ended = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


def test_nobody_reads_on():
    """As with ``safeconsumer ... | head -1``: no word, and a status of its own."""
    code = (
        "import safeconsumer.cli.holding as h; from safeconsumer.cli.errors import "
        "explained; import click\n"
        "@click.command()\n@click.pass_context\n"
        "def pause(context):\n"
        "  with explained(context):\n"
        "    while True: click.echo('x' * 1000)\n"
        "h.pause = pause\n"
    )
    ours, its = os.pipe()
    os.close(ours)
    pausing = command("pause", first=f"exec({code!r}); ")
    with begun(pausing, stdout=its, stderr=subprocess.PIPE) as process:
        os.close(its)
        _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (Status.CLOSED, b"")


INTERRUPTS = """
class Interrupts:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
"""


@pytest.mark.parametrize(
    "module", ["safeconsumer.cli.commands", "safeconsumer.cli.holding", "kafka.admin"]
)
def test_ctrl_c_while_a_command_is_imported(module):
    """130, where click says "Aborted!" and 1: that the outcome is bad."""
    first = f"exec({INTERRUPTS.format(module=module)!r}); "
    ended = run("pause", "orders", "--reason=x", "--group=g", first=first)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        Status.INTERRUPTED,
        "",
        "safeconsumer: interrupted\n",
    )


@pytest.mark.parametrize("arguments", [("--help",), ("pause", "--help")])
def test_help_on_a_full_disk(arguments):
    with FULL.open("w") as disk:
        ended = run(*arguments, stdout=disk)
    assert ended.returncode == Status.BROKEN
    assert ended.stderr.count("\n") == 1
    assert "No space left on device" in ended.stderr


def test_help_that_nobody_reads():
    """Of the program itself, which is read before any command."""
    ours, its = os.pipe()
    os.close(ours)
    with os.fdopen(its, "w") as out:
        ended = run("--help", stdout=out)
    assert (ended.returncode, ended.stderr) == (Status.CLOSED, "")


def test_without_a_broker_it_brings_its_own():
    """A bare machine shows it: status 0, and a table whose columns add up."""
    ended = run("demo", "--situation", "flag")

    assert (ended.returncode, ended.stderr) == (Status.DONE, "")
    lines = ended.stdout.splitlines()
    said, head = lines[-1], next(one for one in lines if one.startswith("situation "))
    stock, safe = lines[lines.index(head) + 1 :][:2]
    assert said.startswith(
        "SafeConsumer leaked 0, lost 0 and duplicated 0 records in 1"
    )
    for row in (stock, safe):
        records, paused, wanted, lost = map(int, re.findall(r" (\d+)(?= )", row)[:4])
        assert records == paused + wanted + lost
    assert (" leaked" in stock, safe.endswith(" ok")) == (True, True)


def test_ctrl_c_ends_it_cleanly():
    """In the middle of a situation: status 130, one word, no traceback."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with begun(command("demo", first=HEARS_CTRL_C), **pipes) as process:
        for line in process.stdout:
            if "another member joins" in line:
                break
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)

    assert (process.returncode, errors) == (
        Status.INTERRUPTED,
        "safeconsumer: interrupted\n",
    )


def test_it_runs_as_a_module():
    """Where its script is not in PATH; its version is the package's."""
    ended = subprocess.run(
        [sys.executable, "-m", "safeconsumer", "--version"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"safeconsumer, version {safeconsumer.__version__}\n"
