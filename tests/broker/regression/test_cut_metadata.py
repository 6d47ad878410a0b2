"""Found by the soak: a connection breaks while a pattern subscriber asks for metadata."""

from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from tests.harness.regression.lab import Lab

pytestmark = pytest.mark.embedded_broker


def test_a_cut_before_a_join_does_not_come_out_of_poll(lab: Lab) -> None:
    """The member joins again by the next polls; kafka-python 3.0.12 raises."""
    topic, (p0,) = lab.topic_with(each=10, partitions=1)
    reader = lab.reader("safe", group=lab.name("g"))
    reader.consumer.subscribe(pattern=f"^{topic}$")
    reader.until_joined(reader.owns([p0]))
    reader.until(lambda: len(reader.log) == 10)
    asked = len(lab.broker.requests("Metadata"))
    lab.broker.fail("Metadata", "DISCONNECT")
    before = reader.consumer._coordinator._generation
    reader.consumer._coordinator.request_rejoin()
    reader.until(lambda: reader.consumer._coordinator._generation is not before)
    assert len(lab.broker.requests("Metadata")) > asked + 1
    lab.produce(p0, 5)
    reader.until(lambda: len(reader.log) == 15)


def test_a_silent_broker_before_a_join_does_not_come_out_of_poll(lab: Lab) -> None:
    """Nor does the time-out of the request for metadata."""
    topic, (p0,) = lab.topic_with(each=10, partitions=1)
    reader = lab.reader("safe", group=lab.name("g"), request_timeout_ms=1000)
    reader.consumer.subscribe(pattern=f"^{topic}$")
    reader.until_joined(reader.owns([p0]))
    coordinator = reader.consumer._coordinator
    before = coordinator._generation
    with lab.broker.hold("Metadata") as kept:
        coordinator.request_rejoin()
        reader.until(lambda: kept.count >= 2, timeout=5)  # one of them is given up
    reader.until(lambda: coordinator._generation is not before)


def test_what_a_callback_of_a_commit_raises_comes_out_of_poll(lab: Lab) -> None:
    """It may pass on what the commit met, as with kafka-python: no poll makes up for that."""
    topic, (p0,) = lab.topic_with(each=10, partitions=1)
    reader = lab.reader("safe", topic, group=lab.name("g"))
    reader.until_joined(reader.owns([p0]))

    def pass_on(_offsets: object, _answer: object) -> Any:  # noqa: ANN401 - it does not
        raise KafkaConnectionError

    reader.consumer.commit_async(callback=pass_on)
    with pytest.raises(KafkaConnectionError):
        reader.until(lambda: False)
