"""Errors that a worker keeps do not keep the local variables of the handler."""

import weakref
from concurrent.futures import Future

import pytest

from safeconsumer.worker import BatchFailure, Reject
from safeconsumer.worker.tracebacks import chain, forget_locals
from tests.harness.worker.bench import bench


class Big:
    """A large object of the handler's."""


LOCALS = []


def _fails():
    mine = Big()
    LOCALS.append(weakref.ref(mine))
    message = "planted"
    raise Reject(message)


def alone():
    _fails()


def as_cause():
    try:
        _fails()
    except Reject as error:
        message = "outer"
        raise Reject(message) from error


def as_context():
    try:
        _fails()
    finally:
        message = "outer"
        raise Reject(message)


def in_group():
    try:
        _fails()
    except Reject as error:
        message = "outer"
        group = ExceptionGroup(message, [error])
        raise Reject(message) from group


@pytest.fixture(autouse=True)
def found():
    LOCALS.clear()
    return LOCALS


def alive(collect):
    collect()
    return [one for ref in LOCALS if (one := ref()) is not None]


def holding(letters):
    def sink(_record, failure):
        letters.append(failure)
        return Future()  # nobody answers

    return sink


@pytest.mark.contract("W1")
@pytest.mark.parametrize("fail", [alone, as_cause, as_context, in_group])
def test_letter_under_way_keeps_no_local_of_handler(fail, collect):
    letters = []

    def handle(_record, _context):
        fail()

    with bench("thread", handle, count=1, sink=holding(letters)) as made:
        made.admit(1)
        made.wait(lambda: letters, "its letter")
        assert len(LOCALS) == 1
        assert alive(collect) == []
        assert "in _fails" in chain(letters[0].error)


@pytest.mark.contract("W1")
def test_failed_record_behind_letter_keeps_no_local_of_handler(collect):
    letters = []

    def handle(records, _context):
        errors = {}
        for at, _ in enumerate(records):
            try:
                _fails()
            except Reject as error:
                errors[at] = error
        raise BatchFailure(errors)

    with bench("thread", handle, count=1, batch=3, sink=holding(letters)) as made:
        made.admit(3)
        made.wait(lambda: letters, "the first letter")
        assert len(LOCALS) == 3
        assert alive(collect) == []


def test_generator_that_goes_on_is_not_ended_by_an_error_that_it_gave_away():
    def giving():
        try:
            _fails()
        except Reject as error:
            yield error
        yield "goes on"

    parts = giving()
    error = next(parts)
    forget_locals(error)
    assert next(parts) == "goes on"
