"""Static members of a real group: the embedded broker does not fence them."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka.errors import FencedInstanceIdError

from safeconsumer import SafeConsumer
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.real_broker


@pytest.mark.contract("P11")
def test_a_fenced_static_member_raises_on_every_later_poll(
    kafka_topic: Callable[..., str], make_consumer: Callable[..., Any]
) -> None:
    """P11: another member took its ``group_instance_id``."""
    topic = kafka_topic(partitions=2)
    names = {"group": f"g-{topic}", "group_instance_id": "static"}
    consumer = make_consumer(SafeConsumer, topic, **names)
    poll_until(consumer, consumer.assignment)
    usurper = make_consumer(SafeConsumer, topic, **names)
    with Polled(usurper):
        wait_for(usurper.assignment, "the usurper is a member")
        with pytest.raises(FencedInstanceIdError):
            poll_until(consumer, lambda: False)
        for _ in range(3):
            with pytest.raises(FencedInstanceIdError):
                consumer.poll(100)
