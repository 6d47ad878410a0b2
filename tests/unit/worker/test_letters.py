"""What letters say of errors, and of records that cannot be read."""

import asyncio
from collections import namedtuple

import pytest
from kafka.serializer.wrapper import DeserializeWrapper

from safeconsumer.errors import DeserializationError, HandlersCannotRunError
from safeconsumer.worker import BatchFailure, Retry, RetryLater
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.tracebacks import CHAIN_BYTES, chain, shown, stack

ONCE = Retry(attempts=1, first=0.05, most=0.05)


def test_what_is_shown_of_an_error_is_cut():
    """The beginning of a message, both ends of a chain, the end of a stack."""
    with pytest.raises(ValueError, match="\u20ac") as raised:
        raise ValueError("\u20ac" * 100_000)
    error = raised.value
    error.add_note("n" * 100_000)
    assert len(shown(error).encode()) <= 2_048
    assert len(chain(error).encode()) <= CHAIN_BYTES + 10
    assert len(stack(error).encode()) <= 4_096


def test_a_stack_is_told_where_python_cannot_format_it(monkeypatch):
    """Several handlers that raise at once can make it fail, before Python 3.13."""

    def confused(*_, **__):
        message = "AST constructor recursion depth mismatch"
        raise SystemError(message)

    with pytest.raises(ValueError, match="bad") as raised:
        int("bad")
    monkeypatch.setattr("traceback.format_tb", confused)
    monkeypatch.setattr("traceback.format_exception", confused)
    where = f"in {test_a_stack_is_told_where_python_cannot_format_it.__name__}"
    assert stack(raised.value).endswith(where)
    assert where in chain(raised.value)
    assert "ValueError" in chain(raised.value)


Record = namedtuple("Record", ["topic", "key", "value", "headers"])  # noqa: PYI024 - as upstream's


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("values", "named", "expected"),
    [
        ("1x23", {1: KeyError()}, {1: DeserializationError, 2: KeyError}),
        ("1x23", {-1: KeyError()}, IndexError),
        ("1x23", {3: KeyError()}, IndexError),
        ("1x23", None, {1: DeserializationError}),
        ("xx", {0: KeyError()}, dict.fromkeys(range(2), DeserializationError)),
        ("123", None, None),
        ("12", RetryLater, HandlersCannotRunError),
        ("1x", RetryLater, HandlersCannotRunError),
    ],
)
def test_a_batch_of_which_some_cannot_be_read(values, named, expected, *, is_async):
    """W4, W7: the handler gets the others; what it says of them is said of the batch's."""

    def handle(records, _context):
        assert [one.value for one in records] == [int(v) for v in values if v != "x"]
        if isinstance(named, dict):
            raise BatchFailure(named)
        return named

    async def handle_async(records, context):
        return handle(records, context)

    readers = Readers(None, DeserializeWrapper(int))
    reading = readers.before(handle_async if is_async else handle, is_batch=True)
    raised = None
    try:
        answer = reading([Record("t", None, value, []) for value in values], None)
        if is_async:
            asyncio.run(answer)
    except (BatchFailure, HandlersCannotRunError, IndexError) as error:
        raised = error
    if isinstance(raised, BatchFailure):
        assert {at: type(one) for at, one in raised.errors.items()} == expected
    else:
        assert (raised and type(raised)) is expected
