"""Defines the two clients that play the scenarios, and how a program pauses with each."""

import re
from collections.abc import Callable
from typing import Any

from attrs import frozen
from kafka import KafkaConsumer, TopicPartition

from safeconsumer.consumer import SafeConsumer

Level = str | re.Pattern[str] | None
"""What is paused as a whole: a topic, topics by a pattern, or (None) everything."""


@frozen(kw_only=True)
class Client:
    """
    One client under test.

    Attributes:
        name: ``stock`` or ``safe``.
        title: its class, as people know it.
        make: makes a consumer from topics and kafka-python's configs.
        pause: pauses a level, in the way a program would with this client.
        resume: ends that pause.
        tells: whether it takes hooks, and so says when it lost its membership.
    """

    name: str
    title: str
    make: Callable[..., KafkaConsumer]
    pause: Callable[[KafkaConsumer, Level], object]
    resume: Callable[[KafkaConsumer, Level], object]
    tells: bool = False


def covers(level: Level, tp: TopicPartition) -> bool:
    """Whether the program means this partition when it pauses the level."""
    if isinstance(level, re.Pattern):
        return level.fullmatch(tp.topic) is not None
    return level is None or tp.topic == level


def _make_safe(*topics: str, **configs: Any) -> SafeConsumer:  # noqa: ANN401 - kafka-python's keys and types
    # No lines: they would run through the live view.
    return SafeConsumer(*topics, log=False, **configs)


def _pause_assigned(consumer: KafkaConsumer, level: Level) -> None:
    consumer.pause(*(tp for tp in consumer.assignment() if covers(level, tp)))


def _resume_assigned(consumer: KafkaConsumer, level: Level) -> None:
    consumer.resume(*(tp for tp in consumer.assignment() if covers(level, tp)))


def _pause_level(consumer: SafeConsumer, level: Level) -> None:
    if level is None:
        consumer.pause_all()
    else:
        consumer.pause(level)


def _resume_level(consumer: SafeConsumer, level: Level) -> None:
    if level is None:
        consumer.resume_all()
    else:
        consumer.resume(level)


STOCK = Client(
    name="stock",
    title="KafkaConsumer",
    make=KafkaConsumer,
    pause=_pause_assigned,
    resume=_resume_assigned,
)
SAFE = Client(
    name="safe",
    title="SafeConsumer",
    make=_make_safe,
    pause=_pause_level,
    resume=_resume_level,
    tells=True,
)
