"""
What a worker refuses, before anything is started.
"""

import functools
import threading
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaProducer

from safeconsumer import Pump, SafeConsumer, Worker, WorkerSettingError
from safeconsumer.worker import Commit, DeadLetter, Drain, Limits, RetryLater
from tests.kafka.offline import offline


def handle(_record: object, _context: object) -> None:
    """
    Do nothing.
    """


async def handle_async(_record: object, _context: object) -> None:
    """
    Do nothing.
    """


def handle_and_yield(_record: object, _context: object) -> Iterator[int]:
    """
    Do nothing, and not even that before somebody iterates.
    """
    yield 1


async def handle_async_and_yield(
    _record: object, _context: object
) -> AsyncIterator[int]:
    """
    Do nothing, and not even that before somebody iterates.
    """
    yield 1


class YieldingHandler:
    """
    The same as an object.
    """

    def __call__(self, record: object, context: object) -> Iterator[int]:
        yield from handle_and_yield(record, context)


SENDS = SimpleNamespace(send=handle)
CONFIG: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}


@pytest.mark.parametrize(
    ("config", "settings", "said"),
    [
        ({"enable_auto_commit": True}, {}, "enable_auto_commit=False"),
        ({"group_id": None}, {}, "group_id"),
        ({}, {"handle": 3}, "must be callable"),
        ({}, {"key": "id"}, "key must be callable"),
        ({}, {"order": "random"}, "'partition', 'key' or 'unordered'"),
        ({}, {"executor": "fork"}, "concurrent.futures.Executor"),
        ({}, {"handle": handle_async}, "executor='asyncio'"),
        ({}, {"executor": "asyncio"}, "async def"),
        ({}, {"handle": handle_and_yield}, "generator function"),
        ({}, {"handle": functools.partial(handle_and_yield, 1)}, "generator function"),
        ({}, {"handle": YieldingHandler()}, "generator function"),
        ({}, {"handle": handle_async_and_yield}, "generator function"),
        (
            {},
            {"handle": handle_async_and_yield, "executor": "asyncio"},
            "generator function",
        ),
        ({}, {"executor": "process", "handle": lambda _r, _c: None}, "top of a module"),
        ({}, {"concurrency": 0}, "concurrency"),
        ({}, {"batch": 0}, "batch"),
        ({}, {"batch_within": 1.0}, "batch_within needs batch"),
        ({}, {"batch": 2, "batch_within": -1}, "0 or more"),
        ({}, {"rate": 0}, "above 0"),
        ({}, {"rate": True}, "above 0"),
        ({}, {"topic_concurrency": {"@all": 1}}, "per topic"),
        ({}, {"on_exhausted": "drop"}, "on_exhausted"),
        ({}, {"dead_letter": "topic"}, "dead_letter must be callable"),
        ({}, {"dead_letter": DeadLetter(SENDS, "orders")}, "is consumed here"),
        ({}, {"limits": Limits(records=10)}, "below one poll"),
        ({}, {"limits": Limits(bytes=10)}, "below one fetch"),
        ({"max_poll_interval_ms": 20_000}, {}, "less than half"),
    ],
)
def test_what_is_impossible_is_refused(
    config: dict[str, Any], settings: dict[str, Any], said: str
) -> None:
    """
    At construction, with what would do; no thread is left.
    """
    with offline(SafeConsumer, "orders", **{**CONFIG, **config}) as consumer:
        before = threading.active_count()
        with pytest.raises(WorkerSettingError, match=said):
            Worker(consumer, settings.pop("handle", handle), **settings)
        assert before == threading.active_count()


def test_a_pump_refuses_the_same() -> None:
    """
    It shares the checks.
    """
    with (
        offline(SafeConsumer, "orders", group_id="g") as consumer,
        pytest.raises(WorkerSettingError, match="enable_auto_commit"),
    ):
        Pump(consumer)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Commit, {"every": 0}),
        (Commit, {"records": 0}),
        (Drain, {"revoke": -1}),
        (RetryLater, {"after": -1}),
        (DeadLetter, {"producer": None, "topic": "t"}),
        (DeadLetter, {"producer": KafkaProducer, "topic": ""}),
        (DeadLetter, {"producer": KafkaProducer, "topic": "t", "max_ratio": 2}),
    ],
)
def test_impossible_options_are_refused(kind: Any, settings: dict[str, Any]) -> None:  # noqa: ANN401
    """
    By the name of the option.
    """
    with pytest.raises(WorkerSettingError):
        kind(**settings)
