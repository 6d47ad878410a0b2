"""Damaged answers: the same records or the same error; no crash and no hang (P15)."""

import subprocess
import sys
from pathlib import Path

import pytest

_STARTS_WITHIN = 300.0


# The process ends by itself after ``--fuzz-seconds``; pytest's own limit is too short.
@pytest.mark.timeout(0)
def test_damaged_answers_are_read_alike(
    request: pytest.FixtureRequest, tmp_path: Path, first_seed: int
) -> None:
    """In a process of its own, so that a crash of it is seen and told with its input."""
    seconds: float = request.config.option.fuzz_seconds
    last = tmp_path / "input"
    program = [sys.executable, "-m", "tests.unit.kafka.decoding.fuzz"]
    options = [
        "--seed",
        str(first_seed),
        "--seconds",
        str(seconds),
        "--input",
        str(last),
    ]
    done = subprocess.run(  # noqa: S603 - our own interpreter, our own program
        program + options,
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        timeout=seconds + _STARTS_WITHIN,
        check=False,
    )
    told = last.read_bytes().split(b"\n")[0].decode() if last.exists() else ""
    assert done.returncode == 0, (
        f"seed {first_seed}\n{done.stdout}\n{done.stderr}\n"
        f"again: python -m tests.unit.kafka.decoding.fuzz --replay '{told}'"
    )
    if not first_seed:  # how rare it is, is known of these draws
        assert "CorruptRecordError" in done.stdout, done.stdout
    print(done.stdout)  # noqa: T201 - shown with -rP
