"""Wraps kafka-python's own consumer, journals its calls, and keeps a list of its holds."""

from kafka import ConsumerRebalanceListener

from safeconsumer.journal.deliveries import Deliveries
from safeconsumer.journal.format import tp_text
from safeconsumer.journal.recorder import Recorder
from tests.harness.scopes import covers


class StockConsumer(ConsumerRebalanceListener):
    """
    kafka-python's consumer in a program that keeps its own list of holds.

    A hold pauses the partitions that are assigned when it is placed. A resume skips the
    partitions that another hold in this list covers. Partitions that are assigned later
    are not paused.
    """

    def __init__(self, consumer, journal, group):
        self._consumer = consumer
        self._recorder = Recorder(journal, "", group)
        self._deliveries = Deliveries(journal)
        self._holds = set()

    def __getattr__(self, name):
        return getattr(self._consumer, name)

    def poll(self, timeout_ms, max_records):
        began = self._recorder.began()
        polled = self._consumer.poll(timeout_ms, max_records=max_records)
        for tp, records in polled.items():
            self._deliveries.write(tp, records, began)
        return polled

    def pause_all(self, *, owner, for_):
        self.pause("@all", owner=owner, for_=for_, lifetime=None)

    def pause(self, scope, *, owner, for_, lifetime):
        del for_, lifetime  # a soak places no holds with time limits on this client
        with self._recorder.calling("pause", {"scopes": [scope], "owner": owner}):
            self._holds.add((scope, owner))
            self._consumer.pause(*self._assigned(scope))

    def resume(self, scope, *, owner):
        with self._recorder.calling("resume", {"scopes": [scope], "owner": owner}):
            self._holds.discard((scope, owner))
            others = [other for other, _ in self._holds]
            self._consumer.resume(
                *(
                    tp
                    for tp in self._assigned(scope)
                    if not any(covers(other, tp) for other in others)
                )
            )

    def _assigned(self, scope):
        return [tp for tp in self._consumer.assignment() if covers(scope, tp)]

    def commit(self, offsets, timeout_ms):
        by_name = {tp_text(tp): one.offset for tp, one in offsets.items()}
        with self._recorder.calling("commit", {"offsets": by_name}):
            self._consumer.commit(offsets, timeout_ms=timeout_ms)

    def subscribe(self, *, pattern, listener):
        del listener
        self._consumer.subscribe(pattern=pattern, listener=self)

    def on_partitions_assigned(self, assigned):
        self._write("assigned", assigned)

    def on_partitions_revoked(self, revoked):
        self._write("revoked", revoked)

    def on_partitions_lost(self, lost):
        self._write("lost", lost)

    def _write(self, event, partitions):
        self._deliveries.forget(partitions)
        if partitions:
            fields = {
                "partitions": sorted(map(tp_text, partitions)),
                "generation": self._consumer.group_metadata().generation_id,
            }
            self._recorder.write(event, fields)
