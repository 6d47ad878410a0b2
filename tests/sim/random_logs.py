"""Random changes to logs: transactions, deleted records, compaction, unclean elections."""

from safeconsumer.testing import _batches


class RandomLogs:
    """
    Changes logs at random; a subclass decides which records are written.

    Attributes:
        lab: the simulated world.
        rng: makes the random choices.
        tps: the partitions.
        producing: the producers with an open transaction, by partition.
    """

    def __init__(self, lab, rng, tps):
        self.lab, self.rng, self.tps = lab, rng, tps
        self.producing = {tp: set() for tp in tps}

    def _append(self, tp, count):
        raise NotImplementedError

    def _transactional(self, offset):
        """Return the transactional record to write at an offset."""
        raise NotImplementedError

    def produce_in_a_transaction(self):
        tp, producer = self.rng.choice(self.tps), self.rng.choice((7, 8))
        log = self.lab.cluster.log(*tp)
        made = _batches._builder(codec=0, producer_id=producer, producer_epoch=0)
        for at in range(self.rng.choice((1, 3))):
            one = self._transactional(log.end + at)
            made.append(at, self.lab.cluster.now_ms(), one.key, one.value, [])
        log.append(_batches.Batch(bytes(made.build())))
        self.lab.cluster.fetches.answer_waiting()
        self.producing[tp].add(producer)

    def end_transactions(self):
        for tp, producers in self.producing.items():
            log = self.lab.cluster.log(*tp)
            for one in sorted(producers):
                is_committed = self.rng.random() < 0.6
                now = self.lab.cluster.now_ms()
                log.end_transaction(one, 0, now, is_committed=is_committed)
            producers.clear()
        self.lab.cluster.fetches.answer_waiting()

    def delete_records(self):
        tp = self.rng.choice(self.tps)
        log = self.lab.cluster.log(*tp)
        self.lab.cluster.delete_before(*tp, self.rng.randint(log.start, log.end))

    def compact(self):
        self.lab.cluster.compact("t")

    def truncate_the_log(self):
        """Elect a leader that lacks the last batches; return its partition, or None."""
        tp = self.rng.choice(self.tps)
        log = self.lab.cluster.log(*tp)
        if not log.batches or self.producing[tp]:
            return None
        kept = self.rng.randint(max(0, len(log.batches) - 3), len(log.batches))
        log.batches = log.batches[:kept]
        log.end = log.batches[-1].end if log.batches else log.start
        log.aborted = [one for one in log.aborted if one.last < log.end]
        self.move_leader(tp)
        self._append(tp, self.rng.choice((0, 1, 5)))
        return tp

    def move_leader(self, tp=None):
        node = self.rng.randint(1, len(self.lab.hosts))
        self.lab.cluster.lead(*(tp or self.rng.choice(self.tps)), node)
