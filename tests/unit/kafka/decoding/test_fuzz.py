"""
Damaged answers: the same records or the same error; no crash and no hang (P15).
"""

import random
import subprocess
import sys
from pathlib import Path

import pytest

_STARTS_WITHIN = 60.0


# The process ends by itself after ``--fuzz-seconds``; pytest's own limit is too short.
@pytest.mark.timeout(0)
def test_damaged_answers_are_read_alike(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """
    In a process of its own, so that a crash of it is seen and told with its input.
    """
    seconds: float = request.config.option.fuzz_seconds
    seed = random.randrange(2**32)  # noqa: S311 - no secret
    print(f"seed {seed}")  # noqa: T201 - shown with a failure
    last = tmp_path / "input"
    program = [sys.executable, "-m", "tests.records.fuzz"]
    options = ["--seed", str(seed), "--seconds", str(seconds), "--input", str(last)]
    done = subprocess.run(  # noqa: S603 - our own interpreter, our own program
        program + options,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=seconds + _STARTS_WITHIN,
        check=False,
    )
    told = last.read_bytes().split(b"\n")[0].decode() if last.exists() else ""
    assert done.returncode == 0, (
        f"seed {seed}\n{done.stdout}\n{done.stderr}\nlast input: {told}"
    )
    assert "CorruptRecordError" in done.stdout, done.stdout
    print(done.stdout)  # noqa: T201 - shown with -rP
