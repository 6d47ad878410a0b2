"""A table lists all public names, so that no name is added or removed unnoticed."""

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


def test_public_names_are_those_in_the_table():
    """If this test fails, write its output into the table, and a line into the changelog."""
    assert _table() == TABLE.read_text("utf-8")


@pytest.mark.parametrize("module", MODULES, ids=short)
def test_public_name_can_be_imported(module):
    found = import_module(module)
    for name in _public(module):
        assert getattr(found, name) is not None
    assert not hasattr(found, "nothing_of_that_name")


@pytest.mark.parametrize("module", [base, kafka_python, handlers], ids=short)
def test_every_error_is_public_under_its_public_module(module):
    """Tracebacks show the public module, and unpickling loads an error from it."""
    for name, one in vars(module).items():
        is_error = isinstance(one, type) and issubclass(one, errors.SafeConsumerError)
        if is_error:
            assert name in errors.__all__
            assert getattr(errors, name) is one
            assert one.__module__ == "safeconsumer.errors"
            assert isinstance(pickle.loads(pickle.dumps(one("x"))), one)  # noqa: S301 - our own data


@pytest.mark.parametrize("name", errors.__all__)
def test_str_of_an_error_is_its_message(name):
    """kafka-python's errors repeat their class before the message, as tracebacks do."""
    kind = getattr(errors, name)
    with suppress(TypeError):  # the constructor of this error takes other arguments
        assert str(kind("orders:0 is no text")) == "orders:0 is no text"
    assert issubclass(kind, WorkerControl) or kind.__str__ is SafeConsumerError.__str__


def test_root_package_exports_at_most_28_names():
    """A reader should be able to remember every exported name."""
    assert len(safeconsumer.__all__) <= 28
