"""
Counts the records that kafka-python delivers of partitions that a program has paused.

Copy this file; it needs kafka-python 2.0 or newer, and nothing else. Consumers do what
they did, as ``class Consumer(ObservedPauses, KafkaConsumer): pass``.

Each pause that leaks is a line in the log, once. ``consumer.leaked`` has the records by
partition; with prometheus-client, so has a counter:

    ObservedPauses.counter = prometheus_client.Counter(
        "paused_records_delivered", "Records of paused partitions.", ["topic"]
    )
"""

import logging

from kafka import TopicPartition

log = logging.getLogger(__name__)


class ObservedPauses:
    """
    A mixin before ``KafkaConsumer``: what the program paused, and what came of it.

    A partition counts as paused from ``pause`` until ``resume``, ``assign`` or
    ``unsubscribe``. What ``poll(update_offsets=False)`` returns is not counted: it comes
    again. Use it from the thread that polls.
    """

    counter = None

    def __init__(self, *topics, **configs):
        self.leaked = {}
        self._believed, self._told = set(), set()
        super().__init__(*topics, **configs)

    def pause(self, *partitions):
        super().pause(*partitions)
        self._believed.update(partitions)

    def resume(self, *partitions):
        super().resume(*partitions)
        self._forget(partitions)

    def assign(self, partitions):
        super().assign(partitions)
        self._forget(set(self._believed))

    def unsubscribe(self):
        super().unsubscribe()
        self._forget(set(self._believed))

    def poll(self, timeout_ms=0, max_records=None, update_offsets=True):
        found = super().poll(timeout_ms, max_records, update_offsets)
        for tp in self._believed & set(found) if update_offsets else ():
            self._saw(tp, len(found[tp]))
        return found

    def __next__(self):
        record = super().__next__()
        tp = TopicPartition(record.topic, record.partition)
        if tp in self._believed:
            self._saw(tp, 1)
        return record

    def _forget(self, partitions):
        self._believed.difference_update(partitions)
        self._told.difference_update(partitions)

    def _saw(self, tp, count):
        self.leaked[tp] = self.leaked.get(tp, 0) + count
        if self.counter is not None:
            self.counter.labels(tp.topic).inc(count)
        if tp not in self._told:
            self._told.add(tp)
            log.warning("records of %s were delivered though it was paused", tp)
