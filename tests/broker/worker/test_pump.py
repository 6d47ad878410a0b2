"""What a pump promises to a loop that is somebody's own."""

import gc
import json
import signal
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from kafka.structs import TopicPartition

from safeconsumer import (
    Breaker,
    DeserializationError,
    Drain,
    JournalError,
    Pause,
    Pump,
    RecordFailedError,
    Reject,
    Retry,
    RetryLater,
    StopWorker,
    UnansweredBatchError,
    WorkerSettingError,
)
from safeconsumer.holds.hold import BREAKER, OUTAGE
from safeconsumer.worker import BatchFailure
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.pump import Batch, _HandOut
from safeconsumer.worker.queue import Letter, Order
from tests.harness.waiting import wait_for
from tests.harness.worker.desk import TP, Desk
from tests.harness.worker.lab import Lab

ON_BROKER = pytest.mark.any_broker
ORDERS = pytest.mark.parametrize("order", [Order.UNORDERED, Order.PARTITION])
NOBODY = Readers(None, None)
ONCE = Retry(attempts=1)
DOWN = ConnectionError("down")
BREAKS = Breaker(on=(ConnectionError,), failures=1, first=10.0, factor=3.0)


class Table(Desk):
    """A desk whose schedule hands out batches."""

    def __init__(self, order: Order, readers: Readers = NOBODY, **policy: Any) -> None:  # noqa: ANN401
        super().__init__(order, is_batch=True, quantum=4, **policy)
        self.out = _HandOut(self.schedule, readers)

    def take(self) -> list[Batch]:
        return self.out.take(99)

    @property
    def watermark(self) -> int:
        return self.epoch.progress.watermark().offset


def offsets(batch: Batch) -> list[int]:
    """Return where its records stand."""
    return [record.offset for record in batch.records]


# ------------------------------------------------------------ answers, on a desk


@pytest.mark.contract("W4")
@ORDERS
def test_each_record_wants_one_answer(order: Order) -> None:
    """W4: in any order, and what is complete is contiguous; again changes nothing."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    batch.done([1, 3])
    assert table.watermark == 0
    batch.done(0)
    batch.done(0)
    assert table.watermark == 2
    assert table.held.running
    batch.done()
    batch.fail(ValueError())
    batch.done()
    assert (table.watermark, table.held.records, table.held.running) == (4, 0, 0)


@ORDERS
def test_answers_for_no_record_change_nothing(order: Order) -> None:
    """P3, W5: what went well, on a day when nothing does, is not the whole batch."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    batch.done([])
    batch.fail(ValueError(), iter(()))
    assert (table.watermark, table.held.running) == (0, 4)
    batch.fail(Reject("planted"), [0, 1, 2, 3])
    assert (table.watermark, table.held.running) == (0, 0)


@pytest.mark.parametrize("indexes", ["0", [[0, 1]], [0.0], [True], object()])
def test_what_is_no_index_is_refused(indexes: Any) -> None:  # noqa: ANN401
    """Nothing was answered then."""
    table = Table(Order.UNORDERED)
    table.admit(2)
    (batch,) = table.take()
    with pytest.raises(TypeError):
        batch.done(indexes)
    with pytest.raises(TypeError):
        batch.fail(ValueError(), indexes)
    assert table.held.running == 2


@ORDERS
def test_a_record_that_failed_comes_again(order: Order) -> None:
    """W7: by itself, after the policy's wait, with its attempt; nothing passes it."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    batch.fail(ValueError("planted"), 1)
    batch.done()
    assert table.watermark == 1
    assert table.take() == []
    table.pass_time(1.0)
    (again,) = table.take()
    assert (offsets(again), again.attempt) == ([1], 2)
    again.done()
    assert (table.watermark, table.held.running) == (4, 0)


@ORDERS
def test_later_is_no_attempt_and_the_batch_stays_together(order: Order) -> None:
    """What has an answer already keeps it."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    batch.done(0)
    batch.fail(RetryLater(5.0))
    table.pass_time(4.9)
    assert table.take() == []
    table.pass_time(0.1)
    (again,) = table.take()
    assert (offsets(again), again.attempt) == ([1, 2, 3], 1)


@pytest.mark.contract("W11")
@ORDERS
def test_a_pause_holds_what_it_says_and_the_batch_stays_together(order: Order) -> None:
    """W11: nothing of the topic is handed out, then the batch again, as if it were new."""
    table = Table(order)
    table.admit(8)
    batch = table.take()[0]
    batch.fail(Pause(60.0))
    (hold,) = table.ledger.view().holds
    assert hold.owner == OUTAGE
    table.pass_time(59.9)
    assert table.take() == []
    table.pass_time(0.1)
    assert offsets(table.take()[0]) == [0, 1, 2, 3]


def stopped(order: Order) -> Table:
    """Make one whose breaker has stopped the topic, and let the first wait pass."""
    table = Table(order, breaker=BREAKS)
    table.admit(4)
    (batch,) = table.take()
    batch.fail(DOWN)
    table.admit(2)
    assert table.take() == []
    table.pass_time(10.0)
    return table


@ORDERS
def test_a_breaker_lets_one_record_try(order: Order) -> None:
    """The first that failed, at its attempt; then all go on, or wait for longer."""
    table = stopped(order)
    (trial,) = table.take()
    assert (offsets(trial), trial.attempt) == ([0], 1)
    trial.fail(DOWN)
    table.pass_time(29.9)
    assert table.take() == []
    table.pass_time(0.1)
    (trial,) = table.take()
    assert (offsets(trial), trial.attempt) == ([0], 1)
    trial.done()
    while batches := table.take():
        for batch in batches:
            batch.done()
    assert (table.watermark, table.schedule.queue.tripped) == (6, {})


@ORDERS
def test_a_trial_that_nobody_answers_is_no_trial(order: Order) -> None:
    """A record tries then, this one or another, and is heard."""
    table = stopped(order)
    (trial,) = table.take()
    del trial
    gc.collect()
    (ticket,) = table.out.take_dropped()
    ticket.give_back()
    (trial,) = table.take()
    assert (len(trial), table.take()) == (1, [])
    trial.done()
    assert table.schedule.queue.tripped == {}


def test_answers_of_before_the_outage_close_no_breaker() -> None:
    """Nor do they use up an attempt."""
    table = Table(Order.UNORDERED, breaker=BREAKS)
    table.admit(8)
    first, second = table.take()
    first.fail(DOWN)
    second.done(0)
    second.fail(DOWN)
    assert list(table.schedule.queue.tripped) == [TP.topic]
    assert (table.epoch.failures, table.take()) == ({}, [])
    table.pass_time(10.0)
    (trial,) = table.take()
    trial.done()
    left = sorted(place for batch in table.take() for place in offsets(batch))
    assert left == [*{0, 1, 2, 3, 5, 6, 7} - set(offsets(trial))]


@ORDERS
def test_a_batch_that_failed_is_tried_one_by_one(order: Order) -> None:
    """Any of its records may be to blame, and none has failed yet."""
    table = Table(order)
    table.admit(3)
    (batch,) = table.take()
    batch.fail(ValueError("planted"))
    found = []
    while batches := table.take():
        for one in batches:
            found.append((offsets(one), one.attempt))
            one.done()
    assert found == [([0], 1), ([1], 1), ([2], 1)]
    assert table.watermark == 3


@ORDERS
@pytest.mark.parametrize("then", ["stop", "skip", "block", "dead letter"])
def test_what_failed_for_good_goes_the_policys_way(order: Order, then: Any) -> None:  # noqa: ANN401
    """W7: and is never committed past but by the two that say so."""
    letters: list[Letter] = []
    is_letter = then == "dead letter"
    table = Table(
        order,
        post=letters.append if is_letter else None,
        on_exhausted="stop" if is_letter else then,
    )
    table.admit(4)
    (batch,) = table.take()
    batch.fail(Reject("planted"), 1)
    batch.done()
    assert table.watermark == (4 if then == "skip" else 1)
    assert isinstance(table.schedule.fatal, RecordFailedError) == (then == "stop")
    for letter in letters:
        table.schedule.letter_acknowledged(letter)
    assert table.watermark == (4 if then in ("skip", "dead letter") else 1)


def test_in_order_the_next_batch_waits_for_the_one_before() -> None:
    """W3: so that what failed comes before what stands behind it; unordered it does not."""
    table = Table(Order.PARTITION)
    table.admit(4)
    table.admit(4)
    (batch,) = table.take()
    batch.done([0, 1, 2])
    assert table.take() == []
    batch.fail(ValueError(), 3)
    assert table.take() == []
    table.pass_time(1.0)
    (again,) = table.take()
    assert offsets(again) == [3]
    again.done()
    (behind,) = table.take()
    assert offsets(behind) == [4, 5, 6, 7]
    side = Table(Order.UNORDERED)
    side.admit(4)
    side.admit(4)
    assert [offsets(one) for one in side.take()] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@ORDERS
def test_failures_of_a_batch_keep_their_order(order: Order) -> None:
    """W3: first one by its index, then all others."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    batch.fail(RetryLater(1.0), 2)
    batch.fail(RetryLater(1.0))
    found = []
    for _ in range(4):
        table.pass_time(1.0)
        while batches := table.take():
            for one in batches:
                found += offsets(one)
                one.done()
    assert sorted(found) == [0, 1, 2, 3]
    if order is Order.PARTITION:
        assert found == [0, 1, 2, 3]
    assert (table.watermark, table.held.running) == (4, 0)


@ORDERS
def test_a_batch_of_a_partition_that_is_gone_changes_nothing(order: Order) -> None:
    """W4: whatever is said of it."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    table.held.close(table.epoch)
    assert batch.is_revoked
    batch.done(0)
    batch.fail(ValueError())
    assert (table.held.running, table.schedule.fatal) == (0, None)


@ORDERS
def test_a_later_ownership_waits_for_nobody_who_is_gone(order: Order) -> None:
    """W3: who comes back for more does not work on what was taken away."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    table.held.close(table.epoch)
    assert batch.is_revoked
    table.epoch = table.held.open(TP, 2, 0, 0)
    table.admit(4)
    (again,) = table.take()
    assert offsets(again) == [4, 5, 6, 7]
    batch.done()
    again.done()
    assert (table.watermark, table.held.running) == (8, 0)


@ORDERS
def test_a_hold_keeps_back_what_was_not_handed_out(order: Order) -> None:
    """W10: what failed waits for the resume too."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    table.admit(4)
    table.pause()
    batch.fail(ValueError(), 0)
    batch.done()
    table.pass_time(9.0)
    assert table.take() == []
    table.resume()
    found = []
    while batches := table.take():
        for one in batches:
            found += offsets(one)
            one.done()
    assert sorted(found) == [0, 4, 5, 6, 7]
    if order is Order.PARTITION:
        assert found == [0, 4, 5, 6, 7]


@pytest.mark.parametrize("error", ["text", BatchFailure({0: ValueError()})])
def test_only_an_exception_of_the_records_is_a_failure(error: Any) -> None:  # noqa: ANN401
    """Nothing has failed then."""
    table = Table(Order.UNORDERED)
    table.admit(1)
    (batch,) = table.take()
    with pytest.raises(TypeError):
        batch.fail(error)
    with pytest.raises(IndexError):
        batch.fail(ValueError(), [0, 1])
    batch.done()
    assert table.watermark == 1


@ORDERS
def test_a_batch_that_is_let_go_of_is_noticed(order: Order) -> None:
    """W5: nobody can answer for it any more, so its records wait for somebody else."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    batch.done(0)
    del batch
    gc.collect()
    (ticket,) = table.out.take_dropped()
    ticket.give_back()
    assert table.held.running == 0
    (again,) = table.take()
    assert offsets(again) == [1, 2, 3]
    again.done()
    del again
    gc.collect()
    assert table.out.take_dropped() == []


@ORDERS
def test_what_was_handed_out_last_is_given_back(order: Order) -> None:
    """Unless another thread has answered for some of it: that one works on it."""
    table = Table(order)
    table.admit(4)
    (batch,) = table.take()
    other = threading.Thread(target=batch.done, args=(1,))
    other.start()
    other.join()
    table.out.abandon_last(ValueError())
    assert table.held.running
    batch.done([0, 2])
    batch.fail(RetryLater(1.0))
    table.pass_time(1.0)
    (again,) = table.take()
    assert table.take() == []
    table.out.abandon_last(ValueError())
    assert table.held.running, "who asked for more has handed it on"
    table.out.abandon_last(UnansweredBatchError())
    assert table.held.running == 0
    again.done()
    assert table.watermark == 3


class Reader:
    """Reads offsets of a desk's records that it does not refuse."""

    def __init__(self, **refused: Exception) -> None:
        self.refused = {int(name[1:]): error for name, error in refused.items()}


class ReadOnDesk(Readers):
    """Deserializers for records that have no key and no value."""

    def read(self, record: Any) -> Any:  # noqa: ANN401 - upstream's
        error = self.value.refused.get(record.offset)
        if error is not None:
            raise error
        return record


@ORDERS
def test_what_cannot_be_deserialized_fails_by_itself(order: Order) -> None:
    """W7: the others are handed out, by indexes of their own."""
    wrong = Reader(_1=DeserializationError("planted"), _2=ConnectionError("planted"))
    letters: list[Letter] = []
    table = Table(order, ReadOnDesk(None, wrong), post=letters.append)
    table.admit(4)
    (batch,) = table.take()
    assert offsets(batch) == [0, 3]
    batch.done(1)
    batch.done(0)
    (letter,) = letters
    assert (letter.record.offset, table.watermark) == (1, 1)
    table.schedule.letter_acknowledged(letter)
    assert table.watermark == 2
    wrong.refused.clear()
    table.pass_time(1.0)
    (again,) = table.take()
    assert (offsets(again), again.attempt) == ([2], 2)
    again.done()
    assert (table.watermark, table.held.running) == (4, 0)


@ORDERS
def test_a_batch_of_which_nothing_can_be_read_is_not_handed_out(order: Order) -> None:
    """Nor does it count as running."""
    wrong = Reader(_0=DeserializationError("a"), _1=DeserializationError("b"))
    table = Table(order, ReadOnDesk(None, wrong), on_exhausted="skip")
    table.admit(2)
    table.admit(1)
    (batch,) = (*table.take(), *table.take())
    assert offsets(batch) == [2]
    batch.done()
    assert (table.watermark, table.held.running) == (3, 0)


def test_an_interrupt_while_deserializing_loses_nothing() -> None:
    """It is nobody's failure: the records are handed out again."""
    wrong: Any = Reader()
    wrong.refused[1] = KeyboardInterrupt()
    table = Table(Order.PARTITION, ReadOnDesk(None, wrong))
    table.admit(2)
    with pytest.raises(KeyboardInterrupt):
        table.take()
    assert table.held.running == 0
    wrong.refused.clear()
    (batch,) = table.take()
    assert offsets(batch) == [0, 1]


# ------------------------------------------------------------ on a broker


@ON_BROKER
def test_an_exception_in_the_loop_appears_at_once(lab: Lab) -> None:
    """W8: nobody works on that batch any more; with what was done committed."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 10})
    consumer = lab.consumer(max_poll_records=5)
    began = 0.0
    with pytest.raises(ZeroDivisionError), Pump(consumer) as pump:  # noqa: PT012 - a loop
        for batch in pump:
            if batch.records[0].offset:
                began = time.monotonic()
                batch.done(0)
                raise ZeroDivisionError
            batch.done()
    assert time.monotonic() - began < 5
    assert lab.committed() == {0: 6}


@pytest.mark.contract("W6")
@ON_BROKER
def test_an_exception_waits_for_what_others_work_on(lab: Lab) -> None:
    """W6: up to the deadline, and what they finish meanwhile is committed."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 10})
    raised = threading.Event()
    threads = []

    def work(batch: Batch) -> None:
        batch.done(0)
        assert raised.wait(30)
        wait_for(lambda: pump._engine.departures.is_draining, "the drain")
        batch.done()

    with (  # noqa: PT012 - a loop
        pytest.raises(ZeroDivisionError),
        Pump(lab.consumer(max_poll_records=5)) as pump,
    ):
        for batch in pump:
            if batch.records[0].offset:
                raised.set()
                raise ZeroDivisionError
            threads.append(threading.Thread(target=work, args=(batch,)))
            threads[0].start()
    threads[0].join(30)
    assert lab.committed() == {0: 5}


@ON_BROKER
def test_it_polls_while_you_work(lab: Lab) -> None:
    """W2: and takes part in a rebalance, without which the other would get nothing."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["v"] * 3, 1: ["v"] * 3})
    other = lab.consumer()
    with Pump(lab.consumer(), drain=Drain(revoke=0.2, shutdown=0.2)) as pump:
        batch = next(iter(pump))
        membership = pump._client.membership
        before = membership.losses
        found: dict[Any, Any] = {}
        wait_for(
            lambda: found.update(other.poll(timeout_ms=100)) or found,
            "the other member to get a partition",
        )
        assert membership.losses == before
        batch.done()


def _leave(consumer: Any, then: Callable[[Any, list[Batch]], object]) -> None:  # noqa: ANN401 - a consumer
    # Leaves a pump with three records out, and does so instead of the last commit.
    batches: list[Batch] = []
    with Pump(consumer, drain=Drain(shutdown=0.0)) as pump:

        def all_out() -> bool:
            batches.extend(pump.turn())
            return sum(len(batch.records) for batch in batches) == 3

        wait_for(all_out, "all to be handed out")
        engine: Any = pump._engine
        conclude = engine.conclude
        engine.conclude = lambda: then(conclude, batches)


def _answer(conclude: Callable[[], object], batches: list[Batch]) -> object:
    for batch in batches:
        batch.done()
    return conclude()


@ON_BROKER
def test_what_is_done_before_the_last_commit_does_not_come_again(lab: Lab) -> None:
    """W5: by another thread, while the block is left."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    consumer = lab.consumer()
    _leave(consumer, _answer)
    assert lab.committed() == {0: 3}
    assert consumer.position(TopicPartition(lab.topic, 0)) == 3


def _break(conclude: Callable[[], object], _batches: object) -> object:
    conclude()
    message = "planted"
    raise JournalError(message)


@ON_BROKER
def test_what_is_not_done_comes_again_if_the_last_commit_breaks(lab: Lab) -> None:
    """W5: the consumer goes on, so its next commit would pass it over."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    consumer = lab.consumer()
    with pytest.raises(JournalError, match="planted"):
        _leave(consumer, _break)
    assert consumer.position(TopicPartition(lab.topic, 0)) == 0


@pytest.mark.contract("W2")
@ON_BROKER
def test_a_synchronous_loop_is_not_evicted(lab: Lab) -> None:
    """W2: it takes longer for a batch than a member may be away, and handles each once."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 4})
    consumer = lab.consumer(
        max_poll_records=2, max_poll_interval_ms=3_000, session_timeout_ms=6_000
    )
    seen: list[int] = []
    drain = Drain(revoke=0.3)
    with Pump(consumer, drain=drain) as pump:
        membership, losses = pump._client.membership, []
        for batch in pump:
            losses.append(membership.losses)
            until = time.monotonic() + 4.5
            wait_for(lambda: time.monotonic() > until, "longer than it may be away")  # noqa: B023
            seen += offsets(batch)
            batch.done()
            if len(seen) >= 4:
                pump.stop()
        assert {*losses, membership.losses} == {losses[0]}
    assert (seen, lab.committed()) == ([0, 1, 2, 3], {0: 4})


@ON_BROKER
def test_what_failed_for_good_ends_the_loop(lab: Lab) -> None:
    """W7: with the error that says which record; nothing is committed past it."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["good", "bad", "good"]})
    with (  # noqa: PT012 - a loop
        pytest.raises(RecordFailedError, match="offset 1 failed for good") as caught,
        Pump(lab.consumer(), retry=ONCE) as pump,
    ):
        for batch in pump:
            for index, record in enumerate(batch.records):
                if record.value == b"bad":
                    batch.fail(ValueError("planted"), index)
            batch.done()
    assert isinstance(caught.value.__cause__, ValueError)
    assert lab.committed() == {0: 1}


@ON_BROKER
def test_a_pause_ends_with_the_pump_that_placed_it(lab: Lab) -> None:
    """The consumer stays its owner's, and goes on where the batch was."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    consumer = lab.consumer()
    with Pump(consumer) as pump:
        for batch in pump:
            batch.fail(Pause(3600, reason="the bank is down"))
            break
        (line,) = consumer.explain(f"{lab.topic}:0")
        assert "because the bank is down" in line
    assert not consumer.holds()
    records = [one for some in consumer.poll(20_000).values() for one in some]
    assert records[0].offset == 0


@ON_BROKER
def test_a_breaker_holds_the_topic_of_a_pump(lab: Lab) -> None:
    """As long as it says or until somebody lifts it; and it ends with the pump."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    consumer = lab.consumer()
    breaker = Breaker(on=(ConnectionError,), failures=2, first=3600, most=3600)
    with Pump(consumer, breaker=breaker) as pump:
        for batch in pump:
            batch.fail(DOWN, 0)
            batch.fail(DOWN)
            break
        (hold,) = consumer.holds()
        assert (str(hold.scope), hold.owner) == (lab.topic, BREAKER)
        consumer.resume(lab.topic, owner=BREAKER)
        left = 3
        for batch in pump:
            left -= len(batch)
            batch.done()
            if not left:
                break
    assert not consumer.holds()
    assert lab.committed() == {0: 3}
    with pytest.raises(WorkerSettingError, match="breaker"):
        Pump(lab.consumer(), breaker=3.0)  # type: ignore[arg-type]  # that is it


@ON_BROKER
def test_dead_letters_and_a_stop(lab: Lab) -> None:
    """W7: a letter is acknowledged before its record is complete; a stop ends the loop."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["bad", "good"]})
    letters: list[Any] = []
    pump = Pump(
        lab.consumer(),
        retry=ONCE,
        dead_letter=lambda record, failure: letters.append((record, failure)),
    )
    with pump:
        for batch in pump:
            if batch.records[0].value == b"bad":
                batch.fail(ValueError("planted"), 0)
                batch.done()
                wait_for(lambda: not pump.held_records, "the letter to be acknowledged")
                lab.produce({0: ["last"]})
            else:
                batch.fail(StopWorker())
    assert lab.committed() == {0: 2}
    ((record, failure),) = letters
    assert (record.value, failure.attempts) == (b"bad", 1)


@ON_BROKER
def test_a_topic_of_dead_letters_that_is_consumed_is_refused(lab: Lab) -> None:
    """As by a worker."""
    from safeconsumer import DeadLetter  # noqa: PLC0415

    lab.new_topic(partitions=1)
    letters = DeadLetter(lab.producer, lab.topic)
    with pytest.raises(WorkerSettingError, match="is consumed here"):
        Pump(lab.consumer(), dead_letter=letters)


@ON_BROKER
def test_a_batch_without_an_answer_ends_the_loop(lab: Lab) -> None:
    """W5: it would stop the commits for ever, and nobody would know."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 6})
    answered: list[int] = []
    with (  # noqa: PT012 - a loop
        pytest.raises(UnansweredBatchError, match=f"{lab.topic}:0"),
        Pump(lab.consumer(max_poll_records=3)) as pump,
    ):
        for batch in pump:
            answered.append(batch.records[0].offset)
            batch.done(0)
    assert answered[0] == 0
    assert lab.committed() == {0: 1 + (1 in answered)}


def as_json(data: bytes) -> object:
    """Deserialize, or raise."""
    return json.loads(data)


@ON_BROKER
@pytest.mark.filterwarnings("ignore:value_deserializer:DeprecationWarning")
def test_a_deserializer_that_raises_fails_its_record(lab: Lab) -> None:
    """W7: and no poll; afterwards the consumer deserializes by itself again."""
    lab.new_topic(partitions=1)
    lab.produce({0: ['{"k": 1}', "{bad", '{"k": 2}', '{"k": 3}', '{"k": 4}']})
    consumer = lab.consumer(value_deserializer=as_json, max_poll_records=1)
    letters: list[Any] = []
    wait_for(lambda: consumer.poll(timeout_ms=100), "what is deserialized by the poll")
    pump = Pump(
        consumer,
        dead_letter=lambda record, failure: letters.append((record, failure)),
    )
    seen: list[Any] = []
    with pump:
        for batch in pump:
            seen += [record.value for record in batch.records]
            consumer.pause_all(owner="somebody")
            batch.done()
            if len(seen) == 2:
                break
            consumer.resume_all(owner="somebody")
    assert seen == [{"k": 2}, {"k": 3}]
    ((record, failure),) = letters
    assert (record.value, failure.attempts) == (b"{bad", 1)
    assert isinstance(failure.error, DeserializationError)
    consumer.resume_all(owner="somebody")
    found: list[Any] = []
    wait_for(
        lambda: found.extend(consumer.poll(timeout_ms=100).values()) or found,
        "the rest, by a poll of one's own",
    )
    assert found[0][0].value == {"k": 4}


@ON_BROKER
def test_what_a_poll_raises_comes_out_of_the_loop(lab: Lab) -> None:
    """Once each time, and it goes on for who goes on."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    consumer = lab.consumer()
    poll, raising = consumer.poll, [ZeroDivisionError()]

    def break_once(**how: Any) -> Any:  # noqa: ANN401 - passed on
        if raising:
            raise raising.pop()
        return poll(**how)

    consumer.poll = break_once
    with Pump(consumer) as pump:
        with pytest.raises(ZeroDivisionError):
            wait_for(pump.turn, "it to raise")
        batches: list[Batch] = []
        wait_for(lambda: batches.extend(pump.turn()) or batches, "a batch")
        batches[0].done()
    assert lab.committed() == {0: 1}


@ON_BROKER
def test_a_rebalance_drains_and_loses_nothing(lab: Lab) -> None:
    """W6: what is answered in time is committed, and the other member gets the rest."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["v"] * 4, 1: ["v"] * 4})
    seen: dict[str, set[tuple[int, int]]] = {"first": set(), "second": set()}
    consumer = lab.consumer(max_poll_records=2)
    other = lab.consumer(max_poll_records=2)

    def work(batch: Batch, who: str) -> None:
        tp = batch.partition.partition
        seen[who] |= {(tp, one) for one in offsets(batch)}
        batch.done()

    with Pump(consumer, drain=Drain(revoke=5.0)) as first:
        batch = next(iter(first))
        batch.fail(RetryLater(60.0), 1)
        with Pump(other) as second:
            wait_for(lambda: first._engine.departures.is_draining, "the drain")
            seen["first"].add((batch.partition.partition, batch.records[0].offset))
            batch.done()
            everything = {(tp, one) for tp in (0, 1) for one in range(4)}
            failed = (batch.partition.partition, batch.records[1].offset)

            def look() -> bool:
                for one in first.turn():
                    work(one, "first")
                for one in second.turn():
                    work(one, "second")
                done = seen["first"] | seen["second"]
                return done | {failed} == everything

            wait_for(look, "every record but the one that waits")
    owner = {tp: who for who, some in seen.items() for tp, _ in some}
    assert set(owner) == {0, 1}
    committed = lab.committed()
    done = seen["first"] | seen["second"]
    for number, offset in committed.items():
        assert offset is not None
        assert {(number, one) for one in range(offset)} <= done


@ON_BROKER
def test_a_lost_membership_commits_nothing(lab: Lab) -> None:
    """W4: whatever is answered for it afterwards."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 2})
    consumer = lab.consumer(session_timeout_ms=2000)
    with Pump(consumer) as pump:
        batch = next(iter(pump))
        consumer._coordinator.reset_generation()
        wait_for(lambda: batch.is_revoked, "the loss")
        batch.done()
        batch.fail(ValueError())
        (again,) = _next(pump)
        assert offsets(again) == [0, 1]
        assert again.assignment_epoch > batch.assignment_epoch
        again.done(0)
        again.fail(RetryLater(60.0))
    assert lab.committed() == {0: 1}


def _next(pump: Pump) -> list[Batch]:
    found: list[Batch] = []
    wait_for(lambda: found.extend(pump.turn()) or found, "a batch")
    return found


@ON_BROKER
def test_a_batch_that_was_taken_away_is_not_quiet(lab: Lab) -> None:
    """G8: somebody still works on it, whoever owns the partition by then."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    consumer = lab.consumer(session_timeout_ms=2000)
    with Pump(consumer, drain=Drain(shutdown=0.2)) as pump:
        batch, ledger = next(iter(pump)), pump._client.membership.ledger
        consumer._coordinator.reset_generation()
        wait_for(
            lambda: (
                ledger.ownership().epochs.get(batch.partition, 0)
                > batch.assignment_epoch
            ),
            "the partition to be back",
        )
        assert ledger.busy() == {batch.partition}
        batch.done()
        wait_for(lambda: not ledger.busy(), "it to be quiet")


@ON_BROKER
def test_a_signal_handler_stops_it(lab: Lab) -> None:
    """W8: in the middle of waiting for a batch too."""
    lab.new_topic(partitions=1)
    pump = Pump(lab.consumer())
    before = signal.signal(signal.SIGUSR1, lambda *_: pump.stop())
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGUSR1))
    try:
        timer.start()
        with pump:
            assert list(pump) == []
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert not [one for one in threading.enumerate() if one.name == "safeconsumer-pump"]


@ON_BROKER
def test_an_operators_hold_is_quiet_once_the_batch_is_answered(lab: Lab) -> None:
    """G8, W10: what is out counts as running, and nothing more comes meanwhile."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 4})
    consumer = lab.consumer(max_poll_records=2)
    with Pump(consumer, drain=Drain(shutdown=0.2)) as pump:
        batch, busy = next(iter(pump)), pump._client.membership.ledger.busy
        consumer.pause_all(owner="somebody")
        assert busy() == {batch.partition}
        assert pump.turn() == []
        batch.done()
        assert not busy()
        assert pump.turn() == []
        consumer.resume_all("somebody")
        (more,) = _next(pump)
        assert offsets(more) == [2, 3]
        more.done()


class History:
    """Answers batches of a table as it is told, and judges what comes out."""

    def __init__(self, order: Order) -> None:
        self.table = Table(order, on_exhausted="skip")
        self.out: list[tuple[Batch, dict[int, None]]] = []
        self.ended: set[int] = set()
        self.total = 0

    def step(self, dice: Random) -> None:
        """Do something, whatever is possible now."""
        match dice.choice(["admit", "take", "wait", "hold", *"aaaa"]):
            case "admit":
                count = dice.randint(1, 9)
                self.table.admit(count)
                self.total += count
            case "take":
                self.take()
            case "wait":
                self.table.pass_time(dice.uniform(0, 3))
            case "hold":
                self.table.pause() if dice.random() < 0.3 else self.table.resume()
            case _ if self.out:
                self.answer(dice)
            case _:
                self.take()
        self.check()

    def take(self) -> None:
        """Take all there is."""
        before = {one for batch, left in self.out for one in self._of(batch, left)}
        for batch in self.table.take():
            new = offsets(batch)
            assert not before & set(new), "handed out twice"
            assert not self.ended & set(new), "handed out though it has ended"
            assert new == sorted(new)
            if self.table.schedule._lanes.order is Order.PARTITION:
                assert not before, "beside another one"
                assert set(range(new[0])) <= self.ended, "before what stands in front"
            before |= set(new)
            self.out.append((batch, dict.fromkeys(range(len(new)))))

    def answer(self, dice: Random) -> None:
        """Say what became of some records of a batch, or let go of it."""
        at = dice.randrange(len(self.out))
        batch, left = self.out[at]
        some = dice.sample(sorted(left), dice.randint(1, len(left)))
        chosen = some if dice.random() < 0.7 else None
        how = dice.choice(["done", "done", "fail", "later", "reject", "let go"])
        told = [batch.records[one].offset for one in chosen or left]
        match how:
            case "done":
                batch.done(chosen)
                self.ended.update(told)
            case "fail":
                batch.fail(ValueError(), chosen)
            case "later":
                batch.fail(RetryLater(dice.uniform(0, 2)), chosen)
            case "reject":
                batch.fail(Reject("no"), chosen)
            case "let go":
                chosen = tuple(left)
                del self.out[at], batch
                for ticket in self.table.out.take_dropped():
                    ticket.give_back()
                return
        for one in chosen or tuple(left):
            del left[one]
        if not left:
            del self.out[at]

    def check(self) -> None:
        """W4, W5: nothing is committed past a record that has not ended."""
        done = self.table.epoch.progress
        open_ = {chunk.base + index: None for chunk, index in done.incomplete()}
        self.ended |= set(range(self.total)) - set(open_)
        assert self.table.watermark == min(open_, default=self.total)
        assert not self.ended & set(open_)
        assert self.table.held.running >= sum(len(left) for _, left in self.out)
        if not self.out:
            assert self.table.held.running == 0

    @staticmethod
    def _of(batch: Batch, left: dict[int, None]) -> list[int]:
        return [batch.records[one].offset for one in left]


@ORDERS
@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_answered_each_record_ends_once(
    order: Order, seed: int, first_seed: int
) -> None:
    """W3, W4, W5: in any order of answers, waits, holds, and batches that are let go of."""
    history = History(order)
    dice = Random(first_seed + seed)  # noqa: S311 - a test
    for _ in range(dice.randint(1, 60)):
        history.step(dice)
    history.table.resume()
    for _ in range(200):
        for batch, _left in history.out:
            batch.done()
        history.out.clear()
        history.table.pass_time(60.0)
        history.check()
        history.take()
        if not history.out:
            break
    assert history.table.watermark == history.total
    assert (history.table.held.records, history.table.held.running) == (0, 0)
