"""Runs members on any client as processes that print each record they receive."""

import json
import sys
import threading
import time
from weakref import WeakKeyDictionary

from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import Control, SafeConsumer
from safeconsumer._kafka.resetting import Resetting
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.resets import Resets
from tests.harness.processes import Process, module

_STRATEGY = "partition_assignment_strategy"
_ASSIGNORS = {
    "eager": RangePartitionAssignor,
    "cooperative": CooperativeStickyAssignor,
}


class PrintingMember(Process):
    """
    A member in its own process that leaves the group when its stdin is closed.

    The member prints a record before it polls for the next one. A line contains the
    time, the topic, the partition and the offset.

    Args:
        client: ``kafka-python``, ``confluent`` or ``aiokafka``.
        settings: the client's settings; for kafka-python the assignor is ``eager`` or
            ``cooperative``.
        prefix: the prefix of the control topics.
        topics: the topics to subscribe to.
        is_right: if False, a fault is planted in the member.
        how: further arguments of ``Process``.
    """

    def __init__(self, client, settings, prefix, topics, *, is_right=True, **how):
        given = json.dumps([client, settings, prefix, topics, is_right])
        command = module("tests.harness.group.printing", given)
        super().__init__(command, **{"read": json.loads, **how})


def made(client, settings, how):
    """Make a member on this client; the member has kafka-python's methods."""
    if client == "kafka-python":
        settings[_STRATEGY] = [_ASSIGNORS[settings[_STRATEGY]]]
        return SafeConsumer(**settings, **how)
    if client == "confluent":
        from tests.harness.group import confluent  # noqa: PLC0415 - of the extra ``ci``

        return confluent.BlockingConsumer(confluent.Consumer(settings, **how))
    from tests.harness.group import aiokafka  # noqa: PLC0415 - of the extra ``ci``

    settings[_STRATEGY] = [aiokafka.ASSIGNORS[settings[_STRATEGY]]]
    loop = aiokafka.Loop().__enter__()
    consumer = loop.call(aiokafka.AIOKafkaConsumer, **settings, **how)
    return aiokafka.BlockingConsumer(loop, consumer)


def let_no_reset_end():
    """Plant a fault in members on kafka-python: each new owner repeats a reset."""
    begin = Resets.begin

    def goes_on(self, wanted):
        begin(self, {**self.targets, **wanted})

    Resets.end = lambda *_: None
    Resets.begin = goes_on
    Resetting._obstacles = lambda _: {}


def forget_gained_partitions():
    """Plant a fault in the other members: gained partitions do not become quiet."""
    quiet_now, found = PauseLedger.quiet, WeakKeyDictionary()

    def quiet(self):
        holds = self.view().holds
        if self not in found or found[self][0] != holds:
            found[self] = holds, quiet_now(self)
        return found[self][1]

    PauseLedger.quiet = quiet


def main():
    client, settings, prefix, topics, is_right = json.loads(sys.argv[1])
    if not is_right and client == "kafka-python":
        let_no_reset_end()
    elif not is_right:
        forget_gained_partitions()
    is_over = threading.Event()

    def wait_for_the_end():
        sys.stdin.read()
        is_over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    control = Control.prefixed(prefix, status_interval=0.3)
    member = made(client, settings, {"control": control, "log": False})
    member.subscribe(topics)
    while not is_over.is_set():
        for records in member.poll(200).values():
            for one in records:
                line = json.dumps([time.time(), one.topic, one.partition, one.offset])
                print(line, flush=True)  # noqa: T201 - a program prints
    member.close()


if __name__ == "__main__":
    main()
