"""The topics and the group's committed offsets, as an administrator sees them."""

import time
from contextlib import closing

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer.group.topics import HOLDS_SETTINGS
from tests.harness.waiting import reaches, wait_for
from tests.system.churn.settings import CONTROL, GROUP, LETTERS, PARTITIONS, TOPIC

_LIMIT = 20.0
_TURN = 0.5
_PARTITIONS = [confluent_kafka.TopicPartition(TOPIC, n) for n in range(PARTITIONS)]


class Topics:
    """An administrator."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._bootstrap = bootstrap

    def create_all(self) -> None:
        """
        Make the topic, that of the dead letters, and those of control.

        A broker that a session shares may have some of them.
        """
        self._create(TOPIC, PARTITIONS)
        self._create(LETTERS, 1)
        for name in CONTROL.topics:
            self._create(
                name, 1, {key: str(one) for key, one in HOLDS_SETTINGS.items()}
            )

    def _create(
        self, name: str, partitions: int, config: dict[str, str] | None = None
    ) -> None:
        wish = NewTopic(name, partitions, 1, config=config or {})
        try:
            self._admin.create_topics([wish])[name].result(_LIMIT)
        except confluent_kafka.KafkaException as error:
            code = error.args[0].code()
            if code != confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def wait_for_floors(self, limit: float) -> None:
        """
        Return once the group has committed something for every partition (W12).

        What is written from then on belongs to somebody.

        Raises:
            NotReachedError: it has not, in so many seconds.
        """
        wait_for(
            lambda: len(self._committed()) == PARTITIONS,
            "a floor for every partition",
            limit,
            seen=self._committed,
            pause=_TURN,
        )

    def wait_until_drained(self, limit: float) -> dict[int, int]:
        """Wait until everything is committed, so many seconds; return what is lacking."""
        reaches(lambda: not self._left(), limit, lambda: time.sleep(_TURN))
        return self._left()

    def _left(self) -> dict[int, int]:
        asked = self._admin.list_offsets(
            {tp: OffsetSpec.latest() for tp in _PARTITIONS}
        )
        ends = {tp.partition: one.result(_LIMIT).offset for tp, one in asked.items()}
        done = self._committed()
        left = {number: end - done.get(number, 0) for number, end in ends.items()}
        return {number: count for number, count in sorted(left.items()) if count}

    def _committed(self) -> dict[int, int]:
        # Not by librdkafka 2.16: it crashes where the coordinator answers an error.
        try:
            with closing(KafkaAdminClient(bootstrap_servers=self._bootstrap)) as admin:
                found = admin.list_group_offsets(GROUP)[GROUP]
        except KafkaError:  # the coordinator is slow, or not there yet
            return {}
        return {tp.partition: one.offset for tp, one in found.items()}
