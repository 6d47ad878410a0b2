"""Errors that a worker keeps do not keep local variables, and are printed briefly."""

import asyncio
import gc
import traceback
import weakref
from concurrent.futures import Future

import pytest

from safeconsumer.worker import BatchFailure, Reject, Retry, partition
from safeconsumer.worker.partition import Order
from safeconsumer.worker.tracebacks import (
    CALLS,
    CHAIN_BYTES,
    KeptErrors,
    chain,
    forget_locals,
    shorten_tracebacks,
    shown,
    stack,
)
from tests.harness.worker.executing import executing


class Big:
    """A large object of the handler."""


LOCALS = []


def _fails():
    mine = Big()
    LOCALS.append(weakref.ref(mine))
    message = "planted"
    raise Reject(message)


def alone(_record, _context):
    _fails()


def as_cause(_record, _context):
    try:
        _fails()
    except Reject as error:
        message = "outer"
        raise Reject(message) from error


def as_context(_record, _context):
    try:
        _fails()
    finally:
        message = "outer"
        raise Reject(message)


def in_group(_record, _context):
    try:
        _fails()
    except Reject as error:
        message = "outer"
        group = ExceptionGroup(message, [error])
        raise Reject(message) from group


@pytest.fixture(autouse=True)
def _forget_locals_of_other_tests():
    LOCALS.clear()


def alive(collect):
    collect()
    return [one for ref in LOCALS if (one := ref()) is not None]


def alive_of(records, collect):
    """Return the indexes of the weak references to records that are still alive."""
    collect()
    return [at for at, ref in enumerate(records) if ref() is not None]


def holding(letters):
    def sink(_record, failure):
        letters.append(failure)
        return Future()  # it never completes

    return sink


def each_of_batch(records, _context):
    errors = {}
    for at, _ in enumerate(records):
        try:
            _fails()
        except Reject as error:
            errors[at] = error
    raise BatchFailure(errors)


async def waits_and_fails():
    mine = Big()
    LOCALS.append(weakref.ref(mine))
    await asyncio.sleep(0)
    message = "planted"
    raise Reject(message)


async def alone_as_coroutine(_record, _context):
    await waits_and_fails()


async def in_a_task(_record, _context):
    mine = Big()
    LOCALS.append(weakref.ref(mine))
    await asyncio.create_task(waits_and_fails())


async def in_a_task_group(_record, _context):
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(waits_and_fails())


@pytest.mark.contract("W1")
@pytest.mark.parametrize(
    ("executor", "handle", "batch"),
    [
        ("thread", alone, None),
        ("thread", as_cause, None),
        ("thread", as_context, None),
        ("thread", in_group, None),
        ("thread", each_of_batch, 3),
        ("asyncio", alone_as_coroutine, None),
        ("asyncio", in_a_task, None),
        ("asyncio", in_a_task_group, None),
    ],
)
def test_pending_dead_letter_does_not_keep_the_handlers_local_variables(
    executor, handle, batch, collect
):
    letters = []
    options = {"count": 1, "batch": batch, "sink": holding(letters)}
    with executing(executor, handle, **options) as made:
        made.admit(batch or 1)
        made.wait(lambda: letters, "its letter")
        assert LOCALS
        assert alive(collect) == []
        name = "_fails" if executor == "thread" else "waits_and_fails"
        assert f"in {name}" in chain(letters[0].error)


def fail_first(record, _context):
    if record.offset == 0:
        _fails()


def fail_first_of_batch(records, context):
    errors = {}
    for at, record in enumerate(records):
        try:
            fail_first(record, context)
        except Reject as error:
            errors[at] = error
    if errors:
        raise BatchFailure(errors)


async def await_first(record, context):
    await asyncio.sleep(0)
    fail_first(record, context)


async def await_first_of_batch(records, context):
    await asyncio.sleep(0)
    fail_first_of_batch(records, context)


@pytest.mark.contract("W1")
@pytest.mark.parametrize(
    ("executor", "handle", "batch"),
    [
        ("thread", fail_first, None),
        ("thread", fail_first_of_batch, 8),
        ("asyncio", await_first, None),
        ("asyncio", await_first_of_batch, 8),
    ],
)
def test_pending_dead_letter_does_not_keep_other_records_of_its_call(
    executor, handle, batch, collect, monkeypatch
):
    monkeypatch.setattr(partition, "FIRST_PACE", 1e-6)  # one call gets several records
    order, waiting = (Order.UNORDERED, [0]) if batch else (Order.KEY, [0, 3, 6])
    letters = []
    options = {"batch": batch, "order": order, "sink": holding(letters)}
    with executing(executor, handle, **options) as made:
        records = [weakref.ref(one) for one in made.admit(8)]
        made.wait(lambda: letters, "its letter")
        made.wait(lambda: made.kept.records == len(waiting), "the others to be done")
        assert alive_of(records, collect) == waiting


def _raises(kind):
    # The error is not assigned to a variable, because that would create a reference cycle.
    mine = Big()
    LOCALS.append(weakref.ref(mine))
    raise kind


def handle_error(_record, _context):
    _raises(ValueError)


def refuse_record(_record, _context):
    raise Reject


async def await_error(_record, _context):
    await asyncio.sleep(0)
    _raises(ValueError)


async def await_refusal(_record, _context):
    raise Reject


def sink_error(_record, _failure):
    _raises(ConnectionError)


@pytest.mark.contract("W1")
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize(
    ("executor", "handle", "sink"),
    [
        ("thread", handle_error, None),
        ("thread", refuse_record, sink_error),
        ("asyncio", await_error, None),
        ("asyncio", await_refusal, sink_error),
    ],
)
def test_error_of_a_finished_call_is_freed_without_the_collector(
    executor, handle, sink, batch, collect
):
    """Previously, eight handlers that used 1 MB each left 300 MB to the collector."""
    retry = Retry(attempts=1_000, first=0.001, most=0.001)
    options = {"count": 1, "batch": batch, "retry": retry, "sink": sink}
    collect()
    gc.disable()
    try:
        with executing(executor, handle, **options) as made:
            made.admit(4)
            made.wait(lambda: len(LOCALS) >= 50, "fifty errors")
            kept = [ref for ref in LOCALS[:50] if ref() is not None]
            # from calls that are still running or have just ended
            assert len(kept) <= 2
    finally:
        gc.enable()


def _goes_on_after(report):
    mine = Big()
    LOCALS.append(weakref.ref(mine))
    try:
        _fails()
    except Reject as error:
        report(error)


def test_running_call_keeps_its_locals_until_it_ends(collect):
    kept, errors = KeptErrors(), []

    def report(error):
        errors.append(error)
        kept.add(error)
        assert alive(collect) == [LOCALS[0]()]

    _goes_on_after(report)
    assert len(alive(collect)) == 1
    kept.sweep()
    assert alive(collect) == []
    assert "in _fails" in chain(errors[0])


@pytest.mark.parametrize("is_closed_first", [False, True])
def test_errors_do_not_keep_local_variables_once_kept_errors_is_closed(is_closed_first):
    kept = KeptErrors()

    def report(error):
        steps = [kept.close, lambda: kept.add(error)]
        for step in steps if is_closed_first else steps[::-1]:
            step()
        steps.clear()

    _goes_on_after(report)
    assert [ref() for ref in LOCALS] == [None, None]


# Some clients raise the same exception object at each call.
SHARED = ConnectionError("the client is closed")


def raise_shared(_given, _context):
    raise SHARED


def raise_from_shared(_given, _context):
    try:
        raise SHARED
    except ConnectionError as error:
        raise Reject from error


def fail_with_shared(given, _context):
    errors = {}
    for at, _ in enumerate(given):
        try:
            raise SHARED
        except ConnectionError as error:
            errors[at] = error
    raise BatchFailure(errors)


async def await_shared(_given, _context):
    raise SHARED


def refuse(_given, _context):
    raise Reject


def length(error):
    return len([*traceback.walk_tb(error.__traceback__)])


@pytest.mark.contract("W7")
@pytest.mark.parametrize(
    ("executor", "handle", "batch"),
    [
        ("thread", raise_shared, None),
        ("thread", raise_from_shared, None),
        ("thread", fail_with_shared, 4),
        ("asyncio", await_shared, None),
        ("thread", refuse, None),  # the sink raises the error
    ],
)
def test_repeatedly_raised_error_has_a_bounded_traceback(executor, handle, batch):
    """Previously, tracebacks grew: 500 dead letters took 18 ms each, and 1,000 took 26 ms."""
    SHARED.__traceback__ = None
    retry = Retry(attempts=2, first=0.001, most=0.001)

    def sink(record, failure):
        if handle is refuse and tried.setdefault(record.offset) is None:
            tried[record.offset] = True
            raise SHARED
        lengths.append(length(failure.error))

    tried, lengths = {}, []
    options = {"batch": batch, "retry": retry, "sink": sink}
    with executing(executor, handle, **options) as made:
        made.finish(2 * CALLS)
    assert len(lengths) == 2 * CALLS
    # Before the traceback is shortened again, two handlers may still raise the error.
    assert CALLS // 2 < length(SHARED) <= CALLS + 16
    assert max(lengths) <= CALLS + 16


def test_deep_traceback_keeps_its_first_and_its_last_calls():
    def fall(depth):
        if depth:
            fall(depth - 1)
        _fails()

    error = None
    try:
        fall(3 * CALLS)
    except Reject as raised:
        error = raised
    shorten_tracebacks(error)
    names = [
        frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    assert len(names) == CALLS
    assert (names[0], names[-1]) == (
        "test_deep_traceback_keeps_its_first_and_its_last_calls",
        "_fails",
    )


def test_running_generator_survives_clearing_the_locals_of_an_error_that_it_yielded():
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


def test_running_coroutine_survives_clearing_the_locals_of_an_error_that_it_passed_on():
    async def gives_away(error, asked):
        try:
            await asyncio.sleep(0)
            _fails()
        except Reject as caught:
            error.set_result(caught)
        return await asked

    async def play():
        loop = asyncio.get_running_loop()
        error, asked = loop.create_future(), loop.create_future()
        task = asyncio.create_task(gives_away(error, asked))
        forget_locals(await error)
        await asyncio.sleep(0)
        asked.set_result("goes on")
        return await task

    assert asyncio.run(play()) == "goes on"


def test_text_of_an_error_is_shortened():
    """A message is cut at its end, a chain in its middle, and a stack at its start."""
    with pytest.raises(ValueError, match="\u20ac") as raised:
        raise ValueError("\u20ac" * 100_000)
    error = raised.value
    error.add_note("n" * 100_000)
    assert len(shown(error).encode()) <= 2_048
    assert len(chain(error).encode()) <= CHAIN_BYTES + 10
    assert len(stack(error).encode()) <= 4_096


def test_stack_is_shown_if_python_cannot_format_it(monkeypatch):
    """Before Python 3.13, formatting can fail if several handlers raise at the same time."""

    def confused(*_, **__):
        message = "AST constructor recursion depth mismatch"
        raise SystemError(message)

    with pytest.raises(ValueError, match="bad") as raised:
        int("bad")
    monkeypatch.setattr("traceback.format_tb", confused)
    monkeypatch.setattr("traceback.format_exception", confused)
    where = f"in {test_stack_is_shown_if_python_cannot_format_it.__name__}"
    assert stack(raised.value).endswith(where)
    assert where in chain(raised.value)
    assert "ValueError" in chain(raised.value)
