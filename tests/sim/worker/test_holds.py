"""W10, W11: held records are not started; handlers, breakers and rates place holds."""

import asyncio
from collections import deque

import pytest

from safeconsumer import (
    Breaker,
    Drain,
    Pause,
    Retry,
    SafeConsumerError,
    StopWorker,
    events,
)
from safeconsumer.errors import HandlerTimeoutError
from safeconsumer.holds.hold import OUTAGE
from tests.harness.docs.pages import ROOT, blocks
from tests.harness.worker.journals import broken
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    expel,
    filled,
    in_both,
    in_each_order,
    put,
    quick,
)

ORDERS = pytest.mark.parametrize("order", ["partition", "key", "unordered"])
ONCE = Retry(attempts=1)
QUICK = quick()


@pytest.mark.contract("W10")
@ORDERS
@in_both
def test_no_further_handler_starts_after_a_pause(lab, executor, order):
    filled(lab, 2, *["slow"] * 20, keys="ab")
    handler = Handler(lab, slow=0.1)
    run = Working(lab, handler, executor=executor, order=order)
    run.done(10)
    run.consumer.pause("t:0", owner="somebody")
    at, before = lab.now, handler.offsets(0)
    run.done(20 + len(before))
    lab.sleep(1)
    assert handler.offsets(0) == before
    assert run.worker.stats().queued == 20 - len(before)
    assert all(
        c.ended is not None and c.began < at for c in handler.calls if not c.partition
    )
    run.consumer.resume("t:0", owner="somebody")
    run.done(40)
    found = handler.offsets(0)
    assert sorted(found) == [*range(20)]
    assert order != "partition" or found == [*range(20)]
    run.stop()


@pytest.mark.contract("W10")
def test_retry_that_is_due_waits_for_the_expiry_of_a_hold(lab):
    filled(lab, 1, "bad", "", "")
    handler = Handler(
        lab, bad=lambda _, context: ValueError if context.attempt == 1 else 0
    )
    retry = Retry(attempts=2, first=1.0, jitter=False)
    run = Working(lab, handler, retry=retry)
    lab.until(lambda: run.worker.stats().retries)
    run.consumer.pause_all(owner="somebody", for_=4.0)
    at = lab.now
    run.done(3)
    assert [c.attempt for c in handler.calls] == [1, 2, 1, 1]
    assert 4.0 <= handler.calls[1].began - at < 4.3


@pytest.mark.contract("W10")
@in_both
@ORDERS
def test_hold_placed_by_a_handler_stops_records_that_the_executor_already_has(
    lab, executor, order
):
    filled(lab, 1, *[""] * 10, "pauses", *[""] * 10, keys="a")
    handler = Handler(lab, pauses=lambda *_: run.consumer.pause("t", owner="x"))
    run = Working(lab, handler, executor=executor, order=order, concurrency=1)
    lab.until(run.consumer.holds)
    lab.sleep(1)
    before = len(handler.calls)
    assert before in ((11,) if order != "unordered" else range(1, 22))
    assert handler.calls[-1].value == b"pauses"
    run.consumer.resume("t", owner="x")
    run.done(21)
    assert sorted(handler.offsets()) == [*range(21)]
    run.stop()


@pytest.mark.contract("W8", "W10")
def test_stop_does_not_wait_for_held_records(lab):
    filled(lab, 1, *["slow"] * 20)
    run = Working(lab, Handler(lab, slow=0.5), drain=Drain(shutdown=20.0))
    run.done(3)
    run.consumer.pause_all(owner="somebody")
    at = lab.now
    report = run.stop()
    assert lab.now - at < 1
    assert (report.dropped, committed(lab)) == (20 - report.done, [report.done])


@pytest.mark.contract("W10", "W6")
def test_no_handler_starts_for_a_held_partition_after_its_revocation(lab):
    """The next owner has no hold, and works on the partition."""
    cooperative = quick("cooperative")
    filled(lab, 2, *["slow"] * 10)
    handlers = [Handler(lab, slow=0.1), Handler(lab, slow=0.1)]
    first = Working(lab, handlers[0], settings=cooperative)
    lab.until(lambda: len(handlers[0].calls) > 4)
    first.consumer.pause("t", owner="operator")
    lab.sleep(0.3)
    before = len(handlers[0].calls)
    second = Working(lab, handlers[1], name="b", settings=cooperative)
    second.owns(1)
    first.owns(1)
    (theirs,) = second.consumer.assignment()
    lab.until(lambda: lab.committed(theirs) == 10)
    second.stop()
    first.owns(2)
    lab.sleep(1)
    assert len(handlers[0].calls) == before
    first.consumer.resume("t", owner="operator")
    lab.until(lambda: committed(lab) == [10, 10])


# Handlers that place holds


@pytest.mark.contract("W9", "W11")
@in_both
@pytest.mark.parametrize("scope", ["partition", "topic", "all", "key"])
def test_handler_pauses_the_scope_that_it_names(lab, executor, scope):
    for tp in (*lab.topic("t", 2), *lab.topic("u", 1)):
        put(lab, tp, *["", ""] * 5, keys="ab")
    put(lab, lab.partitions("t")[0], "calls", "", "", keys="ab")
    handler = Handler(lab, calls=Pause(3.0, scope, "the service is down"))
    run = Working(lab, handler, "t", "u", executor=executor, order="key")
    lab.until(lambda: run.worker.stats().paused == (OUTAGE,) or scope == "key")
    lab.until(lambda: run.worker.stats().pauses == 1)
    at = lab.now
    if scope != "key":
        line = str(run.consumer.explain("t:0"))
        assert "held by worker:outage" in line
        assert "because the service is down" in line
        held = {tp for tp in run.consumer.assignment() if run.consumer.explain(tp)}
        assert len(held) == {"partition": 1, "topic": 2, "all": 3}[scope]
    for tp in (*lab.partitions("t"), *lab.partitions("u")):
        put(lab, tp, "new", keys="b")
    lab.sleep(1)
    began = {c.topic + str(c.partition) for c in handler.calls if c.value == b"new"}
    going = {
        "partition": {"t1", "u0"},
        "topic": {"u0"},
        "all": set(),
        "key": {"t0", "t1", "u0"},
    }
    assert began == going[scope]
    handler.does.clear()
    run.done(36)
    tries = [c for c in handler.calls if c.value == b"calls"]
    assert [c.attempt for c in tries] == [1, 1]
    assert 2.8 <= tries[1].began - at < 3.4
    assert run.consumer.holds() == ()
    run.stop()


@pytest.mark.contract("P6", "W6", "W11")
@pytest.mark.parametrize("what", ["moves", "is lost"])
def test_paused_partition_moves_to_another_member(lab, what):
    """The new owner has to pause by itself; after a lost membership the pause remains."""
    filled(lab, 2, "calls", *[""] * 5)
    handler = Handler(lab, calls=Pause(3600, "topic", "down"))
    runs = [Working(lab, handler, settings=QUICK, drain=Drain(revoke=2.0))]
    lab.until(lambda: runs[0].worker.stats().paused == (OUTAGE,))
    calls = len(handler.calls)
    if what == "moves":
        runs.append(Working(lab, handler, name="b", settings=QUICK))
        lab.until(lambda: runs[1].worker.stats().paused == (OUTAGE,))
        runs[0].owns(1)
        assert len(handler.calls) == calls + 1
    else:
        generation = lab.generation()
        expel(lab)
        lab.until(lambda: lab.generation() > generation and lab.members() == 1)
        lab.sleep(1)
        assert len(handler.calls) == calls
    assert runs[0].worker.stats().paused == (OUTAGE,)
    handler.does.clear()
    for run in runs:
        run.consumer.resume_all(OUTAGE)
    lab.until(lambda: committed(lab) == [6, 6])


@pytest.mark.contract("W11")
@ORDERS
def test_breaker_holds_a_topic_during_an_outage(lab, tmp_path, order):
    """The topic is tried again after 1 s, and then every 2 s."""
    filled(lab, 2, *["calls"] * 10, keys="ab")
    handler = Handler(lab, calls=ConnectionError("the service is down"))
    breaker = Breaker(
        on=(ConnectionError,), failures=3, first=1.0, factor=2.0, most=2.0
    )
    retry = Retry(attempts=9, first=0.2, jitter=False)
    run = Working(
        lab,
        handler,
        order=order,
        breaker=breaker,
        retry=retry,
        concurrency=2,
        settings={"journal": tmp_path},
    )
    lab.until(lambda: run.worker.stats().breaker_open)
    assert "ConnectionError" in str(run.consumer.explain("t:1"))
    at, before = lab.now, len(handler.calls)
    lab.sleep(4.5)
    tries = [round(c.began - at) for c in handler.calls[before:]]
    assert tries == [1, 3]
    assert "tries that have failed since: 2" in str(run.consumer.explain("t:1"))
    health = run.worker.healthy()
    assert health.is_alive
    assert "stopped by a breaker" in str(health.reasons)
    handler.does.clear()
    run.done(20)
    stats = run.worker.stats()
    assert (stats.breaker_open, stats.breaker_opened, stats.skipped) == (0, 1, 0)
    assert run.worker.healthy()
    assert [one.tries for one in run.of_kind(events.BreakerClosed)] == [2]
    assert max(c.attempt for c in handler.calls) <= 4
    run.stop()
    assert committed(lab) == [10, 10]
    assert broken(tmp_path) == set()


@pytest.mark.contract("W11")
def test_breaker_keeps_its_interval_after_the_loss_of_all_records(lab):
    filled(lab, 1, *["calls"] * 10)
    handler = Handler(lab, calls=ConnectionError("the service is down"))
    breaker = Breaker(on=(ConnectionError,), failures=1, first=1.0, factor=1.0)
    run = Working(
        lab, handler, order="unordered", breaker=breaker, concurrency=1, settings=QUICK
    )
    lab.until(lambda: run.worker.stats().breaker_open)
    expel(lab)
    lab.until(lambda: run.of_kind(events.WorkDropped))
    before = len(handler.calls)
    lab.sleep(3.1)
    assert 2 <= len(handler.calls) - before <= 3
    handler.does.clear()
    run.done(10)


# How long handlers take, and how many run


@pytest.mark.contract("W7")
def test_only_the_coroutine_over_its_limit_is_cancelled(lab):
    """The coroutine may tidy up, and other records are handled once."""
    letters = []
    filled(lab, 2, "", "hangs", "", "")
    handler = Handler(lab, hangs=60)
    tidied = []

    async def handle(record, context):
        try:
            await handler.wait(record, context)
        finally:
            await asyncio.sleep(0)
            tidied.append(record.offset)

    run = Working(
        lab,
        handle,
        executor="asyncio",
        handler_timeout=2.0,
        retry=Retry(attempts=2, first=1.0, jitter=False),
        dead_letter=lambda record, failure: letters.append((record.offset, failure)),
    )
    run.done(8)
    assert (run.stop().dead_letters, committed(lab)) == (2, [4, 4])
    assert handler.offsets(0) == handler.offsets(1) == [0, 1, 1, 2, 3]
    hung = [c for c in handler.calls if c.value == b"hangs"]
    assert {round((c.ended or 0) - c.began, 1) for c in hung} == {2.0}
    assert len(tidied) == 10
    for offset, failure in letters:
        assert (offset, failure.attempts) == (1, 2)
        assert isinstance(failure.error, HandlerTimeoutError)
        assert isinstance(failure.error, TimeoutError)
        assert isinstance(failure.error, SafeConsumerError)
        assert "longer than 2 s" in str(failure.error)


@pytest.mark.contract("W7")
def test_batch_over_its_time_limit_is_retried_record_by_record(lab):
    """A ``TimeoutError`` that the handler raises itself is an ordinary failure."""
    filled(lab, 1, "", "", "hangs", "own")
    calls = []

    async def handle(records, _context):
        for one in records:
            calls.append(one.offset)
            if one.value == b"hangs":
                await asyncio.sleep(60)
            if one.value == b"own":
                async with asyncio.timeout(0.1):
                    await asyncio.sleep(60)

    run = Working(
        lab,
        handle,
        executor="asyncio",
        batch=4,
        handler_timeout=1.0,
        retry=ONCE,
        on_exhausted="skip",
    )
    run.done(4)
    assert sorted(calls) == [0, 0, 1, 1, 2, 2, 3]
    gone = {one.offset: one.error for one in run.of_kind(events.RecordExhausted)}
    assert "HandlerTimeoutError" in gone[2]
    assert gone[3] == "TimeoutError()"
    run.stop()


@in_both
def test_handler_that_cannot_be_cancelled_is_reported(lab, executor):
    """The handler may still succeed afterwards."""
    filled(lab, 1, "blocks")

    def blocks(*_):
        lab.sleep(4)

    handler = Handler(lab, blocks=blocks)
    run = Working(lab, handler, executor=executor, handler_timeout=1.0, retry=ONCE)
    lab.until(lambda: handler.calls)
    lab.sleep(0.8)
    assert run.worker.healthy()
    lab.sleep(1.5)
    assert "t:0 offset 0" in str(run.worker.healthy().reasons)
    assert "handler has run for" in str(run.worker.healthy().reasons)
    lab.sleep(2.5)
    if executor == "thread":
        run.done(1)
        assert run.worker.healthy()
    run.stop()


@pytest.mark.contract("W6", "W8", "W10")
@pytest.mark.parametrize("why", ["stop", "rebalance", "hold"])
def test_handler_timeout_ends_a_drain_early(lab, why):
    filled(lab, 2, "", "hangs", "")
    hangs = [60, 60]
    handler = Handler(lab, hangs=lambda *_: hangs.pop() if hangs else 0)
    run = Working(
        lab,
        handler,
        executor="asyncio",
        handler_timeout=3.0,
        settings={**QUICK, "max_poll_interval_ms": 300_000},
        drain=Drain(revoke=60.0, shutdown=60.0),
        retry=Retry(attempts=2, first=0.1),
    )
    lab.until(lambda: len(handler.calls) == 4)
    at = lab.now
    if why == "stop":
        report = run.stop()
        assert 2.8 <= lab.now - at < 3.5
        assert (report.done, report.given_up, committed(lab)) == (2, 0, [1, 1])
        return
    if why == "hold":
        run.consumer.pause_all(owner="somebody")
        lab.sleep(4)
        assert (len(handler.calls), run.worker.running()) == (4, {})
        run.consumer.resume_all(owner="somebody")
    else:
        other = Working(lab, handler, name="b", settings=QUICK)
        other.owns(1)
        assert 2.8 <= lab.now - at < 4
    lab.until(lambda: committed(lab) == [3, 3])


@pytest.mark.contract("W8")
@in_both
@pytest.mark.parametrize("by", ["stop", "handler"])
def test_stopping_worker_does_not_wait_until_a_batch_is_full(lab, executor, by):
    one, other = lab.topic("t", 2)
    sizes = []

    def handle(records, _context):
        sizes.append(len(records))
        raise StopWorker

    run = Working(lab, handle, executor=executor, batch=4, batch_within=3600.0)
    put(lab, one, "", "")
    lab.until(lambda: run.worker.stats().queued == 2)
    if by == "handler":
        put(lab, other, "", "", "", "")
    else:
        run.worker.stop()
    at = lab.now
    run.ends()
    assert lab.now - at < 1
    assert sizes == [4] * (by == "handler")
    assert (run.report.done, committed(lab)) == (0, [0, 0])


# A rate limit by pauses, as in the guide; a pause without an error raises no alarm


PAGE = ROOT / "docs" / "how-to" / "slow-handlers.md"


def rate_of_the_page(calls, seconds):
    names = {"__name__": "page"}
    (text,) = [one.code for one in blocks(PAGE) if "def take_turn" in one.code]
    exec(text, names)  # noqa: S102 - the page's own code
    names["began"] = deque(maxlen=calls)
    return lambda: names["take_turn"](seconds)


@pytest.mark.contract("W11")
@in_each_order
def test_recipe_limits_the_rate_and_keeps_the_worker_healthy(lab, executor, order):
    filled(lab, 4, *["v"] * 10, keys="abcdef")
    take_turn = rate_of_the_page(5, 2.0)
    times = []
    calls = 0

    def handle(_record, _context):
        nonlocal calls
        calls += 1
        take_turn()
        times.append(lab.now)

    run = Working(lab, handle, executor=executor, order=order)
    for done in (10, 20, 30, 40):
        run.done(done)
        assert run.worker.healthy()
    assert all(b - a >= 1.99 for a, b in zip(times, times[5:], strict=False))
    assert times[-1] - times[0] < 17
    assert calls < 3 * 40
    assert run.of_kind(events.WorkPaused)
    assert {one.severity for one in run.events} <= {"debug", "info"}
    run.stop()


@pytest.mark.contract("W11")
@in_both
def test_pause_event_is_a_warning_only_if_the_pause_has_a_cause(lab, executor):
    filled(lab, 1, "plain", "from", "in", "none")
    seen = set()

    def handle(record, _context):
        if record.value in seen:
            return
        seen.add(record.value)
        if record.value == b"plain":
            raise Pause(1.0)
        try:
            {}["the cause"]
        except KeyError as error:
            if record.value == b"from":
                raise Pause(1.0) from error
            if record.value == b"none":
                raise Pause(1.0) from None
            raise Pause(1.0)  # noqa: B904 - the test needs no explicit cause

    run = Working(lab, handle, executor=executor)
    run.done(4)
    reported = run.of_kind(events.WorkPaused)
    assert [one.severity for one in reported] == ["info", "warning", "warning", "info"]
    assert run.worker.stats().alarms["work_paused"] == 2
    run.stop()
