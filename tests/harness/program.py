"""Starts the command ``safeconsumer`` in a process of its own, as a user would."""

import os
import subprocess
import sys

from tests.harness.brokers.java import tied_to_us
from tests.harness.processes import ROOT, ran

START = "from safeconsumer.cli.main import main; main()"
# A shell makes its background processes ignore Ctrl-C, and their child processes
# inherit that setting.
TAKES_CTRL_C = "import signal; signal.signal(2, signal.default_int_handler); "


def command(*arguments, first=""):
    """Return the command line; ``first`` is Python code that runs before the program."""
    # This code does the same as the installed script, but works without an
    # installation.
    code = f"import sys; sys.argv[0] = 'safeconsumer'; {first}{START}"
    return tied_to_us([sys.executable, "-c", code, *arguments])


def run(*arguments, first="", **streams):
    """Run the command until it exits; return the completed process."""
    if streams:
        streams = {"capture_output": False, "stderr": subprocess.PIPE, **streams}
    return ran(*command(*arguments, first=first), **streams)


def launched(folder, *arguments, **streams):
    """Start the command in a folder, which may contain modules with handlers."""
    return subprocess.Popen(  # noqa: S603 - our own code
        command(*arguments),
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
