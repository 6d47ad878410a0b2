"""``run_worker`` runs a handler on records, without a broker and without waiting."""

import asyncio
import contextvars
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace

import pytest
from kafka.structs import TopicPartition

from safeconsumer import (
    BatchFailure,
    Breaker,
    Commit,
    DeadLetter,
    Limits,
    Pause,
    Pump,
    Reject,
    Retry,
    RetryLater,
    StopWorker,
    Worker,
)
from safeconsumer.errors import (
    DeadLetterLimitError,
    HandlerTimeoutError,
    LifespanError,
    RecordFailedError,
    WorkerSettingError,
)
from safeconsumer.testing import EndlessRunError, make_record, run_worker

PLAIN = Retry(attempts=3, first=1.0, factor=2.0, jitter=False)


def places(run):
    return [record.offset for call in run.calls for record in call.records]


def ok(_record, _context):
    """Handle a record."""


class Failing:
    """A handler that raises, in order, the exceptions given for a record's value."""

    def __init__(self, **errors):
        self.errors = errors

    def __call__(self, record, _context):
        if self.errors.get(record.value):
            raise self.errors[record.value].pop(0)


def some(*values, **fields):
    return [make_record(value, **fields) for value in values]


def test_handled_records_are_in_the_result():
    run = run_worker(ok, some(b"a", b"b", b"c"))
    assert [record.value for record in run.done] == [b"a", b"b", b"c"]
    assert [call.attempt for call in run.calls] == [1, 1, 1]
    assert (run.committed, run.left) == ({TopicPartition("topic", 0): 3}, [])
    assert (run.error, run.seconds) == (None, 0.0)


def test_retries_wait_in_virtual_time():
    """Later records of the partition wait, and records of other partitions do not wait."""
    handler = Failing(bad=[ValueError("1"), ValueError("2")])
    records = [*some("bad", "good"), *some("else", partition=1)]
    run = run_worker(handler, records, retry=PLAIN)
    values = [call.records[0].value for call in run.calls]
    assert values == ["bad", "else", "bad", "bad", "good"]
    assert [call.at for call in run.calls] == [0.0, 0.0, 1.0, 3.0, 3.0]
    assert [call.attempt for call in run.calls] == [1, 1, 2, 3, 1]
    assert [str(call.error) for call in run.calls][:3] == ["1", "None", "2"]
    assert run.seconds == 3.0


def test_same_records_give_the_same_run():
    def run():
        handler = Failing(a=[ValueError()] * 3, b=[RetryLater(0.3)])
        records = [make_record(v, key=v, partition=n) for v in "abc" for n in (0, 1)]
        return run_worker(handler, records, order="key")

    first, second = run(), run()
    assert places(first) == places(second)
    assert [one.at for one in first.calls] == [one.at for one in second.calls]


def test_exhausted_record_is_skipped_or_blocks_its_partition():
    records = [*some("a", "bad", "b"), *some("c", partition=1)]
    run = run_worker(Failing(bad=[Reject("no")]), records, on_exhausted="skip")
    assert [record.value for record in run.skipped] == ["bad"]
    assert [record.value for record in run.done] == ["a", "c", "b"]
    run = run_worker(Failing(bad=[Reject("no")]), records, on_exhausted="block")
    assert [record.value for record in run.left] == ["bad", "b"]
    assert [record.value for record in run.done] == ["a", "c"]


def test_events_and_contexts_name_a_partition_of_a_topic_named_re_as_a_target():
    """``pause`` would read re:3 as a pattern."""
    texts = []
    handler = Failing(bad=[Reject("no")])

    def handle(record, context):
        texts.append(repr(context))
        handler(record, context)

    records = some("bad", topic="re", partition=3)
    run = run_worker(handle, records, on_exhausted="skip")
    assert texts == ["Context(re:re:3, attempt=1)"]
    assert [one.value for one in run.skipped] == ["bad"]
    named = {one.partition for one in run.events if hasattr(one, "partition")}
    assert named == {"re:re:3"}


def test_dead_letter_in_the_result_has_its_record_error_and_message():
    handler = Failing(bad=[Reject("no")])
    records = [make_record(b"a"), make_record("bad", headers=[("h", b"1")])]
    producer = SimpleNamespace(send=lambda *_a, **_k: pytest.fail("it was used"))
    run = run_worker(handler, records, dead_letter=DeadLetter(producer, "dead"))
    (dead,) = run.dead_letters
    assert (dead.record.value, dead.attempts, str(dead.error)) == ("bad", 1, "no")
    assert dead.letter is not None
    headers = dict(dead.letter["headers"])
    assert (dead.letter["value"], headers["h"]) == ("bad", b"1")
    assert headers["dead-letter-message"] == b"no"
    assert run.committed == {TopicPartition("topic", 0): 2}
    run = run_worker(Failing(bad=[Reject("no")]), records, dead_letter=True)
    assert [one.record.value for one in run.dead_letters] == ["bad"]


def test_callable_can_receive_the_dead_letters():
    """If the callable raises Reject, ``on_exhausted`` applies; other errors are retried."""
    taken = []

    def sink(record, failure):
        if record.value == "worse":
            raise Reject("never")  # noqa: EM101
        taken.append((record.value, str(failure.error)))
        if not taken[1:]:
            raise OSError

    handler = Failing(bad=[Reject()], worse=[Reject("no")])
    records = some("bad", "worse", "good")
    run = run_worker(handler, records, dead_letter=sink, on_exhausted="skip")
    assert taken == [("bad", "rejected")] * 2
    assert [one.record.value for one in run.dead_letters] == ["bad"]
    assert [record.value for record in run.skipped] == ["worse"]
    assert [record.value for record in run.done] == ["good"]
    assert run.seconds == 0.375
    handler = Failing(a=[Reject("no")])
    with pytest.raises(EndlessRunError, match="ZeroDivisionError"):
        run_worker(handler, some("a"), dead_letter=lambda *_: 1 // 0, max_calls=9)


def test_batch_can_fail_for_individual_records():
    tried = []

    def handle(records, context):
        tried.append([record.value for record in records])
        if not tried[1:]:
            assert context.attempt == 1
            raise BatchFailure({tried[-1].index("bad"): RetryLater(2.0)})

    run = run_worker(handle, some("a", "bad", "b", "c"), batch=3)
    assert tried == [["a", "bad", "b"], ["bad", "c"]]
    assert [call.at for call in run.calls] == [0.0, 2.0]
    assert [record.value for record in run.done] == ["a", "b", "bad", "c"]
    assert len(run.calls[0].records) == 3


def test_coroutine_handler_is_run():
    async def handle(record, _context):
        await asyncio.sleep(0)
        if record.value == "stop":
            raise StopWorker

    run = run_worker(handle, some("a", "stop", "b"))
    assert (run.is_stopped, run.error) == (True, None)
    assert [record.value for record in run.left] == ["stop", "b"]

    run = run_worker(Failing(a=[RetryLater(5), StopWorker()]), some("a"))
    assert (run.is_stopped, run.seconds, run.committed[TopicPartition("topic", 0)]) == (
        True,
        5.0,
        0,
    )

    async def within():
        run_worker(handle, some("a"))

    with pytest.raises(WorkerSettingError, match="event loop runs"):
        asyncio.run(within())


def test_context_variables_and_cancellation_end_with_a_coroutine():
    """As in a worker, the next record sees neither the variable nor the cancellation."""
    bound = contextvars.ContextVar("bound", default="")
    found = []

    async def handle(record, _context):
        found.append(bound.get())
        bound.set(record.value)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    run = run_worker(handle, some("a", "b"))
    assert (found, len(run.done), run.error) == (["", ""], 2, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"executor": "asyncio"}, "async def"),
        ({"executor": "threads"}, "executor must be 'thread', 'process' or"),
        ({"records": []}, "needs records"),
        ({"records": [b"v"]}, "make_record"),
        ({"records": [make_record(offset=3), make_record(offset=3)]}, "in the order"),
        ({"max_calls": 0}, "max_calls"),
        ({"dead_letter": "topic"}, "dead_letter=DeadLetter"),
        ({"value_deserializer": 3}, "a deserializer must be callable"),
        ({"retry": None}, "retry must be a Retry"),
    ],
)
def test_invalid_options_of_run_worker_are_refused(settings, message):
    with pytest.raises(WorkerSettingError, match=message):
        run_worker(**{"handler": ok, "records": some("a"), **settings})


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        (lambda: run_worker(ok, some("a"), retries=3), "retries"),
        (lambda: Worker(None, ok, limit=3), "limit"),
        (lambda: Pump(None, concurrency=3), "concurrency"),
    ],
    ids=["run_worker", "Worker", "Pump"],
)
def test_unknown_keyword_is_named_in_the_error(call, wrong):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{wrong}'"):
        call()


def test_options_without_effect_are_accepted():
    """Production settings can be passed on unchanged."""
    events = []
    run = run_worker(
        Failing(a=[ValueError()]),
        some(*"abcdef"),
        executor="process",
        concurrency=8,
        commit=Commit(every=1),
        limits=Limits(records=2),
        on_event=events.append,
    )
    assert events == run.events
    names = [event.name for event in events]
    assert names[:2] == ["partition_started", "record_retried"]
    assert names[2:] == ["work_drained", "worker_stopped"]
    assert places(run) == [0, 0, 1, 2, 3, 4, 5]


def test_endless_retries_end_the_run():
    def handle(_record, _context):
        raise RetryLater(60.0)

    with pytest.raises(EndlessRunError, match="called 50 times"):
        run_worker(handle, some("a"), max_calls=50)


def test_interrupts_and_pytest_failures_are_raised():
    with pytest.raises(KeyboardInterrupt):
        run_worker(Failing(a=[KeyboardInterrupt()]), some("a"))
    with pytest.raises(pytest.fail.Exception):
        run_worker(lambda _record, _context: pytest.fail("no"), some("a"))


def test_pause_delays_its_topic_and_does_not_count_as_an_attempt():
    """Other topics continue, and the paused record is delivered before later records."""
    records = [make_record("a"), make_record("b"), make_record("c", topic="other")]
    run = run_worker(Failing(a=[Pause(300)]), records)
    assert [call.records[0].value for call in run.calls] == ["a", "c", "a", "b"]
    assert [call.attempt for call in run.calls] == [1, 1, 1, 1]
    assert run.seconds == 300


def test_open_breaker_is_probed_at_growing_intervals():
    """Each probe handles one record, and does not count as an attempt."""
    down = [ConnectionError("down")] * 6
    breaker = Breaker(on=(ConnectionError,), failures=2, first=10.0)
    run = run_worker(Failing(a=down), [make_record("a")], retry=PLAIN, breaker=breaker)
    assert run.error is None
    assert [call.at for call in run.calls] == [0, 1, 11, 31, 71, 131, 191]
    assert [call.attempt for call in run.calls] == [1, 2, 2, 2, 2, 2, 2]


def test_lifespan_is_entered_before_the_run_and_exited_afterwards():
    calls = []

    @contextmanager
    def alive():
        calls.append("in")
        yield "state"
        calls.append("out")

    @asynccontextmanager
    async def alive_too():
        with alive() as state:
            yield state

    def handle(_record, context):
        calls.append(context.state)

    async def handle_too(record, context):
        handle(record, context)

    run_worker(handle, some("a", "b"), lifespan=alive)
    assert calls == ["in", "state", "state", "out"]
    calls.clear()
    run_worker(handle_too, some("a", "b"), lifespan=alive_too)
    assert calls == ["in", "state", "state", "out"]
    run = run_worker(handle, some("a"), lifespan=lambda: 1 // 0)
    assert isinstance(run.error, LifespanError)
    assert (run.calls, len(run.left)) == ([], 1)


def test_partial_batch_waits_for_the_duration_of_batch_within():
    """A full batch does not wait."""
    run = run_worker(ok, some(*"abcde"), batch=3, batch_within=5.0)
    assert [(len(call.records), call.at) for call in run.calls] == [(3, 0), (2, 5)]
    assert len(run.done) == 5


def test_handler_timeout_cancels_a_coroutine():
    """The record of a cancelled coroutine fails, but a function cannot be cancelled."""

    async def hang(record, _context):
        if record.value == "slow":
            await asyncio.Event().wait()

    run = run_worker(
        hang, some("slow", "quick"), handler_timeout=1e-6, dead_letter=True, retry=PLAIN
    )
    (dead,) = run.dead_letters
    assert (type(dead.error), dead.attempts) == (HandlerTimeoutError, 3)
    assert [record.value for record in run.done] == ["quick"]
    assert len(run_worker(ok, some("a"), handler_timeout=1e-9).done) == 1


def test_record_above_max_ratio_does_not_become_a_dead_letter():
    rejected = Reject("no")
    setting = DeadLetter(
        SimpleNamespace(send=lambda *_, **__: None), "dead", max_ratio=0.01
    )
    failing = Failing(a=[rejected], b=[rejected])
    run = run_worker(failing, some(*98 * "c", "a", "b"), dead_letter=setting)
    assert isinstance(run.error, DeadLetterLimitError)
    exhausted = [one for one in run.events if one.name == "record_exhausted"]
    assert [event.as_dict()["then"] for event in exhausted] == ["dead_letter", "stop"]
    assert (len(run.dead_letters), len(run.left)) == (1, 1)


def test_refused_dead_letter_keeps_the_handlers_error():
    """The handler's error is the cause; the message does not suggest ``dead_letter=``."""
    refused = Reject("too odd")

    def sink(_record, _failure):
        raise refused

    run = run_worker(
        Failing(a=[ZeroDivisionError()]),
        some("a"),
        retry=Retry(attempts=1),
        dead_letter=sink,
    )
    assert isinstance(run.error, RecordFailedError)
    assert isinstance(run.error.__cause__, ZeroDivisionError)
    assert "cannot be a dead letter: Reject('too odd')" in str(run.error)
    assert "give dead_letter" not in str(run.error)


def test_future_returned_by_a_dead_letter_callable_is_awaited():
    """If the future has an error, the dead-letter callable is called again."""
    failed = Future()
    failed.set_exception(TimeoutError("not acknowledged"))
    good = Future()
    good.set_result(None)
    futures = [failed, good]
    settings = {"dead_letter": lambda _r, _f: futures.pop(0), "retry": PLAIN}
    run = run_worker(Failing(bad=[Reject()]), some("bad"), **settings)
    assert (len(run.dead_letters), run.seconds, futures) == (1, 1.0, [])


def test_record_whose_dead_letter_is_not_acknowledged_stays_incomplete(monkeypatch):
    """The run does not wait forever."""
    monkeypatch.setattr("safeconsumer.testing.workers._PATIENCE", 0.0)
    settings = {"dead_letter": lambda _r, _f: Future(), "retry": PLAIN}
    run = run_worker(Failing(bad=[Reject()]), some("bad"), **settings)
    assert (run.dead_letters, run.committed) == ([], {TopicPartition("topic", 0): 0})
    assert [record.value for record in run.left] == ["bad"]
