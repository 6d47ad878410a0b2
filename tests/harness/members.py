"""Polls consumers in the background while a test does something else."""

import threading

from tests.harness.waiting import end_of
from tests.sim.threads import world


class Polled:
    """
    Polls consumers, each on its own thread, until the ``with`` block exits.

    This class drops the records; a subclass may keep them.
    """

    def __init__(self, *consumers):
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._poll, args=(one,), daemon=True)
            for one in consumers
        ]

    def __enter__(self):
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        for one in self._threads:
            end_of(one)

    def _poll(self, consumer):
        # In a simulation the polls are long, because each poll costs CPU time, while a
        # late exit from the block costs only virtual time.
        milliseconds = 50 if world() is None else 500
        while not self._over.is_set():
            self.keep(consumer.poll(milliseconds))

    def keep(self, polled):
        """Drop the records that a poll returned."""


def is_shared_out(consumers, partitions):
    """Return whether each partition has one owner, and each consumer owns a partition."""
    owned = [one.assignment() for one in consumers]
    return all(owned) and sorted(tp for own in owned for tp in own) == sorted(
        partitions
    )


def has_positions(consumer):
    """
    Return whether a consumer has a position for each partition that it owns.

    A commit omits partitions without a position.
    """
    states = tuple(consumer._subscription.assignment.values())
    return all(one.position is not None for one in states)


class Librdkafka:
    """
    A group member that uses confluent-kafka; only one thread polls it.

    Attributes:
        records: the partition and offset of every received record.
        owned: the member's partitions after the last poll. Tests read this attribute
            because a call of ``assignment()`` on another thread would block in
            librdkafka.
    """

    def __init__(self, broker, group, topic, assignor):
        import confluent_kafka  # noqa: PLC0415 - of the extra ``ci``

        self.records, self.owned = [], set()
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": assignor,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
            }
        )
        self.consumer.subscribe([topic])

    def poll(self, timeout_ms):
        one = self.consumer.poll(timeout_ms / 1000)
        if one is not None and one.error() is None:
            self.records.append((one.partition(), one.offset()))
        self.owned = {one.partition for one in self.consumer.assignment()}

    def offsets(self, partition):
        return [offset for number, offset in self.records if number == partition]
