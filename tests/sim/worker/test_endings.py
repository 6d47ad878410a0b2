"""W8: a worker stops in bounded time, commits its work, and reports how it stopped."""

import asyncio
import contextlib
import contextvars
import sys

import pytest

from safeconsumer import (
    Commit,
    Control,
    Drain,
    Limits,
    Pump,
    Retry,
    SafeConsumer,
    Worker,
    events,
)
from safeconsumer.errors import (
    HandlersCannotRunError,
    LifespanError,
    RecordFailedError,
    WorkerStateError,
)
from tests.sim.playing import simulated
from tests.sim.worker.working import (
    OFTEN,
    RARELY,
    UNKNOWN_MEMBER,
    Handler,
    Working,
    committed,
    consumer,
    expel,
    filled,
    in_both,
    in_thread,
    planted_once,
    put,
    quick,
    taken,
)

eager = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="Python 3.12 brought eager tasks"
)


def ending(lab, run, **how):
    """Stop a worker; return how long the stop took, in seconds rounded to tenths."""
    at = lab.now
    run.stop(**how)
    return round(lab.now - at, 1)


@pytest.mark.contract("W6", "W8")
@in_both
def test_stop_waits_for_running_handlers(lab, executor):
    filled(lab, 2, "", "slow", *[""] * 6)
    handler = Handler(lab, slow=3)
    run = Working(lab, handler, executor=executor, commit=RARELY)
    run.done(2)
    run.stop()
    assert 0 <= lab.now - max(one.ended or 0.0 for one in handler.calls) < 0.5
    assert (run.report.done, run.report.dropped) == (4, 12)
    assert (committed(lab), run.report.committed) == ([2, 2], True)
    assert len(handler.calls) == 4


@pytest.mark.contract("W8")
@in_both
def test_stop_is_bounded_when_a_handler_hangs(lab, executor):
    filled(lab, 2, "", "hangs", "")
    handler = Handler(lab, hangs=50)
    drain = Drain(shutdown=3.0)
    run = Working(lab, handler, executor=executor, drain=drain)
    run.done(2)
    assert 3.0 <= ending(lab, run) <= 3.2
    report = run.report
    assert (report.done, report.dropped, report.given_up) == (2, 4, 2)
    assert (committed(lab), lab.members()) == ([1, 1], 0)
    assert 3.0 <= report.seconds <= 3.2


@pytest.mark.contract("W8")
@pytest.mark.parametrize("fault", ["down", "freeze", "silent", "silent, controlled"])
def test_stop_is_bounded_without_a_broker(lab, fault):
    """A stop takes at most 2 s longer than the drain, even with ``control=``."""
    one, other = lab.topic("t", 2)
    put(lab, one, *[""] * 10)
    put(lab, other, "hangs", "")
    control = Control(trust_topic=True, unavailable="run", run_after=0.1)
    for name in control.topics:
        lab.topic(name)
    settings = {"control": control} if "controlled" in fault else {}
    drain = Drain(shutdown=4.0)
    handler = Handler(lab, hangs=3600)
    run = Working(lab, handler, drain=drain, commit=RARELY, settings=settings)
    run.done(10)
    if "silent" in fault:
        lab.cluster.fail("*", is_held=True)
    else:
        getattr(lab.cluster, fault)(1)
    assert 4.0 <= ending(lab, run) <= 6.1
    report = run.report
    assert (report.done, report.dropped, report.given_up) == (10, 2, 1)
    assert not report.committed
    assert "hangs" not in str(lab.running())


def without_an_answer(lab, **options):
    """Start a rebalance while the broker holds back its responses to commits."""
    lab.topic("t", 2, records=1)
    run = Working(lab, Handler(lab), settings=quick(), **options)
    run.done(2)
    lost = lab.cluster.fail("OffsetCommit", is_held=True)
    lab.member(SafeConsumer, "t", name="other")
    lab.until(lambda: lost.kept)
    return run


@pytest.mark.contract("W8")
def test_commit_during_a_rebalance_counts_towards_the_drain(lab):
    drain, commit = Drain(shutdown=0.5), Commit(every=1000.0)
    run = without_an_answer(lab, drain=drain, commit=commit)
    assert ending(lab, run) <= 2.5
    assert not run.report.committed


@pytest.mark.contract("W6")
def test_unanswered_commit_delays_a_rebalance_by_a_second(lab):
    run = without_an_answer(lab, commit=Commit(every=1000.0))
    lab.sleep(2)
    assert run.worker.healthy().is_alive
    assert "JoinGroup" in lab.kinds()[-8:]


def test_manual_assignment_is_committed_at_the_end(lab):
    one, other = lab.topic("t", 2, records=5)
    reading = consumer(lab, auto_offset_reset="latest")
    reading.assign([one, other])
    run = Working(lab, Handler(lab), given=reading, commit=RARELY)
    lab.until(lambda: committed(lab) == [5, 5])
    put(lab, one, "", "")
    run.done(2)
    assert run.stop().committed
    assert committed(lab) == [7, 5]


def test_worker_stopped_before_its_start_does_not_join_a_group(lab):
    lab.topic("t", 1, records=1)
    handler = Handler(lab)
    worker = Worker(consumer(lab, "t"), handler)
    worker.stop()
    report = worker.run()
    assert (report.done, report.committed, handler.calls) == (0, True, [])
    assert "JoinGroup" not in lab.kinds()


@pytest.mark.contract("W4")
@pytest.mark.parametrize("done", [1, 2])
def test_report_after_a_loss_says_committed_only_if_everything_was_committed(lab, done):
    filled(lab, 1, "", *["late"] * (done - 1))
    run = Working(
        lab, Handler(lab, late=1.0), commit=Commit(every=0.2 if done == 1 else 60.0)
    )
    run.done(done)
    lab.sleep(0.5)
    lab.cluster.fail("OffsetCommit", error=UNKNOWN_MEMBER)
    lab.cluster.fail("Heartbeat", error=UNKNOWN_MEMBER)
    lab.cluster.fail("JoinGroup", error=15)
    lab.sleep(4)
    assert run.stop().committed == (done == 1)
    assert committed(lab) == [1 if done == 1 else 0]


@pytest.mark.parametrize("seconds", [60.0, 0.5])
def test_worker_waits_for_handlers_of_a_lost_ownership(lab, seconds):
    """The worker leaves its lifespan only after these handlers, unless it abandons them."""
    filled(lab, 1, "slow")
    order = []

    @contextlib.contextmanager
    def lifespan():
        yield
        order.append("left")

    def slow(_record, context):
        if order:
            return 0.0
        order.append("begun")
        lab.sleep(8)
        order.append("ended" if context.revoked.is_set() else "too early")
        return 0.0

    drain = Drain(shutdown=seconds)
    run = Working(lab, Handler(lab, slow=slow), lifespan=lifespan, drain=drain)
    lab.until(lambda: order)
    expel(lab)
    lab.until(lambda: run.worker.stats().dropped)
    assert run.worker.stats().running >= 1
    run.stop()
    lab.sleep(8)
    is_given_up = seconds < 1
    last = ["left", "ended"] if is_given_up else ["ended", "left"]
    assert (order, run.report.given_up) == (["begun", *last], is_given_up)


class PlantedError(Exception):
    """An error that only these tests raise."""


def planted(*_, **__):
    raise PlantedError


def test_last_commit_that_raises_ends_the_worker(lab):
    lab.topic("t", 1, records=1)
    run = Working(lab, Handler(lab), commit=RARELY)
    run.done(1)
    run.consumer.commit = planted
    report = run.worker.stop(timeout=30.0)
    assert isinstance(run.ends(), PlantedError)
    assert (report.done, report.committed) == (1, False)
    assert (run.worker.stats().state, lab.members()) == ("closed", 0)


@pytest.mark.parametrize("again", [False, True])
def test_worker_waits_for_running_handlers_when_poll_raises(lab, *, again):
    one, _ = lab.topic("t", 2)
    put(lab, one, "slow", "")
    run = Working(lab, Handler(lab, slow=5), drain=Drain(shutdown=8.0 - 6 * again))
    lab.until(lambda: run.worker.stats().running)
    poll, polls = run.consumer.poll, []

    def breaking(**how):
        polls.append(lab.now)
        return planted() if again or len(polls) == 1 else poll(**how)

    run.consumer.poll = breaking
    at = lab.now
    assert isinstance(run.ends(), PlantedError)
    assert round(lab.now - at) == (2 if again else 5)
    assert committed(lab) == [0 if again else 1, 0]
    assert len(polls) < 100


@pytest.mark.contract("W4", "W6")
@pytest.mark.parametrize("method", ["poll", "commit_async", "settle"])
def test_interrupt_skips_no_record(lab, method):
    filled(lab, 2, *["slow"] * 6)
    handler = Handler(lab, slow=0.5)
    settings = {"max_poll_records": 2}
    run = Working(lab, handler, commit=Commit(every=0.05), settings=settings)
    lab.until(lambda: run.worker.stats().running == 2)
    part = run.worker._engine.departures if method == "settle" else run.consumer
    setattr(part, method, planted_once(getattr(part, method), KeyboardInterrupt()))
    assert isinstance(run.ends(), KeyboardInterrupt)
    assert 2 <= sum(one or 0 for one in committed(lab)) == len(handler.calls) < 12
    again = Working(lab, handler, name="again")
    lab.until(lambda: committed(lab) == [6, 6])
    again.stop()
    assert [handler.offsets(n) for n in (0, 1)] == [[*range(6)]] * 2


@pytest.mark.contract("W4", "P18")
@pytest.mark.parametrize("target", [4, 6, 7])
def test_interrupt_after_a_seek_back_among_polled_records_skips_no_record(lab, target):
    """The records before the target were polled, and no handler has received them."""
    (tp,) = filled(lab, 1, "", "", "", "slow")
    handler = Handler(lab, slow=10.0)
    run = Working(lab, handler, commit=OFTEN, drain=Drain(shutdown=20.0))
    lab.until(lambda: committed(lab) == [3])
    poll, departures = run.consumer.poll, run.worker._engine.departures

    def sought(**how):
        polled = poll(**how)
        if polled:
            run.consumer.poll = poll
            run.consumer.seek(tp, target)
            departures.settle = planted_once(departures.settle, KeyboardInterrupt())
        return polled

    run.consumer.poll = sought
    lab.sleep(5.0)  # the poll that had started earlier ends
    put(lab, tp, *[""] * 4)
    assert isinstance(run.ends(), KeyboardInterrupt)
    again = Working(lab, handler, name="again", commit=OFTEN)
    lab.until(lambda: committed(lab) == [8])
    again.stop()
    assert {*handler.offsets()} == {*range(8)}


@pytest.mark.contract("W4", "W12")
def test_first_records_of_an_ownership_are_delivered_again_after_an_interrupt(lab):
    (tp,) = lab.topic("t", 1, records=5)
    latest = {"auto_offset_reset": "latest"}
    late = lab.cluster.fail("Fetch", is_held=True)
    handler = Handler(lab)
    run = Working(lab, handler, settings=latest)
    lab.until(lambda: late.kept)
    part = run.worker._engine.departures
    part.settle = planted_once(part.settle, KeyboardInterrupt())
    put(lab, tp, "", "", "")
    late.end()
    assert isinstance(run.ends(), KeyboardInterrupt)
    assert committed(lab) == [5]
    again = Working(lab, handler, name="again", settings=latest)
    again.done(3)
    again.stop()
    assert handler.offsets() == [5, 6, 7]


@pytest.mark.contract("W4")
def test_record_finished_during_the_last_commit_does_not_count_as_done(lab):
    filled(lab, 1, "", "slow", "", "")
    handler = Handler(lab, slow=4)
    drain = Drain(shutdown=1.0)
    run = Working(lab, handler, commit=RARELY, drain=drain, concurrency=1)
    lab.until(lambda: len(handler.calls) == 2)
    lab.sleep(2.5)
    lab.cluster.fail("OffsetCommit", delay=1.0)
    report = run.stop()
    assert handler.calls[1].ended is not None
    assert (report.done, report.dropped, committed(lab)) == (1, 3, [1])


def test_drain_time_starts_at_the_request_to_stop(lab):
    filled(lab, 1, "hangs")
    run = Working(lab, Handler(lab, hangs=60), drain=Drain(shutdown=3.0))
    lab.until(lambda: run.worker.stats().running)
    poll = run.consumer.poll
    run.consumer.poll = lambda **how: lab.sleep(4) or poll(**how)
    lab.sleep(0.5)
    at = lab.now
    run.stop()
    (drained,) = run.of_kind(events.WorkDrained)
    assert drained.seconds < 0.5
    assert lab.now - at < 5
    assert run.report.given_up == 1


class HangingHook:
    """A hook that hangs at one kind of event, or at all events while ``hangs`` is true."""

    def __init__(self, lab, seconds=10**9, kind=None):
        self._lab, self._seconds, self._kind = lab, seconds, kind
        self.hangs = False

    def __call__(self, event):
        if self.hangs or type(event) is self._kind:
            self._lab.sleep(self._seconds)


def with_hook(where, hook):
    if where == "on_event":
        return {"on_event": hook}
    return {"settings": {"hooks": [hook]}}


in_each_hook = pytest.mark.parametrize("where", ["on_event", "hooks"])


@pytest.mark.contract("W8")
@in_each_hook
@simulated(seeds=1, nightly=3)
def test_stop_is_bounded_when_a_hook_hangs(lab, where):
    """Another thread commits completed records and ends the membership."""
    (tp,) = filled(lab, 1, *[""] * 10)
    hook = HangingHook(lab, seconds=60)
    handler = Handler(lab, slow=5)
    run = Working(lab, handler, commit=RARELY, **with_hook(where, hook))
    run.done(10)
    put(lab, tp, "slow", "")
    lab.until(lambda: len(handler.calls) == 11)
    hook.hangs = True
    report = run.worker.stop(timeout=33.0)
    assert report is not None
    assert report.hanging == repr(hook)
    assert (report.done, report.committed) == (11, True)
    assert (committed(lab), lab.members()) == ([11], 0)
    assert (run.ends(), run.report) == (None, report)
    assert (committed(lab), lab.members()) == ([11], 0)


@pytest.mark.contract("W8")
@in_each_hook
@simulated(seeds=1, nightly=3)
def test_stop_is_bounded_when_a_hook_hangs_in_a_rebalance(lab, where):
    both = filled(lab, 2, *[""] * 10)
    hook = HangingHook(lab)
    handler = Handler(lab, hangs=3600)
    drain = Drain(shutdown=3.0)
    run = Working(lab, handler, commit=RARELY, drain=drain, **with_hook(where, hook))
    run.done(20)
    for tp in both:
        put(lab, tp, "hangs", "")
    lab.until(lambda: len(handler.calls) == 22)
    hook.hangs = True
    Working(lab, Handler(lab, hangs=3600), name="b")
    lab.sleep(5)
    report = run.worker.stop(timeout=6.0)
    assert report is not None
    assert (report.done, report.given_up) == (20, 2)
    assert [offset in (0, 10) for offset in committed(lab)] == [True, True]
    lab.until(lambda: lab.members() == 1)


@pytest.mark.contract("W8")
@pytest.mark.parametrize("kind", [events.WorkDrained, events.WorkerStopped])
def test_stop_is_bounded_when_a_hook_hangs_at_the_end(lab, kind):
    """The last commit precedes both events."""
    filled(lab, 1, *[""] * 10)
    hook = HangingHook(lab, kind=kind)
    run = Working(lab, Handler(lab), commit=RARELY, on_event=hook)
    run.done(10)
    report = run.worker.stop(timeout=3.0)
    assert report is not None
    assert (report.committed, report.hanging) == (True, repr(hook))
    assert (committed(lab), lab.members()) == ([10], 0)


@pytest.mark.contract("W8")
@in_both
def test_hook_that_hangs_in_a_handler_thread_is_named(lab, executor):
    (tp,) = filled(lab, 1, "", "fails", "")
    hook = HangingHook(lab, kind=events.RecordRetried)
    handler = Handler(lab, fails=ValueError)
    run = Working(
        lab,
        handler,
        executor=executor,
        concurrency=1,
        limits=Limits(age=3.0),
        drain=Drain(shutdown=1.0),
        on_event=hook,
    )
    lab.until(lambda: len(handler.calls) == 2)
    lab.sleep(2.0)
    assert run.worker.healthy()
    lab.sleep(2.0)
    put(lab, tp, "")
    health = run.worker.healthy()
    assert health.is_alive
    (reason,) = health.reasons
    assert reason == f"hook {hook!r} has not returned for 4.0 s, on 1 thread"
    report = run.stop()
    assert (report.hanging, report.committed) == (repr(hook), True)
    assert committed(lab) == [1]


@pytest.mark.contract("W8")
def test_hook_that_returns_in_time_is_not_named(lab):
    filled(lab, 1, *["fails"] * 10)
    hook = HangingHook(lab, kind=events.RecordRetried, seconds=0.9)
    retry = Retry(attempts=99, first=0.1)
    limits = Limits(age=1.0)
    handler = Handler(lab, fails=ValueError)
    run = Working(lab, handler, retry=retry, limits=limits, on_event=hook)
    for _ in range(10):
        lab.sleep(0.7)
        assert run.worker.healthy()
    assert run.stop().hanging is None


@pytest.mark.contract("W8")
def test_worker_waits_for_a_slow_hook(lab):
    filled(lab, 1, *[""] * 10)
    hook = HangingHook(lab, seconds=0.6)
    run = Working(lab, Handler(lab), commit=RARELY, on_event=hook)
    run.done(10)
    hook.hangs = True
    report = run.stop()
    assert (report.committed, report.hanging) == (True, None)
    assert not run.worker.hook_failures


@pytest.mark.contract("W8")
@simulated(seeds=1, nightly=3)
def test_serve_returns_while_a_hook_hangs(lab):
    filled(lab, 1, *[""] * 10)
    hook = HangingHook(lab, kind=events.WorkDrained)
    reading = consumer(lab, "t")
    worker = Worker(reading, Handler(lab), commit=RARELY, on_event=hook)

    async def serve():
        serving = asyncio.create_task(worker.serve())
        while worker.stats().done < 10:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.1)
        worker.stop()
        return await serving

    report = asyncio.run(serve())
    assert (report.committed, report.hanging) == (True, repr(hook))
    assert committed(lab) == [10]


@pytest.mark.contract("W8")
@in_each_hook
@simulated(seeds=1, nightly=3)
def test_exit_of_a_pump_is_bounded_when_a_hook_hangs(lab, where):
    filled(lab, 1, *[""] * 10)
    hook = HangingHook(lab)
    options = with_hook(where, hook)
    settings = {"max_poll_records": 10, **options.pop("settings", {})}
    with Pump(consumer(lab, "t", **settings), commit=RARELY, **options) as pump:
        (batch,) = taken(lab, pump, 10)
        hook.hangs = True
        in_thread(lambda: (lab.sleep(5), batch.done()))
        at = lab.now
    assert lab.now - at < 33
    assert committed(lab) == [10]


def test_second_worker_or_pump_of_a_consumer_is_refused(lab):
    lab.topic("t", 1, records=3)
    reading = consumer(lab, "t")
    second, pump = Worker(reading, Handler(lab)), Pump(reading)
    run = Working(lab, Handler(lab), given=reading)
    run.done(3)
    with pytest.raises(WorkerStateError, match="another Worker or Pump"):
        second.run()
    with pytest.raises(WorkerStateError, match="another Worker or Pump"), pump:
        pass
    assert run.stop().committed
    assert committed(lab) == [3]


def test_handler_can_read_its_deadline_during_a_drain(lab):
    filled(lab, 1, "obeys", "")
    reported = []

    def obeys(_record, context):
        while context.deadline is None:
            lab.sleep(0.1)
        reported.append(round(context.deadline - lab.world.monotonic(), 1))

    run = Working(lab, Handler(lab, obeys=obeys), drain=Drain(shutdown=9.0))
    lab.until(lambda: run.worker.stats().running)
    assert ending(lab, run) < 1
    assert 8.8 <= reported[0] <= 9.0
    assert run.report.done == 1


# Lifespans of workers


@in_both
@pytest.mark.parametrize("when", ["entered", "left", "no manager"])
def test_lifespan_that_raises_ends_run(lab, executor, when):
    lab.topic("t", 1, records=3)

    @contextlib.contextmanager
    def lifespan():
        if when == "entered":
            raise PlantedError
        yield
        raise PlantedError

    made = lifespan if when != "no manager" else lambda: 7
    options = {"executor": executor, "lifespan": made}
    run = Working(lab, Handler(lab), **options, on_exhausted="skip")
    if when == "left":
        run.done(3)
        run.worker.stop()
    error = run.ends()
    assert isinstance(error, LifespanError)
    assert isinstance(error, HandlersCannotRunError)
    assert committed(lab) == [3 if when == "left" else None]
    assert run.worker.stats().state == "closed"
    if when != "no manager":
        assert isinstance(error.__cause__, PlantedError)


@pytest.mark.contract("W8")
@in_both
@pytest.mark.parametrize("at", ["begin", "end"])
def test_lifespan_that_hangs_does_not_delay_the_stop(lab, executor, at):
    lab.topic("t", 1, records=3)

    @contextlib.contextmanager
    def lifespan():
        lab.sleep(50 * (at == "begin"))
        yield
        lab.sleep(50)

    drain = Drain(shutdown=1.0)
    handler = Handler(lab)
    run = Working(lab, handler, executor=executor, lifespan=lifespan, drain=drain)
    if at == "end":
        run.done(3)
    else:
        lab.sleep(2)
        assert run.worker.healthy().is_alive
        assert lab.members() == 0
    assert ending(lab, run) <= 3.0
    assert committed(lab) == [3 if at == "end" else None]
    assert len(handler.calls) == 3 * (at == "end")


@in_both
def test_lifespan_entered_after_the_stop_is_exited(lab, executor):
    lab.topic("t", 1, records=1)
    seen = []

    @contextlib.contextmanager
    def lifespan():
        lab.sleep(2)
        seen.append("entered")
        yield
        seen.append("left")

    handler = Handler(lab)
    run = Working(lab, handler, executor=executor, lifespan=lifespan)
    lab.sleep(1)
    run.stop()
    lab.sleep(2)
    assert (seen, handler.calls) == (["entered", "left"], [])


def test_async_lifespan_is_entered_in_the_loop_of_the_handlers(lab):
    lab.topic("t", 2, records=2)
    noted = []

    @contextlib.asynccontextmanager
    async def lifespan():
        async with asyncio.TaskGroup() as group:
            noted.append(asyncio.get_running_loop())
            yield group
        noted.append("left")

    async def later():
        await asyncio.sleep(3)
        noted.append("task")

    async def handle(_record, context):
        assert asyncio.get_running_loop() is noted[0]
        context.state.create_task(later())

    run = Working(lab, handle, executor="asyncio", lifespan=lifespan)
    run.done(4)
    run.stop()
    assert noted[1:] == ["task"] * 4 + ["left"]


# In the event loop of the program

VARIABLE = contextvars.ContextVar("VARIABLE")


def test_coroutines_run_in_the_loop_that_serves(lab):
    """Tasks that handlers leave behind continue in the user's loop."""
    lab.topic("t", 2, records=20)
    seen = set()
    left = []

    @contextlib.asynccontextmanager
    async def lifespan():
        seen.add(asyncio.get_running_loop())
        yield "state"

    async def handle(_record, context):
        seen.update((asyncio.get_running_loop(), VARIABLE.get(), context.state))
        left.append(asyncio.create_task(asyncio.sleep(20)))
        await asyncio.sleep(0.1)

    async def main():
        VARIABLE.set("ours")
        worker = Worker(
            consumer(lab, "t"), handle, executor="asyncio", lifespan=lifespan
        )
        serving = asyncio.create_task(worker.serve())
        while worker.stats().done < 40:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.05)
        worker.stop()
        report = await serving
        assert (report.done, report.committed) == (40, True)
        assert not any(task.done() for task in left)
        assert seen == {asyncio.get_running_loop(), "ours", "state"}
        with pytest.raises(WorkerStateError, match="runs once"):
            await worker.serve()
        await asyncio.gather(*left)

    asyncio.run(main())
    assert committed(lab) == [20, 20]


@pytest.mark.contract("W6", "W8")
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "tasks", ["thread", "asyncio", pytest.param("eager", marks=eager)]
)
def test_cancelled_serve_drains_and_a_second_cancel_gives_up(lab, tasks, times):
    filled(lab, 1, "slow", "", "")
    handler = Handler(lab, slow=4)
    executor = "thread" if tasks == "thread" else "asyncio"

    async def main():
        if tasks == "eager":
            asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        worker = Worker(consumer(lab, "t"), handler.on(executor), executor=executor)
        serving = asyncio.create_task(worker.serve())
        while not (handler.calls or serving.done()):  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.05)
        for _ in range(times):
            serving.cancel()
            await asyncio.sleep(1)
        assert serving.done() == (times == 2)
        with pytest.raises(asyncio.CancelledError):
            await serving
        report = worker.stop()
        assert report is not None
        assert (report.given_up, report.done) == ((0, 1) if times == 1 else (1, 0))

    asyncio.run(main())
    assert committed(lab) == [1 if times == 1 else 0]


@eager
@pytest.mark.parametrize("seconds", [None, 0, 1])
@pytest.mark.parametrize("batch", [None, 5])
def test_worker_served_with_eager_tasks_handles_all_records(lab, batch, seconds):
    """An eager task runs in ``create_task``, up to its first wait."""
    lab.topic("t", 2, records=20)
    left = []

    @contextlib.asynccontextmanager
    async def lifespan():
        yield "state"
        left.append("lifespan")

    async def handle(_record, context):
        assert context.state == "state"
        if seconds is not None:
            await asyncio.sleep(seconds)

    async def main():
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        worker = Worker(
            consumer(lab, "t"),
            handle,
            executor="asyncio",
            batch=batch,
            lifespan=lifespan,
        )
        serving = asyncio.create_task(worker.serve())
        while worker.stats().done < 40 and not serving.done():  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.05)
        worker.stop()
        report = await serving
        assert (report.done, report.committed) == (40, True)

    asyncio.run(main())
    assert committed(lab) == [20, 20]
    assert left == ["lifespan"]


def test_failed_worker_in_a_task_group_drains_the_others(lab):
    filled(lab, 1, "", "bad")
    failures = ["planted"]  # the other worker may get the record, too
    workers = []

    def bad(*_):
        return ValueError(failures.pop()) if failures else None

    async def main():
        handler = Handler(lab, bad=bad)
        for _ in range(2):
            once = Retry(attempts=1)
            one = Worker(
                consumer(lab, "t"), handler.wait, executor="asyncio", retry=once
            )
            workers.append(one)
        with pytest.RaisesGroup(RecordFailedError):
            async with asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(worker.serve())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await Worker(
                    consumer(lab, "t"), handler.wait, executor="asyncio"
                ).serve()

    asyncio.run(main())
    assert [worker.stats().state for worker in workers] == ["closed", "closed"]


def test_system_exit_in_a_task_of_a_handler_is_raised_after_the_drain(lab):
    lab.topic("t", 1, records=3)

    async def leave():
        raise SystemExit(7)

    async def handle(record, _context):
        if record.offset == 1:
            await asyncio.create_task(leave())

    run = Working(lab, handle, executor="asyncio")
    assert isinstance(run.ends(), SystemExit)
    assert committed(lab) == [1]
