"""Writes to every partition, and journals each record once all replicas have it."""

import threading
from collections import defaultdict
from itertools import groupby, product

import confluent_kafka

from safeconsumer.journal.writer import JournalWriter
from tests.system.soak.settings import PARTITIONS, TOPICS

_BURST = 1.0  # seconds between two bursts
_FLUSH = 60.0
_SETTINGS = {
    "client.id": "producer",
    "log_level": 0,
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 20,
    "delivery.timeout.ms": 120_000,
    "reconnect.backoff.max.ms": 1000,
}


class Producer:
    """
    Writes bursts of records on its own thread, until :meth:`end`.

    Attributes:
        acknowledged: the number of records that all replicas have.
        unanswered: the number of records that no broker has acknowledged one minute
            after the last write.
    """

    def __init__(self, bootstrap, rate, journals):
        self.acknowledged = self.unanswered = 0
        self._count = round(rate * _BURST)
        self._journal = JournalWriter(journals, member="producer")
        self._offsets = defaultdict(list)  # acknowledged, not yet journaled
        self._client = confluent_kafka.Producer(
            {**_SETTINGS, "bootstrap.servers": bootstrap}
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="producer", daemon=True)
        self._thread.start()

    def end(self):
        """Stop writing, and wait until all records are acknowledged or the time is up."""
        self._over.set()
        self._thread.join()

    def _run(self):
        partitions = [*product(TOPICS, range(PARTITIONS))]
        sent = 0
        while not self._over.wait(_BURST):
            for number in range(sent, sent := sent + self._count):
                topic, partition = partitions[number % len(partitions)]
                self._write(topic, partition, b"%d" % number)
            self._client.poll(0)
            self._write_journal()
        self.unanswered = self._client.flush(_FLUSH)
        self._write_journal()

    def _write(self, topic, partition, value):
        try:
            self._client.produce(
                topic, value, partition=partition, callback=self._answered
            )
        except (confluent_kafka.KafkaException, BufferError):
            # too many records are in flight
            self._client.poll(0.1)

    def _answered(self, error, message):
        if error is None:
            self.acknowledged += 1
            name = f"{message.topic()}:{message.partition()}"
            self._offsets[name].append(message.offset())

    def _write_journal(self):
        for name, offsets in self._offsets.items():
            numbered = enumerate(sorted(offsets))
            for _, run in groupby(numbered, lambda pair: pair[1] - pair[0]):
                (_, first), *more = run
                last = more[-1][1] if more else first
                fields = {"tp": name, "first": first, "last": last}
                self._journal.write("acked", fields)
        self._offsets.clear()
