"""An ownership always has a committed floor: nothing is passed over, ``latest`` or not."""

import threading
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import CoordinatorNotAvailableError
from kafka.structs import OffsetAndMetadata

from safeconsumer import Pump
from safeconsumer.events import worker as worker_events
from safeconsumer.worker import Commit, Limits, RecordFailedError, Retry, RetryLater
from tests.broker.worker.standing_loop import Loop
from tests.harness.waiting import wait_for
from tests.harness.worker.desk import done_by
from tests.harness.worker.fake_client import EVERY
from tests.harness.worker.lab import Lab

pytestmark = pytest.mark.any_broker

ONCE = Retry(attempts=1)


class Handling:
    """A handler that keeps what it was given, and fails on the values it is told to."""

    def __init__(self, *failing: bytes) -> None:
        self.values: list[bytes] = []
        self._failing = failing

    def __call__(self, record: Any, _context: object) -> None:  # noqa: ANN401 - upstream's
        if record.value in self._failing:
            message = "told to"
            raise ValueError(message)
        self.values.append(record.value)


def latest(lab: Lab, **config: Any) -> Any:  # noqa: ANN401 - kafka-python is untyped
    """Make a member of the group with kafka-python's default reset."""
    return lab.consumer(auto_offset_reset="latest", **config)


def wait_positioned(consumer: Any, count: int) -> None:  # noqa: ANN401 - the same
    """Return once so many partitions are owned and it is known where they begin."""
    place = consumer._safe_facade

    def known() -> bool:
        owned = tuple(place.epochs())
        return len(owned) == count and None not in map(place.position, owned)

    wait_for(known, f"{count} positions")


def numbers(count: int, first: int = 0) -> list[str]:
    """Return values that can be told apart."""
    return [str(number) for number in range(first, first + count)]


@pytest.mark.contract("W12")
def test_a_first_record_that_stops_the_worker_is_not_passed_over(lab: Lab) -> None:
    """W12: the next worker gets it, and what came with it."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["before"], 1: ["before"]})
    consumer = latest(lab)
    running = lab.run(Handling(b"0"), consumer, retry=ONCE)
    wait_positioned(consumer, 2)
    lab.produce({0: numbers(6), 1: numbers(6, 10)})
    running.wait_end()
    assert isinstance(running.error, RecordFailedError)
    handling = Handling()
    running_again = lab.run(handling, latest(lab))
    running_again.wait_done(6)
    lab.produce({0: ["last"]})
    wait_for(lambda: b"last" in handling.values, "the last")
    running_again.end()
    assert {b"0", b"1", b"2", b"3", b"4", b"5", b"last"} <= set(handling.values)


@pytest.mark.parametrize("strategy", ["eager", "cooperative"])
def test_nothing_is_passed_over_when_a_member_joins(lab: Lab, strategy: str) -> None:
    """W12: of what was queued, and of partitions whose first record comes meanwhile."""
    config: dict[str, Any] = {}
    if strategy == "cooperative":
        config["partition_assignment_strategy"] = (CooperativeStickyAssignor,)
    lab.new_topic(partitions=4)
    lab.produce({number: ["before"] for number in range(4)})
    first = latest(lab, **config)
    blocked = threading.Event()
    handling = Handling()

    def wait(record: Any, context: object) -> None:  # noqa: ANN401 - upstream's
        if not blocked.wait(0.05) and record.value.endswith(b"0"):
            raise RetryLater(0.2)
        handling(record, context)

    running = lab.run(wait, first)
    wait_positioned(first, 4)
    lab.produce({number: numbers(9, 100 * number) for number in (1, 2)})
    wait_for(lambda: running.worker.stats().retries, "a record that waits")
    second = latest(lab, **config)
    later = lab.run(handling, second)
    lab.produce({number: numbers(9, 100 * number) for number in (0, 3)})
    wait_positioned(second, 2)
    wait_positioned(first, 2)
    blocked.set()
    wanted = {n.encode() for at in range(4) for n in numbers(9, 100 * at)}
    wait_for(lambda: wanted <= set(handling.values), "every record")
    later.end()
    running.end()


@pytest.mark.contract("W12")
def test_an_idle_ownership_is_committed_too(lab: Lab) -> None:
    """W12: before any record has come, so that even a kill passes nothing over."""
    lab.new_topic(partitions=3)
    lab.produce({0: ["before"] * 4, 1: ["before"] * 2})
    consumer = latest(lab)
    running = lab.run(Handling(), consumer)
    wait_positioned(consumer, 3)
    wait_for(lambda: None not in lab.committed().values(), "a floor")
    assert lab.committed() == {0: 4, 1: 2, 2: 0}
    running.end()


@pytest.mark.contract("W12")
@pytest.mark.parametrize("pattern", [False, True], ids=["topic", "pattern"])
def test_an_added_partition_begins_at_its_start(lab: Lab, *, pattern: bool) -> None:
    """W12: ``latest`` passes over nothing that was written before a worker noticed it."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["before"]})
    config = {"metadata_max_age_ms": 3_600_000}  # it notices when it is made to
    consumer = lab.groupless(auto_offset_reset="latest", **config)
    if pattern:
        consumer.subscribe(pattern=f"^{lab.topic}$")
    else:
        consumer.subscribe([lab.topic])
    handling = Handling()
    running = lab.run(handling, consumer)
    wait_positioned(consumer, 1)
    cluster = consumer._client.cluster
    # Its first answer may have come before the topic: then it asks once more.
    wait_for(
        lambda: not cluster.metadata_refresh_in_progress and cluster.ttl() > 60_000,
        "metadata that is good for an hour",
    )
    lab.add_partitions(3)
    lab.produce({0: ["old"], 1: numbers(3), 2: numbers(3, 10)})
    running.wait_done(1)
    assert handling.values == [b"old"]
    consumer._client.cluster.request_update()
    running.wait_done(7)
    running.end()
    assert sorted(handling.values) == sorted(
        [b"0", b"1", b"10", b"11", b"12", b"2", b"old"]
    )
    assert lab.committed() == {0: 2, 1: 3, 2: 3}


def test_a_partition_that_was_there_begins_at_its_end(lab: Lab) -> None:
    """As ``latest`` says: of a group's first worker, and with a topic subscribed to later."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["before"], 1: ["before"]})
    first, second = lab.topic, lab.new_topic(partitions=2)
    lab.produce({0: ["before"], 1: ["before"]})
    consumer = lab.groupless(auto_offset_reset="latest")
    consumer.subscribe([first])
    consumer.poll(0)
    consumer.subscribe([first, second])
    handling = Handling()
    running = lab.run(handling, consumer)
    wait_positioned(consumer, 4)
    lab.produce({0: ["after"], 1: ["after"]})
    running.wait_done(2)
    running.end()
    assert handling.values == [b"after", b"after"]


def test_partitions_assigned_by_hand_have_a_floor(lab: Lab) -> None:
    """W12: there is no join that could be waited for."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["before"] * 3})
    consumer = lab.groupless(auto_offset_reset="latest")
    consumer.assign([TopicPartition(lab.topic, 0)])
    running = lab.run(Handling(b"0"), consumer, retry=ONCE)
    wait_positioned(consumer, 1)
    wait_for(lambda: lab.committed()[0] == 3, "a floor")
    lab.produce({0: numbers(3)})
    running.wait_end()
    assert lab.committed() == {0: 3, 1: None}


def test_a_floor_that_is_there_is_not_committed_again(lab: Lab) -> None:
    """One commit in a life in which the first member committed everything."""
    lab.new_topic(partitions=1)
    count = lab.produce({0: numbers(3)})
    running = lab.run(Handling())
    running.wait_done(count)
    running.end()
    again = lab.run(Handling())
    wait_for(lambda: again.worker.stats().state == "running", "it to run")
    lab.produce({0: numbers(3)})
    again.wait_done(3)
    again.end()
    assert again.worker.stats().commits == 1


def test_a_floor_that_is_out_of_range_is_none(lab: Lab) -> None:
    """W12: what the position was reset to is committed before a handler begins."""
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["before"] * 3})
    tp = TopicPartition(lab.topic, 0)
    asking = lab.groupless()
    asking.assign([tp])
    asking.commit({tp: OffsetAndMetadata(1000, "", -1)})
    asking.close(autocommit=False)
    began, go_on = threading.Event(), threading.Event()

    def wait(_record: object, _context: object) -> None:
        began.set()
        assert go_on.wait(30)

    consumer = latest(lab)
    running = lab.run(wait, consumer, commit=Commit(every=60.0))
    wait_for(lambda: consumer._safe_facade.position(tp) == count, "the reset")
    lab.produce({0: numbers(2)})
    assert began.wait(30)
    assert lab.committed() == {0: count}
    started = [e for e in running.events if type(e) is worker_events.PartitionStarted]
    last = started[-1]
    assert (last.offset, last.is_committed, last.is_reset) == (count, False, True)
    go_on.set()
    running.wait_done(2)
    running.end()
    assert lab.committed() == {0: count + 2}


def test_a_reset_to_later_offsets_makes_a_new_floor() -> None:
    """W12: at once, where nothing has come yet."""
    loop = Loop(commit=Commit(every=60.0))
    (tp,) = EVERY[:1]
    loop.turn(2)
    loop.client.log[tp] = 10
    loop.client.reset(tp, 7)
    loop.turn(3)
    assert loop.client.committed[tp] == 7
    loop.turn()
    assert loop.work() == [7, 8, 9]


def test_what_came_before_a_reset_is_done_first() -> None:
    """W4, W12: nothing is committed past it, and nothing begins without a floor."""
    loop = Loop(commit=Commit(every=60.0))
    (tp,) = EVERY[:1]
    loop.turn(2)
    loop.client.log[tp] = 2
    loop.turn(2)
    (task,) = loop.schedule.queue.claim()
    loop.client.log[tp] = 10
    loop.client.reset(tp, 7)
    loop.turn(5)
    assert loop.client.committed[tp] == 0
    assert loop.engine.held.records == 2
    assert done_by(loop.schedule, [task]) + loop.work() == [0, 1]
    loop.turn(5)
    assert loop.client.committed[tp] == 7
    assert loop.work() == [7, 8, 9]


def test_a_reset_to_earlier_offsets_begins_anew() -> None:
    """W12: as where a topic was deleted and created again."""
    loop = Loop(commit=Commit(every=60.0))
    (tp,) = EVERY[:1]
    loop.client.committed[tp] = loop.client.log[tp] = 20
    loop.turn(2)
    loop.client.log[tp] = 3
    loop.client.reset(tp, 3)
    loop.turn(3)
    assert loop.client.committed[tp] == 3
    loop.client.log[tp] = 5
    loop.turn(3)
    assert loop.work() == [3, 4]


@pytest.mark.embedded_broker
def test_nothing_is_handed_out_before_its_floor_is_acknowledged(lab: Lab) -> None:
    """
    W12: while the broker refuses, the partition is held, visibly; then all comes.

    And it is not well: nothing can be handled.
    """
    lab.new_topic(partitions=1)
    lab.produce({0: numbers(5)})
    lab.broker.fail("OffsetCommit", CoordinatorNotAvailableError, times=1000)
    handling = Handling()
    consumer = lab.consumer()
    running = lab.run(
        handling, consumer, commit=Commit(timeout=0.5), limits=Limits(age=0.2)
    )
    wait_for(
        lambda: {hold.owner for hold in consumer.holds()} == {"worker:floor"}, "a hold"
    )
    refused = running.worker.stats().commits_failed
    wait_for(lambda: running.worker.stats().commits_failed > refused + 1, "refusals")
    assert handling.values == []
    assert "worker:floor" in running.worker.stats().paused
    health = running.worker.healthy()
    assert health.is_alive
    (reason,) = health.reasons
    assert reason.startswith("no commit has succeeded for ")
    assert "CoordinatorNotAvailableError" in reason
    assert [one for one in running.events if type(one) is worker_events.CommitRejected]
    lab.broker.clear_faults()
    running.wait_done(5)
    assert running.worker.healthy()
    running.end()
    assert handling.values == [value.encode() for value in numbers(5)]


def test_a_pump_has_a_floor(lab: Lab) -> None:
    """W12: what was taken and never done comes again."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["before"] * 2})
    consumer = latest(lab)
    with Pump(consumer) as pump:
        wait_for(lambda: pump.turn() or lab.committed()[0] == 2, "a floor")
    consumer.close(autocommit=False)
