"""What a member on confluent-kafka costs over its library's own consumer, in turns."""

import time
from contextlib import ExitStack, closing

from tests.bench.figures import median, ratio

_PARTITIONS = 8
_RECORDS = 200_000
_MOST = {"poll": 1.5, "consume": 1.2}  # of the CPU per record of the library's own
_FETCHED = 0.8  # seconds: everything waits in librdkafka then, and no call waits
_NOTE = (
    "CPU of the polling thread, in microseconds per record of 100 bytes that was "
    "fetched before; one process, in turns, which change"
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
    row = f"{how}-held" if held else how
    yield median(row, "CPU per record", taken["ours"], "us")
    most = None if held else _MOST[how]
    yield ratio(row, "over its own", taken, "ours", "stock", at_most=most, note=_NOTE)


ROWS = {
    f"{how}-held" if held else how: lambda stage, how=how, read=read, held=held: (
        compared(stage, how, read, held)
    )
    for how, read in (("poll", _by_poll), ("consume", _by_consume))
    for held in (False, True)
}
