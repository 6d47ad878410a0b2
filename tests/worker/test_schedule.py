"""
What a schedule hands out next, decided without a broker and while time stands still.
"""

from typing import Any

import pytest

from safeconsumer.events import worker as worker_events
from safeconsumer.worker import RecordFailedError, RetryLater
from safeconsumer.worker.calls import batch_failed
from safeconsumer.worker.lanes import Order
from safeconsumer.worker.outcomes import Letter, Outcome
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
    (task,) = desk.schedule.claim()
    assert task.attempt == 2
    desk.schedule.complete([Outcome(task=task, failed=[(0, ValueError())])])
    desk.pass_time(2.0)
    (task,) = desk.schedule.claim()
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
    first, second = desk.schedule.claim()[0], desk.schedule.claim()[0]
    assert [*first.indexes, *second.indexes] == [0, 1, 2, 3, 4, 5]
    desk.schedule.complete([batch_failed(first, RetryLater(2.0), 0.0)])
    assert not desk.schedule.claim()
    desk.pass_time(2.0)
    assert [list(task.indexes) for task in desk.schedule.claim()] == [[0, 1, 2, 3]]
