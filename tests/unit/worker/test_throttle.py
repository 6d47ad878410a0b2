"""How fast records begin."""

from safeconsumer.worker.calls import all_done
from safeconsumer.worker.lanes import Order
from safeconsumer.worker.tasks import Outcome, Task
from tests.harness.worker.desk import Desk

MANY = {"key": lambda record: record.offset, "quantum": 1}


def _claimed(desk: Desk) -> list[Task]:
    found: list[Task] = []
    while tasks := desk.schedule.queue.claim():
        found += tasks
    return found


def _done(desk: Desk, *tasks: Task) -> None:
    desk.schedule.complete([all_done(one, 0.0) for one in tasks])


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
