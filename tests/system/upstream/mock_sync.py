"""
librdkafka's mock: a follower whose SyncGroup comes after the leader's is refused.

A race: several groups of three members join at the same time, until one is hit.
"""

import threading
from typing import Any

from confluent_kafka import Producer
from kafka import KafkaConsumer
from kafka.errors import InvalidRequestError

_ROUNDS, _GROUPS, _MEMBERS = 4, 4, 3


def shown() -> str | None:
    mock = Producer({"test.mock.num.brokers": 1})
    mock.produce("orders", b"x")
    mock.flush(10)
    broker = next(iter(mock.list_topics(timeout=10).brokers.values()))
    config = {
        "bootstrap_servers": f"{broker.host}:{broker.port}",
        "api_version": (2, 3),
        "session_timeout_ms": 2000,
        "heartbeat_interval_ms": 200,
    }
    for number in range(1, _ROUNDS + 1):
        refused = _joined(config, number)
        if refused:
            groups = number * _GROUPS
            return f"InvalidRequestError in {refused} of {groups} groups"
    return None


def _joined(config: dict[str, Any], number: int) -> int:
    refused: set[str] = set()

    def join(group: str) -> None:
        consumer = KafkaConsumer("orders", group_id=group, **config)
        try:
            for _ in range(16):
                consumer.poll(500)
        except InvalidRequestError:
            refused.add(group)
        consumer.close(autocommit=False, timeout_ms=500)

    groups = [f"g-{number}-{one}" for one in range(_GROUPS)]
    members = [
        threading.Thread(target=join, args=(group,))
        for group in groups
        for _ in range(_MEMBERS)
    ]
    for one in members:
        one.start()
    for one in members:
        one.join()
    return len(refused)
