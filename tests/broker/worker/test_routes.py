"""Handlers by topic in one worker."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import safeconsumer
from safeconsumer import (
    NoHandlerError,
    Pump,
    RecordFailedError,
    SafeConsumer,
    Worker,
    WorkerSettingError,
    events,
)
from safeconsumer.worker.routes import chosen
from tests.broker.worker.handlers import AsyncRecording, BatchRecording, Recording
from tests.harness.kafka.offline import offline
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab

CONFIG: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}


def first(_record: object, _context: object) -> None: ...


def second(_record: object, _context: object) -> None: ...


def third(_record: object, _context: object) -> None: ...


async def awaits(_record: object, _context: object) -> None: ...


def test_the_topics_name_wins_then_the_first_that_covers() -> None:
    """Whatever stands before it."""
    routes: Any = chosen(
        None,
        {"re:a.*": first, "audit": second, "re:au.*": third, "@all": second},
        "thread",
    )
    found = [routes.of(name) for name in ("a", "audit", "auto", "b")]
    assert found == [first, second, first, second]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "give either a handler or handlers="),
        (
            {"handle": first, "handlers": {"orders": first}},
            "give either a handler or handlers=",
        ),
        ({"handlers": {}}, "must name topics"),
        ({"handlers": [first]}, "must name topics"),
        ({"handlers": {"orders": 3}}, "the handler for 'orders' must be callable"),
        ({"handlers": {"orders": awaits}}, "executor='asyncio'"),
        ({"handlers": {"orders:3": first}}, "need topics"),
        ({"handlers": {"re:(": first}}, "need topics.*not a pattern"),
        ({"handlers": {re.compile("orders"): first}}, "need topics"),
        ({"handlers": {"audit": first, "re:o": second}}, "nothing for orders"),
        (
            {"handlers": {"orders": lambda _r, _c: None}, "executor": "process"},
            "top of a module",
        ),
    ],
)
def test_what_is_impossible_is_refused(settings: dict[str, Any], said: str) -> None:
    """At construction, with what would do."""
    with (
        offline(SafeConsumer, "orders", **CONFIG) as consumer,
        pytest.raises(WorkerSettingError, match=said),
    ):
        Worker(consumer, **settings)


def test_coroutine_functions_and_others_do_not_mix() -> None:
    """One worker has one executor."""
    with pytest.raises(WorkerSettingError, match="async def"):
        chosen(None, {"a": awaits, "b": first}, "asyncio")


@pytest.mark.parametrize("executor", ["thread", "asyncio", "process", "foreign"])
@pytest.mark.any_broker
def test_each_topic_has_its_handler(lab: Lab, executor: str, tmp_path: Any) -> None:  # noqa: ANN401
    """In every executor."""
    kind = AsyncRecording if executor == "asyncio" else Recording
    folders = [tmp_path / name for name in ("named", "others")]
    for folder in folders:
        folder.mkdir()
    named, others = map(kind, folders)
    topic = lab.new_topic(partitions=1)
    lab.produce({0: [""] * 3})
    other = lab.other_topic()
    lab.producer.send(other, value=b"").get(30)
    consumer = lab.groupless()
    consumer.subscribe([topic, other])
    with ThreadPoolExecutor(2) as pool:
        running = lab.run(
            None,  # type: ignore[arg-type]  # by topic
            consumer,
            handlers={"re:.*": others, topic: named},
            executor=pool if executor == "foreign" else executor,
            concurrency=2,
        )
        running.wait_done(4)
        running.end()
    assert [len(one.traces()) for one in (named, others)] == [3, 1]


@pytest.mark.any_broker
def test_a_batch_is_of_one_topic(lab: Lab, tmp_path: Any) -> None:  # noqa: ANN401
    """It is of one partition."""
    topic = lab.new_topic(partitions=1)
    lab.produce({0: [""] * 9})
    handler = BatchRecording(tmp_path)
    running = lab.run(None, handlers={topic: handler}, batch=5)  # type: ignore[arg-type]  # by topic
    running.wait_done(9)
    running.end()
    assert handler.offsets() == {0: list(range(9))}


@pytest.mark.any_broker
def test_a_topic_that_nobody_knew_of_fails_its_records(lab: Lab) -> None:
    """W7: at once, with what says which entries there are; nothing is passed over."""
    name = f"{lab.new_topic(partitions=1)}-later"
    consumer = lab.groupless(metadata_max_age_ms=300)
    consumer.subscribe(pattern=re.escape(name))
    running = lab.run(None, consumer, handlers={f"re:{name}x.*": first})  # type: ignore[arg-type]  # by topic
    wait_for(
        lambda: any(type(e) is events.NothingConsumed for e in running.events),
        "it to have looked for topics",
    )
    lab.broker.create_topic(name, 1)
    lab.topic = name
    lab.produce({0: ["v"]})
    running.wait_end()
    assert isinstance(running.error, RecordFailedError)
    cause = running.error.__cause__
    assert isinstance(cause, NoHandlerError)
    assert f"re:{name}x" in str(cause)
    assert lab.committed() == {0: 0}


def test_stocks_consumer_is_refused_in_words() -> None:
    """And so is the class instead of a consumer."""
    from kafka import KafkaConsumer  # noqa: PLC0415

    with offline(KafkaConsumer, "orders", **CONFIG) as consumer:
        for kind in (Worker, Pump):
            with pytest.raises(WorkerSettingError, match="make it with safeconsumer"):
                kind(consumer, *([first] if kind is Worker else []))
    with pytest.raises(WorkerSettingError, match="the class safeconsumer"):
        Worker(SafeConsumer, first)


def test_every_error_of_a_worker_is_at_the_root() -> None:
    """What comes out of ``run()``, of a pump, and what a handler raises."""
    import safeconsumer.worker as room  # noqa: PLC0415

    errors = {
        name
        for name in room.__all__
        if isinstance(getattr(room, name), type)
        and issubclass(getattr(room, name), Exception)
    }
    assert {"HandlersFailError", "ProcessDiedError", "NoHandlerError"} <= errors
    assert errors <= set(safeconsumer.__all__)
    for name in errors:
        assert getattr(safeconsumer, name) is getattr(room, name)
    with (
        offline(SafeConsumer, "orders", **CONFIG) as consumer,
        pytest.raises(safeconsumer.HookTypeError),
    ):
        Worker(consumer, first, on_event=3)  # type: ignore[arg-type]  # that is it
