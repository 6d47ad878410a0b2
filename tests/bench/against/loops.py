"""
How each framework is told to run a handler: as its documentation shows it first.

Each is imported where it runs, in an environment that has no other.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from typing import Any

from tests.bench.against.handling import Handling

CONCURRENCY = 8
# What each may hold beyond what it is handling, where that can be said.
PENDING = 1_000

Loop = Callable[[dict[str, Any], Handling], None]


def safeconsumer(told: dict[str, Any], handling: Handling) -> None:
    """Run a ``Worker`` with threads; ``order`` is told."""
    from safeconsumer import Drain, Limits, SafeConsumer, Worker  # noqa: PLC0415 - see above

    consumer = SafeConsumer(
        told["topic"],
        bootstrap_servers=told["bootstrap"],
        group_id=told["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=told["session_ms"],
        heartbeat_interval_ms=told["session_ms"] // 3,
        max_poll_interval_ms=told["poll_ms"],
    )
    worker = Worker(
        consumer,
        lambda record, _context: handling.handle(record.partition, record.offset),
        order=told.get("order", "partition"),
        concurrency=CONCURRENCY,
        limits=Limits(records=PENDING),
        drain=Drain(revoke=min(10.0, told["poll_ms"] / 3000)),
    )
    worker.run(signals=(signal.SIGTERM,))


def arroyo(told: dict[str, Any], handling: Handling) -> None:
    """Run a ``StreamProcessor`` with ``RunTaskInThreads``, or with ``RunTask``."""
    from arroyo.backends.kafka import (  # noqa: PLC0415 - see above
        KafkaConsumer,
        build_kafka_consumer_configuration,
    )
    from arroyo.commit import ONCE_PER_SECOND  # noqa: PLC0415
    from arroyo.processing import StreamProcessor  # noqa: PLC0415
    from arroyo.processing.strategies import (  # noqa: PLC0415
        CommitOffsets,
        ProcessingStrategyFactory,
        RunTask,
        RunTaskInThreads,
    )
    from arroyo.types import Topic  # noqa: PLC0415

    def work(message: Any) -> None:  # noqa: ANN401 - arroyo's
        value = message.value
        handling.handle(value.partition.index, value.offset)

    class Factory(ProcessingStrategyFactory):  # type: ignore[misc,type-arg]  # untyped here
        def create_with_partitions(self, commit: Any, _partitions: Any) -> Any:  # noqa: ANN401
            end = CommitOffsets(commit)
            if told.get("is_serial"):
                return RunTask(work, end)
            return RunTaskInThreads(work, CONCURRENCY, PENDING, end)

    config = build_kafka_consumer_configuration(
        _librdkafka(told),
        group_id=told["group"],
        auto_offset_reset="earliest",
        bootstrap_servers=[told["bootstrap"]],
    )
    processor = StreamProcessor(
        KafkaConsumer(config), Topic(told["topic"]), Factory(), ONCE_PER_SECOND
    )
    signal.signal(signal.SIGTERM, lambda *_: processor.signal_shutdown())
    processor.run()


def quixstreams(told: dict[str, Any], handling: Handling) -> None:
    """Run an ``Application``: one record after the other, it knows no other way."""
    from quixstreams import Application, message_context  # noqa: PLC0415 - see above

    app = Application(
        broker_address=told["bootstrap"],
        consumer_group=told["group"],
        auto_offset_reset="earliest",
        auto_create_topics=False,
        consumer_extra_config=_librdkafka(told),
        loglevel="WARNING",
    )

    def work(_value: object) -> None:
        about = message_context()
        handling.handle(about.partition, about.offset)

    app.dataframe(app.topic(told["topic"], value_deserializer="bytes")).update(work)
    app.run()  # takes SIGTERM itself


def faststream(told: dict[str, Any], handling: Handling) -> None:
    """Run a subscriber of coroutines; ``ack`` is told, or its default is used."""
    import logging  # noqa: PLC0415 - see above

    from faststream import AckPolicy, FastStream  # noqa: PLC0415
    from faststream.kafka import KafkaBroker, KafkaMessage  # noqa: PLC0415

    # It logs two lines per record at INFO, which would be all of its cost.
    broker = KafkaBroker(told["bootstrap"], logger=None)
    ack = {"ack_policy": AckPolicy[told["ack"]]} if "ack" in told else {}

    async def work(message: Any) -> None:  # noqa: ANN401 - FastStream's
        raw = message.raw_message
        await handling.handle_async(raw.partition, raw.offset)

    work.__annotations__["message"] = KafkaMessage
    broker.subscriber(
        told["topic"],
        group_id=told["group"],
        auto_offset_reset="earliest",
        max_workers=told.get("workers", CONCURRENCY),
        session_timeout_ms=told["session_ms"],
        heartbeat_interval_ms=told["session_ms"] // 3,
        max_poll_interval_ms=told["poll_ms"],
        **ack,
    )(work)
    app = FastStream(broker, logger=None)
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    asyncio.run(app.run())  # takes SIGTERM itself


def _librdkafka(told: dict[str, Any]) -> dict[str, Any]:
    return {
        "session.timeout.ms": told["session_ms"],
        "heartbeat.interval.ms": told["session_ms"] // 3,
        "max.poll.interval.ms": told["poll_ms"],
    }


LOOPS: Mapping[str, Loop] = {
    one.__name__: one for one in (safeconsumer, arroyo, quixstreams, faststream)
}
