"""How fast records begin, and how many handlers a topic may have at a time."""

from typing import Any

import pytest
from kafka.structs import TopicPartition

from safeconsumer import WorkerSettingError
from safeconsumer.worker.calls import all_done
from safeconsumer.worker.lanes import Order
from safeconsumer.worker.progress import record_at
from safeconsumer.worker.tasks import Outcome, Task
from safeconsumer.worker.throttle import PerTopic
from tests.harness.worker.desk import TP, Desk
from tests.harness.worker.fake_client import FakeRecord

MANY = {"key": lambda record: record.offset, "quantum": 1}


def _claimed(desk: Desk) -> list[Task]:
    found: list[Task] = []
    while tasks := desk.schedule.queue.claim():
        found += tasks
    return found


def _done(desk: Desk, *tasks: Task) -> None:
    desk.schedule.complete([all_done(one, 0.0) for one in tasks])


def test_who_waits_for_the_rate_is_told_when_it_is_over() -> None:
    """By the poll loop, which turns as soon as something may begin."""
    desk = Desk(Order.KEY, rate=2.0, **MANY, records=3)
    roused: list[int] = []
    assert len(desk.work()) == 1
    desk.schedule.queue.listen(lambda: roused.append(1))
    assert desk.schedule.turn() == 0.5
    assert not roused
    desk.pass_time(0.5)
    assert roused
    assert len(desk.work()) == 1


def test_what_was_not_begun_is_not_counted() -> None:
    """It was handed out, and a hold came before it."""
    desk = Desk(Order.PARTITION, rate=10.0)
    desk.epoch.pace = 1e-6
    desk.admit(5)
    desk.pass_time(1.0)
    (task,) = desk.schedule.queue.claim()
    assert len(task.indexes) == 2
    desk.schedule.complete([Outcome(task=task, left=task.indexes)])
    assert len(desk.work()) == 2


def test_a_retry_is_counted_too() -> None:
    """What a handler asks of others it asks again."""
    desk = Desk(Order.PARTITION, rate=0.5, records=1)
    (task,) = desk.schedule.queue.claim()
    desk.schedule.complete([Outcome(task=task, failed=[(0, ValueError())])])
    desk.pass_time(1.0)
    assert desk.work() == []
    desk.pass_time(1.0)
    assert desk.work() == [0]


@pytest.mark.parametrize("most", [{"orders": 2}, {"re:ord.*": 2, "re:.*": 9}])
def test_a_topic_has_no_more_handlers_than_it_may(most: dict[str, int]) -> None:
    """The next begins when one of them is done, in the order in which they came."""
    desk = Desk(Order.KEY, per_topic=PerTopic(most), **MANY, records=6)
    first, second = _claimed(desk)
    _done(desk, second)
    (third,) = _claimed(desk)
    assert list(third.indexes) == [2]
    desk.admit(2)
    assert _claimed(desk) == []
    out, found = [first, third], []
    while out:
        _done(desk, out.pop(0))
        out += (tasks := _claimed(desk))
        assert len(out) <= 2
        found += [record_at(one.chunk, one.indexes[0]).offset for one in tasks]
    assert found == [3, 4, 5, 6, 7]


def test_a_place_goes_to_somebody_who_can_take_it() -> None:
    """Not to what is held, was revoked, or has gone; and these lose no place for others."""
    desk = Desk(Order.KEY, per_topic=PerTopic({"orders": 1}), **MANY, records=4)
    (first,) = _claimed(desk)
    desk.pause()
    _done(desk, first)
    assert _claimed(desk) == []
    desk.resume()
    (second,) = _claimed(desk)
    assert list(second.indexes) == [1]
    desk.regain()
    desk.admit(4)
    assert _claimed(desk) == []
    _done(desk, second)
    assert desk.work() == [0, 1, 2, 3]


def test_a_partition_that_has_gone_passes_its_place_on() -> None:
    """To the next one that waits for it, though it was called first."""
    desk = Desk(Order.PARTITION, per_topic=PerTopic({"orders": 1}), records=1)
    gone, there = TopicPartition(TP.topic, 1), TopicPartition(TP.topic, 2)
    desk.ledger.assign([TP, gone, there])
    for tp in gone, there:
        epoch = desk.held.open(tp, 1, 0, 0)
        chunk = desk.held.admit(epoch, [FakeRecord(*tp, 0)])  # type: ignore[list-item]  # alike
        desk.schedule.admit(epoch, chunk)
    (first,) = _claimed(desk)
    _done(desk, first)
    desk.held.close(desk.held.epochs[gone])
    assert [one.epoch.tp for one in _claimed(desk)] == [there]


def test_batches_of_a_topic_take_one_place_each() -> None:
    """Also one that waits for more records."""
    topics = PerTopic({"orders": 1})
    desk = Desk(
        Order.UNORDERED,
        is_batch=True,
        quantum=2,
        within=1.0,
        per_topic=topics,
        records=5,
    )
    (first,) = _claimed(desk)
    _done(desk, first)
    (second,) = _claimed(desk)
    _done(desk, second)
    assert _claimed(desk) == []
    desk.pass_time(1.0)
    assert desk.work() == [4]


@pytest.mark.parametrize(
    "most", [{"orders:1": 1}, {"@all": 1}, {"orders": 0}, {"orders": True}, {7: 1}, 3]
)
def test_impossible_places_are_refused(most: Any) -> None:  # noqa: ANN401
    """With the reason."""
    with pytest.raises(WorkerSettingError):
        PerTopic(most)
