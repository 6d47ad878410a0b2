"""An executor continues after any error or result of a handler."""

from concurrent.futures import Future

import pytest

from safeconsumer.errors import HandlersCannotRunError
from safeconsumer.worker import BatchFailure, Pause, RetryLater, StopWorker, calls
from safeconsumer.worker.calls import Slot, context_of, executor_failed
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors import threads
from safeconsumer.worker.partition import Order
from tests.harness.signals import Places
from tests.harness.waiting import wait_for
from tests.harness.worker.desk import Desk
from tests.harness.worker.executing import (
    EXECUTORS,
    TwoArgumentsError,
    executing,
    fitting,
)


class NotShownError(Exception):
    """An exception that raises an error when shown, tested for truth, pickled or copied."""

    def __repr__(self):
        message = "no repr"
        raise ValueError(message)

    __str__ = __repr__

    def __bool__(self):
        message = "no truth"
        raise ValueError(message)

    def __reduce__(self):
        message = "no pickle"
        raise ValueError(message)


def changed(error, **fields):
    for name, value in fields.items():
        setattr(error, name, value)
    return error


ERRORS = {
    "no repr": NotShownError,
    "two arguments": lambda: TwoArgumentsError(1, 2),
    "an invalid delay": lambda: changed(RetryLater(1.0), after="soon"),
    "an invalid pause": lambda: changed(Pause(1.0), for_="soon"),
    "an invalid pause of a key": lambda: changed(Pause(1.0, "key"), for_="soon"),
    "an invalid index": lambda: BatchFailure({"0": ValueError()}),
    "not an error": lambda: BatchFailure({0: "text"}),
    "an index without a repr": lambda: BatchFailure({NotShownError(): ValueError()}),
    "not a mapping": lambda: changed(BatchFailure({0: ValueError()}), errors=7),
    "an error without a repr": lambda: BatchFailure({0: NotShownError()}),
}


class Raising:
    """A handler that raises an error of ``ERRORS`` by name, so that it can be pickled."""

    def __init__(self, what):
        self.what = what

    def __call__(self, _record, _context):
        error = ERRORS[self.what]()
        raise error


# Processes start slowly, so only a few cases run in processes.
BY_PROCESSES = [("no repr", None), ("two arguments", 4), ("an invalid index", 4)]
CASES = [
    pytest.param(what, executor, batch, id=f"{what}-{executor}-{batch}")
    for what in ERRORS
    for executor in EXECUTORS
    for batch in (None, 4)
    if executor != "process" or (what, batch) in BY_PROCESSES
]


@pytest.mark.parametrize(("what", "executor", "batch"), CASES)
def test_any_exception_is_a_failure_of_the_record(what, executor, batch):
    """The record is retried and then skipped, and the executor continues."""
    with executing(executor, fitting(executor, Raising(what)), batch=batch) as made:
        made.finish(6)
        assert [slot.ended for slot in made.runner.slots] == [None, None]
        assert made.decisions.skipped
        assert made.decisions.fatal is None


class _ThrownError(BaseException):
    pass


@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_crashed_executor_is_reported_with_its_cause(executor, monkeypatch):
    """``healthy()`` names the executor, and ``run()`` raises its error."""

    def complete(_self, _outcome):
        raise _ThrownError

    monkeypatch.setattr(Decisions, "complete", complete)
    with executing(executor, fitting(executor, Raising("two arguments"))) as made:
        made.admit(6)
        wait_for(lambda: made.decisions.fatal, "the reported error")
        fatal = made.decisions.fatal
        assert isinstance(fatal, HandlersCannotRunError)
        assert isinstance(fatal.__cause__, _ThrownError)
        assert "safeconsumer-worker" in str(fatal)
        assert any("has ended: _ThrownError()" in one for one in made.complaints())


def test_error_in_the_executor_does_not_fail_any_record(monkeypatch):
    """The error stops the worker, but not the thread in which it was raised."""
    made_contexts = []

    def context_of(*_):
        made_contexts.append(None)
        raise _ThrownError

    monkeypatch.setattr(threads, "context_of", context_of)
    with executing("thread", Raising("two arguments")) as made:
        made.admit(2)
        wait_for(
            lambda: len(made_contexts) == 2 and not made.kept.running,
            "both records to be returned",
        )
        assert isinstance(made.decisions.fatal, HandlersCannotRunError)
        assert (made.kept.records, made.kept.running) == (2, 0)
        assert [slot.ended for slot in made.runner.slots] == [None, None]


def test_call_interrupted_at_any_point_leaves_each_record_done_or_undone():
    """Otherwise some record would count as neither, and would never be handled."""
    places, at, is_over = Places((calls.__file__,)), 0, False

    def throw():
        raise _ThrownError

    while not is_over:
        desk = Desk(Order.PARTITION, quantum=3)
        desk.epoch.pace = 1e-6
        desk.admit(3)
        task = desk.decisions.queue.claim()
        given = task, Slot(), context_of(task, lambda: None), 1.0
        outcomes = []

        def call(given=given, outcomes=outcomes):
            outcomes.append(calls.call_each(lambda *_: None, *given))

        try:
            is_over = not places.reach(at, call, throw)
        except _ThrownError as error:
            outcomes = [executor_failed(task, error)]
        (outcome,) = outcomes
        undone = [*(index for index, _ in outcome.failed), *outcome.left]
        assert sorted([*outcome.finished, *undone]) == [0, 1, 2], places.place
        assert undone == [n for n, one in enumerate(task.records) if one], places.place
        at += 1
    assert at > 5


class _Awaitable:
    def __await__(self):
        yield None


async def _coroutine(): ...


async def _async_generator():
    yield 1


UNDONE = {
    "a coroutine": _coroutine,
    "a generator": lambda: (one for one in range(3)),
    "an async generator": _async_generator,
    "an awaitable": _Awaitable,
    "a future": Future,
    "an exception": lambda: RetryLater(60.0),
    "an exception class": lambda: StopWorker,
}


class Returning(Raising):
    """A handler that returns a coroutine or generator that has not run yet."""

    def __call__(self, _record, _context):
        return UNDONE[self.what]()


# Processes start slowly, so only one case runs in a process.
RETURNS = [
    pytest.param(executor, what, batch, id=f"{executor}-{what}-{batch}")
    for executor in EXECUTORS
    for what in UNDONE
    for batch in (None, 4)
    if executor != "process" or (what, batch) == ("a generator", None)
]


@pytest.mark.parametrize(("executor", "what", "batch"), RETURNS)
def test_returned_coroutine_or_generator_stops_the_worker(executor, what, batch):
    """Neither a completed nor a failed record is counted."""
    with executing(executor, fitting(executor, Returning(what)), batch=batch) as made:
        made.admit(6)
        wait_for(lambda: made.decisions.fatal, "the reported error")
        assert isinstance(made.decisions.fatal, HandlersCannotRunError)
        assert "was returned, " in str(made.decisions.fatal)
        assert (made.kept.done, made.decisions.skipped) == (0, 0)
