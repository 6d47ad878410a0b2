"""
A member under control in a process of its own: says when it obeys, and when it reads.

``python -m tests.bench.arms.group_member JSON``: ``busy`` keeps its thread computing
between two polls, as handlers do. Times are of the machine's monotonic clock.
"""

import json
import sys
import time

import attrs

from safeconsumer import Control, SafeConsumer
from safeconsumer.events.consumer import HoldsPlaced, HoldsRemoved

_BUSY_SECONDS = 0.005


def main():
    options = json.loads(sys.argv[1])
    began = time.monotonic()

    def tell(event):
        if isinstance(event, HoldsPlaced | HoldsRemoved):
            say(event=event.name)

    client, control = options["client"], options["control"]
    if "api_version" in client:  # the embedded broker's; JSON has no tuples
        client["api_version"] = tuple(client["api_version"])
    consumer = SafeConsumer(
        options["topic"],
        group_id=options["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        control=None if control is None else attrs.evolve(Control(), **control),
        hooks=(tell,),
        **client,
    )
    first = False
    deadline = time.monotonic() + options["seconds"]
    while time.monotonic() < deadline:
        if options["busy"]:
            until = time.monotonic() + _BUSY_SECONDS
            while time.monotonic() < until:
                pass
        records = consumer.poll(0 if options["busy"] else 200)
        if records and not first:
            first = True
            say(first=time.monotonic() - began)
        if records:
            say(records=sum(map(len, records.values())))
    consumer.close()


def say(**fields):
    sys.stdout.write(json.dumps({"at": time.monotonic(), **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
