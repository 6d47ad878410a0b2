"""A program whose pause leaks: ``python observed.py BOOTSTRAP``, any kafka-python."""

import json
import logging
import sys
from itertools import islice

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from observe import ObservedPauses

TP = TopicPartition("orders", 0)


class Consumer(ObservedPauses, KafkaConsumer):
    """The consumer of the example's docstring."""


class Lines(logging.Handler):
    count = 0

    def emit(self, _record):
        self.count += 1


def main(bootstrap):
    """Run the program, and print its records and counters."""
    lines = Lines()
    logging.getLogger("observe").addHandler(lines)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic("orders", 1, 1)])
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

    said = {}
    consumer.assign([TP])
    consumer.pause(TP)
    write()
    said["paused"] = polled(2)
    # Behind the program's back, as a rebalance does it: the flag goes with the ownership.
    consumer._subscription.resume(TP)
    said["leaked"] = polled(20)
    write()
    came = len(list(islice(consumer, 5)))
    said["iterated"] = {"counted": sum(consumer.leaked.values()), "came": came}
    consumer.resume(TP)
    write()
    said["resumed"] = polled(20)
    said["lines"] = lines.count
    consumer.close()
    producer.close()
    admin.close()
    print(json.dumps(said))  # noqa: T201 - the answer


main(sys.argv[1])
