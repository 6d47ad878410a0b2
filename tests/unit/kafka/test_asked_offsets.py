"""Questions about committed offsets that nobody could answer."""

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from tests.harness.kafka.fixtures import Maker


def test_questions_that_failed_are_forgotten(
    safe: Maker,
) -> None:
    """Each is remembered until the next question, not for ever."""
    consumer = safe(group_id="g")
    coordinator = consumer._coordinator
    asked = [TopicPartition("orders", number) for number in range(2)]
    for one in asked:
        with pytest.raises(KafkaTimeoutError):
            consumer.committed(one, timeout_ms=1)
    assert set(coordinator.commits._asked) == {frozenset({asked[1]})}
