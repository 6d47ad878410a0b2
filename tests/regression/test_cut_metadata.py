"""
Found by the soak: a connection breaks while a pattern subscriber asks for metadata.
"""

import pytest

from tests.regression.lab import Lab

pytestmark = pytest.mark.embedded_broker


def test_a_cut_before_a_join_does_not_come_out_of_poll(lab: Lab) -> None:
    """
    The member joins again by the next polls; kafka-python 3.0.12 raises.
    """
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
