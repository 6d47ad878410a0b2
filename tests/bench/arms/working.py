"""Runs a worker, or the plain poll loop that it is compared with, once."""

import resource
import threading
import time

from safeconsumer.worker import Limits, Worker
from tests.bench.arms.consumers import make, poll_until
from tests.bench.memory import peak_mb

_MIB = 1024 * 1024


def nothing(_record, _context=None):
    """Do nothing."""


async def nothing_async(_record, _context):
    """Do nothing."""


class Sleep:
    """A handler that waits so many seconds, as one that asks another service."""

    def __init__(self, seconds):
        self._seconds = seconds

    def __call__(self, _record, _context=None):
        time.sleep(self._seconds)


class Working:
    """
    Works on one topic, as long as there is something, or as it may.

    ``mode`` is "plain" for a loop, or the order or the executor of a worker. It ends
    after so many ``records``, or ``seconds`` from the first one on. The handler sleeps so
    long for each record, or does nothing.
    """

    def __init__(  # noqa: PLR0913 - a measurement has that many settings
        self,
        *,
        mode,
        config,
        topic,
        records,
        seconds=60.0,
        client="safe",
        decoder="auto",
        sleep=None,
        concurrency=8,
        limits=None,
    ):
        self._mode, self._config, self._topic = mode, config, topic
        self._records, self._seconds = records, seconds
        self._client, self._decoder = client, decoder
        self._sleep = sleep
        self._concurrency = concurrency
        self._limits = {"records": 10_000, "bytes": 64 * _MIB, **(limits or {})}

    def run(self):
        group = f"{self._topic}-{time.monotonic_ns()}"
        consumer = make(
            self._client, self._config, group_id=group, decoder=self._decoder
        )
        consumer.subscribe([self._topic])
        poll_until(consumer, consumer.assignment)
        consumer.seek_to_beginning()
        handle = self._handler()
        began, cpu = time.monotonic(), _cpu()
        work = self._plain if self._mode == "plain" else self._worker
        done = work(consumer, handle)
        seconds = time.monotonic() - began
        return {
            "cpu_us": (_cpu() - cpu) / max(1, done) * 1e6,
            "per_second": done / seconds,
            "peak_mb": peak_mb(),
        }

    def close(self):
        """Do nothing: what was read with is closed."""

    def _handler(self):
        if self._mode == "asyncio":
            return nothing_async
        if self._sleep is None:
            return nothing
        return Sleep(self._sleep)

    def _is_over(self, done):
        # The time counts from the first record; if none comes, that is waited for.
        until, is_counting = time.monotonic() + 60.0, False

        def is_over():
            nonlocal until, is_counting
            if not is_counting and done():
                is_counting, until = True, time.monotonic() + self._seconds
            return done() >= self._records or time.monotonic() > until

        return is_over

    def _plain(self, consumer, handle):
        count = 0
        is_over = self._is_over(lambda: count)
        while not is_over():
            for records in consumer.poll(250).values():
                for record in records:
                    handle(record)
                    count += 1
                    if self._sleep and is_over():
                        break
        consumer.close(autocommit=False)
        return count

    def _worker(self, consumer, handle):
        is_order = self._mode in {"partition", "key", "unordered"}
        worker = Worker(
            consumer,
            handle,
            order=self._mode if is_order else "partition",
            executor="thread" if is_order else self._mode,
            concurrency=self._concurrency,
            limits=Limits(**self._limits),
        )
        thread = threading.Thread(target=worker.run)
        thread.start()
        # What stats() takes, fifty times a second, is not the worker's.
        kept = worker._engine.kept
        is_over = self._is_over(lambda: kept.done)
        while not is_over():
            time.sleep(0.02)
        done = kept.done
        worker.stop(drain=False)
        thread.join()
        return done


def _cpu():
    used = (
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(one.ru_utime + one.ru_stime for one in used)
