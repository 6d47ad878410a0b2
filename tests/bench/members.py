"""What a member on another client costs over its library's own consumer, in turns."""

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack, closing

from tests.bench.figures import median, ratio

_PARTITIONS = 8
_RECORDS = 200_000
# Of the CPU per record of the library's own.
_MOST = {"poll": 1.5, "consume": 1.2, "getone": 1.5, "getmany": 1.2}
_FETCHED = 0.8  # seconds: everything waits in the client then, and no call waits
_NOTE = (
    "CPU of the polling thread, in microseconds per record of 100 bytes that was "
    "fetched before; one process, in turns, which change"
)
_NOTE_OF_A_LOOP = (
    "CPU of the event loop's thread, in microseconds per record of 100 bytes that was "
    "fetched before; one loop, in turns, which change"
)


def _made(kind, stage, name, **more):
    settings = {
        "bootstrap.servers": stage.broker.bootstrap,
        "group.id": f"{name}-{time.monotonic_ns()}",
        "enable.auto.commit": False,
        "fetch.queue.backoff.ms": 1,
        "queued.min.messages": 1_000_000,
    }
    return kind(settings, **more)


def _by_poll(consumer, records):
    poll, got = consumer.poll, 0
    while got < records:
        got += poll(1.0) is not None


def _by_consume(consumer, records):
    consume, got = consumer.consume, 0
    while got < records:
        got += len(consume(500, 0.0) or consume(1, 1.0))


def _lap(consumer, read, everything, records):
    consumer.assign(everything)
    time.sleep(_FETCHED)
    began = time.thread_time()
    read(consumer, records)
    return (time.thread_time() - began) / records * 1e6


def compared(stage, how, read, held):
    """Let both read the same records, with holds of partitions that have none."""
    import confluent_kafka  # noqa: PLC0415 - of an extra, which --help does without

    from safeconsumer.clients.confluent import Consumer  # noqa: PLC0415 - likewise

    records = _RECORDS // stage.sizes.scale
    topic = stage.topic(_PARTITIONS, empty=1, records=records)
    everything = [
        confluent_kafka.TopicPartition(topic, number, 0)
        for number in range(_PARTITIONS + 1)
    ]
    taken = {"stock": [], "ours": []}
    with ExitStack() as stack:
        stock = _made(confluent_kafka.Consumer, stage, "stock")
        ours = _made(Consumer, stage, "ours", log=False)
        arms = [("stock", stock), ("ours", ours)]
        for _, one in arms:
            stack.enter_context(closing(one))
        if held:
            ours.hold(everything[-1])
        for _ in range(stage.sizes.rounds * 2):
            for name, one in arms:
                taken[name].append(_lap(one, read, everything, records))
            arms.reverse()
    yield from _figures(how, held, taken, _NOTE)


def _figures(how, held, taken, note):
    row = f"{how}-held" if held else how
    yield median(row, "CPU per record", taken["ours"], "us")
    most = None if held else _MOST[how]
    yield ratio(row, "over its own", taken, "ours", "stock", at_most=most, note=note)


# ---------------------------------------------------------------- aiokafka


async def _by_getone(consumer, records):
    for _ in range(records):
        await consumer.getone()


async def _by_getmany(consumer, records):
    got = 0
    while got < records:
        found = await consumer.getmany(timeout_ms=1000, max_records=500)
        got += sum(map(len, found.values()))


async def _lap_in_loop(consumer, read, everything, records):
    consumer.assign(everything)
    for tp in everything:
        consumer.seek(tp, 0)
    await asyncio.sleep(_FETCHED)
    began = time.thread_time()
    await read(consumer, records)
    return (time.thread_time() - began) / records * 1e6


async def _taken_in_loop(stage, read, held):
    import aiokafka  # noqa: PLC0415 - of an extra, which --help does without

    from safeconsumer.clients.aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - likewise

    records = _RECORDS // stage.sizes.scale
    topic = stage.topic(_PARTITIONS, empty=1, records=records)
    everything = [
        aiokafka.TopicPartition(topic, number) for number in range(_PARTITIONS + 1)
    ]
    settings = {
        "bootstrap_servers": stage.broker.bootstrap,
        "enable_auto_commit": False,
        "max_partition_fetch_bytes": 2**24,
    }
    taken = {"stock": [], "ours": []}
    async with AsyncExitStack() as stack:
        stock = aiokafka.AIOKafkaConsumer(**settings)
        ours = AIOKafkaConsumer(log=False, **settings)
        arms = [("stock", stock), ("ours", ours)]
        for _, one in arms:
            await stack.enter_async_context(one)
        if held:
            ours.hold(everything[-1])
        for _ in range(stage.sizes.rounds * 2):
            for name, one in arms:
                lap = _lap_in_loop(one, read, everything, records)
                taken[name].append(await lap)
            arms.reverse()
    return taken


def compared_in_loop(stage, how, read, held):
    """Let both on aiokafka read the same records, in one event loop."""
    taken = asyncio.run(_taken_in_loop(stage, read, held))
    yield from _figures(how, held, taken, _NOTE_OF_A_LOOP)


_HOW = {
    "poll": (compared, _by_poll),
    "consume": (compared, _by_consume),
    "getone": (compared_in_loop, _by_getone),
    "getmany": (compared_in_loop, _by_getmany),
}
ROWS = {
    f"{how}-held" if held else how: lambda stage, how=how, held=held: _HOW[how][0](
        stage, how, _HOW[how][1], held
    )
    for how in _HOW
    for held in (False, True)
}
