"""Signal handlers raise while a consumer waits: real time, and Python's own waits."""

import subprocess

import pytest

from tests.harness.kafka.interrupted import CALLS, LIMIT
from tests.harness.processes import ROOT, module

RUNS = 200
SECONDS = 8.0


def _run(*arguments):
    """Run the program, whose status says whether all is right."""
    done = subprocess.run(  # noqa: S603 - our own program
        module("tests.harness.kafka.interrupted", *arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20 * LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.contract("P18")
@pytest.mark.parametrize("call", CALLS)
def test_a_call_raises_at_each_place_and_the_next_polls_go_on(call):
    """P18: each exception comes out as it is, and each record comes once and in order."""
    _run("--call", call)


@pytest.mark.nightly
@pytest.mark.parametrize("decoder", ["python", "compiled"])
@pytest.mark.parametrize("seed", range(RUNS // 2))
def test_polls_are_interrupted_at_random_moments(seed, decoder):
    """No poll hangs, no other exception comes out, and each record comes once."""
    _run("--seconds", str(SECONDS), "--seed", str(seed), "--decoder", decoder)
