"""
A member on another client, in a process: ``python -m tests.harness.group.other_member``.

The member writes each record to a file before it reads the next, and ends at SIGTERM.
"""

import ast
import signal
import sys
import time
from weakref import WeakKeyDictionary

from safeconsumer import Control
from safeconsumer.clients.member import Member
from tests.harness.group import aiokafka, confluent


def main(client, settings, *more):
    prefix, topic, path, is_right = more
    if not ast.literal_eval(is_right):
        plant_a_fault()
    over = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(True))
    control = Control.prefixed(prefix, status_interval=0.5)
    how = {"control": control, "log": False}
    with made(client, ast.literal_eval(settings), how) as member:
        member.subscribe([topic])
        with open(path, "a", buffering=1, encoding="utf-8") as file:  # noqa: PTH123 - lines at once
            while not over:
                for records in member.poll(200).values():
                    file.writelines(
                        f"{time.time()} {one.partition} {one.offset}\n"
                        for one in records
                    )


def made(client, settings, how):
    if client == "confluent":
        return confluent.BlockingConsumer(confluent.Consumer(settings, **how))
    settings["partition_assignment_strategy"] = [
        aiokafka.ASSIGNORS[settings.pop("assignor")]
    ]
    loop = aiokafka.Loop().__enter__()
    consumer = loop.call(aiokafka.AIOKafkaConsumer, **settings, **how)
    return aiokafka.BlockingConsumer(loop, consumer)


def plant_a_fault():
    """Let members update quiet partitions when holds change, not after a rebalance."""
    quiet_now, found = Member.quiet, WeakKeyDictionary()

    def quiet(self):
        holds = self.ledger.view().holds
        if self not in found or found[self][0] != holds:
            found[self] = holds, quiet_now(self)
        return found[self][1]

    Member.quiet = quiet


if __name__ == "__main__":
    main(*sys.argv[1:])
