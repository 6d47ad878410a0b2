"""Runs a small fleet on an embedded broker, for ``safeconsumer demo --console``."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import frozen
from kafka import KafkaConsumer, KafkaProducer

from safeconsumer.consumer import SafeConsumer
from safeconsumer.group import topics
from safeconsumer.group.operator import OPERATOR, Operator
from safeconsumer.group.publisher import changes, new_hold
from safeconsumer.group.settings import Control
from safeconsumer.testing.embedded import EmbeddedBroker

OWNER = "anna"

_TOPICS = {"orders": 6, "payments": 4}
_RECORDS_EVERY = 0.05
_POLL_MS = 200
_END_SECONDS = 5.0


@frozen
class _Member:
    group: str
    name: str
    topic: str
    is_safe: bool = True


_FLEET = (
    *(_Member("billing", f"billing-{number}", "orders") for number in (1, 2, 3)),
    _Member("shipping", "shipping-1", "orders"),
    _Member("shipping", "shipping-legacy", "orders", is_safe=False),
    _Member("ledger", "ledger-1", "payments"),
)
# Group, scope, owner, reason, and seconds of each hold.
_HOLDS = (
    ("billing", "orders:0", OWNER, "DB-4211: the invoices table moves", 2 * 3600.0),
    ("billing", "orders:1", OWNER, "DB-4211: the invoices table moves", 2 * 3600.0),
    ("shipping", "@all", "ben", "The carrier's API is down", 1800.0),
)


@contextmanager
def running(broker: EmbeddedBroker, settings: Control) -> Iterator[None]:
    """Run members, one of them a plain consumer, and a producer for their topics."""
    for name in settings.topics:
        broker.create_topic(name, 1, topics.HOLDS_SETTINGS)
    broker.create_topic(str(settings.status_topic), 1, topics.STATUS_SETTINGS)
    for name, partitions in _TOPICS.items():
        broker.create_topic(name, partitions)
    with Operator(broker.client_config, settings) as operator:
        for group, scope, owner, reason, seconds in _HOLDS:
            hold = new_hold(reason, seconds)
            operator.write(OPERATOR, changes(group, owner, (scope,), hold))
    over = threading.Event()
    works: list[Callable[[], None]] = [lambda: _produce(broker, over)]
    works += [_reading(broker, settings, one, over) for one in _FLEET]
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in threads:
            one.join(_END_SECONDS)


def _produce(broker: EmbeddedBroker, over: threading.Event) -> None:
    producer = KafkaProducer(**broker.client_config)
    number = 0
    while not over.wait(_RECORDS_EVERY):
        for name, partitions in _TOPICS.items():
            producer.send(name, b"%d" % number, partition=number % partitions)
        number += 1
    producer.close(timeout=1)


def _reading(
    broker: EmbeddedBroker, settings: Control, member: _Member, over: threading.Event
) -> Callable[[], None]:
    configs: dict[str, Any] = {
        **broker.client_config,
        **broker.group_config,
        "group_id": member.group,
        "client_id": member.name,
        "auto_offset_reset": "earliest",
        "auto_commit_interval_ms": 1000,
    }

    def read() -> None:
        consumer = (
            SafeConsumer(control=settings, log=False, **configs)
            if member.is_safe
            else KafkaConsumer(**configs)
        )
        consumer.subscribe([member.topic])
        while not over.is_set():
            consumer.poll(_POLL_MS)
        consumer.close(timeout_ms=1000)

    return read
