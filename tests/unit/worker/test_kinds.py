"""Which handlers and lifespans are taken."""

import contextlib

import pytest

import safeconsumer.errors
from safeconsumer import Pump, SafeConsumer, Worker
from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker.executors.lifespan import check_lifespan
from tests.harness.kafka.offline import offline

CONFIG = {"group_id": "g", "enable_auto_commit": False}


def first(_record, _context): ...


def second(_record, _context): ...


def third(_record, _context): ...


async def awaits(_record, _context): ...


def test_stocks_consumer_is_refused_in_words():
    """And so is the class instead of a consumer."""
    from kafka import KafkaConsumer  # noqa: PLC0415

    with offline(KafkaConsumer, "orders", **CONFIG) as consumer:
        for kind in (Worker, Pump):
            with pytest.raises(WorkerSettingError, match="make it with safeconsumer"):
                kind(consumer, *([first] if kind is Worker else []))
    with pytest.raises(WorkerSettingError, match="the class safeconsumer"):
        Worker(SafeConsumer, first)


def test_every_error_of_a_worker_is_among_the_errors():
    """What comes out of ``run()``, of a pump, and what a handler raises."""
    import safeconsumer.worker.handlers as room  # noqa: PLC0415

    errors = {
        name
        for name, one in vars(room).items()
        if isinstance(one, type)
        and issubclass(one, Exception)
        and name.endswith("Error")
    }
    assert {"HandlersFailError", "ProcessDiedError", "DeserializationError"} <= errors
    assert errors <= set(safeconsumer.errors.__all__)
    for name in errors:
        assert getattr(safeconsumer.errors, name) is getattr(room, name)
    with (
        offline(SafeConsumer, "orders", **CONFIG) as consumer,
        pytest.raises(safeconsumer.errors.HookTypeError),
    ):
        Worker(consumer, first, on_event=3)


def test_kinds_that_do_not_fit_are_refused():
    """At construction, with what would do."""

    def generator():
        yield

    async def async_generator():
        yield

    for wrong in (generator, async_generator):
        with pytest.raises(WorkerSettingError, match="decorate it"):
            check_lifespan(wrong, "thread")
    with pytest.raises(WorkerSettingError, match="must be callable"):
        check_lifespan(contextlib.nullcontext(), "thread")
    with pytest.raises(WorkerSettingError, match="cannot be imported"):
        check_lifespan(lambda: contextlib.nullcontext(), "process")  # noqa: PLW0108
    check_lifespan(None, "thread")
