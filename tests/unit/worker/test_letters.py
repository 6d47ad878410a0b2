"""How letters are posted: told cut, in time, once, and forgotten."""

import asyncio
import threading
import weakref
from collections import namedtuple
from concurrent.futures import Future

import pytest
from kafka.serializer.wrapper import DeserializeWrapper

from safeconsumer.errors import DeserializationError, HandlersFailError
from safeconsumer.worker import BatchFailure, Retry, RetryLater, dead_letters
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.lanes import Lane, Order
from safeconsumer.worker.tasks import Letter
from safeconsumer.worker.tracebacks import CHAIN_BYTES, chain, shown, stack
from tests.harness.waiting import wait_for
from tests.harness.worker.desk import TP, Desk
from tests.harness.worker.fake_client import FakeRecord
from tests.sim.playing import simulated

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


def _letter(desk, offset):
    (lane,) = (desk.epoch.lanes or {None: Lane(desk.epoch, None)}).values()
    return Letter(
        lane=lane,
        chunk=None,
        index=0,
        record=FakeRecord(*TP, offset),
        attempt=1,
        error=KeyError(),
    )


@simulated(seeds=1)
def test_a_letter_of_a_revoked_partition_is_not_begun(world):  # noqa: ARG001 - its time is used
    """W5: its record is handled again elsewhere, and would be written twice."""
    desk = Desk(Order.PARTITION, retry=ONCE)
    sent = []
    over = threading.Event()

    def sink(record, _failure):
        sent.append(record.offset)
        over.set()

    letters = dead_letters.DeadLetters(sink, ONCE, desk.emit)
    gone, there = _letter(Desk(Order.PARTITION), 0), _letter(desk, 1)
    gone.lane.epoch.revoked.set()
    letters.post(gone)
    letters.post(there)
    assert over.wait(30)
    letters.stop()
    assert sent == [1]


@simulated(seeds=1)
def test_a_letter_that_failed_is_tried_again_while_others_come(lab):
    """W5: so its record does not block its lane for as long as they do."""
    desk, most = Desk(Order.PARTITION), 1_000
    sent = []
    over = threading.Event()

    def sink(record, _failure):
        sent.append(record.offset)
        lab.sleep(0.001)
        answer = Future()
        if record.offset == 0 and sent.count(0) == 1:
            answer.set_exception(ConnectionError())
        elif record.offset == 0 or len(sent) == most:
            over.set()
        else:  # there is always one more
            letters.post(_letter(desk, len(sent) + 1))
            answer.set_result(None)
        return answer

    letters = dead_letters.DeadLetters(sink, Retry(first=0.01, jitter=False), desk.emit)
    letters.post(_letter(desk, 0))
    letters.post(_letter(desk, 1))
    assert over.wait(60)
    letters.stop()
    assert len(sent) < most


@simulated(seeds=1)
def test_a_letter_that_has_arrived_keeps_no_record(world, collect):  # noqa: ARG001 - its time is used
    """W1: as soon as its answer is there."""
    desk = Desk(Order.PARTITION)
    over = threading.Event()
    letters = dead_letters.DeadLetters(lambda _record, _failure: done, ONCE, desk.emit)
    done = Future()
    done.set_result(None)
    arrived = []

    def then(_letter):
        arrived.append(None)
        if len(arrived) == 4:
            over.set()

    letters.then = then
    posted = [_letter(desk, offset) for offset in range(3)]
    records = [weakref.ref(one.record) for one in posted]
    while posted:
        letters.post(posted.pop())
    letters.post(_letter(desk, 3))
    assert over.wait(30)
    letters.stop()
    letters._thread.join(30)
    collect()
    assert [one() for one in records] == [None] * 3


@simulated(seeds=1)
def test_a_letter_of_an_ended_ownership_does_not_wait_for_another_try(
    world,  # noqa: ARG001 - its time is used
    collect,
):
    """W1: its record is no longer counted, and the wait may be long."""
    desk = Desk(Order.PARTITION)
    failed = threading.Event()

    def emit(_kind, **_fields):
        failed.set()

    def sink(_record, _failure):
        raise ConnectionError

    slow = Retry(first=3600.0, most=3600.0, jitter=False)
    letters = dead_letters.DeadLetters(sink, slow, emit)
    posted = _letter(desk, 0)
    record = weakref.ref(posted.record)
    letters.post(posted)
    del posted
    assert failed.wait(30)
    desk.regain()

    def is_forgotten():
        letters.turn()
        return not letters._posts

    wait_for(is_forgotten, "it to be forgotten")
    letters.stop()
    letters._thread.join(30)
    collect()
    assert record() is None


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
        ("12", RetryLater, HandlersFailError),
        ("1x", RetryLater, HandlersFailError),
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
    except (BatchFailure, HandlersFailError, IndexError) as error:
        raised = error
    if isinstance(raised, BatchFailure):
        assert {at: type(one) for at, one in raised.errors.items()} == expected
    else:
        assert (raised and type(raised)) is expected
