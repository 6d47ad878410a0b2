"""
What a schedule hands out next, decided without a broker and while time stands still.
"""

from typing import Any

import pytest

from safeconsumer.events import worker as worker_events
from safeconsumer.worker import (
    BatchFailure,
    RecordFailedError,
    Reject,
    RetryLater,
    StopWorker,
)
from safeconsumer.worker.handlers import batch_failed
from safeconsumer.worker.queue import Letter, Order, Outcome
from tests.worker.desk import Desk


class Failing:
    """
    Tells keys, but for one record, until it is mended.
    """

    def __init__(self, offset: int) -> None:
        self.offset: int | None = offset

    def __call__(self, record: Any) -> object:  # noqa: ANN401
        if record.offset == self.offset:
            message = "planted"
            raise ValueError(message)
        return record.key


def test_what_stands_behind_a_record_without_a_key_waits_for_it() -> None:
    """
    W3: it may be of the same key; later chunks too. What stands before it does not.
    """
    key = Failing(offset=2)
    desk = Desk(Order.KEY, key)
    desk.admit(4)
    desk.admit(2)
    assert desk.work() == [0, 1]
    key.offset = None
    desk.pass_time(0.9)
    assert desk.work() == []
    desk.pass_time(0.1)
    assert desk.work() == [2, 3, 4, 5]


def test_a_key_that_fails_costs_an_attempt() -> None:
    """
    W7: attempts of key and handler together are those of the policy.
    """
    key = Failing(offset=0)
    desk = Desk(Order.KEY, key)
    desk.admit(1)
    key.offset = None
    desk.pass_time(1.0)
    (task,) = desk.schedule.queue.claim()
    assert task.attempt == 2
    desk.schedule.complete([Outcome(task=task, failed=[(0, ValueError())])])
    desk.pass_time(2.0)
    (task,) = desk.schedule.queue.claim()
    assert task.attempt == 3
    desk.schedule.complete([Outcome(task=task, failed=[(0, ValueError())])])
    assert isinstance(desk.schedule.fatal, RecordFailedError)


@pytest.mark.parametrize("then", ["skip", "dead letter"])
def test_a_key_that_fails_for_good_lets_the_others_go_on(then: str) -> None:
    """
    W7: once its record was passed over, or its letter acknowledged.
    """
    letters: list[Letter] = []
    post = letters.append if then == "dead letter" else None
    desk = Desk(Order.KEY, Failing(offset=1), on_exhausted="skip", post=post)
    desk.admit(3)
    assert desk.work() == [0]
    desk.pass_time(1.0)
    assert desk.work() == []
    desk.pass_time(2.0)
    assert len(letters) == (post is not None)
    for letter in letters:
        assert desk.work() == []
        desk.schedule.letter_acknowledged(letter)
    desk.pass_time(0.0)
    assert desk.work() == [2]
    assert not desk.held.records


def test_a_revoked_partition_asks_for_no_key_again() -> None:
    """
    W6: neither while it departs, nor once it is closed.
    """
    desk = Desk(Order.KEY, Failing(offset=0))
    desk.admit(2)
    desk.schedule.drop_queued([desk.epoch])
    desk.pass_time(5.0)
    desk.held.close(desk.epoch)
    desk.pass_time(5.0)
    assert desk.told == [worker_events.RecordRetried]
    assert (desk.work(), desk.held.records) == ([], 0)


def test_a_batch_that_asks_for_later_is_left_alone_until_then() -> None:
    """
    W7: all of it, not just its first record; and it comes again as one batch.
    """
    desk = Desk(Order.UNORDERED, is_batch=True, quantum=4)
    desk.admit(6)
    first, second = desk.schedule.queue.claim()[0], desk.schedule.queue.claim()[0]
    assert [*first.indexes, *second.indexes] == [0, 1, 2, 3, 4, 5]
    desk.schedule.complete([batch_failed(first, RetryLater(2.0), 0.0)])
    assert not desk.schedule.queue.claim()
    desk.pass_time(2.0)
    assert [list(task.indexes) for task in desk.schedule.queue.claim()] == [
        [0, 1, 2, 3]
    ]


def _partly(desk: Desk, errors: dict[int, Exception]) -> None:
    (task,) = desk.schedule.queue.claim()
    desk.schedule.complete([batch_failed(task, BatchFailure(errors), 0.0)])


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
def test_each_answer_of_a_batch_is_heeded(order: Order) -> None:
    """
    W7: what is rejected is not handled again, what asks for later comes no sooner.
    """
    desk = Desk(order, is_batch=True, quantum=8, on_exhausted="skip")
    desk.admit(8)
    _partly(
        desk,
        {
            1: ValueError("planted"),
            2: Reject("planted"),
            4: RetryLater(5.0),
            5: Reject("planted"),
            6: Reject("planted"),
        },
    )
    desk.pass_time(0.9)
    assert desk.work() == []
    desk.pass_time(0.2)
    assert desk.work() == [1]
    desk.pass_time(3.8)
    assert desk.work() == []
    desk.pass_time(0.2)
    assert desk.work() == [4]
    assert (desk.schedule.skipped, desk.held.records) == (3, 0)
    assert not desk.epoch.answers
    assert not desk.epoch.alone
    assert not desk.epoch.failures


def test_a_batch_that_rejects_all_is_given_up_whole() -> None:
    """
    W7: however many there are, and none is handled again.
    """
    desk = Desk(Order.PARTITION, is_batch=True, quantum=2000, on_exhausted="skip")
    desk.admit(2000)
    (task,) = desk.schedule.queue.claim()
    desk.schedule.complete([batch_failed(task, Reject("planted"), 0.0)])
    assert (desk.work(), desk.schedule.skipped) == ([], 2000)


@pytest.mark.parametrize("order", [Order.PARTITION, Order.UNORDERED])
def test_a_batch_may_stop_the_worker_with_any_of_its_answers(order: Order) -> None:
    """
    At once, and the record comes again after the restart.
    """
    desk = Desk(order, is_batch=True, quantum=4)
    desk.admit(4)
    _partly(desk, {0: RetryLater(5.0), 3: StopWorker()})
    assert desk.schedule.is_stop_asked
    assert desk.held.records == 2


def test_letters_of_one_batch_go_in_order() -> None:
    """
    W3: the second once the first is acknowledged.
    """
    letters: list[Letter] = []
    desk = Desk(Order.PARTITION, is_batch=True, quantum=4, post=letters.append)
    desk.admit(4)
    _partly(desk, {1: Reject("planted"), 2: Reject("planted")})
    assert [one.record.offset for one in letters] == [1]
    desk.schedule.letter_acknowledged(letters[0])
    assert [one.record.offset for one in letters] == [1, 2]
    desk.schedule.letter_acknowledged(letters[1])
    assert (desk.work(), desk.held.records) == ([], 0)
