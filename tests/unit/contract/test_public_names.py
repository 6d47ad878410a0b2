"""What is public: one table, so that no name comes or goes unnoticed."""

import pickle
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

import safeconsumer
from safeconsumer import SafeConsumerError, errors
from safeconsumer.errors import base, kafka_python
from safeconsumer.worker import WorkerControl, handlers
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


@pytest.mark.parametrize("module", [base, kafka_python, handlers], ids=short)
def test_every_error_of_ours_is_public(module):
    """A traceback names it as users import it, and a pickled one is found there."""
    for name, one in vars(module).items():
        is_error = isinstance(one, type) and issubclass(one, errors.SafeConsumerError)
        if is_error:
            assert name in errors.__all__
            assert getattr(errors, name) is one
            assert one.__module__ == "safeconsumer.errors"
            assert isinstance(pickle.loads(pickle.dumps(one("x"))), one)  # noqa: S301 - our own


@pytest.mark.parametrize("name", errors.__all__)
def test_the_text_of_an_error_is_its_message(name):
    """kafka-python's errors put their class before it, which tracebacks do as well."""
    kind = getattr(errors, name)
    with suppress(TypeError):  # one that takes other arguments
        assert str(kind("orders:0 is no text")) == "orders:0 is no text"
    assert issubclass(kind, WorkerControl) or kind.__str__ is SafeConsumerError.__str__


def test_the_root_is_for_every_day():
    """Whoever reads it can hold it in their head."""
    assert len(safeconsumer.__all__) <= 28
