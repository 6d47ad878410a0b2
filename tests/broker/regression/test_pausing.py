"""The calls themselves: what they accept, when, and what they answer."""

import re
import time
from typing import Any

import pytest
from kafka.errors import IllegalStateError
from kafka.structs import TopicPartition

from safeconsumer import ALL
from tests.harness.regression.choices import HOWS
from tests.harness.regression.lab import Lab
from tests.harness.regression.support import delivered, offsets_of
from tests.harness.regression.wire import Wire

pytestmark = pytest.mark.any_broker


@pytest.mark.contract("P1")
def test_paused_follows_pause_and_resume(lab: Lab, client: str) -> None:
    """What was paused and not resumed is in paused()."""
    _, (p0, p1) = lab.topic_with(each=0, partitions=2)
    consumer = lab.assigned(client, [p0, p1]).consumer
    assert consumer.paused() == set()
    consumer.pause(p0)
    consumer.pause(p0, p1)
    assert consumer.paused() == {p0, p1}
    consumer.resume(p0)
    assert consumer.paused() == {p1}
    consumer.pause()
    consumer.resume()
    assert consumer.paused() == {p1}
    consumer.unsubscribe()
    assert not consumer.paused() & consumer.assignment()


@pytest.mark.contract("P3")
def test_levels_have_their_own_view(lab: Lab, client: str) -> None:
    """Each level is in holds(), and unsubscribe() takes none of them away."""
    topic, tps = lab.topic_with(each=0, partitions=2)
    consumer = lab.assigned(client, tps).consumer
    consumer.pause(tps[0])
    consumer.pause(topic)
    consumer.pause(re.compile(topic))
    consumer.pause_all()
    listed = {str(hold.scope) for hold in consumer.holds()}
    assert listed == {f"{topic}:0", topic, f"re:{topic}", "@all"}
    consumer.unsubscribe()
    assert not consumer.paused() & consumer.assignment()
    assert {str(hold.scope) for hold in consumer.holds()} == listed


@pytest.mark.contract("P5")
@pytest.mark.parametrize("how", HOWS)
def test_pause_before_the_first_poll(lab: Lab, client: str, how: str) -> None:
    """Subscribed but not assigned yet: it bites at assignment."""
    topic, tps = lab.topic_with(each=5, partitions=2)
    p0, witness = tps
    reader = lab.reader(client, topic, how=how, group=lab.name("g"))
    reader.consumer.pause(p0)
    reader.until_joined(reader.owns(tps))
    assert delivered(lab.beats(reader, witness), [p0]) == 0
    assert reader.consumer.paused() == {p0}
    reader.consumer.resume(p0)
    reader.drain({p0: range(5)})


@pytest.mark.contract("P5")
@pytest.mark.parametrize("way", ["subscribe", "assign"])
def test_pause_before_subscribe_and_before_assign(
    lab: Lab, client: str, way: str
) -> None:
    """A pause may come before anything is subscribed or assigned."""
    topic, tps = lab.topic_with(each=5, partitions=2)
    p0, witness = tps
    reader = lab.reader(client, group=lab.name("g") if way == "subscribe" else None)
    reader.consumer.pause(p0)
    if way == "subscribe":
        reader.consumer.subscribe([topic])
    else:
        reader.consumer.assign(tps)
    reader.until_joined(reader.owns(tps))
    assert delivered(lab.beats(reader, witness), [p0]) == 0
    reader.consumer.resume(p0)
    reader.drain({p0: range(5)})


@pytest.mark.parametrize("how", HOWS)
def test_pause_right_after_assign(lab: Lab, client: str, how: str) -> None:
    """Manually assigned, paused before the first poll."""
    _, (p0, witness) = lab.topic_with(each=5, partitions=2)
    reader = lab.assigned(client, [p0, witness], how=how)
    reader.consumer.pause(p0)
    assert delivered(lab.beats(reader, witness), [p0]) == 0
    reader.consumer.resume(p0)
    reader.drain({p0: range(5)})


@pytest.mark.contract("P4")
def test_a_pause_takes_effect_wholly_or_not_at_all(lab: Lab, client: str) -> None:
    """One unknown partition among them, a typed error names it, nothing paused."""
    _, (p0, p1) = lab.topic_with(each=0, partitions=2)
    consumer = lab.assigned(client, [p0, p1]).consumer
    with pytest.raises(IllegalStateError, match="elsewhere:7"):
        consumer.pause(p0, TopicPartition("elsewhere", 7), p1)
    assert consumer.paused() == set()


def test_bad_arguments_change_nothing(lab: Lab, client: str) -> None:
    """A wrong type raises and nothing is paused or resumed."""
    _, (p0, p1) = lab.topic_with(each=0, partitions=2)
    consumer = lab.assigned(client, [p0, p1]).consumer
    consumer.pause(p0)
    for bad in (1, None, (p1.topic, 1), b"topic"):
        with pytest.raises(TypeError):
            consumer.pause(p1, bad)
        with pytest.raises(TypeError):
            consumer.resume(p0, bad)
    assert consumer.paused() == {p0}


@pytest.mark.contract("P11")
@pytest.mark.parametrize("how", HOWS)
def test_all_paused_waits_instead_of_spinning(lab: Lab, client: str, how: str) -> None:
    """It takes the time it was asked for, little CPU, and sends no fetch."""
    _, tps = lab.topic_with(each=3, partitions=2)
    reader = lab.assigned(client, tps, how=how)
    wire = Wire(reader.consumer)
    reader.take(6)
    reader.consumer.pause(*tps)
    wire.wait_answered("Fetch")
    before, wall, cpu = wire.count("Fetch"), time.monotonic(), time.process_time()
    assert reader.round(1.0) == []
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    assert wire.count("Fetch") == before
    assert wall >= 0.95
    assert cpu / wall < 0.1


@pytest.mark.parametrize("how", HOWS)
def test_pause_and_resume_again_and_of_what_flows_change_nothing(
    lab: Lab, client: str, how: str
) -> None:
    """Needless calls bring no record twice and lose none."""
    _, (p0,) = lab.topic_with(each=30, partitions=1)
    reader = lab.assigned(client, [p0], how=how)
    for number in range(5):
        reader.consumer.resume(p0)
        reader.take(4)
        reader.consumer.pause(p0)
        reader.consumer.pause(p0)
        assert reader.round() == []
        assert reader.consumer.position(p0) == 4 * (number + 1)
        reader.consumer.resume(p0)
        reader.consumer.resume(p0)
    reader.drain({p0: range(20, 30)})
    assert offsets_of(reader.log, [p0]) == {p0: list(range(30))}


def test_resume_of_what_is_not_assigned_is_no_error(lab: Lab, client: str) -> None:
    """Resume of something that was never held does nothing."""
    _, (p0, p1) = lab.topic_with(each=0, partitions=2)
    consumer = lab.assigned(client, [p0]).consumer
    consumer.pause(p0)
    consumer.resume(p1)
    assert consumer.paused() == {p0}


# ---------------------------------------------------------------- levels, owners

LAYERS: dict[str, Any] = {
    "partition": lambda topic: TopicPartition(topic, 0),
    "topic": lambda topic: topic,
    "pattern": lambda topic: re.compile(re.escape(topic)),
    "consumer": lambda _topic: None,
}


@pytest.mark.contract("P2")
@pytest.mark.parametrize("first", LAYERS)
@pytest.mark.parametrize("how", HOWS)
def test_layers_are_independent(lab: Lab, client: str, first: str, how: str) -> None:
    """Lifting one level leaves the others; the partition flows after the last."""
    topic, tps = lab.topic_with(each=5, partitions=2)
    p0 = tps[0]
    reader = lab.assigned(client, tps, how=how)
    names = list(LAYERS)
    order = names[names.index(first) :] + names[: names.index(first)]
    for name in order:
        _place(reader.consumer, LAYERS[name](topic))
    for number, name in enumerate(order):
        assert p0 in reader.consumer.paused()
        assert len(reader.consumer.explain(p0)) == len(order) - number
        assert delivered(reader.rounds(2), [p0]) == 0
        assert reader.consumer.position(p0) == 0
        _lift(reader.consumer, LAYERS[name](topic))
    assert reader.consumer.paused() == set()
    reader.drain({p0: range(5)})


def _place(consumer: Any, target: Any) -> None:  # noqa: ANN401 - our client
    if target is None:
        consumer.pause_all()
    else:
        consumer.pause(target)


def _lift(consumer: Any, target: Any) -> None:  # noqa: ANN401 - our client
    if target is None:
        consumer.resume(ALL)
    else:
        consumer.resume(target)


@pytest.mark.contract("P3")
@pytest.mark.parametrize("level", LAYERS)
@pytest.mark.parametrize("how", HOWS)
def test_pause_and_resume_are_idempotent_at_every_level(
    lab: Lab, client: str, level: str, how: str
) -> None:
    """Twice is as once, and a needless resume brings nothing twice."""
    topic, (p0,) = lab.topic_with(each=9, partitions=1)
    reader = lab.assigned(client, [p0], how=how)
    target = LAYERS[level](topic)
    for start in (0, 3, 6):
        _lift(reader.consumer, target)
        reader.take(3)
        _place(reader.consumer, target)
        placed = reader.consumer.holds()
        _place(reader.consumer, target)
        assert reader.consumer.holds() == placed
        assert reader.round() == []
        assert reader.consumer.position(p0) == start + 3
        _lift(reader.consumer, target)
        _lift(reader.consumer, target)
        assert reader.consumer.holds() == ()
    assert offsets_of(reader.log, [p0]) == {p0: list(range(9))}


@pytest.mark.contract("P2")
@pytest.mark.parametrize("how", HOWS)
def test_a_machines_pause_and_a_persons_pause_do_not_touch(
    lab: Lab, client: str, how: str
) -> None:
    """Each owner lifts its own; the other's stays, in both directions."""
    _, (p0, witness) = lab.topic_with(each=5, partitions=2)
    reader = lab.assigned(client, [p0, witness], how=how)
    consumer = reader.consumer
    for first, second in (("app", "backpressure"), ("backpressure", "app")):
        consumer.pause(p0, owner="app")
        consumer.pause(p0, owner="backpressure")
        left = consumer.resume(p0, owner=first)
        assert [hold.owner for hold in left] == [second]
        assert delivered(lab.beats(reader, witness, times=1), [p0]) == 0
        assert consumer.resume(p0, owner=second) == ()
        assert consumer.paused() == set()
        start = reader.consumer.position(p0)
        lab.produce(p0)
        reader.drain({p0: range(start, lab.end(p0))})
