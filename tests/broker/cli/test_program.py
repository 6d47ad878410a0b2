"""Tests the program in its own process, as a user starts it."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import safeconsumer
from safeconsumer.cli.errors import Status
from tests.harness.processes import begun, ran_python
from tests.harness.program import TAKES_CTRL_C, command, run
from tests.harness.waiting import output_of

SECONDS = 60
FULL = Path("/dev/full")  # every write to this device fails
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def ending(ended):
    return ended.returncode, ended.stdout, ended.stderr


def test_program_dies_with_the_test_process_that_started_it():
    """The program dies even if the tests are killed; otherwise a worker would run forever."""
    started = command(first="import time; print('up', flush=True); time.sleep(60); ")
    tests = command(first=f"import subprocess; subprocess.run({started}); ")
    with begun(tests, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.kill()
        # This call returns once the program, too, has closed the pipe.
        output_of(process)


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [
        ("click", "group", ("demo",)),
        ("msgspec", "audit", ("audit", ".")),
        ("jinja2", "console", ("console", "--bootstrap", "127.0.0.1:1")),
        ("starlette", "console", ("console", "--bootstrap", "127.0.0.1:1")),
        ("uvicorn", "console", ("console", "--bootstrap", "127.0.0.1:1")),
    ],
)
def test_missing_package_is_reported_with_its_installation_command(
    package, extra, arguments
):
    ended = run(*arguments, first=f"sys.modules[{package!r}] = None; ")
    line = f"the command needs {package}: pip install 'safeconsumer[{extra}]'"
    assert ending(ended) == (Status.USAGE, "", f"safeconsumer: {line}\n")


def test_help_lists_all_commands_even_if_one_lacks_a_package():
    listed = run("--help", first="sys.modules['msgspec'] = None; ")
    assert (listed.returncode, listed.stderr) == (Status.DONE, "")
    assert "needs msgspec" in listed.stdout
    assert "pause" in listed.stdout


def test_import_error_of_a_required_module_is_reported_as_a_defect():
    ended = run("demo", first="sys.modules['json'] = None; ")
    assert ended.returncode == Status.BROKEN
    assert "ModuleNotFoundError" in ended.stderr
    assert "this error is a defect" in ended.stderr


def test_importing_the_command_group_does_not_import_any_command():
    """Importing all commands takes a second."""
    print_ = (
        "print([one for one in sys.modules if one.endswith(('.holding', '.audit'))])"
    )
    ended = ran_python(
        "-c", f"import sys; from safeconsumer.cli import commands; {print_}"
    )
    assert (ended.stdout, ended.stderr) == ("[]\n", "")


# ---------------------------------------------------------------- outputs

ENDLESS = """
import safeconsumer.cli.holding as module, click
from safeconsumer.cli.errors import explained
@click.command()
@click.pass_context
def pause(context):
    with explained(context):
        while True:
            click.echo('x' * 1000)
module.pause = pause
"""


@pytest.mark.parametrize(
    "arguments", [("pause",), ("--help",)], ids=["command", "help"]
)
def test_program_exits_silently_if_its_output_is_closed(arguments):
    ours, its = os.pipe()
    os.close(ours)
    with os.fdopen(its, "w") as out:
        ended = run(*arguments, first=f"exec({ENDLESS!r}); ", stdout=out)
    assert (ended.returncode, ended.stderr) == (Status.CLOSED, "")


@pytest.mark.parametrize("arguments", [("--help",), ("pause", "--help")])
def test_writing_help_to_a_full_disk_fails_with_a_one_line_error(arguments):
    with FULL.open("w") as disk:
        ended = run(*arguments, stdout=disk)
    assert ended.returncode == Status.BROKEN
    assert ended.stderr.count("\n") == 1
    assert "No space left on device" in ended.stderr


# ---------------------------------------------------------------- interrupts

INTERRUPTS = """
class Interrupts:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
"""
INTERRUPTED = (Status.INTERRUPTED, "safeconsumer: interrupted\n")


@pytest.mark.parametrize(
    "module", ["safeconsumer.cli.commands", "safeconsumer.cli.holding", "kafka.admin"]
)
def test_ctrl_c_during_the_import_of_a_command_exits_with_130(module):
    """Without our handler click would print "Aborted!" and exit with 1."""
    first = f"exec({INTERRUPTS.format(module=module)!r}); "
    ended = run("pause", "orders", "--reason=x", "--group=g", first=first)
    assert (ended.returncode, ended.stderr) == INTERRUPTED
    assert ended.stdout == ""


def test_ctrl_c_during_the_demo_exits_with_130():
    with begun(command("demo", first=TAKES_CTRL_C), **PIPES) as process:
        for line in process.stdout:
            if "another member joins" in line:
                break
        process.send_signal(signal.SIGINT)
        _, errors = output_of(process)
    assert (process.returncode, errors) == INTERRUPTED


# ---------------------------------------------------------------- without arguments


def test_demo_without_arguments_starts_its_own_broker():
    ended = run("demo", "--situation", "flag")
    assert (ended.returncode, ended.stderr) == (Status.DONE, "")
    lines = ended.stdout.splitlines()
    assert lines[-1].startswith(
        "SafeConsumer leaked 0, lost 0 and duplicated 0 records in 1"
    )
    head = next(one for one in lines if one.startswith("situation "))
    stock, safe = lines[lines.index(head) + 1 :][:2]
    for row in (stock, safe):
        records, paused, wanted, lost = map(int, re.findall(r" (\d+)(?= )", row)[:4])
        assert records == paused + wanted + lost
    assert (" leaked" in stock, safe.endswith(" ok")) == (True, True)


def test_module_prints_the_packages_version():
    ended = ran_python("-m", "safeconsumer", "--version")
    line = f"safeconsumer, version {safeconsumer.__version__}\n"
    assert ending(ended) == (0, line, "")
