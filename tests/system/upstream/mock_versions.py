"""librdkafka's mock: its answer to a newer ApiVersions request cannot be decoded."""

import logging
from logging.handlers import BufferingHandler

from confluent_kafka import Producer
from kafka import KafkaConsumer
from kafka.errors import KafkaError


def shown() -> str | None:
    handler = BufferingHandler(100_000)
    logging.getLogger("kafka").addHandler(handler)
    mock = Producer({"test.mock.num.brokers": 1})
    broker = next(iter(mock.list_topics(timeout=10).brokers.values()))
    address = f"{broker.host}:{broker.port}"
    try:
        KafkaConsumer(bootstrap_servers=address, bootstrap_timeout_ms=5000).close()
    except KafkaError as error:
        said = [one.getMessage() for one in handler.buffer]
        why = next((one for one in said if "decode" in one), "")
        return f"{type(error).__name__}: {why[-120:]}"
    return None
