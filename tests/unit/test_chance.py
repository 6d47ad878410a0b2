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

_HANGS_AFTER = 300.0  # each of three processes, which take four seconds of CPU

SUITE = """
from hypothesis import given, strategies as st


@given(st.integers())
def test_a_property(number):
    print("drew", number)
    assert number < 10


def test_with_a_seed(first_seed):
    assert first_seed == 0
"""


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


@pytest.mark.nightly
@pytest.mark.timeout(0)
def test_what_failed_is_played_again_and_tried_first(tmp_path: Path) -> None:
    """By the command line at the end of the report, and by the next random run."""
    file, kept = tmp_path / "test_it.py", tmp_path / "kept"
    file.write_text(SUITE)
    told = ran(tmp_path, str(file), "-n", "2", "--hypothesis-profile=random")
    assert "2 failed" in told
    lines = {line.rpartition("::")[2]: line for line in lines_of(told)}
    assert lines.keys() == {"test_a_property", "test_with_a_seed"}
    seeds = {re.search(r"--seed=(\d+)", line)[1] for line in lines.values()}  # type: ignore[index]  # each has one
    assert len(seeds) == 1

    kept.rename(tmp_path / "away")
    _, *command = shlex.split(lines["test_a_property"])
    assert command[:4] == ["pytest", "-n", "0", "--kafka=auto"]
    test = f"{file}::test_a_property"
    again = ran(tmp_path, "-n", "0", *command[4:-1], test)
    assert "1 failed" in again
    assert set(drawn(again)) == {10}

    shutil.rmtree(kept, ignore_errors=True)  # constants of modules, if any were read
    (tmp_path / "away").rename(kept)
    again = ran(tmp_path, test, "-n", "0", "--hypothesis-profile=random")
    assert drawn(again)[0] == 10


@pytest.mark.parametrize("blob", ["no blob", "AQ==", ""])
def test_what_is_no_blob_is_refused(blob: str) -> None:
    """With what is expected instead."""
    with pytest.raises(pytest.UsageError, match="what a failed random run has printed"):
        Played(blob)
