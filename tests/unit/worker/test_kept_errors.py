"""Errors that a worker keeps do not keep the local variables of the handler."""

import gc
import weakref
from typing import Any

import pytest

from safeconsumer.worker import BatchFailure, Reject
from safeconsumer.worker.tasks import Letter
from safeconsumer.worker.tracebacks import chain, forget_locals
from tests.harness.worker.bench import bench


class Big:
    """A large object of the handler's."""


LOCALS: list[weakref.ref[Big]] = []


def _fails() -> None:
    mine = Big()
    LOCALS.append(weakref.ref(mine))
    message = "planted"
    raise Reject(message)


def alone() -> None:
    _fails()


def as_cause() -> None:
    try:
        _fails()
    except Reject as error:
        message = "outer"
        raise Reject(message) from error


def as_context() -> None:
    try:
        _fails()
    finally:
        message = "outer"
        raise Reject(message)


def in_group() -> None:
    try:
        _fails()
    except Reject as error:
        message = "outer"
        group = ExceptionGroup(message, [error])
        raise Reject(message) from group


@pytest.fixture(autouse=True)
def found() -> list[weakref.ref[Big]]:
    LOCALS.clear()
    return LOCALS


def alive() -> list[Big]:
    gc.collect()
    return [one for ref in LOCALS if (one := ref()) is not None]


@pytest.mark.contract("W1")
@pytest.mark.parametrize("fail", [alone, as_cause, as_context, in_group])
def test_letter_under_way_keeps_no_local_of_handler(fail: Any) -> None:  # noqa: ANN401
    letters: list[Letter] = []

    def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
        fail()

    with bench("thread", handle, count=1, post=letters.append) as made:
        made.admit(1)
        made.wait(lambda: letters, "its letter")
        assert len(LOCALS) == 1
        assert alive() == []
        assert "in _fails" in chain(letters[0].error)


@pytest.mark.contract("W1")
def test_failed_record_behind_letter_keeps_no_local_of_handler() -> None:
    letters: list[Letter] = []

    def handle(records: Any, _context: Any) -> None:  # noqa: ANN401
        errors = {}
        for at, _ in enumerate(records):
            try:
                _fails()
            except Reject as error:
                errors[at] = error
        raise BatchFailure(errors)

    with bench("thread", handle, count=1, batch=3, post=letters.append) as made:
        made.admit(3)
        made.wait(lambda: letters, "the first letter")
        assert len(LOCALS) == 3
        assert alive() == []


def test_generator_that_goes_on_is_not_ended_by_an_error_that_it_gave_away() -> None:
    def giving() -> Any:  # noqa: ANN401
        try:
            _fails()
        except Reject as error:
            yield error
        yield "goes on"

    parts = giving()
    error = next(parts)
    forget_locals(error)
    assert next(parts) == "goes on"
