"""
One member in a process of its own: tells what it delivers and since when it owned it.

``python -m tests.system.group.fleet_member JSON``; a JSON line on stdout for each thing
told. SIGTERM: it leaves its group and says goodbye.
"""

import json
import signal
import sys
import threading
import time
from typing import Any

import attrs
from kafka import TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import Control, SafeConsumer
from safeconsumer.events.consumer import Event, RebalanceCompleted
from safeconsumer.group.barrier import Barrier
from safeconsumer.group.reader import Reader


class Teller:
    """Remembers since when each partition is owned, and prints."""

    def __init__(self) -> None:
        self._owned_since: dict[TopicPartition, float] = {}
        self._told = threading.Condition()

    def owned_since(self, tp: TopicPartition) -> float:
        """Return since when; waits for a thread that is still telling it."""
        with self._told:
            assert self._told.wait_for(lambda: tp in self._owned_since, 30.0), tp
            return self._owned_since[tp]

    def reassigned(self, change: Any) -> None:  # noqa: ANN401 - the ledger's own
        with self._told:
            for tp in change.gained:
                self._owned_since[TopicPartition(*tp)] = time.time()
            self._told.notify_all()

    def __call__(self, event: Event) -> None:
        if isinstance(event, RebalanceCompleted):
            self.say(generation=event.generation)

    def say(self, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        sys.stdout.write(json.dumps({"at": time.time(), **fields}) + "\n")
        sys.stdout.flush()


def spoil(options: dict[str, Any]) -> None:
    """Make the control view late, and leave the barrier out, if asked to."""
    late = options["late"]
    if late != 0:
        run = Reader._run
        told = threading.Event()

        def run_late(self: Reader) -> None:
            told.wait(late)
            run(self)

        def listen() -> None:
            sys.stdin.readline()
            told.set()

        threading.Thread(target=listen, daemon=True).start()
        Reader._run = run_late  # type: ignore[method-assign]  # a planted delay
    if not options["barrier"]:

        def open_at_once(self: Barrier, epochs: Any) -> None:  # noqa: ANN401 - a mapping
            threading.Thread(target=self._ledger.open_gates, args=(epochs,)).start()

        Barrier.close = open_at_once  # type: ignore[method-assign]  # a planted fault


def main() -> None:
    """Poll until told to stop."""
    options = json.loads(sys.argv[1])
    spoil(options)
    teller, over = Teller(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    assignor = (
        CooperativeStickyAssignor if options["cooperative"] else RangePartitionAssignor
    )
    consumer = SafeConsumer(
        options["topic"],
        group_id=options["group"],
        client_id=options["name"],
        auto_offset_reset="latest" if options["latest"] else "earliest",
        partition_assignment_strategy=[assignor],
        control=attrs.evolve(Control(start_timeout=0.0), **options["control"]),
        hooks=(teller,),
        **options["client"],
    )
    consumer._safe_ledger.on_reassigned = teller.reassigned
    teller.say(started=options["name"])
    was: tuple[int, int] = (0, 0)
    while not over.is_set():
        for tp, records in consumer.poll(100).items():
            teller.say(
                partition=tp.partition,
                records=len(records),
                since=teller.owned_since(tp),
            )
        now = (len(consumer.assignment()), len(consumer.paused()))
        if now != was:
            was = now
            teller.say(owned=now[0], quiet=now[1])
    consumer.close()
    teller.say(ended=options["name"])


if __name__ == "__main__":
    main()
