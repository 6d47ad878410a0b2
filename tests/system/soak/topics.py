"""Topics, partitions and the group's coordinator, as an administrator sees and moves them."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.admin.topics import ElectionType

from safeconsumer.group.settings import Control
from safeconsumer.group.topics import HOLDS_SETTINGS
from tests.system.soak.plan import Draw
from tests.system.soak.settings import GROUP, PARTITIONS, TOPICS

_LIMIT = 5
_FIRST = 60  # brokers that have just started are slow
# A broker is away, or slow: nobody knows then whether it was done.
_TROUBLE = (confluent_kafka.KafkaException, KafkaError, TimeoutError)
_MOST_PARTITIONS = 14
_MOST_TOPICS = 3
_NEW_PARTITIONS = 4
_OFFSETS = "__consumer_offsets"


class Topics:
    """An administrator, past the proxy. Call :meth:`close`."""

    def __init__(self, bootstrap: str, replicas: int) -> None:
        reach = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(reach)
        self._elector = KafkaAdminClient(
            bootstrap_servers=bootstrap.split(","), client_id="soak-admin"
        )
        self._replicas = replicas
        self._counts = dict.fromkeys(TOPICS, PARTITIONS)

    def close(self) -> None:
        self._elector.close()

    def create_all(self) -> None:
        """Make the topics there are from the beginning, those of control too."""
        control = Control()
        for name, count in self._counts.items():
            self._create(name, count)
        for name in control.topics:
            self._create(name, 1, HOLDS_SETTINGS)  # the audit reads every record

    def _create(
        self, name: str, partitions: int, configs: Mapping[str, Any] | None = None
    ) -> None:
        told = {key: str(value) for key, value in (configs or {}).items()}
        wish = NewTopic(name, partitions, self._replicas, config=told)
        self._admin.create_topics([wish])[name].result(_FIRST)

    # ------------------------------------------------------------ faults

    def grow(self, draw: Draw) -> str | None:
        """Add a partition to a topic; return its name, None if all are big enough."""
        small = [one for one in TOPICS if self._counts[one] < _MOST_PARTITIONS]
        name = draw.of(small)
        if name is None:
            return None
        self._counts[name] += 1
        wish = NewPartitions(name, self._counts[name])
        return name if self._is_done(self._admin.create_partitions([wish])) else None

    def create_one_more(self) -> str | None:
        """Make a topic that members' patterns match; None if there are enough."""
        number = len(self._counts) - len(TOPICS) + 1
        if number > _MOST_TOPICS:
            return None
        name = f"soak-extra-{number}"
        self._counts[name] = _NEW_PARTITIONS
        wish = NewTopic(name, _NEW_PARTITIONS, self._replicas)
        return name if self._is_done(self._admin.create_topics([wish])) else None

    def _is_done(self, asked: Mapping[str, Any]) -> bool:
        try:
            for answer in asked.values():
                answer.result(_LIMIT)
        except _TROUBLE:
            return False
        return True

    def move_coordinator(self, draw: Draw) -> int | None:
        """
        Make another broker lead the partition where the group is; return its number.

        Return None if that cannot be done now: before the first member has asked for
        its coordinator, there is none.
        """
        try:
            offsets = self._metadata().topics.get(_OFFSETS)
            if offsets is None:
                return None
            tp = TopicPartition(_OFFSETS, _home(len(offsets.partitions)))
            replicas, leader = self._replicas_of(tp)
            others = sorted(replicas, key=lambda one: (one == leader, one))[:-1]
            if not others:
                return None
            chosen = others[int(draw.pick * len(others))]
            order = [chosen, *(one for one in replicas if one != chosen)]
            self._elector.alter_partition_reassignments(
                {tp: order}, timeout_ms=1000 * _LIMIT
            )
            self._elector.elect_leaders(
                ElectionType.PREFERRED,
                [tp],
                timeout_ms=1000 * _LIMIT,
                raise_errors=False,
            )
        except _TROUBLE:
            return None
        return chosen

    def _replicas_of(self, tp: TopicPartition) -> tuple[list[int], int]:
        found = self._metadata().topics[tp.topic].partitions[tp.partition]
        return list(found.replicas), found.leader

    def _metadata(self) -> Any:  # noqa: ANN401 - confluent_kafka's
        return self._admin.list_topics(timeout=5)

    # ------------------------------------------------------------ how it stands

    def are_in_sync(self) -> bool:
        """Tell whether every partition has all its replicas, so that one broker may go."""
        try:
            topics = self._metadata().topics.values()
        except _TROUBLE:
            return False
        return all(
            len(one.isrs) == len(one.replicas)
            for topic in topics
            for one in topic.partitions.values()
        )

    def wait_until_drained(self, limit: float) -> dict[str, int]:
        """
        Wait until the group has committed everything; return what it still lacks.

        Args:
            limit: seconds in which what is left gets no less: a slow machine leaves a
                backlog, and a record that is about to be read is not lost.

        Returns:
            Records by partition; empty when drained, ``{"?": 0}`` if nobody could say.
        """
        return until_nothing_moves(self._left, limit)

    def _left(self) -> dict[str, int]:
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
            committed = self._elector.list_group_offsets(GROUP)[GROUP]
            done = {tuple(tp): one.offset for tp, one in committed.items()}
        except _TROUBLE:
            return {"?": 0}
        return {
            f"{name}:{number}": end - max(done.get((name, number), 0), 0)
            for (name, number), end in sorted(ends.items())
            if end > max(done.get((name, number), 0), 0)
        }


def until_nothing_moves(
    look: Callable[[], dict[str, int]],
    limit: float,
    clock: Any = time,  # noqa: ANN401 - a module
) -> dict[str, int]:
    """Look each second until nothing is left, or it gets no less for so many seconds."""
    left = look()
    least, since = _sum(left), clock.monotonic()
    while left and clock.monotonic() < since + limit:
        clock.sleep(1)
        left = look()
        if _sum(left) < least:
            least, since = _sum(left), clock.monotonic()
    return left


def _sum(left: Mapping[str, int]) -> float:
    return math.inf if "?" in left else sum(left.values())


def _home(partitions: int) -> int:
    # Java's String.hashCode, as Kafka finds a group's partition.
    value = 0
    for letter in GROUP:
        value = (31 * value + ord(letter)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % partitions
