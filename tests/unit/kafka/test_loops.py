"""Tests a consumer on each event loop of kafka-python 3.1 (``net``)."""

import asyncio
import gc

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer._kafka.network import HAS_BACKENDS
from safeconsumer.testing import EmbeddedBroker
from tests.harness.waiting import wait_for

pytestmark = [
    pytest.mark.nightly,  # kafka-python 3.0 lacks these loops
    pytest.mark.skipif(
        not HAS_BACKENDS, reason="kafka-python 3.0 has one kind of loop"
    ),
    # When closed, kafka-python's asyncio loop leaves tasks to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collected():
    yield
    gc.collect()


TP = TopicPartition("t", 0)


def append(broker, *values):
    broker.command(lambda cluster: cluster.append("t", 0, list(values)))


def reads_pauses_and_commits(**settings):
    with EmbeddedBroker() as broker:
        broker.create_topic("t", 1)
        append(broker, b"0", b"1")
        with SafeConsumer(
            "t",
            group_id="g",
            auto_offset_reset="earliest",
            **broker.client_config,
            **settings,
        ) as consumer:
            taken = []

            def read():
                for records in consumer.poll(200).values():
                    taken.extend(one.value for one in records)
                return taken

            wait_for(lambda: len(read()) == 2, "two records")
            consumer.commit()
            assert consumer.committed(TP) == consumer.position(TP) == 2
            consumer.pause(TP)
            append(broker, b"2")
            assert consumer.poll(300) == {}
            consumer.wakeup()
            assert consumer.poll(3_600_000) == {}
            consumer.resume(TP)
            wait_for(lambda: len(read()) == 3, "the record after the pause")
            assert taken == [b"0", b"1", b"2"]
            return type(consumer._net).__name__


@pytest.mark.parametrize("net", [None, "selector", "asyncio"])
def test_consumer_on_each_loop_reads_pauses_and_commits(net):
    assert ("Asyncio" in reads_pauses_and_commits(net=net)) == (net == "asyncio")


def test_consumer_created_in_an_asyncio_loop_reads_pauses_and_commits():
    """kafka-python then also chooses asyncio for its own thread."""

    async def main():
        return reads_pauses_and_commits()

    assert "Asyncio" in asyncio.run(main())
