"""What is public: one table, so that no name comes or goes unnoticed."""

from importlib import import_module
from pathlib import Path

import pytest

import safeconsumer
from tests.harness.listing import short

TABLE = Path(__file__).with_name("public_names.txt")
MODULES = (
    "safeconsumer",
    "safeconsumer.errors",
    "safeconsumer.events",
    "safeconsumer.holds",
    "safeconsumer.metrics",
    "safeconsumer.testing",
    "safeconsumer.worker",
)


def _table():
    return "".join(
        f"{module}\n" + "".join(f"    {name}\n" for name in sorted(_public(module)))
        for module in MODULES
    )


def _public(module):
    return list(import_module(module).__all__)


def test_the_public_names():
    """Else: write what this shows into the table, and a line into the changelog."""
    assert _table() == TABLE.read_text("utf-8")


@pytest.mark.parametrize("module", MODULES, ids=short)
def test_a_name_is_there(module):
    found = import_module(module)
    for name in _public(module):
        assert getattr(found, name) is not None
    assert not hasattr(found, "nothing_of_that_name")


def test_the_root_is_for_every_day():
    """Whoever reads it can hold it in their head."""
    assert len(safeconsumer.__all__) <= 28
