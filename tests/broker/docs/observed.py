"""Makes any version of kafka-python lose a pause: ``python observed.py BOOTSTRAP``."""

import json
import logging
import sys
import threading
from itertools import islice

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from observe import ObservedPauses

TP = TopicPartition("orders", 0)


class Consumer(ObservedPauses, KafkaConsumer):
    """The consumer from the example's docstring."""


class Lines(logging.Handler):
    count = 0

    def emit(self, _record):
        self.count += 1


def gained(bootstrap):
    """Pause all assigned partitions, and gain a partition when the other member leaves."""
    settings = {
        "bootstrap_servers": bootstrap,
        "group_id": "billing",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    consumer, other = Consumer("bills", **settings), KafkaConsumer("bills", **settings)
    # Fetch the metadata first: a leader that joins without the topic's metadata joins
    # again once it has the metadata, and kafka-python 3.0 forgets that join if a poll
    # returns before the join completes.
    for member in (consumer, other):
        assert member.partitions_for_topic("bills") == {0, 1}
    is_shared = threading.Event()

    def poll_other():
        while not is_shared.is_set():
            other.poll(500)

    # Poll the other member on a thread, because in kafka-python 2.0 a poll waits until
    # both members have joined.
    polling = threading.Thread(target=poll_other)
    polling.start()
    while not len(consumer.assignment()) == len(other.assignment()) == 1:
        consumer.poll(500)
    is_shared.set()
    polling.join()
    (given_up,) = other.assignment()
    consumer.pause(*consumer.assignment())
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(5):
        producer.send("bills", b"%d" % number, partition=given_up.partition)
    producer.close()
    other.close(autocommit=False)
    came = 0
    while came < 5:
        came += len(consumer.poll(1000).get(given_up, []))
    counted = consumer.leaked[given_up]
    consumer.resume(*consumer.assignment())
    consumer.close(autocommit=False)
    return {"counted": counted, "came": came}


def main(bootstrap):
    """Print, for each step, how many records were delivered and how many were counted."""
    lines = Lines()
    logging.getLogger("observe").addHandler(lines)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic("orders", 1, 1), NewTopic("bills", 2, 1)])
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=5000,
    )

    def write():
        for number in range(5):
            producer.send("orders", b"%d" % number)
        producer.flush()

    def polled(tries):
        came = 0
        while came < 5 and tries:
            came += sum(map(len, consumer.poll(timeout_ms=1000).values()))
            tries -= 1
        return {"counted": sum(consumer.leaked.values()), "came": came}

    counts = {}
    consumer.assign([TP])
    consumer.pause(TP)
    write()
    counts["paused"] = polled(2)
    # This clears the paused flag, as a rebalance would.
    consumer._subscription.resume(TP)
    counts["leaked"] = polled(20)
    write()
    came = len(list(islice(consumer, 5)))
    counts["iterated"] = {"counted": sum(consumer.leaked.values()), "came": came}
    consumer.resume(TP)
    write()
    counts["resumed"] = polled(20)
    counts["lines"] = lines.count
    counts["gained"] = gained(bootstrap)
    consumer.close()
    producer.close()
    admin.close()
    print(json.dumps(counts))  # noqa: T201 - the program's output


main(sys.argv[1])
