"""After ``resume()`` the next record comes, whatever was parked meanwhile."""

import pytest

from tests.harness.regression.choices import HOWS
from tests.harness.regression.lab import Lab
from tests.harness.regression.members import InListener
from tests.harness.regression.support import delivered, offsets_of, partition_of
from tests.harness.regression.wire import Wire

pytestmark = pytest.mark.any_broker


@pytest.mark.contract("P10")
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("other", ["is drained", "keeps flowing"])
def test_resume_after_another_partition_was_read_between(
    lab: Lab, client: str, how: str, other: str
) -> None:
    """Pause inside a batch, read another partition, resume: all comes."""
    _, (p0, p1) = lab.topic_with(each=0, partitions=2)
    lab.produce(p1, 300)
    reader = lab.assigned(client, [p0, p1], how=how)
    reader.take(10)
    reader.consumer.pause(p1)
    lab.produce(p0, 5)
    assert offsets_of(reader.take(5), [p0, p1]) == {p0: [0, 1, 2, 3, 4], p1: []}
    if other == "keeps flowing":
        lab.produce(p0, 20)
    reader.consumer.resume(p1)
    reader.drain(
        {p0: range(5, lab.end(p0)), p1: range(10, 300)},
        bound=1 if client == "stock" and how == "poll" else 20,
    )


@pytest.mark.contract("P8")
def test_pausing_around_fetches_in_flight_loses_nothing(lab: Lab, client: str) -> None:
    """Two partitions, paused with a fetch on the way, five times over."""
    _, (p0, p1) = lab.topic_with(each=0, partitions=2)
    reader = lab.assigned(client, [p0, p1])
    wire = Wire(reader.consumer)
    for _ in range(5):
        lab.produce(p1, 200)
        reader.take(3)
        wire.hold("Fetch")
        lab.produce(p0, 5)
        reader.until(lambda: wire.held("Fetch"), limit=1)
        reader.consumer.pause(p0, p1)  # p1 is half read, a fetch is on its way
        wire.release("Fetch")
        assert reader.rounds(2) == []
        reader.consumer.resume(p0)
        reader.take(5)
        reader.consumer.resume(p1)
        everything = {tp: list(range(lab.end(tp))) for tp in (p0, p1)}
        total = sum(map(len, everything.values()))
        bound = 1 if client == "stock" else 20
        reader.reaches(lambda total=total: len(reader.log) == total, bound=bound)
        assert offsets_of(reader.log, [p0, p1]) == everything


@pytest.mark.parametrize("how", HOWS)
def test_a_thousand_cycles_of_pause_and_resume(lab: Lab, client: str, how: str) -> None:
    """However often two partitions take turns, each record comes once, in order."""
    _, (p0, p1) = lab.topic_with(each=200, partitions=2)
    reader = lab.assigned(client, [p0, p1], how=how)
    reader.take(1)
    for number in range(1000):
        turn = (p0, p1)[number % 2]
        reader.consumer.pause(turn)
        before = len(reader.log)
        reader.round(0.001, limit=1)
        assert delivered(reader.log[before:], [turn]) == 0
        reader.consumer.resume(turn)
    reader.reaches(lambda: len(reader.log) == 400, bound=20)
    everything = {p0: list(range(200)), p1: list(range(200))}
    assert offsets_of(reader.log, [p0, p1]) == everything


@pytest.mark.parametrize("how", HOWS)
def test_ten_rounds_one_is_silent_and_the_other_flows(
    lab: Lab, client: str, how: str
) -> None:
    """In each of ten rounds the paused one is silent and the other flows."""
    _, (p0, p1) = lab.topic_with(each=0, partitions=2)
    reader = lab.assigned(client, [p0, p1], how=how)
    for _ in range(10):
        start, stands = lab.end(p0), reader.consumer.position(p0)
        reader.consumer.pause(p0)
        lab.produce(p0)
        assert lab.beats(reader, p1, times=1) == []
        assert reader.consumer.position(p0) == stands
        reader.consumer.resume(p0)
        reader.drain({p0: [start]})


def test_five_hundred_partitions_paused_and_resumed_in_the_listener(
    lab: Lab, client: str
) -> None:
    """Pause all and resume all inside the listener leaves none silent."""
    topic, tps = lab.topic_with(each=1, partitions=500)
    reader = lab.reader(client, group=lab.name("g"))
    consumer = reader.consumer

    def pause_then_resume(assigned: set) -> None:
        consumer.pause(*assigned)
        consumer.resume(*assigned)

    consumer.subscribe([topic], listener=InListener(assigned=pause_then_resume))
    reader.until_joined(reader.owns(tps))
    seen = {partition_of(record) for record in reader.log}
    reader.drain({tp: [0] for tp in tps if tp not in seen})
