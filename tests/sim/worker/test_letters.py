"""W7: a record that failed for good becomes a dead letter, or goes to the policy."""

import asyncio
import json
from concurrent.futures import Future
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from kafka.serializer import Deserializer

from safeconsumer import (
    DeadLetter,
    Drain,
    Limits,
    Reject,
    Retry,
    SafeConsumer,
    events,
)
from safeconsumer.errors import (
    DeadLetterLimitError,
    DeserializationError,
    HandlersCannotRunError,
    RecordFailedError,
)
from safeconsumer.testing._batches import NewRecord
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    expel,
    fails,
    filled,
    in_both,
    in_each_order,
    producer,
    put,
)

ONCE = Retry(attempts=1, first=1.0, most=1.0, jitter=False)
UNKNOWN_TOPIC, INVALID_TOPIC, NOT_ENOUGH_REPLICAS, NOT_AUTHORIZED = 3, 17, 19, 29


def rejects(*_):
    raise Reject


def letters(lab):
    """Read the records of the dead-letter topic."""
    (tp,) = lab.partitions("dead")
    reading = SafeConsumer(group_id=None, **lab.settings())
    reading.assign([tp])
    end = reading.end_offsets([tp])[tp]
    found = []
    while reading.position(tp) < end:
        found += reading.poll(1000).get(tp, [])
    reading.close()
    return found


def working(lab, dead_letter, *values, **options):
    """Start a worker on one partition with these values; ``bad`` ones fail."""
    filled(lab, 1, *values)
    handler = Handler(lab, bad=fails, reject=Reject("planted"))
    options = {"retry": ONCE, **options}
    return Working(lab, handler, dead_letter=dead_letter, **options)


@pytest.mark.contract("W7")
@in_both
def test_acknowledged_dead_letter_completes_its_record(lab, executor):
    filled(lab, 2, "", "bad", "reject", "", keys="ab")
    handler = Handler(lab, bad=fails, reject=Reject("planted"))
    run = Working(
        lab,
        handler,
        executor=executor,
        retry=Retry(attempts=3, first=0.1),
        dead_letter=DeadLetter(producer(lab), "dead", max_ratio=None),
    )
    run.done(8)
    report = run.stop()
    assert (report.dead_letters, committed(lab)) == (4, [4, 4])
    assert handler.offsets(0) == handler.offsets(1) == [0, 1, 1, 1, 2, 3]
    found = [
        one
        for one in letters(lab)
        if dict(one.headers)["dead-letter-partition"] == b"0"
    ]
    assert [(one.key, one.value) for one in found] == [
        (b"b", b"bad"),
        (b"a", b"reject"),
    ]
    headers = dict(found[0].headers)
    expected = {
        "topic": b"t",
        "offset": b"1",
        "group": b"g",
        "attempts": b"3",
        "exception": b"builtins.ValueError",
        "message": b"the effect",
    }
    assert {name: headers[f"dead-letter-{name}"] for name in expected} == expected
    assert b"in fails" in headers["dead-letter-stack"]
    reported = next(iter(run.of_kind(events.RecordExhausted)))
    for part in ("KeyError: 'the cause'", "ValueError: the effect", "in fails"):
        assert part in reported.traceback


@pytest.mark.contract("W7")
def test_dead_letter_carries_nulls_and_any_error(lab):
    """A header names the part that was null, and long texts are shortened."""

    class UnshownError(Exception):
        def __repr__(self):
            message = "planted"
            raise RuntimeError(message)

        __str__ = __repr__

    (tp,) = lab.topic("t")
    records = [
        NewRecord(value=None, headers=[("a", None), ("b", b"1")]),
        NewRecord(value=b"long"),
        NewRecord(value=b"unshown"),
    ]
    lab.cluster.append("t", 0, records)
    raised = {
        "": ValueError(),
        "long": ValueError("x" * 2_000_000),
        "unshown": UnshownError(),
    }
    run = Working(
        lab,
        Handler(lab, **raised),
        retry=ONCE,
        dead_letter=DeadLetter(producer(lab), "dead", max_ratio=None),
    )
    run.done(3)
    assert (run.stop().dead_letters, lab.committed(tp)) == (3, 3)
    null, long, unshown = [dict(one.headers) for one in letters(lab)]
    assert (null["a"], null["b"]) == (b"", b"1")
    assert null["dead-letter-null-headers"] == b"a"
    assert null["dead-letter-null-value"] == b"true"
    assert len(long["dead-letter-message"]) < 5_000
    assert b"UnshownError" in unshown["dead-letter-exception"]


@pytest.mark.contract("W7")
@pytest.mark.parametrize("then", ["brief", "stop", "skip", "block"])
def test_too_large_dead_letter_is_shortened_or_left_to_on_exhausted(lab, then):
    size = 32_000 if then == "brief" else 20_000
    small = producer(lab, max_request_size=size, enable_idempotence=False)
    (tp,) = lab.topic("t")
    large = "v" * 30_000
    put(lab, tp, large, "good")
    run = Working(
        lab,
        Handler(lab, **{large: ValueError("x" * 4_000)}),
        retry=ONCE,
        on_exhausted="skip" if then == "brief" else then,
        dead_letter=DeadLetter(small, "dead", max_ratio=None),
    )
    if then == "stop":
        error = run.ends()
        assert isinstance(error, RecordFailedError)
        assert "MessageSizeTooLarge" in str(error)
    elif then == "block":
        lab.sleep(3)
        run.stop()
        (failed,) = run.of_kind(events.DeadLetterFailed)
        assert (failed.then, failed.attempt) == (then, 2)
    else:
        run.done(2)
        report = run.stop()
        assert (report.skipped, report.dead_letters) == (
            (0, 1) if then == "brief" else (1, 0)
        )
    assert lab.committed(tp) == (0 if then in ("stop", "block") else 2)
    if then == "brief":
        (letter,) = letters(lab)
        headers = dict(letter.headers)
        assert (letter.value, headers["dead-letter-offset"]) == (large.encode(), b"0")
        assert "dead-letter-stack" not in headers


@pytest.mark.contract("W7")
@pytest.mark.parametrize("error", [INVALID_TOPIC, NOT_AUTHORIZED])
@pytest.mark.parametrize("then", ["stop", "skip", "block"])
def test_dead_letter_that_can_never_be_sent_goes_to_the_policy(lab, then, error):
    lab.cluster.fail("Produce", error=error)
    sent = DeadLetter(producer(lab, enable_idempotence=False), "dead", max_ratio=None)
    run = working(lab, sent, "", "bad", "", on_exhausted=then)
    if then == "stop":
        error = run.ends()
        assert isinstance(error, RecordFailedError)
        assert "it cannot be a dead letter" in str(error)
    else:
        run.done(3 if then == "skip" else 1)
        lab.sleep(10)
        assert run.stop().skipped == (then == "skip")
    assert committed(lab) == [3 if then == "skip" else 1]
    (failed,) = run.of_kind(events.DeadLetterFailed)
    assert (failed.attempt, failed.delay, failed.then) == (1, None, then)
    assert letters(lab) == []


@pytest.mark.contract("W7")
@pytest.mark.parametrize(
    ("then", "error", "executor"),
    [
        ("stop", UNKNOWN_TOPIC, "asyncio"),
        ("skip", UNKNOWN_TOPIC, "thread"),
        ("block", NOT_ENOUGH_REPLICAS, "asyncio"),
    ],
    ids=["stop-asyncio", "skip-thread", "block-asyncio"],
)
def test_missing_dead_letter_topic_does_not_stop_the_worker(lab, then, error, executor):
    """The outage lasts ten times as long as all attempts together."""
    away = lab.cluster.fail("Produce", error=error)
    retry = Retry(attempts=3, first=1.0, most=2.0, jitter=False)
    to = producer(lab, retries=0, enable_idempotence=False)
    run = working(
        lab,
        DeadLetter(to, "dead", max_ratio=None),
        *("", "bad", "", "reject", ""),
        retry=retry,
        on_exhausted=then,
        executor=executor,
        limits=Limits(age=3.0),
    )
    run.done(1)
    lab.sleep(30)
    assert run.error is None
    failed = run.of_kind(events.DeadLetterFailed)
    assert len(failed) > 9
    assert [(one.attempt, one.delay) for one in failed[:3]] == [(1, 1), (2, 2), (3, 2)]
    assert {one.then for one in failed} == {"retry"}
    assert "t:0 offset 1" in str(run.worker.healthy().reasons)
    assert committed(lab) == [1]
    away.end()
    run.done(5)
    report = run.stop()
    assert (report.dead_letters, report.skipped, committed(lab)) == (2, 0, [5])
    found = [dict(one.headers)["dead-letter-attempts"] for one in letters(lab)]
    assert found == [b"3", b"1"]


@pytest.mark.contract("W7", "W10")
@pytest.mark.parametrize("order", ["partition", "key", "unordered"])
def test_worker_is_healthy_while_a_dead_letter_waits_under_a_hold(lab, order):
    def held_meanwhile(*_):
        run.consumer.pause("t", owner="ops")
        fails()

    filled(lab, 1, "", "bad", "")
    run = Working(
        lab,
        Handler(lab, bad=held_meanwhile),
        dead_letter=lambda *_: lab.sleep(20),
        order=order,
        retry=ONCE,
        limits=Limits(age=10.0),
    )
    lab.until(lambda: run.of_kind(events.RecordExhausted))
    lab.sleep(25)
    assert run.worker.healthy()
    run.consumer.resume("t", owner="ops")
    lab.sleep(15)
    assert "offset 1 failed for good" in str(run.worker.healthy().reasons)
    run.done(3)
    assert run.worker.healthy()


@pytest.mark.contract("W7", "W10")
def test_record_without_a_dead_letter_also_blocks_under_a_hold(lab):
    (tp,) = filled(lab, 1, "bad")
    run = Working(
        lab,
        Handler(lab, bad=fails),
        dead_letter=rejects,
        retry=ONCE,
        on_exhausted="block",
        limits=Limits(age=10.0),
    )
    lab.until(lambda: run.of_kind(events.DeadLetterFailed))
    run.consumer.pause(tp, owner="ops")
    lab.sleep(15)
    assert "offset 0 failed for good" in str(run.worker.healthy().reasons)


@pytest.mark.contract("W7")
def test_refused_dead_letter_is_retried_and_does_not_delay_other_partitions(lab):
    filled(lab, 2, "bad", "")
    tried = []

    def sink(record, _failure):
        if record.partition == 0:
            tried.append(lab.now)
            if len(tried) < 4:
                raise OSError

    retry = Retry(attempts=1, first=1.0, factor=2.0, jitter=False)
    run = Working(lab, Handler(lab, bad=fails), dead_letter=sink, retry=retry)
    run.done(2)
    assert len(tried) == 1
    run.done(4)
    assert [round(one - tried[0]) for one in tried] == [0, 1, 3, 7]
    assert run.stop().dead_letters == 2


@pytest.mark.contract("W7")
@pytest.mark.parametrize("fails", [False, True])
def test_unacknowledged_dead_letter_is_not_sent_twice(lab, *, fails):
    """The first send may still succeed; the next send starts once the first has failed."""
    futures = []

    class Slow:
        def send(self, *_, **__):
            futures.append(Future())
            return futures[-1]

    run = working(lab, DeadLetter(Slow(), "dead"), "bad")
    lab.sleep(12)
    (slow,) = run.of_kind(events.HandlerStalled)
    assert (round(slow.seconds), slow.is_letter) == (5, True)
    (first,) = futures
    assert committed(lab) == [0]
    first.set_exception(OSError()) if fails else first.set_result(None)
    lab.sleep(3)
    if fails:
        assert committed(lab) == [0]
        lab.sleep(6)
        assert len(run.of_kind(events.HandlerStalled)) == 2
        futures[1].set_result(None)
    run.done(1)
    assert run.stop().dead_letters == 1
    assert len(futures) == 1 + fails


@pytest.mark.contract("W5", "W8")
@in_both
@pytest.mark.parametrize("answers", [True, False])
def test_dead_letters_in_flight_are_part_of_the_drain(lab, executor, *, answers):
    answer = Future()
    options = {"executor": executor, "drain": Drain(shutdown=3.0)}
    run = working(lab, lambda *_: answer, "bad", **options)
    lab.until(
        lambda: run.of_kind(events.RecordExhausted) and run.worker.stats().running
    )
    lab.world.call_later(1.0, lambda: answers and answer.set_result(None))
    at = lab.now
    report = run.stop()
    assert (1.0 if answers else 3.0) <= lab.now - at <= (1.2 if answers else 3.2)
    assert (report.dead_letters, report.dropped) == (answers, not answers)
    assert committed(lab) == [int(answers)]


@pytest.mark.contract("W8")
def test_waiting_dead_letter_does_not_delay_the_end(lab):
    def sink(*_):
        raise ConnectionError

    slow = Retry(attempts=1, first=60.0, most=60.0)
    run = working(lab, sink, "bad", retry=slow)
    lab.until(lambda: run.of_kind(events.DeadLetterFailed))
    at = lab.now
    report = run.stop()
    assert (report.dead_letters, report.dropped) == (0, 1)
    assert lab.now - at < 1


def raising(error):
    def function(*_, **__):
        raise error

    return function


async def sent_later():
    """No code awaits this coroutine, so it never runs."""


class PoolsResult:
    """A result like that of a process pool, which does not call callbacks."""

    def ready(self):
        return False

    def get(self, timeout):
        """Wait for the result."""


A_LOOP = SimpleNamespace(get_debug=bool)
AWAY = raising(ConnectionError())
UPSTREAM = SimpleNamespace(send=raising(AssertionError()))


@pytest.mark.contract("W7")
@pytest.mark.parametrize(
    ("sink", "skipped"),
    [
        (raising(Reject("not here")), 1),
        (DeadLetter(UPSTREAM, "dead", max_ratio=None), 1),
        (lambda *_: {"status": 200}, 0),
        (Mock(return_value=None), 0),
    ],
    ids=["reject", "unsendable", "mapping", "mock"],
)
def test_result_of_a_sink_decides_between_dead_letter_and_skip(lab, sink, skipped):
    run = working(lab, sink, "bad", "", on_exhausted="skip")
    run.done(2)
    report = run.stop()
    assert (report.skipped, report.dead_letters) == (skipped, 1 - skipped)


@pytest.mark.contract("W7")
@pytest.mark.parametrize(
    "sink",
    [
        AWAY,
        lambda *_: sent_later(),
        lambda *_: asyncio.Future(loop=A_LOOP),
        lambda *_: PoolsResult(),
        lambda *_: OSError(),
        lambda *_: Mock(),
    ],
    ids=["exits", "coroutine", "loop's", "pool's", "exception", "mock"],
)
def test_sink_that_never_reports_its_result_ends_the_worker(lab, sink):
    def hook(event):
        if isinstance(event, events.DeadLetterFailed):
            raise SystemExit(3)

    run = working(lab, sink, "bad", "", on_exhausted="skip", on_event=hook)
    error = run.ends()
    assert isinstance(error, HandlersCannotRunError)
    assert isinstance(error.__cause__, SystemExit) == (sink is AWAY)
    assert committed(lab) == [0]


@pytest.mark.contract("W7")
def test_dead_letter_survives_a_cancellation_left_by_a_handler(lab):
    filled(lab, 1, "", "bad", "")
    sent = []

    async def handle(record, _context):
        if record.value == b"bad":
            raise Reject
        if record.offset == 0:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            loop.call_later(1.0, task.cancel)

    def sink(record, _failure):
        lab.sleep(3)
        sent.append(record.offset)

    options = {"executor": "asyncio", "concurrency": 1, "retry": ONCE}
    run = Working(lab, handle, dead_letter=sink, **options)
    run.done(3)
    report = run.stop()
    assert (sent, report.dead_letters, committed(lab)) == ([1], 1, [3])


@in_both
def test_slow_sink_is_reported_once(lab, executor):
    run = working(lab, lambda *_: lab.sleep(12), "bad", executor=executor)
    run.done(1)
    (reported,) = run.of_kind(events.HandlerStalled)
    assert reported.is_letter
    assert 5 <= reported.seconds < 6
    assert run.stop().dead_letters == 1


# Records that cannot be deserialized


def as_json(data):
    return json.loads(data)


@pytest.mark.contract("W7")
@pytest.mark.filterwarnings("ignore:value_deserializer:DeprecationWarning")
@pytest.mark.parametrize("how", ["thread", "asyncio", "batch"])
def test_record_that_cannot_be_deserialized_becomes_a_dead_letter(lab, how):
    """The letter has the original bytes."""
    filled(lab, 1, '{"k": 1}', "{bad", '{"k": 2}', '{"k": 3}')
    found = []
    values = []

    def handle(given, _context):
        values.extend(one.value for one in ([given] if how != "batch" else given))

    options = {"batch": 5} if how == "batch" else {"executor": how}
    run = Working(
        lab,
        handle,
        settings={"value_deserializer": as_json},
        dead_letter=lambda record, failure: found.append((record, failure)),
        **options,
    )
    run.done(4)
    assert (run.stop().dead_letters, committed(lab)) == (1, [4])
    ((record, failure),) = found
    assert (record.offset, record.value, failure.attempts) == (1, b"{bad", 1)
    assert isinstance(failure.error, DeserializationError)
    assert sorted(one["k"] for one in values) == [1, 2, 3]


def test_request_to_an_unreachable_schema_registry_is_retried(lab):
    filled(lab, 1, "v")
    away = [ConnectionError("planted"), ConnectionError("planted")]
    values = []

    class Registry(Deserializer):
        def deserialize(self, _topic, _headers, data):
            if away:
                raise away.pop()
            return data.decode()

        def close(self): ...

    run = Working(
        lab,
        lambda record, _: values.append(record.value),
        settings={"value_deserializer": Registry()},
        retry=Retry(attempts=3, first=1.0, most=1.0, jitter=False),
    )
    run.done(1)
    assert (values, run.worker.stats().retries) == (["v"], 2)
    assert round(lab.now) == 2
    assert run.stop().committed


@pytest.mark.contract("W1", "W5")
def test_worker_waits_for_a_hanging_sink_as_for_a_handler(lab):
    filled(lab, 1, "bad", *[""] * 99)
    handler, sent = Handler(lab, bad=fails), []

    def sink(record, _failure):
        sent.append(record.offset)
        lab.sleep(1e6)

    run = Working(lab, handler, retry=ONCE, dead_letter=sink)
    for _ in range(3):
        lab.sleep(20)
        assert (handler.offsets(), sent) == ([0], [0])
        stats = run.worker.stats()
        assert (stats.queued + stats.running, stats.done) in {(100, 0), (101, 0)}
        expel(lab)


# The number of dead letters at which the worker stops


class Letters:
    """A producer that records the values of the records that it is given."""

    def __init__(self):
        self.sent = []

    def send(self, _topic, *, value, **_):
        self.sent.append(value)


def wrong_password(*_):
    message = "wrong password"
    raise ConnectionError(message)


@pytest.mark.contract("W7")
@in_each_order
def test_restarted_worker_writes_few_dead_letters(lab, executor, order):
    """Every record fails because of a wrong password, and the worker restarts often."""
    filled(lab, 4, *[str(number) for number in range(20)], keys="abcdefg")
    letters = Letters()
    for number in range(4):
        run = Working(
            lab,
            wrong_password,
            name=f"w{number}",
            executor=executor,
            order=order,
            retry=ONCE,
            dead_letter=DeadLetter(letters, "dead"),
        )
        error = run.ends()
        assert isinstance(error, DeadLetterLimitError)
        assert "each of the first 6 records failed for good" in str(error)
    assert len(letters.sent) <= 20


@pytest.mark.contract("W7")
def test_batch_that_fails_as_a_whole_does_not_count_as_a_success(lab):
    filled(lab, 1, *[str(number) for number in range(100)])
    letters = Letters()
    run = Working(
        lab,
        wrong_password,
        batch=50,
        retry=ONCE,
        dead_letter=DeadLetter(letters, "dead"),
    )
    assert isinstance(run.ends(), DeadLetterLimitError)
    assert len(letters.sent) <= 5


@pytest.mark.contract("W7")
def test_topic_of_bad_records_is_finished_after_some_restarts(lab):
    filled(lab, 1, *["bad"] * 12)
    letters = Letters()
    ends = []
    for number in range(3):
        run = Working(
            lab,
            Handler(lab, bad=Reject("planted")),
            name=f"w{number}",
            dead_letter=DeadLetter(letters, "dead"),
        )
        if number == 2:
            run.done(2)
            run.worker.stop()
        ends.append((type(run.ends()), committed(lab)))
    limit = DeadLetterLimitError
    assert ends == [(limit, [5]), (limit, [10]), (type(None), [12])]
    assert len(letters.sent) == 12
