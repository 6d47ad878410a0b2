"""Journals what kafka-python's own consumer does, for the soak, which judges it too."""

from kafka import ConsumerRebalanceListener

from safeconsumer.holds import scope as scopes
from safeconsumer.journal.deliveries import Deliveries
from safeconsumer.journal.format import scope_text, tp_text
from safeconsumer.journal.recorder import Recorder


class Recorded:
    """
    Passes calls on to a consumer, and journals its polls, pauses and commits.

    It sees rebalances through the listener of :meth:`subscribe`.

    Args:
        consumer: the consumer that does the work.
        journal: the journal.
        group: the consumer's group.
        generation: returns the group's generation.
    """

    def __init__(self, consumer, journal, group, generation):
        self._consumer = consumer
        self._generation = generation
        self._recorder = Recorder(journal, "", group)
        self._came = Deliveries(journal)

    def __getattr__(self, name):
        return getattr(self._consumer, name)

    def poll(self, timeout_ms):
        began = self._recorder.began()
        polled = self._consumer.poll(timeout_ms)
        for tp, records in polled.items():
            self._came.write(tp, records, began)
        return polled

    def pause(self, *targets, owner):
        with self._calling("pause", targets, owner):
            self._consumer.pause(*targets, owner=owner)

    def pause_all(self, *, owner):
        with self._calling("pause", ["@all"], owner):
            self._consumer.pause_all(owner=owner)

    def resume(self, *targets, owner):
        with self._calling("resume", targets, owner):
            self._consumer.resume(*targets, owner=owner)

    def _calling(self, op, targets, owner):
        names = [scope_text(scopes.of(one)) for one in targets]
        return self._recorder.calling(op, {"scopes": names, "owner": owner})

    def commit(self, offsets, timeout_ms):
        by_name = {tp_text(tp): one.offset for tp, one in offsets.items()}
        with self._recorder.calling("commit", {"offsets": by_name}):
            self._consumer.commit(offsets, timeout_ms=timeout_ms)

    def subscribe(self, *, pattern):
        self._consumer.subscribe(pattern=pattern, listener=_Listener(self._owned))

    def _owned(self, event, partitions):
        self._came.forget(partitions)
        if partitions:
            names = sorted(map(tp_text, partitions))
            fields = {"partitions": names, "generation": self._generation()}
            self._recorder.write(event, fields)


class _Listener(ConsumerRebalanceListener):
    def __init__(self, owned):
        self._owned = owned

    def on_partitions_revoked(self, revoked):
        self._owned("revoked", revoked)

    def on_partitions_assigned(self, assigned):
        self._owned("assigned", assigned)

    def on_partitions_lost(self, lost):
        self._owned("lost", lost)
