"""Stops the clock of the console's tests, because pages and figures show ages."""

import time
from types import SimpleNamespace

import pytest

from safeconsumer.group import follower
from tests.harness.console import synthetic


@pytest.fixture(autouse=True)
def still_clock(monkeypatch):
    """Stop the clock that determines the ages of snapshots, and return it."""
    now = time.monotonic()
    clock = SimpleNamespace(**{**vars(time), "monotonic": lambda: now})
    for one in (follower, synthetic):
        monkeypatch.setattr(one, "time", clock)
    return clock
