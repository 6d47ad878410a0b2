"""What a loop does at one turn: errors, resets, losses, the last commit; turned by hand."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition

from safeconsumer.worker import Commit
from safeconsumer.worker.calls import all_done
from safeconsumer.worker.lanes import Order
from tests.harness.worker.desk import done_by
from tests.harness.worker.fake_client import EVERY
from tests.harness.worker.standing_loop import Loop

TP = EVERY[0]


def breaking(what: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """Return what raises the first time, and works afterwards."""
    left = [error]

    def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        if left:
            raise left.pop()
        return what(*given, **named)

    return call


ERRORS = pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])


@ERRORS
def test_records_in_hand_come_again(error: BaseException) -> None:
    """W4: and nothing is committed past them meanwhile."""
    loop = Loop()
    loop.turn(2)
    loop.client.log[TP] = 3
    departures = loop.engine.departures
    departures.settle = breaking(departures.settle, error)  # type: ignore[method-assign]  # on purpose
    with pytest.raises(type(error)):
        loop.turn()
    assert loop.client.positions[TP] == 3
    loop.turn(2)
    assert loop.client.committed[TP] == 0
    assert loop.work() == [0, 1, 2]
    loop.turn(2)
    assert loop.client.committed[TP] == 3


@ERRORS
@pytest.mark.parametrize("where", ["commit of the floor", "settling"])
def test_the_first_records_of_an_ownership_come_again(
    error: BaseException, where: str
) -> None:
    """W12: its floor is where they begin, though its position may be beyond them."""
    loop = Loop(latest=True)
    loop.client.log[TP] = 3
    loop.client._first_position = lambda _tp: 0  # type: ignore[method-assign]  # records came since
    commits, departures = loop.engine.commits, loop.engine.departures
    if where == "settling":
        departures.settle = breaking(departures.settle, error)  # type: ignore[method-assign]  # on purpose
    else:
        commits.now = breaking(commits.now, error)  # type: ignore[method-assign]  # on purpose
    with pytest.raises(type(error)):
        loop.turn(3)
    loop.turn(3)
    assert loop.work() == [0, 1, 2]
    loop.turn(2)
    assert loop.client.committed[TP] == 3


def test_an_end_gives_back_what_was_in_hand() -> None:
    """For a pump, whose consumer goes on."""
    loop = Loop()
    loop.turn(2)
    loop.client.log[TP] = 3
    departures = loop.engine.departures
    departures.settle = breaking(departures.settle, ZeroDivisionError())  # type: ignore[method-assign]  # on purpose
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    loop.engine.departures.stop(1.0)
    assert loop.engine.conclude()
    assert (loop.client.positions[TP], loop.client.committed[TP]) == (0, 0)


def test_what_came_before_a_reset_is_done_first() -> None:
    """W4, W12: nothing is committed past it, and nothing begins without a floor."""
    loop = Loop(commit=Commit(every=60.0))
    loop.turn(2)
    loop.client.log[TP] = 2
    loop.turn(2)
    (task,) = loop.schedule.queue.claim()
    loop.client.log[TP] = 10
    loop.client.reset(TP, 7)
    loop.turn(5)
    assert loop.client.committed[TP] == 0
    assert loop.engine.held.records == 2
    assert done_by(loop.schedule, [task]) + loop.work() == [0, 1]
    loop.turn(5)
    assert loop.client.committed[TP] == 7
    assert loop.work() == [7, 8, 9]


def test_a_reset_to_earlier_offsets_begins_anew() -> None:
    """W12: as where a topic was deleted and created again."""
    loop = Loop(commit=Commit(every=60.0))
    loop.client.committed[TP] = loop.client.log[TP] = 20
    loop.turn(2)
    loop.client.log[TP] = 3
    loop.client.reset(TP, 3)
    loop.turn(3)
    assert loop.client.committed[TP] == 3
    loop.client.log[TP] = 5
    loop.turn(3)
    assert loop.work() == [3, 4]


def test_a_join_that_is_wanted_no_more_ends_the_drain() -> None:
    """Work goes on if what asked for a join is over when the drain ends."""
    loop = Loop(commit=Commit())
    client, engine, schedule = loop.client, loop.engine, loop.schedule
    client.log[TP] = 8
    for _ in range(2):
        engine.turn()
    (task,) = schedule.queue.claim()
    client.rebalance(TP)
    engine.turn()
    client.wants_no_join()
    schedule.complete([all_done(task, 0.0)])
    for _ in range(3):
        engine.turn()
    assert schedule.queue.claim()
    assert not client.holds()


def test_what_never_joined_has_nothing_to_commit() -> None:
    """So nothing is missing from the last commit."""
    engine = Loop().engine
    engine.departures.stop(1.0)
    assert engine.conclude()


class Ending(Loop):
    """An engine that owns the only partition with records, four of them."""

    def __init__(self, quantum: int = 1) -> None:
        how = {"order": Order.UNORDERED, "quantum": quantum}
        super().__init__(commit=Commit(every=0.1), **how)
        self.client.log[TP] = 4
        while not self.engine.held.records:
            self.engine.turn()

    def complete(self, count: int) -> None:
        for _ in range(count):
            (task,) = self.schedule.queue.claim()
            self.schedule.complete([all_done(task, 0.0)])

    def until(self, condition: Callable[[], object]) -> None:
        for _ in range(100):
            if condition():
                return
            self.turn()
        pytest.fail("it never came")

    def conclude(self) -> bool:
        self.engine.departures.stop(1.0)
        return self.engine.conclude()


@pytest.mark.parametrize("is_noticed", [True, False])
def test_what_was_committed_before_a_loss_is_committed(
    is_noticed: bool,  # noqa: FBT001 - a parameter
) -> None:
    """And what was not is not, whoever has noticed the loss by then."""
    for count, is_committed in (4, True), (3, False):
        ending = Ending()
        ending.complete(3)
        ending.until(lambda made=ending: made.client.committed[TP] == 3)
        ending.complete(count - 3 if is_committed else 1)
        if is_committed:
            ending.until(lambda made=ending: made.client.committed[TP] == 4)
        ending.client.lose()
        if is_noticed:
            ending.engine.departures.before_join()
            assert not ending.engine.held.epochs
        assert ending.conclude() is is_committed


def test_what_went_with_its_partition_is_not_committed() -> None:
    """The commit at the rebalance was refused; the next one that succeeds is the last."""
    for goes_on in False, True:
        ending = Ending()
        ending.complete(3)
        ending.client.refuses = True
        ending.client.rebalance()
        ending.until(lambda made=ending: not made.engine.held.epochs)
        ending.client.refuses = False
        assert ending.client.committed[TP] == 0
        if goes_on:
            ending.client.rebalance(TP)
            ending.until(lambda made=ending: made.engine.held.records)
            ending.complete(1)
            ending.until(lambda made=ending: made.client.committed[TP] == 1)
        assert ending.conclude() is goes_on


def test_what_ends_during_the_last_commit_is_not_told_as_done() -> None:
    """It is not committed: whoever gets the partition next gets it again."""
    ending = Ending()
    ending.complete(1)
    (task,) = ending.schedule.queue.claim()
    judge = ending.client.judge

    def during(tp: TopicPartition, offset: int) -> None:
        ending.schedule.complete([all_done(task, 0.0)])
        judge(tp, offset)

    ending.client.judge = during
    assert ending.conclude()
    held, departures = ending.engine.held, ending.engine.departures
    assert ending.client.committed[TP] == 1
    assert (held.done, departures.dropped, held.outlived.total()) == (1, 3, 0)


def test_what_is_complete_and_not_told_yet_is_not_dropped() -> None:
    """A handler marks each record of a hand-over, and tells of all at its end."""
    ending = Ending(quantum=4)
    ending.engine.held.epochs[TP].pace = 0.0
    (task,) = ending.schedule.queue.claim()
    assert len(task.indexes) > 1
    task.chunk.finish(task.indexes[0])
    assert ending.conclude()
    held, departures = ending.engine.held, ending.engine.departures
    assert (held.done, departures.dropped) == (1, 3)
    assert (held.outlived, held.busy()) == ({TP: len(task.indexes)}, {TP})
    assert ending.client.committed[TP] == 1
    ending.schedule.complete([all_done(task, 0.0)])
    assert (held.done, held.outlived, held.busy()) == (1, {TP: 0}, set())


def test_a_wait_that_ends_with_the_membership_is_told() -> None:
    """As any other one, and its seconds count."""
    ending = Ending()
    ending.schedule.queue.claim()
    ending.client.rebalance()
    departures = ending.engine.departures
    ending.until(lambda: departures.deadline is not None)
    ending.clock.now += 0.5
    ending.client.lose()
    ending.until(lambda: departures.deadline is None)
    (drained,) = (one for one in ending.events if one.name == "work_drained")
    assert (drained.running, drained.reason) == (1, "rebalance")
    assert drained.seconds >= 0.5
