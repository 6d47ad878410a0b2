"""Tests that a worker at its record limit needs little memory even if its handlers fail."""

import os
from pathlib import Path

import pytest
from kafka import KafkaProducer

from safeconsumer.testing import EmbeddedBroker
from tests.harness.processes import ran_python

RECORDS = 1_500
# This program runs in its own process, so that memory from earlier tests does not
# count. The program prints the peak growth of its memory in MB.
PROGRAM = """
import asyncio, sys, threading, time
from safeconsumer import Limits, Reject, Retry, SafeConsumer, Worker
from tests.bench.memory import peak_mb, resident_mb

bootstrap, executor, result, count = sys.argv[1:]
calls = []

def end():
    calls.append(1)
    if result == "rejected":
        raise Reject
    if result == "retried":
        raise ValueError

def handle(record, context):
    mine = bytearray(b"x" * 1_000_000)
    end()

async def wait(record, context):
    mine = bytearray(b"x" * 1_000_000)
    await asyncio.sleep(0)
    end()

def sink(record, failure):
    mine = bytearray(b"x" * 1_000_000)
    calls.append(1)
    raise ConnectionError

consumer = SafeConsumer(
    "t", bootstrap_servers=bootstrap, group_id=executor + result, enable_auto_commit=False,
    auto_offset_reset="earliest", log=False, max_partition_fetch_bytes=100_000,
)
worker = Worker(
    consumer, wait if executor == "asyncio" else handle, executor=executor,
    order="key", limits=Limits(bytes=4_000_000), dead_letter=sink,
    retry=Retry(attempts=2 if result == "rejected" else 100_000, first=0.01, most=0.1),
)
before = resident_mb()
thread = threading.Thread(target=worker.run)
thread.start()
least = int(count) * (1 if result == "done" else 4)
while len(calls) < least and thread.is_alive():
    time.sleep(0.05)
assert thread.is_alive()
print(peak_mb() - before)
worker.stop(drain=False)
"""


@pytest.fixture(scope="module")
def bootstrap():
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 4)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for number in range(RECORDS):
            key, partition = str(number).encode(), number % 4
            producer.send("t", bytes(100), key=key, partition=partition)
        producer.close()
        yield broker.bootstrap


def grown_mb(tmp_path, *arguments):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    root = str(Path(__file__).parents[3])
    done = ran_python(
        *(script, *arguments, RECORDS),
        check=True,
        env={**os.environ, "PYTHONPATH": root},
        stderr=None,  # pytest shows stderr
    )
    return float(done.stdout)


@pytest.mark.nightly
@pytest.mark.contract("W1")
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_failing_handlers_need_little_more_memory_than_successful_ones(
    bootstrap, tmp_path, executor
):
    """Each call allocates a megabyte; once, 300 of these waited for garbage collection."""
    done = grown_mb(tmp_path, bootstrap, executor, "done")
    for result in ("retried", "rejected"):
        more = grown_mb(tmp_path, bootstrap, executor, result) - done
        assert more < 20, result
