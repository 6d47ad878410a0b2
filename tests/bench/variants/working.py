"""Runs a worker, or the simple poll loop with which workers are compared."""

import resource
import threading
import time

from safeconsumer.worker import Limits, Worker
from tests.bench.variants.consumers import BOUND, make, poll_until


def nothing(_record, _context=None):
    """Do nothing."""


async def nothing_async(_record, _context):
    """Do nothing."""


class Working:
    """
    Processes one topic with a handler that does nothing.

    ``mode`` is "plain" for a poll loop; otherwise it is the worker's order or executor.
    A run stops after this many ``records``, or after two minutes.
    """

    def __init__(  # noqa: PLR0913 - a measurement has many settings
        self,
        *,
        mode,
        config,
        topic,
        records,
        client="safe",
        decoder="auto",
        concurrency=8,
    ):
        self._mode, self._config, self._topic = mode, config, topic
        self._records = records
        self._client, self._decoder = client, decoder
        self._concurrency = concurrency

    def run(self):
        group = f"{self._topic}-{time.monotonic_ns()}"
        consumer = make(
            self._client, self._config, group_id=group, decoder=self._decoder
        )
        consumer.subscribe([self._topic])
        poll_until(consumer, consumer.assignment)
        consumer.seek_to_beginning()
        handle = nothing_async if self._mode == "asyncio" else nothing
        cpu = _cpu()
        work = self._plain if self._mode == "plain" else self._worker
        done = work(consumer, handle)
        return {"cpu_us": (_cpu() - cpu) / max(1, done) * 1e6}

    def close(self):
        """Do nothing, because each run closes its consumer."""

    def _is_over(self, done):
        until = time.monotonic() + 2 * BOUND
        return lambda: done() >= self._records or time.monotonic() > until

    def _plain(self, consumer, handle):
        count = 0
        is_over = self._is_over(lambda: count)
        while not is_over():
            for records in consumer.poll(250).values():
                for record in records:
                    handle(record)
                    count += 1
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
            limits=Limits(records=10_000, bytes=64 * 1024 * 1024),
        )
        thread = threading.Thread(target=worker.run)
        thread.start()
        # Do not call stats(): fifty calls a second would add to the worker's CPU time.
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
