"""A member as a process, which is killed: it writes down each record that it gets."""

import json
import sys

from kafka.coordinator.assignors.cooperative_sticky import (
    CooperativeStickyAssignor,
)
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import Control, SafeConsumer

ASSIGNORS = {
    "eager": RangePartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}


def main():
    path, assignor, prefix, configs = sys.argv[1:]
    with open(path, "a", buffering=1) as written:  # noqa: PTH123 - of lines, unbuffered
        consumer = SafeConsumer(
            **json.loads(configs),
            auto_commit_interval_ms=200,
            auto_offset_reset="earliest",
            control=Control.prefixed(prefix, status_interval=0.5),
            partition_assignment_strategy=[ASSIGNORS[assignor]],
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        consumer.subscribe([json.loads(configs)["client_id"].partition("@")[2]])
        while True:
            for records in consumer.poll(200).values():
                written.writelines(f"{one.partition} {one.offset}\n" for one in records)


if __name__ == "__main__":
    main()
