"""Imports shared fixtures, and defines one for the console's tests."""

import pytest

from safeconsumer.console import changes
from tests.harness.console.fixtures import served
from tests.harness.group.fixtures import team

__all__ = ["patience", "served", "team"]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let the console wait longer for its own readers, because a machine may be slow."""
    monkeypatch.setattr(changes, "_SHOWN_WITHIN", 20.0)
