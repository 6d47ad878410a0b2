"""Tracks logs: their starts, the records that readers do not get, and the commits."""

from collections import defaultdict
from itertools import takewhile

from kafka import TopicPartition


class Logs:
    """
    Tracks every record that was ever in the partitions, even after retention.

    Attributes:
        starts: for each partition, its first start and each start to which retention
            moved it.
        committed: the group's offsets at the last check.
    """

    def __init__(self, cluster, group, topics):
        self._cluster = cluster
        self._group = group
        self._topics = topics
        self.starts = {}
        self.committed = {}
        self._marks = defaultdict(set)
        self._aborted = defaultdict(set)
        self._transactional = defaultdict(list)
        self._read = {}
        self.look()

    def log(self, tp):
        return self._cluster.log(tp.topic, tp.partition)

    def partitions(self):
        for name in self._topics:
            for number in range(len(self._cluster.topics.get(name).logs)):
                yield TopicPartition(name, number)

    def look(self):
        """Read new records and offsets; call this before and after records are deleted."""
        for tp in self.partitions():
            log = self.log(tp)
            starts = self.starts.setdefault(tp, [0])
            if log.start != starts[-1]:
                starts.append(log.start)
            self._note(tp, log)

    def _note(self, tp, log):
        before = self._read.get(tp, 0)
        self._read[tp] = log.end
        if log.end == before:
            return
        for batch in takewhile(lambda one: one.base >= before, reversed(log.batches)):
            if batch.header.is_control_batch:
                self._marks[tp].update(range(batch.base, batch.end))
            elif batch.header.is_transactional:
                self._transactional[tp].append(batch)
        for one in log.aborted:
            if one.last < before:
                continue  # the transaction was recorded when it ended
            for batch in self._transactional[tp]:
                is_its = batch.header.producer_id == one.producer_id
                if is_its and one.first <= batch.base < one.last:
                    self._aborted[tp].update(range(batch.base, batch.end))

    def newly_committed(self):
        """Return the group's offsets that differ from those last seen."""
        now = {
            TopicPartition(*tp): one.offset
            for tp, one in self._cluster.committed(self._group).items()
        }
        new = {tp: at for tp, at in now.items() if self.committed.get(tp) != at}
        self.committed.update(new)
        return new

    def given(self, tp, first, end, *, is_committed):
        """Return the offsets from ``first`` to ``end`` whose records a reader receives."""
        self.look()
        hidden = self._marks[tp]
        if is_committed:
            hidden = hidden | self._aborted[tp]
        return [offset for offset in range(first, end) if offset not in hidden]

    def is_next(self, tp, position, found, *, is_committed):
        """
        Return whether a reader at ``position`` may get ``found`` as its next record.

        A reader may do so if no visible record lies in between. A reader whose
        position was deleted by retention continues at a later start of the log.
        """
        begins = [position, *(at for at in self.starts[tp] if position < at <= found)]
        return any(
            begin <= found
            and not self.given(tp, begin, found, is_committed=is_committed)
            for begin in begins
        )

    def has_read_all(self, tp, position, *, is_committed):
        """Return whether a reader at this position has received every record."""
        self.look()
        log = self.log(tp)
        first = max(position, log.start)
        return not self.given(tp, first, log.end, is_committed=is_committed)
