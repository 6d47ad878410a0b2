"""Fixtures that tests of several folders share, and one of this folder."""

import pytest

from safeconsumer.console import changes
from tests.harness.console.fixtures import served
from tests.harness.group.fixtures import team

__all__ = ["patience", "served", "team"]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let the console wait for its own readers, however slow the machine is."""
    monkeypatch.setattr(changes, "_SHOWN_WITHIN", 20.0)
