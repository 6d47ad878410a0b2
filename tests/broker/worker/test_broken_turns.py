"""What is raised while the loop has a poll's records in hand passes over none of them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka.structs import TopicPartition

from safeconsumer import Commit, Pump
from tests.broker.worker.standing_loop import Loop
from tests.harness.waiting import wait_for
from tests.harness.worker.fake_client import EVERY
from tests.harness.worker.lab import Lab

ON_BROKER = pytest.mark.any_broker


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
    (tp,) = EVERY[:1]
    loop.turn(2)
    loop.client.log[tp] = 3
    departures = loop.engine.departures
    departures.settle = breaking(departures.settle, error)  # type: ignore[method-assign]  # on purpose
    with pytest.raises(type(error)):
        loop.turn()
    assert loop.client.positions[tp] == 3
    loop.turn(2)
    assert loop.client.committed[tp] == 0
    assert loop.work() == [0, 1, 2]
    loop.turn(2)
    assert loop.client.committed[tp] == 3


@ERRORS
def test_the_first_records_of_an_ownership_come_again(error: BaseException) -> None:
    """W12: its floor is where they begin."""
    loop = Loop(latest=True)
    (tp,) = EVERY[:1]
    loop.client.log[tp] = 3
    loop.client._first_position = lambda _tp: 0  # type: ignore[method-assign]  # records came since
    loop.engine.commits.now = breaking(loop.engine.commits.now, error)  # type: ignore[method-assign]  # on purpose
    with pytest.raises(type(error)):
        loop.turn(3)
    loop.turn(3)
    assert loop.work() == [0, 1, 2]
    loop.turn(2)
    assert loop.client.committed[tp] == 3


@ERRORS
def test_an_ownership_that_was_not_begun_begins_where_its_records_do(
    error: BaseException,
) -> None:
    """Though its position is beyond them."""
    loop = Loop(latest=True)
    (tp,) = EVERY[:1]
    loop.client.log[tp] = 3
    loop.client._first_position = lambda _tp: 0  # type: ignore[method-assign]  # records came since
    departures = loop.engine.departures
    departures.settle = breaking(departures.settle, error)  # type: ignore[method-assign]  # on purpose
    with pytest.raises(type(error)):
        loop.turn(3)
    loop.turn(3)
    assert loop.work() == [0, 1, 2]
    loop.turn(2)
    assert loop.client.committed[tp] == 3


def test_an_end_gives_back_what_was_in_hand() -> None:
    """For a pump, whose consumer goes on."""
    loop = Loop()
    (tp,) = EVERY[:1]
    loop.turn(2)
    loop.client.log[tp] = 3
    departures = loop.engine.departures
    departures.settle = breaking(departures.settle, ZeroDivisionError())  # type: ignore[method-assign]  # on purpose
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    loop.engine.stop(1.0)
    assert loop.engine.conclude()
    assert (loop.client.positions[tp], loop.client.committed[tp]) == (0, 0)


@ON_BROKER
def test_a_worker_that_is_interrupted_passes_over_nothing(lab: Lab) -> None:
    """Ctrl-C with records in hand, while another handler runs and is waited for."""
    lab.new_topic(partitions=2)
    began, go_on = threading.Event(), threading.Event()
    handled: list[tuple[int, int]] = []

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        handled.append((record.partition, record.offset))
        if record.partition == 1:
            began.set()
            assert go_on.wait(30)

    running = lab.run(handle, commit=Commit(every=0.01))
    engine = running.worker._engine
    lab.produce({1: ["slow"]})
    assert began.wait(30)
    real, broken = engine.departures.settle, threading.Event()

    def settle() -> None:
        if engine._client.position(engine_tp) and not broken.is_set():
            broken.set()
            raise KeyboardInterrupt
        real()

    engine_tp = next(tp for tp in engine.held.epochs if tp.partition == 0)
    engine.departures.settle = settle  # type: ignore[method-assign]  # on purpose
    lab.produce({0: ["v"] * 3})
    assert broken.wait(30)
    turns = engine.polled_at
    wait_for(lambda: engine.polled_at > turns + 0.5, "some turns of the drain")
    go_on.set()
    running.wait_end()
    assert isinstance(running.error, KeyboardInterrupt)
    assert handled == [(1, 0)]
    assert lab.committed() == {0: 0, 1: 1}


@ON_BROKER
def test_a_pump_whose_floor_cannot_be_committed(lab: Lab) -> None:
    """Its consumer goes on with the first record, and nothing is committed past it."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    consumer = lab.consumer()
    consumer.commit = breaking(consumer.commit, ZeroDivisionError())

    def take() -> None:
        with Pump(consumer) as pump:
            tp, engine = TopicPartition(lab.topic, 0), pump._engine
            wait_for(lambda: tp in engine.held.epochs, "the partition")
            epoch = engine.held.epochs[tp]
            wait_for(lambda: engine.commits.has_floor(epoch), "the floor, in the end")
            turns = engine.polled_at
            wait_for(lambda: engine.polled_at > turns + 0.5, "some turns")
            for _ in pump:
                pytest.fail("its floor was not committed")

    with pytest.raises(ZeroDivisionError):
        take()
    assert lab.committed()[0] in {None, 0}
    records = [one for some in consumer.poll(20_000).values() for one in some]
    assert records[0].offset == 0
