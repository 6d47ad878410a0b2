"""W7: what an ExceptionGroup of a handler means, as asyncio's TaskGroup raises it."""

import asyncio

import pytest

from safeconsumer import (
    BatchFailure,
    Breaker,
    Pause,
    Reject,
    Retry,
    RetryLater,
    StopWorker,
    events,
)
from tests.sim.playing import simulated
from tests.sim.worker.working import Working, committed, filled, in_both


def raising_once(*errors, executor):
    """Return a handler whose first call raises a group of these."""
    left = [errors]

    async def fail(error):
        raise error

    async def wait(*_):
        async with asyncio.TaskGroup() as group:
            for error in left.pop() if left else ():
                group.create_task(fail(error))

    def handle(*_):
        if left:
            name = "of an anyio.run"
            raise BaseExceptionGroup(name, left.pop())

    return wait if executor == "asyncio" else handle


@pytest.mark.contract("W7")
@in_both
@simulated(seeds=1)
def test_a_pause_in_a_group_pauses_the_topic(lab, executor):
    filled(lab, 1, "a", "b")
    handle = raising_once(ValueError(), Pause(30.0), executor=executor)
    run = Working(lab, handle, executor=executor, retry=Retry(attempts=1))
    lab.until(lambda: run.told(events.WorkPaused), what="the pause")
    at = lab.now
    run.done(2)
    assert lab.now - at > 29
    report = run.stop()
    assert (report.dead_letters, committed(lab)) == (0, [2])


@pytest.mark.contract("W7")
@in_both
@simulated(seeds=1)
def test_of_several_delays_the_longest_counts(lab, executor):
    filled(lab, 1, "a")
    delays = RetryLater(5.0), RetryLater(20.0), RetryLater(1.0)
    handle = raising_once(*delays, executor=executor)
    run = Working(lab, handle, executor=executor, retry=Retry(attempts=1))
    run.done(1)
    assert 20 <= lab.now < 22
    assert run.stop().committed


@pytest.mark.contract("W7")
@in_both
@simulated(seeds=1)
def test_a_reject_in_a_group_is_not_tried_again(lab, executor):
    filled(lab, 1, "a", "b")
    handle = raising_once(Reject("no"), executor=executor)
    found = []
    run = Working(
        lab,
        handle,
        executor=executor,
        dead_letter=lambda record, failure: found.append((record.offset, failure)),
    )
    run.done(2)
    assert run.stop().dead_letters == 1
    ((offset, failure),) = found
    assert (offset, failure.attempts, str(failure.error)) == (0, 1, "no")


@pytest.mark.contract("W7")
@in_both
@simulated(seeds=1)
def test_a_stop_in_a_nested_group_stops_the_worker(lab, executor):
    filled(lab, 1, "a", "b")
    nested = ExceptionGroup("inner", [Pause(30.0), StopWorker()])
    run = Working(
        lab, raising_once(ValueError(), nested, executor=executor), executor=executor
    )
    assert run.ends() is None
    assert (run.report.done, committed(lab)) == (0, [0])


@pytest.mark.contract("W7")
@in_both
@simulated(seeds=1)
def test_a_group_of_errors_that_are_final_is_final(lab, executor):
    filled(lab, 1, "a", "b")
    handle = raising_once(ValueError("1"), ValueError("2"), executor=executor)
    never = Retry(never=(ValueError,))
    run = Working(lab, handle, executor=executor, retry=never, on_exhausted="skip")
    run.done(2)
    stats = run.worker.stats()
    assert (stats.skipped, stats.retries) == (1, 0)
    run.stop()


@pytest.mark.contract("W7")
@in_both
@simulated(seeds=1)
def test_a_group_of_an_outages_errors_opens_the_breaker(lab, executor):
    filled(lab, 1, "a", "b")
    handle = raising_once(ConnectionError(), ConnectionError(), executor=executor)
    breaker = Breaker(on=(OSError,), failures=1, first=5.0)
    run = Working(lab, handle, executor=executor, breaker=breaker)
    run.done(2)
    assert run.told(events.BreakerOpened)
    assert run.stop().committed


@pytest.mark.contract("W7")
@pytest.mark.filterwarnings("ignore:value_deserializer:DeprecationWarning")
@in_both
@simulated(seeds=1)
def test_a_batch_failure_in_a_group_names_the_records(lab, executor):
    """The deserializer fails the first record, so the handler's indexes are others."""
    filled(lab, 1, "bad", "b", "c")

    def read(data):
        if data == b"bad":
            name = "of a schema"
            raise ExceptionGroup(name, [ValueError(), KeyError()])
        return data.decode()

    found = []
    run = Working(
        lab,
        raising_once(BatchFailure({1: Reject()}), executor=executor),
        executor=executor,
        batch=3,
        settings={"value_deserializer": read},
        dead_letter=lambda record, _failure: found.append(record.offset),
    )
    run.done(3)
    assert sorted(found) == [0, 2]
    assert run.stop().dead_letters == 2
