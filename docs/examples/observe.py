"""
Counts the records that kafka-python delivers from partitions that a program has paused.

Copy this file; it needs only kafka-python 2.0 or newer. Declare your consumer as
``class Consumer(ObservedPauses, KafkaConsumer): pass``; it behaves as before.

``consumer.leaked`` has the number of leaked records for each partition, and each pause
that leaks records is logged once. ``consumer.silent`` has the partitions that were
resumed but do not deliver any records. With prometheus-client you can count leaked
records:

    ObservedPauses.counter = prometheus_client.Counter(
        "paused_records_delivered", "Records of paused partitions.", ["topic"]
    )
"""

import logging
import time

from kafka import TopicPartition

log = logging.getLogger(__name__)


class ObservedPauses:
    """
    A mixin for ``KafkaConsumer`` that observes whether a program's pauses work.

    A partition counts as paused from ``pause`` until ``resume``, ``assign`` or
    ``unsubscribe``, or until a rebalance does not assign it again. If the program
    paused all partitions of a topic that ``assignment()`` returned, the whole topic
    counts as paused until the next ``resume``, including partitions that the program
    gains later. Records of ``poll(update_offsets=False)`` are not counted, because they
    are delivered again.

    Attributes:
        leaked: by partition, the number of records delivered while it was paused.
        silent: by partition, the number of waiting records, if the partition was
            resumed at least ``silent_after`` seconds ago and has not delivered any
            record since.
        counter: counts leaked records by topic, if it is set.
        silent_after: the time in seconds after which a partition counts as silent.
    """

    counter = None
    silent_after = 60.0

    def __init__(self, *topics, **configs):
        self.leaked, self.silent = {}, {}
        self._paused_by_name = set()
        self._paused_topics = set()
        # Maps the set of all assigned partitions of a topic to those that were paused
        # since the last poll.
        self._named = {}
        # The times at which partitions were resumed; removed when they deliver a
        # record.
        self._resumed_at = {}
        self._logged = set()
        super().__init__(*topics, **configs)

    def assignment(self):
        return self._with_siblings(super().assignment())

    def paused(self):
        found = self._with_siblings(super().paused())
        for one in found:
            one.is_from_paused = True
        return found

    def pause(self, *partitions):
        super().pause(*partitions)
        for tp in partitions:
            self._resumed_at.pop(tp, None)
            self.silent.pop(tp, None)
            siblings = getattr(tp, "siblings", None)
            if siblings:
                named = self._named.setdefault(siblings, set())
                named.add(tp)
                if len(named) == len(siblings):
                    self._paused_topics.add(tp.topic)
        self._paused_by_name.update(partitions)

    def resume(self, *partitions):
        for tp in partitions:
            if self._is_paused(tp):
                self._resumed_at[tp] = time.monotonic()
        self._paused_topics.clear()
        if not partitions:
            self._named.clear()
        for named in list(self._named.values()):
            named.difference_update(partitions)
        self._forget(partitions)
        self._forget(self._paused_by_name - super().assignment())
        # A program that resumes the result of paused() wants to end all of its pauses,
        # but paused() does not include the partitions that leak.
        if all(getattr(tp, "is_from_paused", False) for tp in partitions):
            self._forget(self._paused_by_name - super().paused())
        self._logged.intersection_update(self._paused_by_name)
        super().resume(*partitions)

    def assign(self, partitions):
        super().assign(partitions)
        self._forget_all()

    def unsubscribe(self):
        super().unsubscribe()
        self._forget_all()

    def poll(self, timeout_ms=0, max_records=None, update_offsets=True):
        self._named.clear()
        topics = {tp.topic for tp in super().assignment()}
        found = super().poll(timeout_ms, max_records, update_offsets)
        # If all assigned topics are paused, a topic whose first partition the poll
        # gained also counts as paused.
        is_all_paused = bool(topics) and topics <= self._paused_topics
        self._forget_left_out()
        for tp in found if update_offsets else ():
            self._delivered(tp, len(found[tp]), is_all_paused)
        self._find_silent()
        return found

    def __next__(self):
        record = super().__next__()
        self._delivered(TopicPartition(record.topic, record.partition), 1)
        return record

    def _with_siblings(self, partitions):
        topics = {}
        for tp in super().assignment():
            topics.setdefault(tp.topic, set()).add(tp)
        siblings = {topic: frozenset(tps) for topic, tps in topics.items()}
        found = set()
        for tp in partitions:
            one = AssignedPartition(*tp)
            one.siblings = siblings.get(tp.topic)
            found.add(one)
        return found

    def _is_paused(self, tp):
        return tp in self._paused_by_name or tp.topic in self._paused_topics

    def _forget(self, partitions):
        self._paused_by_name.difference_update(partitions)
        self._logged.difference_update(partitions)

    def _forget_all(self):
        self._paused_by_name.clear()
        self._paused_topics.clear()
        self._named.clear()
        self._resumed_at.clear()
        self._logged.clear()
        self.silent.clear()

    def _forget_left_out(self):
        assigned = super().assignment()
        left_out = {
            tp
            for tp in self._paused_by_name - assigned
            if tp.topic not in self._paused_topics
        }
        if left_out and (assigned or not self._is_joining()):
            self._forget(left_out)

    def _is_joining(self):
        # After losing its membership, a consumer of kafka-python 3.0 has no assignment
        # until it has joined. In 2.x it keeps the old assignment until then, and has no
        # group_metadata().
        describe = getattr(self, "group_metadata", None)
        return describe is not None and describe().state != "<stable>"

    def _delivered(self, tp, count, is_all_paused=False):
        self._resumed_at.pop(tp, None)
        self.silent.pop(tp, None)
        if not is_all_paused and not self._is_paused(tp):
            return
        self.leaked[tp] = self.leaked.get(tp, 0) + count
        if self.counter is not None:
            self.counter.labels(tp.topic).inc(count)
        if tp not in self._logged:
            self._logged.add(tp)
            log.warning("records of %s were delivered though it was paused", tp)

    def _find_silent(self):
        for tp, since in list(self._resumed_at.items()):
            waiting = self._waiting(tp)
            if waiting is None:
                self._resumed_at.pop(tp, None)
                self.silent.pop(tp, None)
            elif waiting and time.monotonic() - since >= self.silent_after:
                if tp not in self.silent:
                    log.warning("%s was resumed, and delivers none of %d", tp, waiting)
                self.silent[tp] = waiting

    def _waiting(self, tp):
        # Return None if the partition is not assigned. The public calls position() and
        # highwater() may wait for the network, or raise in a rebalance.
        state = self._subscription.assignment.get(tp)
        if state is None:
            return None
        if state.position is None or state.highwater is None:
            return 0
        return state.highwater - getattr(state.position, "offset", state.position)


class AssignedPartition(TopicPartition):
    """
    A partition that ``assignment()`` or ``paused()`` returned.

    The object equals a plain ``TopicPartition``, has the same ``repr``, and is pickled
    as a plain one.

    Attributes:
        siblings: all partitions of its topic that were assigned at that time.
        is_from_paused: whether ``paused()`` returned this object.
    """

    siblings = None
    is_from_paused = False

    def __reduce__(self):
        return TopicPartition, tuple(self)

    def __repr__(self):
        return repr(TopicPartition(*self))
