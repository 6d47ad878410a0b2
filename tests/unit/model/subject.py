"""The consumers on trial: ours, and upstream's used as its users use it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from safeconsumer import ALL, Hold, SafeConsumer
from safeconsumer.events.consumer import Event
from safeconsumer.holds.scope import Everything, Partition, Pattern, Scope, Topic
from tests.harness.model.network import Client
from tests.unit.model.truth import Truth


class TwoTries(float):
    """A deadline that lets an iteration end its batch and ask once more, without waiting."""

    def __new__(cls) -> TwoTries:
        return super().__new__(cls, 0.0)

    def __init__(self) -> None:
        self._left = 2

    def __gt__(self, _: object) -> bool:
        self._left -= 1
        return self._left >= 0


class ModelConsumer(SafeConsumer):
    """Ours; its iteration does not wait."""

    def _set_consumer_timeout(self) -> None:
        self._consumer_timeout = TwoTries()


class StockConsumer(KafkaConsumer):
    """Upstream's; its iteration does not wait."""

    def _set_consumer_timeout(self) -> None:
        self._consumer_timeout = TwoTries()


class SafeSubject:
    """``SafeConsumer``, whole, with a fake client below it."""

    checks_all = True

    def __init__(self, truth: Truth) -> None:
        self.truth = truth

    def make(self, peer: Any, hook: Callable[[Event], None], **configs: Any) -> Any:  # noqa: ANN401 - the model, upstream's keys, the consumer
        """Make a consumer whose ledger has the model's clock."""
        consumer = ModelConsumer(hooks=(hook,), **_common(peer), **configs)
        consumer._safe_ledger._clock = lambda: self.truth.now
        self.plant(consumer)
        return consumer

    def plant(self, consumer: SafeConsumer) -> None:
        """Break it; the real one is left as it is."""

    def pause(self, consumer: Any, scope: Scope, **how: Any) -> None:  # noqa: ANN401
        """Pause what the scope covers, as a user would."""
        match scope:
            case Everything():
                consumer.pause_all(**how)
            case _:
                consumer.pause(_target(scope), **how)

    def resume(self, consumer: Any, scope: Scope, owner: str) -> tuple[Hold, ...]:  # noqa: ANN401
        """Resume what the scope covers, as a user would."""
        if isinstance(scope, Everything):
            return consumer.resume(ALL, owner=owner)
        return consumer.resume(_target(scope), owner=owner)


class StockSubject:
    """``kafka.KafkaConsumer``: a wider scope is paused partition by partition."""

    checks_all = False

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        truth.is_lenient = True

    def make(self, peer: Any, hook: object, **configs: Any) -> KafkaConsumer:  # noqa: ANN401, ARG002
        """Make a consumer; what only ours knows is left out."""
        configs = {key: configs[key] for key in configs.keys() & {"group_id"}}
        return StockConsumer(**_common(peer), **configs)

    def pause(self, consumer: KafkaConsumer, scope: Scope, **_: object) -> None:
        """Pause what is assigned and covered."""
        consumer.pause(*(tp for tp in consumer.assignment() if scope.covers(tp)))

    def resume(self, consumer: KafkaConsumer, scope: Scope, owner: str) -> tuple[()]:  # noqa: ARG002
        """Resume what is assigned and covered, unless it is held otherwise."""
        free = [
            tp
            for tp in consumer.assignment()
            if scope.covers(tp) and not self.truth.is_held(tp)
        ]
        consumer.resume(*free)
        return ()


def _common(peer: Any) -> dict[str, Any]:  # noqa: ANN401 - the model
    return {
        "kafka_client": lambda **_: Client(peer),
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "metrics_enabled": False,
        "max_poll_records": 3,
    }


def _target(scope: Scope) -> TopicPartition | str | re.Pattern[str]:
    match scope:
        case Partition(topic, number):
            return TopicPartition(topic, number)
        case Topic(topic):
            return topic
        case Pattern(text):
            return re.compile(text)
    raise AssertionError(scope)
