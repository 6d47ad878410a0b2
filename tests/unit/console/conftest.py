"""A clock that stands still, as pages and figures have ages and a machine may be busy."""

import time
from types import SimpleNamespace

import pytest

from safeconsumer.group import follower
from tests.harness.console import synthetic


@pytest.fixture(autouse=True)
def still_clock(monkeypatch):
    """Lend the clock by which snapshots are made and become old."""
    now = time.monotonic()
    clock = SimpleNamespace(**{**vars(time), "monotonic": lambda: now})
    for one in (follower, synthetic):
        monkeypatch.setattr(one, "time", clock)
    return clock
