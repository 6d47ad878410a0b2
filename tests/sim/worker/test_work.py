"""A worker handles each record in order, retries it, and commits it."""

import asyncio
from contextvars import ContextVar

import pytest
from kafka.structs import TopicPartition

from safeconsumer import (
    BatchFailure,
    Breaker,
    Commit,
    Drain,
    Pause,
    Reject,
    Retry,
    RetryLater,
    StopWorker,
    events,
)
from safeconsumer.errors import RecordFailedError, WorkerStateError
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    consumer,
    expel,
    filled,
    in_both,
    in_each_order,
    put,
)

EXACT = Retry(attempts=3, first=1.0, factor=2.0, jitter=False)


@pytest.mark.contract("W2", "W4")
@in_both
def test_handler_slower_than_max_poll_interval_does_not_evict_its_member(lab, executor):
    lab.topic("t", 2, records=1)
    handler = Handler(lab, **{"0": 7})
    more = {"max_poll_interval_ms": 3_000, "session_timeout_ms": 6_000}
    drain = Drain(revoke=1.0)
    run = Working(lab, handler, executor=executor, settings=more, drain=drain)
    run.owns(2)
    generation = lab.generation()
    run.done(2)
    assert (lab.members(), lab.generation()) == (1, generation)
    assert run.worker.stats().poll_gap < 1
    assert run.stop().committed
    assert committed(lab) == [1, 1]


@pytest.mark.contract("W7")
@in_both
def test_failed_record_is_retried_after_its_delays(lab, executor):
    filled(lab, 1, "", "bad", "late", "")
    seen = []

    def later(_record, context):
        seen.append((round(lab.now, 1), context.attempt))
        return RetryLater(4) if len(seen) < 3 else None

    handler = Handler(lab, bad=ValueError, late=later)
    run = Working(lab, handler, executor=executor, retry=EXACT, on_exhausted="skip")
    run.done(4)
    first, *others = handler.times("bad")
    assert [round(one - first, 1) for one in others] == [1.0, 3.0]
    assert [c.attempt for c in handler.calls if c.value == b"bad"] == [1, 2, 3]
    begin = seen[0][0]
    assert [(round(at - begin), n) for at, n in seen] == [(0, 1), (4, 1), (8, 1)]
    report = run.stop()
    assert (report.done, report.skipped, committed(lab)) == (4, 1, [4])
    delays = [one.delay for one in run.of_kind(events.RecordRetried)]
    assert delays == [1.0, 2.0, 4.0, 4.0]


@pytest.mark.contract("W7")
@in_both
def test_record_that_failed_for_good_stops_the_worker(lab, executor):
    lab.topic("t", 1)
    put(lab, lab.partitions("t")[0], "", "", "bad", "")
    run = Working(
        lab, Handler(lab, bad=ValueError("planted")), executor=executor, retry=EXACT
    )
    error = run.ends()
    assert isinstance(error, RecordFailedError)
    assert "t:0 offset 2" in str(error)
    assert str(error.__cause__) == "planted"
    assert committed(lab) == [2]
    (reported,) = run.of_kind(events.RecordExhausted)
    assert (reported.partition, reported.offset, reported.attempt) == ("t:0", 2, 3)
    assert "ValueError: planted" in reported.traceback
    assert lab.running() == []


@pytest.mark.contract("W7")
@in_both
@pytest.mark.parametrize("batch", [None, 2])
def test_context_variable_does_not_outlive_its_call(lab, executor, batch):
    """A context variable, such as a request's id, does not leak into the next record."""
    filled(lab, 1, *[""] * 6)
    bound = ContextVar("bound", default=0)
    seen = []

    def bind(_given, _context):
        before = bound.get()
        bound.set(len(seen) + 1)
        seen.append((before, bound.get()))

    async def wait(given, context):
        bind(given, context)
        mine = bound.get()
        await asyncio.sleep(0.1)
        assert bound.get() == mine

    handle = wait if executor == "asyncio" else bind
    run = Working(lab, handle, executor=executor, batch=batch, concurrency=1)
    run.done(6)
    assert [before for before, _ in seen] == [0] * len(seen)
    assert len(seen) == (6 if batch is None else 3)


@in_both
@pytest.mark.parametrize("raised", [StopWorker, SystemExit(7)])
def test_handler_can_stop_the_worker(lab, executor, raised):
    one, other = lab.topic("t", 2)
    put(lab, one, "", "", "ends", "")
    put(lab, other, "slow", "")
    handler = Handler(lab, ends=lambda *_: lab.now and raised, slow=5)
    run = Working(lab, handler, executor=executor)
    error = run.ends()
    assert type(error) is (SystemExit if raised is not StopWorker else type(None))
    assert committed(lab) == [2, 1]
    assert handler.offsets(1) == [0]


@pytest.mark.contract("W4")
def test_commits_are_sent_at_their_interval(lab):
    (tp,) = filled(lab, 1, "slow", "slow", "slow", "hangs")
    handler = Handler(lab, slow=1, hangs=100)
    run = Working(lab, handler, commit=Commit(every=5.0))
    seen = []
    for _ in range(80):
        lab.sleep(0.1)
        seen.append(lab.committed(tp))
    found = [one for one in dict.fromkeys(seen) if one is not None]
    assert found == [0, 3]
    stats = run.worker.stats()
    assert (stats.commits, stats.commit_lag) == (2, 0)


@pytest.mark.contract("W4")
@pytest.mark.parametrize("fault", ["refused", "cut", "lost", "down"])
def test_failed_commits_are_retried(lab, fault):
    lab.topic("t", 2, records=10)
    handler = Handler(lab, **{str(n): 0.5 for n in range(10)})
    run = Working(lab, handler, commit=Commit(every=2.0))
    run.done(4)
    how = {"refused": {"error": 15}, "cut": {"is_cut": True}, "lost": {"is_lost": True}}
    if fault == "down":
        lab.cluster.down(1)
        lab.sleep(5)
        lab.cluster.up(1)
    else:
        lab.cluster.fail("OffsetCommit", count=2, **how[fault])
    run.done(20)
    assert run.stop().committed
    assert committed(lab) == [10, 10]
    assert [len(handler.offsets(n)) for n in (0, 1)] == [10, 10]
    failed = run.worker.stats().commits_failed
    assert failed > 0 if fault == "down" else failed == 2


def test_worker_runs_once_and_reports_its_state(lab):
    (tp,) = lab.topic("t")
    run = Working(lab, Handler(lab, bad=ValueError), retry=Retry(attempts=1))
    assert run.worker.stats().state in ("new", "running")
    lab.until(run.worker.healthy, what="it is well")
    put(lab, tp, "", "bad")
    run.ends()
    health = run.worker.healthy()
    assert not health.is_alive
    assert health.reasons[0].startswith("it has ended: RecordFailedError(")
    with pytest.raises(WorkerStateError, match="runs once"):
        run.worker.run()
    again = Working(lab, Handler(lab), name="again", on_exhausted="skip")
    again.done(1)
    report = again.stop()
    assert again.worker.stop(timeout=1.0) == again.worker.stop(drain=False) == report
    health = again.worker.healthy()
    assert (health.is_alive, health.reasons) == (False, ("it has ended",))


@in_each_order
def test_finished_record_counts_as_done_while_its_handover_runs(lab, executor, order):
    filled(lab, 1, *[""] * 100, "slow", *[""] * 200)
    run = Working(
        lab,
        Handler(lab, slow=60.0),
        executor=executor,
        order=order,
        concurrency=1,
        drain=Drain(shutdown=1.0),
        settings={"max_poll_records": 500},
    )
    lab.sleep(5.0)
    assert run.worker.running() == {TopicPartition("t", 0): [100]}
    stats = run.worker.stats()
    assert stats.running > 1, "nothing was handed over together"
    assert (stats.done, stats.running + stats.queued, stats.lag) == (100, 201, 201)
    report = run.stop()
    assert (report.done, report.dropped) == (100, 201)
    (drained,) = run.of_kind(events.WorkDrained)
    (dropped,) = run.of_kind(events.WorkDropped)
    assert drained.running == dropped.running == stats.running
    assert dropped.severity == "warning"


def test_ordinary_stop_logs_no_warning_for_queued_records(lab):
    filled(lab, 1, *["slow"] * 9)
    run = Working(lab, Handler(lab, slow=2.0), concurrency=1)
    lab.sleep(1.0)
    assert run.stop().given_up == 0
    (dropped,) = run.of_kind(events.WorkDropped)
    assert (dropped.running, dropped.severity) == (0, "info")


def test_finished_record_of_a_lost_partition_does_not_count_as_running(lab):
    filled(lab, 1, *[""] * 100, "slow", *[""] * 200)
    settings = {"max_poll_records": 500}
    run = Working(lab, Handler(lab, slow=60.0), concurrency=1, settings=settings)
    lab.sleep(2.0)
    expel(lab)
    lab.until(lambda: run.of_kind(events.WorkDropped))
    (dropped,) = run.of_kind(events.WorkDropped)
    stats = run.worker.stats()
    assert (stats.done, stats.running) == (100, dropped.running)
    run.stop(drain=False)


def test_topic_not_looked_up_yet_is_not_reported_missing(lab):
    lab.topic("t", 1)
    reading = consumer(lab)
    late = lab.cluster.fail("Metadata", is_held=True)
    reading.subscribe(["nowhere"])
    why = reading._safe_hold_calls.consumed.reason_for_no_records
    lab.sleep(1)
    assert why() is None
    late.end()
    lab.until(lambda: why() == "topics that do not exist: nowhere")
    reading.close(autocommit=False)


# Handlers that raise an ExceptionGroup, as asyncio's TaskGroup does


def raising_once(*errors, executor):
    """Return a handler whose first call raises a group of these errors."""
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


ONCE = Retry(attempts=1)
NEVER = Retry(never=(ValueError,))
DELAYS = [RetryLater(2.0), RetryLater(5.0), RetryLater(1.0)]
BREAKER = Breaker(on=(OSError,), failures=1, first=4.0)


@pytest.mark.contract("W7")
@in_both
@pytest.mark.parametrize(
    ("errors", "options", "seconds"),
    [
        ([ValueError(), Pause(6.0)], {"retry": ONCE}, 6),
        (DELAYS, {"retry": ONCE}, 5),
        ([Reject("no")], {}, 0),
        ([ValueError("1"), ValueError("2")], {"retry": NEVER}, 0),
        ([ConnectionError()] * 2, {"retry": ONCE, "breaker": BREAKER}, 4),
    ],
    ids=["a pause", "the longest delay", "a reject", "final errors", "an outage"],
)
def test_exception_group_has_the_effect_of_its_errors(
    lab, executor, errors, options, seconds
):
    """A record waits for ``seconds``; with 0 it becomes a dead letter immediately."""
    filled(lab, 1, "a", "b")
    handle = raising_once(*errors, executor=executor)
    found = []
    run = Working(
        lab,
        handle,
        executor=executor,
        dead_letter=lambda record, failure: found.append((record.offset, failure)),
        **options,
    )
    run.done(2)
    assert seconds <= lab.now < seconds + 1
    assert (run.stop().committed, committed(lab)) == (True, [2])
    letters = [(0, 1)] if seconds == 0 else []
    assert [(offset, one.attempts) for offset, one in found] == letters


@pytest.mark.contract("W7")
@pytest.mark.filterwarnings("ignore:value_deserializer:DeprecationWarning")
@in_both
def test_batch_failure_in_a_group_names_the_records(lab, executor):
    """The deserializer fails on the first record, so index 1 of the batch is offset 2."""
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
