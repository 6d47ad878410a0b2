"""Topics and what the group has committed of them, as an administrator sees them."""

import math
import time

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer.group.settings import Control
from safeconsumer.group.topics import HOLDS_SETTINGS
from tests.harness.brokers.cluster import BROKERS
from tests.system.soak.settings import GROUP, PARTITIONS, TOPICS

_LIMIT = 5
_FIRST = 60  # brokers that have just started are slow
# A broker is away, or slow: nobody knows then whether it was done.
_TROUBLE = (confluent_kafka.KafkaException, KafkaError, TimeoutError)


class Topics:
    """An administrator. Call :meth:`close`."""

    def __init__(self, bootstrap):
        reach = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(reach)
        self._client = KafkaAdminClient(
            bootstrap_servers=bootstrap.split(","), client_id="soak-admin"
        )

    def close(self):
        self._client.close()

    def create_all(self):
        """Make the topics there are from the beginning, those of control too."""
        control = Control()
        for name in TOPICS:
            self._create(name, PARTITIONS)
        # The audit reads every record.
        self._create(control.holds_topic, 1, HOLDS_SETTINGS)

    def _create(self, name, partitions, configs=None):
        told = {key: str(value) for key, value in (configs or {}).items()}
        wish = NewTopic(name, partitions, BROKERS, config=told)
        self._admin.create_topics([wish])[name].result(_FIRST)

    def _metadata(self):
        return self._admin.list_topics(timeout=5)

    def wait_until_drained(self, limit):
        """
        Wait until the group has committed everything; return what it still lacks.

        Args:
            limit: seconds in which what is left gets no less: a slow machine leaves a
                backlog, and a record that is about to be read is not lost.

        Returns:
            Records by partition; empty when drained, ``{"?": 0}`` if nobody could say.
        """
        left = self._left()
        least, since = _sum(left), time.monotonic()
        while left and time.monotonic() < since + limit:
            time.sleep(1)
            left = self._left()
            if _sum(left) < least:
                least, since = _sum(left), time.monotonic()
        return left

    def _left(self):
        try:
            tps = [
                confluent_kafka.TopicPartition(name, number)
                for name, topic in self._metadata().topics.items()
                if name.startswith("soak-")
                for number in topic.partitions
            ]
            asked = self._admin.list_offsets({tp: OffsetSpec.latest() for tp in tps})
            ends = {
                (tp.topic, tp.partition): answer.result(_LIMIT).offset
                for tp, answer in asked.items()
            }
            # Not by librdkafka 2.16: it crashes where the coordinator answers an error.
            committed = self._client.list_group_offsets(GROUP)[GROUP]
            done = {tuple(tp): one.offset for tp, one in committed.items()}
        except _TROUBLE:
            return {"?": 0}
        return {
            f"{name}:{number}": end - max(done.get((name, number), 0), 0)
            for (name, number), end in sorted(ends.items())
            if end > max(done.get((name, number), 0), 0)
        }


def _sum(left):
    return math.inf if "?" in left else sum(left.values())
