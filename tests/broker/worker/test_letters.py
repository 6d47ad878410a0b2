"""What a dead letter and the log say of a failure, and what becomes of letters at the end."""

import gc
import threading
import time
import weakref
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from safeconsumer import WorkerSettingError
from safeconsumer.events import worker as worker_events
from safeconsumer.worker import (
    DeadLetter,
    Drain,
    HandlersFailError,
    Retry,
    dead_letters,
    leaving,
)
from safeconsumer.worker.partition import Lane
from safeconsumer.worker.queue import Letter, Order
from safeconsumer.worker.tracebacks import CHAIN_BYTES, chain, shown, stack
from tests.broker.worker.test_contract import read_all
from tests.harness.waiting import wait_for
from tests.harness.worker.desk import TP, Desk
from tests.harness.worker.fake_client import FakeRecord
from tests.harness.worker.lab import Lab

pytestmark = pytest.mark.embedded_suffices

ONCE = Retry(attempts=1, first=0.05, most=0.05)


def fails(record: Any, _context: object) -> None:  # noqa: ANN401 - upstream's
    """Fail on what says so, with a cause."""
    if record.value == b"bad":
        try:
            {}["the cause"]
        except KeyError as error:
            message = "the effect"
            raise ValueError(message) from error


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_failure_is_told_with_its_traceback(lab: Lab, executor: Any) -> None:  # noqa: ANN401
    """The whole chain in the log; the last frames, group and attempts in the letter."""
    lab.new_topic(partitions=1)
    dead = lab.other_topic()
    lab.produce({0: ["bad"]})
    running = lab.run(
        fails,
        dead_letter=DeadLetter(lab.producer, dead),
        retry=Retry(attempts=2, first=0.05, most=0.05),
        executor=executor,
        concurrency=1,
    )
    running.wait_done(1)
    running.end()
    (event,) = (
        one for one in running.events if type(one) is worker_events.RecordExhausted
    )
    for part in ("KeyError: 'the cause'", "ValueError: the effect", "in fails"):
        assert part in event.traceback
    (letter,) = read_all(lab, dead, 1)
    headers = dict(letter.headers)
    assert b"in fails" in headers["dead-letter-stack"]
    assert headers["dead-letter-group"] == lab.group.encode()
    assert headers["dead-letter-attempts"] == b"2"
    assert headers["dead-letter-message"] == b"the effect"


def test_what_is_shown_of_an_error_is_cut() -> None:
    """The beginning of a message, both ends of a chain, the end of a stack."""
    with pytest.raises(ValueError, match="\u20ac") as raised:
        raise ValueError("\u20ac" * 100_000)
    error = raised.value
    error.add_note("n" * 100_000)
    assert len(shown(error).encode()) <= 2_048
    assert len(chain(error).encode()) <= CHAIN_BYTES + 10
    assert len(stack(error).encode()) <= 4_096


def test_a_stack_is_told_where_python_cannot_format_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several handlers that raise at once can make it fail, before Python 3.13."""

    def confused(*_: object, **__: object) -> None:
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


@pytest.mark.any_broker
def test_letters_in_flight_are_part_of_the_drain(lab: Lab) -> None:
    """W5, W8: a record whose letter is on its way is not handled, and sent, again."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["bad"]})
    answer: Future[None] = Future()
    taken = threading.Event()

    def sink(_record: object, _failure: object) -> Future[None]:
        taken.set()
        return answer

    running = lab.run(fails, dead_letter=sink, retry=ONCE)
    assert taken.wait(30)
    running.worker.stop()
    engine = running.worker._engine
    wait_for(lambda: engine.departures.deadline is not None, "the drain")
    assert not engine.is_drained()
    answer.set_result(None)
    running.wait_end()
    assert running.report is not None
    assert (running.report.dead_letters, running.report.dropped) == (1, 0)
    assert lab.committed() == {0: 1}


@pytest.mark.any_broker
def test_letters_in_flight_are_part_of_a_cooperative_revocation(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W5: acknowledged in time, they are written once; and those not begun never."""
    monkeypatch.setattr(leaving, "COOPERATIVE_DRAIN", 10.0)
    lab.new_topic(partitions=2)
    lab.produce({0: ["bad"], 1: ["bad"]})
    assignor = {"partition_assignment_strategy": [CooperativeStickyAssignor]}
    answers: dict[int, Future[None]] = {}
    again: list[int] = []

    def first_sink(record: Any, _failure: object) -> Future[None]:  # noqa: ANN401
        return answers.setdefault(record.partition, Future())

    def second_sink(record: Any, _failure: object) -> None:  # noqa: ANN401
        again.append(record.partition)

    first = lab.run(fails, lab.consumer(**assignor), dead_letter=first_sink, retry=ONCE)
    wait_for(lambda: len(answers) == 2, "two letters on their way")
    epochs = dict(first.worker._engine.held.epochs)
    second = lab.run(
        fails, lab.consumer(**assignor), dead_letter=second_sink, retry=ONCE
    )
    wait_for(
        lambda: any(epoch.revoked.is_set() for epoch in epochs.values()),
        "a revocation",
    )
    (gone,) = (tp for tp, epoch in epochs.items() if epoch.revoked.is_set())
    answers[gone.partition].set_result(None)
    wait_for(lambda: second.worker._engine.held.epochs, "the other to have it")
    answers[1 - gone.partition].set_result(None)
    first.wait_done(2)
    lab.produce({gone.partition: ["good"]})
    second.wait_done(1)
    assert (first.end().dead_letters, second.end().dead_letters, again) == (2, 0, [])


@pytest.mark.any_broker
def test_a_letter_of_a_revoked_partition_is_not_begun() -> None:
    """W5: its record is handled again elsewhere, and would be written twice."""
    desk = Desk(Order.PARTITION, retry=ONCE)
    sent: list[object] = []
    over = threading.Event()

    def sink(record: Any, _failure: object) -> None:  # noqa: ANN401
        sent.append(record.offset)
        over.set()

    letters = dead_letters.DeadLetters(sink, 60.0, ONCE, desk.emit)
    gone, there = (
        Letter(
            lane=lane, chunk=None, index=0, record=record, attempt=1, error=KeyError()
        )  # type: ignore[arg-type]  # as much as is asked
        for lane, record in (
            (Lane(Desk(Order.PARTITION).epoch, None), FakeRecord(*TP, 0)),
            (Lane(desk.epoch, None), FakeRecord(*TP, 1)),
        )
    )
    gone.lane.epoch.revoked.set()
    letters.post(gone)
    letters.post(there)
    assert over.wait(30)
    letters.stop()
    assert sent == [1]


def _letter(desk: Desk, offset: int) -> Letter:
    (lane,) = (desk.epoch.lanes or {None: Lane(desk.epoch, None)}).values()
    return Letter(
        lane=lane,
        chunk=None,  # type: ignore[arg-type]  # as much as is asked
        index=0,
        record=FakeRecord(*TP, offset),
        attempt=1,
        error=KeyError(),
    )


def test_a_letter_that_failed_is_tried_again_while_others_come() -> None:
    """W5: so its record does not block its lane for as long as they do."""
    desk, most = Desk(Order.PARTITION), 30_000
    sent: list[int] = []
    over = threading.Event()

    def sink(record: Any, _failure: object) -> Future[None]:  # noqa: ANN401
        sent.append(record.offset)
        answer: Future[None] = Future()
        if record.offset == 0 and sent.count(0) == 1:
            answer.set_exception(ConnectionError())
        elif record.offset == 0 or len(sent) == most:
            over.set()
        else:  # there is always one more
            letters.post(_letter(desk, len(sent) + 1))
            answer.set_result(None)
        return answer

    letters = dead_letters.DeadLetters(
        sink, 60.0, Retry(first=0.01, jitter=False), desk.emit
    )
    letters.post(_letter(desk, 0))
    letters.post(_letter(desk, 1))
    assert over.wait(60)
    letters.stop()
    assert len(sent) < most


def test_a_letter_that_was_answered_is_not_late() -> None:
    """W5: it would be written twice, since the sink took its time with the next one."""
    desk = Desk(Order.PARTITION)
    sent: list[int] = []
    over = threading.Event()

    def sink(record: Any, _failure: object) -> Future[None]:  # noqa: ANN401
        sent.append(record.offset)
        if record.offset == 1:
            answers[0].set_result(None)
            until = time.monotonic() + 0.3
            wait_for(lambda: time.monotonic() > until, "more than the timeout")
        if record.offset == 2:
            over.set()
        return answers[record.offset]

    answers: list[Future[None]] = [Future(), Future(), Future()]
    answers[1].set_result(None)
    letters = dead_letters.DeadLetters(sink, 0.2, ONCE, desk.emit)
    for offset in range(3):
        letters.post(_letter(desk, offset))
    assert over.wait(30)
    letters.stop()
    assert sent == [0, 1, 2]


def test_a_letter_that_has_arrived_keeps_no_record() -> None:
    """W1: neither until its answer would have been late."""
    desk = Desk(Order.PARTITION)
    over = threading.Event()
    letters = dead_letters.DeadLetters(
        lambda _record, _failure: done, 3600.0, ONCE, desk.emit
    )
    done: Future[None] = Future()
    done.set_result(None)
    arrived: list[None] = []

    def then(_letter: Letter) -> None:
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
    gc.collect()
    assert [one() for one in records] == [None] * 3


def test_a_letter_of_an_ended_ownership_does_not_wait_for_another_try() -> None:
    """W1: its record is no longer counted, and the wait may be long."""
    desk = Desk(Order.PARTITION)
    failed = threading.Event()

    def emit(_kind: object, **_fields: object) -> None:
        failed.set()

    def sink(_record: object, _failure: object) -> None:
        raise ConnectionError

    slow = Retry(first=3600.0, most=3600.0, jitter=False)
    letters = dead_letters.DeadLetters(sink, 60.0, slow, emit)
    posted = _letter(desk, 0)
    record = weakref.ref(posted.record)
    letters.post(posted)
    del posted
    assert failed.wait(30)
    desk.regain()
    letters.turn(desk.held.closed)
    wait_for(lambda: not letters._posts, "it to be forgotten")
    letters.stop()
    letters._thread.join(30)
    gc.collect()
    assert record() is None


def test_what_ends_the_thread_of_letters_ends_the_worker(lab: Lab) -> None:
    """A hook that ends the program, for example: nobody would send letters any more."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["bad"]})

    def hook(event: object) -> None:
        if isinstance(event, worker_events.DeadLetterFailed):
            raise SystemExit(3)

    def sink(_record: object, _failure: object) -> None:
        raise ConnectionError

    running = lab.run(fails, dead_letter=sink, retry=ONCE, on_event=hook)
    running.wait_end()
    assert isinstance(running.error, HandlersFailError)
    assert isinstance(running.error.__cause__, SystemExit)
    assert lab.committed() == {0: 0}


def test_a_letter_that_fails_again_and_again_does_not_hold_up_the_end(
    lab: Lab,
) -> None:
    """W8: one that waits for another try is not on its way."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["bad"]})

    def sink(_record: object, _failure: object) -> None:
        raise ConnectionError

    slow = Retry(attempts=1, first=60.0, most=60.0)
    running = lab.run(fails, dead_letter=sink, retry=slow, drain=Drain(shutdown=25.0))
    kind = worker_events.DeadLetterFailed
    wait_for(lambda: kind in map(type, running.events), "a failure")
    report = running.end()
    assert (report.dead_letters, report.dropped) == (0, 1)
    assert report.seconds < 10


def test_a_sink_that_does_not_return_is_told(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As kafka-python's send(), which waits for an unknown topic for max_block_ms."""
    monkeypatch.setattr(dead_letters, "_SLOW_SECONDS", 0.05)
    lab.new_topic(partitions=1)
    lab.produce({0: ["bad"]})
    opened = threading.Event()
    running = lab.run(
        fails, dead_letter=lambda _record, _failure: opened.wait(30), retry=ONCE
    )
    kind = worker_events.DeadLetterSlow
    wait_for(lambda: kind in map(type, running.events), "an event")
    opened.set()
    running.wait_done(1)
    running.end()
    assert list(map(type, running.events)).count(kind) == 1


class Silent:
    """A future without callbacks that has no answer until it is told one."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.answers: SimpleQueue[BaseException | None] = SimpleQueue()

    def get(self, timeout: float) -> None:
        """Wait so long for an answer."""
        self.asked.release()
        error = self.answers.get(timeout=timeout)
        if error is not None:
            self.answers.put(error)
            raise error


@pytest.mark.parametrize("error", [None, ConnectionError("planted")])
def test_a_letter_without_an_answer_is_not_sent_beside_itself(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
) -> None:
    """W7: it may arrive yet; it is sent again once its producer has given it up."""
    monkeypatch.setattr(dead_letters, "_SINK_SECONDS", 0.05)
    lab.new_topic(partitions=1)
    lab.produce({0: ["bad"]})
    futures: list[Future[None]] = []

    def sink(_record: object, _failure: object) -> Future[None]:
        futures.append(Future())
        return futures[-1]

    running = lab.run(fails, dead_letter=sink, retry=ONCE)
    kind = worker_events.DeadLetterSlow
    wait_for(lambda: list(map(type, running.events)).count(kind) >= 3, "three events")
    (first,) = futures
    first.set_exception(error) if error else first.set_result(None)
    if error:
        wait_for(lambda: len(futures) == 2, "another try")
        futures[1].set_result(None)
    running.wait_done(1)
    assert running.end().dead_letters == 1
    assert len(futures) == 1 + (error is not None)


@pytest.mark.parametrize("error", [None, ConnectionError("planted")])
def test_the_same_of_a_future_that_calls_nobody_back(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
) -> None:
    """W7: it is asked again."""
    monkeypatch.setattr(dead_letters, "_SINK_SECONDS", 0.05)
    lab.new_topic(partitions=1)
    lab.produce({0: ["bad"]})
    futures: list[Silent] = []

    def sink(_record: object, _failure: object) -> Silent:
        futures.append(Silent())
        return futures[-1]

    running = lab.run(fails, dead_letter=sink, retry=ONCE)
    wait_for(lambda: futures, "a letter")
    for _ in range(3):
        assert futures[0].asked.acquire(timeout=30)
    assert len(futures) == 1
    futures[0].answers.put(error)
    if error:
        wait_for(lambda: len(futures) == 2, "another try")
        futures[1].answers.put(None)
    running.wait_done(1)
    assert running.end().dead_letters == 1
    assert len(futures) == 1 + (error is not None)


def test_a_letter_without_an_answer_ends_with_its_worker(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W8: it is waited for as long as the drain lasts, and its record comes again."""
    monkeypatch.setattr(dead_letters, "_SINK_SECONDS", 0.05)
    lab.new_topic(partitions=1)
    lab.produce({0: ["bad"]})
    silent = Silent()
    running = lab.run(
        fails,
        dead_letter=lambda _record, _failure: silent,
        retry=ONCE,
        drain=Drain(shutdown=0.2),
    )
    assert silent.asked.acquire(timeout=30)
    report = running.end()
    assert (report.dead_letters, report.dropped) == (0, 1)
    letters = running.worker._letters
    assert letters is not None
    letters._thread.join(30)
    assert not letters._thread.is_alive()


@pytest.mark.filterwarnings("ignore:value_serializer:DeprecationWarning")
@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"value_serializer": bytes.hex}, "no value_serializer"),
        ({"acks": 0, "enable_idempotence": False}, "acks=0"),
        ({"transactional_id": "dead"}, "no transactional_id"),
    ],
)
def test_a_producer_that_would_lose_letters_is_refused(
    make_producer: Any,  # noqa: ANN401 - a fixture
    config: dict[str, Any],
    said: str,
) -> None:
    """W7: one writes other bytes; of one nobody knows; one sends nothing by itself."""
    producer = make_producer(**config)
    with pytest.raises(WorkerSettingError, match=said):
        DeadLetter(producer, "dead")


def test_a_sink_that_does_nothing_for_any_record_ends_the_worker(lab: Lab) -> None:
    """W7: what it returns is a coroutine, which nobody awaits; it was tried for ever."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["bad"]})

    async def send(_record: Any) -> None: ...  # noqa: ANN401

    running = lab.run(fails, dead_letter=lambda record, _: send(record), retry=ONCE)
    running.wait_end()
    assert isinstance(running.error, HandlersFailError)
    assert "was returned, and nothing" in str(running.error)
    assert lab.committed()[0] in (None, 0)
