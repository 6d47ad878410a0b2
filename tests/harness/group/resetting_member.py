"""
A member as a process: it prints each record that it gets, as a line of JSON.

The member leaves the group when its stdin ends.
"""

import json
import sys
import threading

from kafka.coordinator.assignors.cooperative_sticky import (
    CooperativeStickyAssignor,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import Control, SafeConsumer
from safeconsumer._kafka.resetting import Resetting
from safeconsumer.holds.resets import Resets

ASSIGNORS = {
    "eager": RangePartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}


def plant_a_fault():
    """Let no reset end with its hold: each new owner moves the partition again."""
    begin = Resets.begin

    def goes_on(self, wanted):
        begin(self, {**self.targets, **wanted})

    Resets.end = lambda *_: None
    Resets.begin = goes_on
    Resetting._obstacles = lambda _: {}


def say(**what):
    print(json.dumps(what), flush=True)  # noqa: T201 - a program prints


def main():
    assignor, prefix, topics, is_right, configs = map(json.loads, sys.argv[1:])
    if not is_right:
        plant_a_fault()
    is_over = threading.Event()

    def wait_for_the_end():
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
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
    consumer.close()


if __name__ == "__main__":
    main()
