"""
A member as a process: it says each record that it gets, and commits what it is told to.

It hears lines of JSON, each the offsets that a thread of the program's own commits late;
it leaves where its stdin ends.
"""

import json
import sys
import threading
from queue import SimpleQueue

from kafka.coordinator.assignors.cooperative_sticky import (
    CooperativeStickyAssignor,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import CommitFailedError
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import Control, SafeConsumer
from safeconsumer._kafka.resetting import Resetting
from safeconsumer.holds.resets import Resets

ASSIGNORS = {
    "eager": RangePartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}


def plant_a_fault():
    """Let no reset end with its hold: whoever gains a partition moves it again."""
    begin = Resets.begin

    def goes_on(self, wanted):
        begin(self, {**self.targets, **wanted})

    Resets.end = lambda *_: None
    Resets.begin = goes_on
    Resetting._obstacles = lambda _: {}


def say(**what):
    print(json.dumps(what), flush=True)  # noqa: T201 - a program prints


def commit(consumer, offsets):
    for topic, partition, offset in offsets:
        late = {TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)}
        try:
            consumer.commit(late, timeout_ms=5000)
        except CommitFailedError as error:
            say(refused=type(error).__name__)
        else:
            say(refused=None)


def main():
    assignor, prefix, topics, is_right, configs = map(json.loads, sys.argv[1:])
    if not is_right:
        plant_a_fault()
    heard, is_over = SimpleQueue(), threading.Event()

    def hear():
        for line in sys.stdin:
            heard.put(json.loads(line))
        is_over.set()

    threading.Thread(target=hear, daemon=True).start()
    consumer = SafeConsumer(
        **configs,
        auto_commit_interval_ms=200,
        auto_offset_reset="earliest",
        control=Control.prefixed(prefix, status_interval=0.5),
        partition_assignment_strategy=[ASSIGNORS[assignor]],
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )
    consumer.subscribe(topics)
    while not is_over.is_set():
        for records in consumer.poll(200).values():
            for one in records:
                say(record=[one.topic, one.partition, one.offset])
        while not heard.empty():
            commit(consumer, heard.get())
    consumer.close()


if __name__ == "__main__":
    main()
