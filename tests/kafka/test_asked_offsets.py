"""
Questions about committed offsets that nobody could answer.
"""

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from tests.kafka.conftest import Maker


def test_questions_that_failed_are_forgotten_with_what_they_were_asked_in(
    safe: Maker,
) -> None:
    """
    Each is remembered until something is committed, not for ever.
    """
    consumer = safe(group_id="g")
    coordinator = consumer._coordinator
    asked = [TopicPartition("orders", number) for number in range(3)]
    for one in asked[:2]:
        with pytest.raises(KafkaTimeoutError):
            consumer.committed(one, timeout_ms=1)
    assert set(coordinator._asked) == {frozenset({one}) for one in asked[:2]}
    coordinator._commits += 1
    with pytest.raises(KafkaTimeoutError):
        consumer.committed(asked[2], timeout_ms=1)
    assert set(coordinator._asked) == {frozenset({asked[2]})}
