"""
The producer in a process of its own: ``python -m tests.system.soak.producer JSON``.

Writes in bursts to every partition there is, and journals each record that all replicas
have. A line on stdout per second: how many those are. Ends when its stdin ends.
"""

import json
import sys
import threading
import time
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient

from safeconsumer.journal.writer import JournalWriter

_BURST = 1.0
_LOOK_FOR_TOPICS = 3.0
_JOURNAL_EVERY = 1.0
_FLUSH = 60.0
_TROUBLE = (confluent_kafka.KafkaException, BufferError)


class Acknowledged:
    """The runs of acknowledged offsets that are not in the journal yet."""

    def __init__(self, journal):
        self._journal = journal
        self._runs = {}
        self.count = 0  # how many records were acknowledged

    def note(self, topic, partition, offset):
        """Take note of a record; a run that it does not continue is journaled."""
        self.count += 1
        name = f"{topic}:{partition}"
        first, last = self._runs.get(name, (offset, offset - 1))
        if offset != last + 1:
            self._write(name, first, last)
            first = offset
        self._runs[name] = first, offset

    def tell(self):
        """Journal every run, as far as it goes now."""
        for name, (first, last) in self._runs.items():
            self._write(name, first, last)
        self._runs.clear()

    def _write(self, name, first, last):
        self._journal.write("acked", {"tp": name, "first": first, "last": last})


class Producer:
    """Writes at a rate, whatever becomes of the brokers."""

    def __init__(self, options):
        self._rate = options["rate"]
        journal = JournalWriter(Path(options["journals"]), member="producer")
        self._acknowledged = Acknowledged(journal)
        reach = {
            "bootstrap.servers": options["bootstrap"],
            "client.id": "producer",
            "log_level": 0,
            "topic.metadata.refresh.interval.ms": 2000,
        }
        self._producer = confluent_kafka.Producer(
            {
                **reach,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 20,
                "delivery.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 1000,
            }
        )
        self._admin = AdminClient(reach)
        self._partitions = []
        self._sent = self._refused = 0

    def run(self, over):
        """Write until told to end, and wait for what is on its way."""
        look_at = journal_at = 0.0
        while not over.wait(_BURST):
            now = time.monotonic()
            if now >= look_at:
                look_at = now + _LOOK_FOR_TOPICS
                self._look()
            self._send(round(self._rate * _BURST))
            self._producer.poll(0)
            if now >= journal_at:
                journal_at = now + _JOURNAL_EVERY
                self._tell()
        left = self._producer.flush(_FLUSH)
        self._tell(over=True, unanswered=left)

    def _look(self):
        try:
            topics = self._admin.list_topics(timeout=5).topics
        except confluent_kafka.KafkaException:
            return  # later
        self._partitions = sorted(
            (name, number)
            for name, topic in topics.items()
            if name.startswith("soak-")
            for number in topic.partitions
        )

    def _send(self, count):
        if not self._partitions:
            return
        for _ in range(count):
            self._sent += 1
            topic, number = self._partitions[self._sent % len(self._partitions)]
            try:
                self._producer.produce(
                    topic, b"%d" % self._sent, partition=number, callback=self._answered
                )
            except _TROUBLE:  # too much is on its way, or it does not know the topic
                self._producer.poll(0.1)

    def _answered(self, error, message):
        if error is not None:
            self._refused += 1
            return
        self._acknowledged.note(message.topic(), message.partition(), message.offset())

    def _tell(self, **more):
        self._acknowledged.tell()
        count = self._acknowledged.count
        said = {"acknowledged": count, "refused": self._refused, **more}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def main():
    over = threading.Event()

    def listen():
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    Producer(json.loads(sys.argv[1])).run(over)


if __name__ == "__main__":
    main()
