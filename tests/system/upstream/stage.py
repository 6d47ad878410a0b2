"""
What the scripts share: a broker in this process, topics with records, and patience.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from safeconsumer.testing import EmbeddedBroker


@contextmanager
def a_topic(records: int = 0, partitions: int = 1) -> Iterator[EmbeddedBroker]:
    """
    Yield a broker with the topic ``orders``, so many records in each partition.
    """
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", partitions)
        for number in range(partitions):
            produce(broker, tp(number), records)
        yield broker


def produce(broker: EmbeddedBroker, tp: TopicPartition, records: int) -> None:
    """
    Write so many records to a partition.
    """
    producer = KafkaProducer(**broker.client_config)
    for _ in range(records):
        producer.send(tp.topic, b"x", partition=tp.partition)
    producer.flush(20)
    producer.close()


def stock(broker: EmbeddedBroker, group: str | None = None, **more: Any) -> Any:  # noqa: ANN401 - untyped
    """
    Return kafka-python's own consumer.
    """
    config = {**broker.client_config, **(broker.group_config if group else {})}
    config |= {"group_id": group, "auto_offset_reset": "earliest"}
    return KafkaConsumer(**{**config, "enable_auto_commit": False, **more})


def until(condition: Callable[[], object], turn: Callable[[], object]) -> None:
    """
    Take turns until the condition is met; 20 s at most.
    """
    end = time.monotonic() + 20
    while not condition():
        if time.monotonic() > end:
            message = "the set-up did not come about; nothing is shown"
            raise TimeoutError(message)
        turn()


def tp(number: int = 0) -> TopicPartition:
    """
    Return a partition of the topic.
    """
    return TopicPartition("orders", number)
