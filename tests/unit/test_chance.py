"""What a random run finds is kept, tried first by the next one, and can be played again."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.chance import Played

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(0)

_HANGS_AFTER = 300.0  # each of some processes, which take four seconds of CPU

SUITE = """
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test


@given(st.integers())
def test_a_property(number):
    print("drew", number)
    assert number < 1000


class Machine(RuleBasedStateMachine):
    @rule(number=st.integers())
    def step(self, number):
        print("drew", number)
        assert number < 1000


def test_a_machine():
    run_state_machine_as_test(Machine)


def test_with_a_seed(first_seed):
    assert first_seed == 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(SUITE)
    return tmp_path


def ran(folder: Path, *options: str) -> str:
    """Run the suite in a folder as CI would, and return what was told of it."""
    program = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [*program, "-p", "tests.harness.chance", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={
            **os.environ,
            "CI": "true",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "kept"),
            "PYTHONHASHSEED": "7",
            "PYTHONPATH": str(ROOT),
        },
        capture_output=True,
        text=True,
        timeout=_HANGS_AFTER,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def lines_of(told: str) -> list[str]:
    return [line for line in told.splitlines() if line.startswith("PYTHONHASHSEED=7")]


def drawn(told: str) -> list[int]:
    return [int(number) for number in re.findall(r"^drew (-?\d+)$", told, re.MULTILINE)]


def test_what_failed_is_played_again_and_tried_first(folder: Path) -> None:
    """By the command line at the end of the report, and by the next random run."""
    file = str(folder / "test_it.py")
    told = ran(folder, file, "-n", "2", "--hypothesis-profile=random")
    assert "3 failed" in told
    lines = {line.rpartition("::")[2]: line for line in lines_of(told)}
    assert lines.keys() == {"test_a_property", "test_a_machine", "test_with_a_seed"}
    seeds = {re.search(r"--seed=(\d+)", line)[1] for line in lines.values()}  # type: ignore[index]  # each has one
    assert len(seeds) == 1

    (folder / "kept").rename(folder / "away")
    for test in ("test_a_property", "test_a_machine"):
        _, *command = shlex.split(lines[test])
        assert command[:4] == ["pytest", "-n", "0", "--kafka=auto"]
        again = ran(folder, "-n", "0", *command[4:-1], f"{file}::{test}")
        assert "1 failed" in again
        assert set(drawn(again)) == {1000}

    shutil.rmtree(folder / "kept")  # constants of modules, of the runs that played
    (folder / "away").rename(folder / "kept")
    test = f"{file}::test_a_property"
    again = ran(folder, test, "-n", "0", "--hypothesis-profile=random")
    assert drawn(again)[0] == 1000


def test_a_run_of_every_day_keeps_nothing(folder: Path) -> None:
    """Its draws are not chance's, and begin at 0."""
    told = ran(folder, str(folder / "test_it.py"), "-n", "0")
    assert "2 failed, 1 passed" in told
    assert lines_of(told) == []
    assert not list((folder / "kept").rglob("examples"))


@pytest.mark.parametrize("blob", ["no blob", "AQ==", ""])
def test_what_is_no_blob_is_refused(blob: str) -> None:
    """With what is expected instead."""
    with pytest.raises(pytest.UsageError, match="what a failed random run has printed"):
        Played(blob)
