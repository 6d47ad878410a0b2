"""Workers refuse invalid settings before anything starts."""

import contextlib
import functools
import inspect
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from kafka import KafkaProducer

from safeconsumer import BatchFailure, Pump, SafeConsumer, Worker
from safeconsumer.errors import HookTypeError, LifespanError, WorkerSettingError
from safeconsumer.testing import run_worker
from safeconsumer.worker import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Retry,
    RetryLater,
    Tracing,
)
from safeconsumer.worker.executors import check_lifespan
from safeconsumer.worker.executors.lifespan import enter
from tests.harness.kafka.offline import offline


def handle(_record, _context):
    """Do nothing."""


async def handle_async(_record, _context):
    """Do nothing."""


def handle_and_yield(_record, _context):
    """Do nothing when iterated."""
    yield 1


async def handle_async_and_yield(_record, _context):
    """Do nothing when iterated."""
    yield 1


class YieldingHandler:
    def __call__(self, record, context):
        yield from handle_and_yield(record, context)


class Handling:
    """A handler class; a program may pass the class or an unbound method by mistake."""

    def __init__(self, *_connections): ...

    def __call__(self, record, context):
        """Do nothing."""

    def work(self, _record, _context):
        """Do nothing."""


def only_one(_record):
    """Take only the record, although a handler also gets a context."""


def with_more(handle):
    """Wrap a handler so that it gets one more argument, as dependency injection does."""

    @functools.wraps(handle)
    def call(*args):
        handle(*args, None)

    return call


@with_more
def injected(_record, _context, _connection):
    """Do nothing."""


def letter(_record, _failure):
    """Do nothing."""


def with_config(**config):
    """Return a fake producer with this configuration."""
    return SimpleNamespace(send=handle, config=config)


NAN = float("nan")
SENDS = SimpleNamespace(send=handle)
CONFIG = {"group_id": "g", "enable_auto_commit": False}


@pytest.mark.filterwarnings("ignore:.*_deserializer:DeprecationWarning")
@pytest.mark.parametrize(
    ("config", "settings", "match"),
    [
        ({"enable_auto_commit": True}, {}, "enable_auto_commit=False"),
        ({"group_id": None}, {}, "group_id"),
        ({}, {"handle": 3}, "must be callable"),
        ({}, {"handle": Handling}, "the class Handling"),
        ({}, {"handle": functools.partial(Handling, 1)}, "the class Handling"),
        ({}, {"handle": YieldingHandler}, "the class YieldingHandler"),
        ({}, {"handle": only_one}, "called with .record, context."),
        ({}, {"handle": Handling.work}, "called with .record, context."),
        ({}, {"order": "random"}, "'partition', 'key' or 'unordered'"),
        ({}, {"executor": "fork"}, "executor must be .thread."),
        ({}, {"handle": handle_async}, "executor='asyncio'"),
        ({}, {"executor": "asyncio"}, "async def"),
        ({}, {"handle": handle_and_yield}, "generator function"),
        ({}, {"handle": functools.partial(handle_and_yield)}, "generator function"),
        ({}, {"handle": YieldingHandler()}, "generator function"),
        ({}, {"handle": handle_async_and_yield}, "generator function"),
        (
            {},
            {"handle": handle_async_and_yield, "executor": "asyncio"},
            "generator function",
        ),
        ({}, {"executor": "process", "handle": lambda _r, _c: None}, "top of a module"),
        ({"key_deserializer": lambda _: 1}, {"executor": "process"}, "top of a module"),
        ({}, {"concurrency": 0}, "concurrency"),
        ({}, {"batch": 0}, "batch"),
        ({}, {"batch": 2, "order": "key"}, "with batches order must be"),
        ({}, {"batch_within": 1.0}, "batch_within needs batch"),
        ({}, {"batch": 2, "batch_within": -1}, "0 or more"),
        *(
            ({}, {"handler_timeout": seconds}, "handler_timeout must be")
            for seconds in (0, -1, NAN, float("inf"), True, "1")
        ),
        *(({}, {"trace": wrong}, "trace must be") for wrong in (1, "yes")),
        ({}, {"on_exhausted": "drop"}, "on_exhausted"),
        ({}, {"dead_letter": "topic"}, "dead_letter=DeadLetter.KafkaProducer"),
        ({}, {"dead_letter": only_one}, "called with .record, failure."),
        ({}, {"dead_letter": handle_async}, "is a coroutine function"),
        ({}, {"dead_letter": DeadLetter}, "the class DeadLetter"),
        ({"value_deserializer": "json"}, {}, "a deserializer must be callable"),
        ({"key_deserializer": handle}, {}, "called with .data."),
        ({}, {"limits": 1000}, "limits must be a Limits"),
        ({}, {"drain": 30}, "drain must be a Drain"),
        ({}, {"commit": 5}, "commit must be a Commit"),
        ({}, {"retry": None}, "retry must be a Retry"),
        ({}, {"retry": 3}, "retry must be a Retry"),
        ({}, {"dead_letter": DeadLetter(SENDS, "orders")}, "is consumed here"),
        ({}, {"limits": Limits(records=10)}, "below one poll"),
        ({}, {"limits": Limits(bytes=10)}, "below one fetch"),
        ({"max_poll_interval_ms": 20_000}, {}, "less than half"),
    ],
)
def test_worker_with_invalid_settings_is_refused(config, settings, match):
    """The constructor raises the error and does not leave a thread running."""
    with offline(SafeConsumer, "orders", **{**CONFIG, **config}) as consumer:
        before = set(threading.enumerate())
        with pytest.raises(WorkerSettingError, match=match):
            Worker(consumer, **{"handle": handle, **settings})
        assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(
    "settings",
    [
        {"handle": injected},
        {"handle": Handling()},
        {"handle": Handling().work},
        {"handle": functools.partial(injected, 1)},
        {"handle": Mock()},
        {"handle": print},
        {"dead_letter": letter},
        {"dead_letter": Mock()},
    ],
)
def test_handler_with_an_unknown_signature_is_accepted(settings):
    """For example, the parameters of some decorated and built-in functions are unknown."""
    with offline(SafeConsumer, "orders", **CONFIG) as consumer:
        Worker(consumer, **{"handle": handle, **settings})


@pytest.mark.filterwarnings("ignore:.*_deserializer:DeprecationWarning")
@pytest.mark.parametrize(
    ("config", "settings", "match"),
    [
        ({"enable_auto_commit": True}, {}, "enable_auto_commit"),
        ({}, {"retry": 3}, "retry must be a Retry"),
        ({}, {"order": "key"}, "'unordered' or 'partition'"),
        ({}, {"dead_letter": DeadLetter(SENDS, "orders")}, "is consumed here"),
        ({"value_deserializer": "json"}, {}, "a deserializer must be callable"),
    ],
)
def test_pump_with_invalid_settings_is_refused(config, settings, match):
    with (
        offline(SafeConsumer, "orders", **{**CONFIG, **config}) as consumer,
        pytest.raises(WorkerSettingError, match=match),
    ):
        Pump(consumer, **settings)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (Commit, {"every": 0}),
        (Drain, {"revoke": -1}),
        (Limits, {"records": 0}),
        (Limits, {"bytes": -1}),
        (Limits, {"span": 1.5}),
        (Limits, {"age": float("inf")}),
        (Retry, {"attempts": 0}),
        (Retry, {"factor": 0.5}),
        (Retry, {"first": 40.0}),
        (Retry, {"never": ValueError}),
        (Retry, {"never": (KeyboardInterrupt,)}),
        *(
            (RetryLater, {"after": after})
            for after in (-1, NAN, float("inf"), True, "1")
        ),
        (Tracing, {"provider": object()}),
        (Tracing, {"parent": "link"}),
        (DeadLetter, {"producer": None, "topic": "t"}),
        (DeadLetter, {"producer": SENDS, "topic": ""}),
        (DeadLetter, {"producer": SENDS, "topic": "t", "max_ratio": 2}),
        (DeadLetter, {"producer": SENDS, "topic": "t", "sample": 0}),
        (DeadLetter, {"producer": KafkaProducer, "topic": "t"}),
        (DeadLetter, {"producer": SimpleNamespace(send=handle_async), "topic": "t"}),
        *(
            (DeadLetter, {"producer": with_config(**config), "topic": "t"})
            for config in (
                {"key_serializer": str.encode},
                {"value_serializer": bytes.hex},
                {"acks": 0},
                {"transactional_id": "dead"},
            )
        ),
    ],
)
def test_invalid_options_are_refused(kind, settings):
    with pytest.raises(WorkerSettingError):
        kind(**settings)


def test_error_of_a_ratio_names_the_allowed_numbers():
    with pytest.raises(WorkerSettingError, match=r"max_ratio must be .* from 0 to 1"):
        DeadLetter(producer=SENDS, topic="t", max_ratio=1.5)
    assert DeadLetter(producer=SENDS, topic="t", max_ratio=1).max_ratio == 1


def test_all_options_are_in_the_signature_with_their_defaults():
    worker, pump, run = map(inspect.signature, (Worker, Pump, run_worker))
    assert [*worker.parameters][:2] == ["consumer", "handle"]
    assert [*run.parameters][:2] == ["handler", "records"]
    assert worker.parameters["limits"].default == Limits()
    assert worker.parameters.keys() - {"consumer", "handle"} <= run.parameters.keys()
    assert pump.parameters.keys() < worker.parameters.keys()
    assert pump.parameters["order"].default == "unordered"


def test_consumer_of_kafka_python_is_refused():
    from kafka import KafkaConsumer  # noqa: PLC0415

    with offline(KafkaConsumer, "orders", **CONFIG) as consumer:
        for kind in (Worker, Pump):
            with pytest.raises(WorkerSettingError, match="make it with safeconsumer"):
                kind(consumer, *([handle] if kind is Worker else []))
    with pytest.raises(WorkerSettingError, match="the class safeconsumer"):
        Worker(SafeConsumer, handle)


def test_on_event_must_be_callable():
    with (
        offline(SafeConsumer, "orders", **CONFIG) as consumer,
        pytest.raises(HookTypeError),
    ):
        Worker(consumer, handle, on_event=3)


@pytest.mark.parametrize(
    "errors",
    [
        None,
        7,
        [ValueError()],
        {"0": ValueError()},
        {True: ValueError()},
        {0: "ValueError"},
        {0: ValueError},
        {0: None},
    ],
)
def test_batch_failure_with_invalid_errors_is_refused(errors):
    with pytest.raises(TypeError, match="BatchFailure takes"):
        BatchFailure(errors)


def test_lifespan_of_the_wrong_kind_is_refused():
    for wrong in (handle_and_yield, handle_async_and_yield):
        with pytest.raises(WorkerSettingError, match="decorate it"):
            check_lifespan(wrong, "thread")
    with pytest.raises(WorkerSettingError, match="must be callable"):
        check_lifespan(7, "thread")
    with pytest.raises(WorkerSettingError, match="cannot be imported"):
        check_lifespan(lambda: contextlib.nullcontext(), "process")  # noqa: PLW0108
    check_lifespan(None, "thread")


@contextlib.contextmanager
def pool():
    yield


@contextlib.asynccontextmanager
async def async_pool():
    yield


@contextlib.asynccontextmanager
async def pool_of_an_app(_app):
    yield


class AsyncPool:
    async def __aenter__(self): ...

    async def __aexit__(self, *_error): ...


class Pools:
    """A context manager; calling it or its method ``each`` creates another one."""

    def __enter__(self): ...

    def __exit__(self, *_error): ...

    def __call__(self):
        return pool()

    @contextlib.contextmanager
    def each(self):
        yield


async def coroutine():
    return pool()


@pytest.mark.parametrize(
    ("lifespan", "executor", "match"),
    [
        (pool(), "thread", "give the function, not its result"),
        (async_pool(), "asyncio", "give the function, not its result"),
        (contextlib.nullcontext(), "thread", "give the function, not its"),
        (pool_of_an_app, "asyncio", "does not take.*'_app'"),
        (lambda app: app, "thread", "does not take.*'app'"),
        (Pools.each, "thread", "does not take.*'self'"),
        (async_pool, "thread", "use executor='asyncio'"),
        (async_pool, "process", "use executor='asyncio'"),
        (functools.partial(pool_of_an_app, 1), "thread", "use executor='asyncio'"),
        (functools.partial(pool_of_an_app), "asyncio", "does not take.*'_app'"),
        (AsyncPool, "thread", "use executor='asyncio'"),
        (coroutine, "asyncio", "a coroutine: let it yield"),
        (coroutine, "thread", "a coroutine: let it yield"),
    ],
)
def test_lifespan_that_cannot_be_entered_is_refused(lifespan, executor, match):
    with pytest.raises(WorkerSettingError, match=match):
        check_lifespan(lifespan, executor)


@pytest.mark.parametrize(
    ("lifespan", "executor"),
    [
        (pool, "thread"),
        (pool, "process"),
        (pool, "asyncio"),
        (async_pool, "asyncio"),
        (functools.partial(pool_of_an_app, 1), "asyncio"),
        (functools.wraps(pool_of_an_app)(lambda: pool()), "thread"),  # noqa: PLW0108
        (AsyncPool, "asyncio"),
        (Pools, "thread"),
        (Pools(), "thread"),
        (Pools().each, "thread"),
        (contextlib.nullcontext, "process"),
        (Mock(), "thread"),
    ],
)
def test_lifespan_that_can_be_entered_is_accepted(lifespan, executor):
    check_lifespan(lifespan, executor)


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (async_pool(), "it made an async context manager; use executor='asyncio'"),
        (7, "it made 7, which is not a context manager"),
    ],
)
def test_object_that_is_not_a_context_manager_is_refused_on_entry(made, match):
    with (
        contextlib.ExitStack() as stack,
        pytest.raises(LifespanError, match=match),
    ):
        enter(stack, lambda: made)
