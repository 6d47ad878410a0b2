"""
The invariants of the worker hold in random lives, and each check can fail.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from safeconsumer._core.progress import Watermark
from safeconsumer.worker import held as held_module
from safeconsumer.worker.commits import Commits
from safeconsumer.worker.engine import Engine
from safeconsumer.worker.held import Held
from safeconsumer.worker.lanes import Lane, Lanes, Order
from safeconsumer.worker.schedule import Schedule
from tests.worker.model.machine import WorkerMachine

QUICK = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
HUNT = settings(
    QUICK, max_examples=1500, phases=[Phase.generate], database=None, derandomize=True
)


def test_random_lives_keep_every_invariant() -> None:
    """
    Whatever is completed, lost, rebalanced, paused, refused or stopped, in any order.
    """
    run_state_machine_as_test(WorkerMachine, settings=QUICK)
