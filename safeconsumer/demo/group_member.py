"""
Runs one member of the scenario ``group``, in its own process.

``python -m safeconsumer.demo.group_member JSON``. Each line on stdin is a
word: ``pause`` and ``resume`` are for the stock client, whose program needs the order;
``end`` leaves the group. Each line on stdout is what happened, as JSON.
"""

import json
import sys
import threading
from collections.abc import Iterable
from typing import Any

import attrs
import kafka.errors as kafka_errors
from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition

from safeconsumer.consumer import SafeConsumer
from safeconsumer.group.settings import Control

# Longer than a join takes: the stock client forgets one that outlasts its poll.
_POLL_MS = 1000


class Program:
    """What a program does that consumes, and that is paused by somebody."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        version = options["configs"].get("api_version")
        if version is not None:  # JSON has no tuples
            options["configs"]["api_version"] = tuple(version)
        self._is_safe = options["client"] == "safe"
        self._words: list[str] = []
        self._is_paused = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._words.append(line.strip())
        self._words.append("end")  # whoever started us is gone

    def run(self) -> None:
        """Consume until the order to end comes."""
        consumer = self._make()
        consumer.subscribe([self._options["topic"]], listener=_Repause(self, consumer))
        seen: tuple[set[TopicPartition], set[TopicPartition]] = (set(), set())
        while "end" not in self._words:
            self._obey(consumer)
            batches = consumer.poll(_POLL_MS, max_records=10)
            now = (set(consumer.assignment()), set(consumer.paused()))
            if batches or now != seen:
                seen = now
                self._say(
                    owned=sorted(tp.partition for tp in now[0]),
                    quiet=sorted(tp.partition for tp in now[1]),
                    delivered={
                        tp.partition: [record.offset for record in records]
                        for tp, records in batches.items()
                    },
                )
            if batches:
                self._commit(consumer, batches)
        consumer.close(autocommit=False, timeout_ms=2000)

    def _make(self) -> Any:  # noqa: ANN401 - either client
        if not self._is_safe:
            return KafkaConsumer(**self._options["configs"])
        control = attrs.evolve(Control(), **self._options["control"])
        return SafeConsumer(log=False, control=control, **self._options["configs"])

    def _obey(self, consumer: Any) -> None:  # noqa: ANN401 - either client
        while self._words and self._words[0] != "end":
            self._is_paused = self._words.pop(0) == "pause"
            if self._is_paused:
                consumer.pause(*consumer.assignment())
            else:
                consumer.resume(*consumer.paused())

    def repause(self, consumer: Any, assigned: Iterable[TopicPartition]) -> None:  # noqa: ANN401 - either client
        """Pause what was gained, as a careful program does with the stock client."""
        if self._is_paused:
            consumer.pause(*assigned)

    def _commit(self, consumer: Any, batches: Iterable[TopicPartition]) -> None:  # noqa: ANN401 - either client
        positions = {tp.partition: consumer.position(tp) for tp in batches}
        try:
            consumer.commit(timeout_ms=1000)
        except kafka_errors.KafkaError:
            return  # a rebalance is under way: the next owner reads it again
        self._say(committed=positions)

    def _say(self, **fields: Any) -> None:  # noqa: ANN401 - JSON values
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


class _Repause(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python ships no type information
    def __init__(self, program: Program, consumer: Any) -> None:  # noqa: ANN401 - either client
        self._program = program
        self._consumer = consumer

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._program.repause(self._consumer, assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Nothing to do."""


if __name__ == "__main__":
    Program(json.loads(sys.argv[1])).run()
