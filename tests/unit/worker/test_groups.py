"""W7: one exception of an ExceptionGroup determines the outcome."""

import asyncio
import pickle
from types import SimpleNamespace

import pytest

from safeconsumer import (
    BatchFailure,
    Breaker,
    Pause,
    Reject,
    Retry,
    RetryLater,
    StopWorker,
)
from safeconsumer.errors import (
    DeserializationError,
    HandlerCancelledError,
    HandlersCannotRunError,
)
from safeconsumer.worker.batches import Batch, Ticket
from safeconsumer.worker.calls import done_places, failure_of
from safeconsumer.worker.executors.serving import packed
from safeconsumer.worker.groups import is_all
from safeconsumer.worker.handlers import is_for_error
from safeconsumer.worker.partition import Order
from tests.harness.worker.desk import Desk

STOP, REJECT, LATER, WRONG = StopWorker(), Reject(), RetryLater(1.0), ValueError()
LATEST, EXIT, UNREADABLE = RetryLater(9.0), SystemExit(3), DeserializationError()
KEY, TOPIC = Pause(300.0, "key"), Pause(10.0)
LONGER, ALL = Pause(20.0), Pause(1.0, "all")
BROKEN, OF_BATCH = HandlersCannotRunError("broken"), BatchFailure({0: WRONG})


def group(*errors):
    return BaseExceptionGroup("of a task group", errors)


def changed(error, **fields):
    for name, value in fields.items():
        setattr(error, name, value)
    return error


@pytest.mark.contract("W7")
@pytest.mark.parametrize(
    ("counts", "raised"),
    [
        pytest.param(TOPIC, group(TOPIC), id="alone"),
        pytest.param(TOPIC, group(group(group(TOPIC))), id="nested"),
        pytest.param(OF_BATCH, group(OF_BATCH), id="batch-alone"),
        pytest.param(UNREADABLE, group(WRONG, UNREADABLE), id="reject-failure"),
        pytest.param(LATER, group(REJECT, WRONG, LATER), id="later-reject"),
        pytest.param(KEY, group(LATER, KEY, REJECT), id="pause-later"),
        pytest.param(STOP, group(TOPIC, group(WRONG, STOP)), id="stop-pause"),
        pytest.param(BROKEN, group(STOP, BROKEN), id="broken-stop"),
        pytest.param(EXIT, group(BROKEN, STOP, EXIT), id="exit-broken"),
        pytest.param(LATEST, group(LATER, LATEST, LATER), id="longest-delay"),
        pytest.param(LONGER, group(TOPIC, LONGER, KEY), id="longest-of-widest"),
        pytest.param(ALL, group(LONGER, ALL, KEY), id="widest-pause"),
        pytest.param(
            LATER,
            group(changed(RetryLater(9.0), after="soon"), LATER),
            id="invalid-delay",
        ),
        pytest.param(
            TOPIC,
            group(changed(Pause(9.0), scope=[], for_=None), TOPIC),
            id="invalid-pause",
        ),
    ],
)
def test_one_exception_of_an_exception_group_determines_the_outcome(counts, raised):
    assert failure_of(raised) is counts


@pytest.mark.parametrize(
    "raised",
    [
        group(WRONG, KeyError()),
        group(WRONG, OF_BATCH),
        group(OF_BATCH, BatchFailure({1: WRONG})),
    ],
    ids=["failures", "batch-failure", "two-batches"],
)
def test_exception_group_without_control_exceptions_is_a_failure(raised):
    assert failure_of(raised) is raised
    assert isinstance(raised, Exception)


def test_cancellation_in_an_exception_group_does_not_stop_the_worker():
    raised = group(asyncio.CancelledError(), WRONG)
    counts = failure_of(raised)
    assert isinstance(counts, HandlerCancelledError)
    assert counts.__cause__ is raised
    assert failure_of(group(asyncio.CancelledError(), TOPIC)) is TOPIC


def test_never_and_on_match_an_exception_group_only_if_all_its_errors_match():
    alike = group(ConnectionError(), group(TimeoutError()))
    assert Retry(never=(OSError,)).is_final(1, alike)
    assert not Retry(never=(OSError,)).is_final(1, group(alike, WRONG))
    assert Retry(never=(ExceptionGroup,)).is_final(1, alike)
    desk = Desk(Order.PARTITION, breaker=Breaker(on=(OSError,)))
    assert desk.decisions.outages._is_named(alike)
    assert not desk.decisions.outages._is_named(group(alike, WRONG))


def test_batch_failure_in_an_exception_group_completes_the_other_records():
    """Journal entries and spans are made from the exception as it was raised."""
    assert list(done_places(group(OF_BATCH), 3)) == [1, 2]
    assert list(done_places(group(OF_BATCH, WRONG), 3)) == []


class NotSentError(ConnectionError):
    """An error with an attribute that cannot be pickled."""

    def __init__(self, _connection):
        super().__init__(lambda: None)


@pytest.mark.parametrize(
    "make", [group, lambda error: BatchFailure({0: group(error)})], ids=["", "batch"]
)
def test_exception_group_raised_in_a_process_keeps_its_class(make):
    """Even an error that cannot be pickled keeps its class."""
    parcel = packed(make(NotSentError(None)))
    arrived = pickle.loads(pickle.dumps(parcel))  # noqa: S301 - our own data
    found = arrived.errors[0] if isinstance(arrived, BatchFailure) else arrived
    assert isinstance(found, ExceptionGroup)
    assert is_all(found, NotSentError)


def test_pause_raised_in_a_process_keeps_its_attributes_and_whether_it_has_a_cause():
    pause = Pause(3.0, "all", "why")
    pause.__cause__ = OSError()
    for made, is_known in ((pause, True), (Pause(1.0), False)):
        parcel = packed(made)
        arrived = pickle.loads(pickle.dumps(parcel))  # noqa: S301 - our own data
        assert is_for_error(arrived) is is_known
        fields = (made.for_, made.scope, made.reason)
        assert (arrived.for_, arrived.scope, arrived.reason) == fields


def test_exception_group_passed_to_fail_has_the_same_effect_as_if_raised():
    desk = Desk(Order.PARTITION, is_batch=True, quantum=2, records=2)
    task = desk.decisions.queue.claim()
    read = [(0, SimpleNamespace()), (1, SimpleNamespace())]
    batch = Batch(Ticket(desk.decisions, task, set()), read, desk.kinds)
    with pytest.raises(TypeError, match="not ExceptionGroup"):
        batch.fail(group(OF_BATCH))
    batch.fail(group(WRONG, STOP))
    assert desk.decisions.is_stop_asked
