"""
Prints as JSON how the installed kafka-python, 2.3 or later, behaves.

``python versions.py HOST:PORT TOPIC``; the topic has one partition and one record.
"""

# ruff: noqa: BLE001 - any error is a result

import inspect
import json
import logging
import sys
import threading

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor as Assignor
from kafka.errors import KafkaError

logging.disable(logging.CRITICAL)


def _raised(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return None


def _find_no_broker():
    given = {"bootstrap_timeout_ms": 500}  # kafka-python 3.0 has this setting
    given = {key: given[key] for key in given if key in KafkaConsumer.DEFAULT_CONFIG}
    KafkaConsumer(bootstrap_servers="127.0.0.1:1", **given).topics()


class _Listener(ConsumerRebalanceListener):
    """A listener that records its thread, commits, and raises an error."""

    def __init__(self, found):
        self.found = found
        self.consumer = None

    def on_partitions_assigned(self, assigned):
        del assigned
        here = threading.current_thread() is threading.main_thread()
        self.found["listener runs on the thread of poll"] = here
        self.found["commit in a listener"] = _raised(self.consumer.commit)
        raise ValueError

    def on_partitions_revoked(self, revoked):
        """Do nothing."""


def main(bootstrap, topic):
    found = {
        "session_timeout_ms": KafkaConsumer.DEFAULT_CONFIG["session_timeout_ms"],
        "acks": KafkaProducer.DEFAULT_CONFIG["acks"],
        "idempotent": bool(KafkaProducer.DEFAULT_CONFIG.get("enable_idempotence")),
        "KafkaError is": KafkaError.__bases__[0].__name__,
        "kafka.sasl": _raised(lambda: __import__("kafka.sasl")),
        "kafka.net.sasl": _raised(lambda: __import__("kafka.net.sasl")),
        "no broker": _raised(_find_no_broker),
        "on_assignment": [*inspect.signature(Assignor.on_assignment).parameters],
    }
    listener = _Listener(found)
    listener.consumer = consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest"
    )
    consumer.subscribe([topic], listener=listener)

    def poll():
        while "commit in a listener" not in found:
            consumer.poll(timeout_ms=500)
        consumer.poll(timeout_ms=2000)

    found["what a listener raises"] = _raised(poll)
    consumer.close()
    print(json.dumps(found))  # noqa: T201 - the program's output


if __name__ == "__main__":
    main(*sys.argv[1:])
