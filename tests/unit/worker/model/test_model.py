"""The invariants of the worker hold in random lives, and each check can fail."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.worker.model.machine import WorkerMachine

QUICK = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_random_lives_keep_every_invariant(pytestconfig: pytest.Config) -> None:
    """Whatever is completed, lost, rebalanced, paused, refused or stopped, in any order."""
    examples = pytestconfig.getoption("--model-examples", default=None)
    chosen = QUICK if examples is None else settings(QUICK, max_examples=examples)
    run_state_machine_as_test(WorkerMachine, settings=chosen)
