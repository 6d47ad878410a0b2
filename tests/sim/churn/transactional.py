"""A program that is not in the group and writes transactions."""

from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.harness.churn.outsiders import Outsider


class Transactional(Outsider):
    """Writes transactions that commit or abort."""

    def __init__(self, host, lab):
        self._lab = lab
        self._producer = None
        super().__init__(host, "transactional")

    def write(self, records, is_kept):
        """Write one record to each of these partitions, in one transaction."""
        try:
            if self._producer is None:
                self._producer = KafkaProducer(
                    **self._lab.connection, transactional_id="churn", retries=20
                )
                self._producer.init_transactions()
            self._producer.begin_transaction()
            for topic, number in records:
                self._producer.send(topic, b"in a transaction", partition=number)
            self._producer.flush()
            if is_kept:
                self._producer.commit_transaction()
            else:
                self._producer.abort_transaction()
        except KafkaError:
            self.end()

    def end(self):
        """Close the producer; the next producer aborts an open transaction."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=5)
