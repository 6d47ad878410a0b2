"""Tests S1 repeatedly: no batch that is planned after a pause reads held partitions."""

import threading

import pytest
from kafka import KafkaProducer

from tests.harness.spark.lake import LIMIT, until

pytestmark = [pytest.mark.spark, pytest.mark.real_broker, pytest.mark.timeout(600)]


@pytest.mark.contract("S1")
def test_no_batch_after_a_hold_reads_the_held_topic(lake, controller):
    """The topic is paused under load, and no record is lost or duplicated."""
    over = threading.Event()
    producer = KafkaProducer(**lake.broker.client_config, linger_ms=5)
    sent = []

    def load():
        while not over.wait(0.005):
            for topic in (lake.orders, lake.returns):
                partition = len(sent) % lake.partitions
                sent.append(producer.send(topic, b"x", partition=partition))

    loader = threading.Thread(target=load)
    loader.start()
    query = lake.start(trigger={"processingTime": "0 seconds"})
    try:
        for toggle in range(10):
            controller.pause(lake.orders, reason=f"toggle {toggle}")
            controller.wait_quiet(lake.orders, timeout=LIMIT)
            held, flowing = lake.rows(lake.orders), lake.rows(lake.returns)
            for _ in range(2):  # batches that were planned after the pause
                until(lambda now=flowing: lake.rows(lake.returns) != now, query)
                flowing = lake.rows(lake.returns)
            assert controller.lag()[lake.orders, 0] > 0
            assert lake.rows(lake.orders) == held
            controller.resume(lake.orders)
            until(lambda now=held: lake.rows(lake.orders) != now, query)
    finally:
        over.set()
        loader.join()
    for future in sent:
        written = future.get(30)
        lake.expected[written.topic, written.partition, written.offset] += 1
    producer.close()
    until(lambda: lake.rows() == lake.produced(), query)
    query.stop()
