"""Tests that no process outlives its test, even if the test fails or is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.brokers.java import folder_for_data
from tests.harness.processes import ROOT, begun, logged, ran_python
from tests.harness.waiting import LIMIT, code_of, wait_for

DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); "
LONG = "time.sleep(600)"


def is_alive(pid):
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_program_that_ignores_sigterm_is_killed_when_its_test_fails():
    """``Popen``'s own context manager would wait for the program forever."""
    deaf = [sys.executable, "-c", f"{DEAF}print('up', flush=True); {LONG}"]

    def outlives():
        with begun(deaf, stdout=subprocess.PIPE) as process:
            started.append(process)
            process.stdout.readline()
            process.terminate()
            process.wait(0.1)

    started = []
    with pytest.raises(subprocess.TimeoutExpired):
        outlives()
    assert started[0].returncode == -signal.SIGKILL


def test_children_of_an_exited_program_are_killed(tmp_path):
    """For example, a Spark driver that dies leaves its workers running."""
    log = tmp_path / "log"
    with logged(["sh", "-c", "sleep 600 & echo $!"], log) as program:
        code_of(program)
        child = int(log.read_text())
        assert is_alive(child)
    wait_for(lambda: not is_alive(child), "its end")


def test_broker_data_of_killed_tests_are_removed(tmp_path):
    """Each broker's data would otherwise use some 10 MB of memory until the next reboot."""
    program = (
        "import os, sys; from pathlib import Path; "
        "from tests.harness.brokers.java import folder_for_data; "
        "folder_for_data(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    own = folder_for_data(tmp_path)
    ran_python("-c", program, tmp_path, cwd=ROOT)
    assert len(list(tmp_path.iterdir())) == 2
    assert {own, folder_for_data(tmp_path)} == set(tmp_path.iterdir())


STUCK = """#!/bin/sh
[ "$1" = -c ] && exit
echo $$ >> "$STARTED"
sleep 600
"""


def test_terminated_ci_run_terminates_all_its_steps(tmp_path):
    """Without a trap the shell would wait for one step and leave the others running."""
    for name, text in (("cc", "#!/bin/sh\n"), ("python3", STUCK)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    started, work = tmp_path / "started", tmp_path / "work"
    started.touch()
    work.mkdir()
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "STARTED": str(started),
        "TMPDIR": str(work),
    }

    def pids():
        return [int(line) for line in started.read_text().splitlines()]

    with logged([".ci/run"], tmp_path / "log", environment) as program:
        wait_for(lambda: len(pids()) == 3, "its first steps")
        program.terminate()
        assert code_of(program, LIMIT) == 128 + signal.SIGTERM
        wait_for(lambda: not any(map(is_alive, pids())), "their end")
        assert list(work.iterdir()) == []
