"""Provides topics, records, and consumers in separate processes for one client's cases."""

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, Self

from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from safeconsumer.testing.cases.consumer import BOUND, Consumer, Record, until
from safeconsumer.testing.cases.outcomes import NotOnThisBrokerError, NotReachedError
from safeconsumer.testing.cases.process import (
    ClientError,
    HangsError,
    Launch,
    Process,
)

# The session timeout in seconds, long enough that members are not evicted on a slow
# machine. confluent-kafka requires a session timeout below the maximum poll interval.
_SESSION = 4.0


class Lab:
    """
    Provides a client's processes to one case after another, and kills them at the end.

    Args:
        broker: any broker object of the test kit.
        launch: how to start a process with one of the client's consumers.
        protocol: the name of the assignor that groups use.
        log: the file to which the client's processes write their stderr.
    """

    def __init__(
        self,
        broker: Any,  # noqa: ANN401  one of several classes
        launch: Launch,
        protocol: str,
        log: Path,
    ) -> None:
        self.broker = broker
        self._launch = launch
        self._protocol = protocol
        self._log = log
        self._idle: list[Process] = []
        self._lent: list[Consumer] = []
        self._topics: list[str] = []
        self._produced: Counter[TopicPartition] = Counter()
        self._producer = self._new_producer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_case()
        for process in self._idle:
            process.kill()
        self._producer.close(5)
        if self._topics and self.broker.is_real:
            with self.broker.admin() as admin:
                admin.delete_topics(self._topics)

    # ------------------------------------------------------------ topics, records

    def name(self, stem: str = "t") -> str:
        """Return a name that is unused on the broker."""
        return f"{stem}-{uuid.uuid4().hex[:10]}"

    def topic(self, partitions: int, name: str | None = None) -> list[TopicPartition]:
        """Create a topic; return its partitions."""
        topic = name or self.name()
        self.broker.create_topic(topic, partitions)
        self._topics.append(topic)
        return [TopicPartition(topic, number) for number in range(partitions)]

    def topic_with(self, each: int, partitions: int) -> list[TopicPartition]:
        """Create a topic with ``each`` records in each partition; return the partitions."""
        tps = self.topic(partitions)
        self.produce(tps, each)
        return tps

    def drop(self, tps: list[TopicPartition]) -> None:
        """Delete the topic of these partitions, with its records."""
        self.broker.delete_topic(tps[0].topic)
        self._topics.remove(tps[0].topic)
        for tp in tps:
            del self._produced[tp]

    def make_again(
        self, tps: list[TopicPartition], each: int, group: str, consumer: Consumer
    ) -> None:
        """
        Recreate the topic of these partitions, with ``each`` records in each partition.

        During this time the consumer is frozen and the lab has no producer, because a
        client that requests metadata for a missing topic makes the broker create the
        topic. The new topic is created only when the commits for the old topic are
        gone, because brokers delete commits by topic name.
        """
        self._producer.close(5)
        consumer.process.freeze()
        try:
            self.drop(tps)
            self._wait_for_no_commits(group, tps)
            self.topic(len(tps), tps[0].topic)
        finally:
            consumer.process.thaw()
            self._producer = self._new_producer()
        self.produce(tps, each)

    def add_partition(self, tps: list[TopicPartition]) -> TopicPartition:
        """Add a partition to the topic of these partitions; return the new partition."""
        topic = tps[0].topic
        self.broker.add_partitions(topic, len(tps) + 1)
        self._renew_producer()  # the old one keeps the old count for five minutes
        return TopicPartition(topic, len(tps))

    def truncate(self, tp: TopicPartition, offset: int) -> None:
        """
        Drop the records of a partition from ``offset`` on.

        Raises:
            NotOnThisBrokerError: the broker cannot truncate a log.
        """
        if not hasattr(self.broker, "truncate"):
            message = "a log is cut in a broker's own process, or while it is stopped"
            raise NotOnThisBrokerError(message)
        self.broker.truncate(tp.topic, tp.partition, offset)
        self._produced[tp] = offset
        self._renew_producer()  # the broker may have been restarted

    def produce(
        self, tps: TopicPartition | Iterable[TopicPartition], count: int = 1
    ) -> None:
        """Write ``count`` records to each partition, and wait for the acknowledgements."""
        written = []
        for tp in [tps] if isinstance(tps, TopicPartition) else list(tps):
            for _ in range(count):
                sent = self._producer.send(tp.topic, b"x" * 100, partition=tp.partition)
                written.append(sent)
            self._produced[tp] += count
        self._producer.flush(BOUND)
        for future in written:
            future.get(BOUND)

    def end(self, tp: TopicPartition) -> int:
        """Return the offset after the last record that the lab wrote to a partition."""
        return self._produced[tp]

    # ------------------------------------------------------------ consumers

    def consumer(self, group: str | None = None, **settings: object) -> Consumer:
        """Create a consumer with short timeouts; it begins at its commit or the start."""
        quick = self.broker.group_config
        process = self._process()
        consumer = Consumer(process)
        self._lent.append(consumer)
        wanted = {
            "bootstrap": self.broker.bootstrap,
            "group": group,
            "api_version": self.broker.client_config.get("api_version"),
            "protocol": self._protocol,
            "session": max(_SESSION, quick["session_timeout_ms"] / 1000),
            "heartbeat": quick["heartbeat_interval_ms"] / 1000,
            "max_poll_interval": 300.0,
            "auto_commit": False,
            "fetch_wait": 0.05,
            "metadata_age": 1.0,
            "pause_on_assign": False,
            "pause_the_rest_on_assign": False,
            "carries": False,
            **settings,
        }
        process.call("open", wanted)
        return consumer

    def assigned(
        self,
        tps: list[TopicPartition],
        **settings: Any,  # noqa: ANN401  as for consumer()
    ) -> Consumer:
        """Create a consumer without a group, with these partitions assigned manually."""
        consumer = self.consumer(**settings)
        consumer.assign(tps)
        return consumer

    def beat(self, consumer: Consumer, tp: TopicPartition, times: int = 3) -> None:
        """
        Prove several times that a consumer fetches: a new record must arrive.

        By the time the record arrives, all other partitions that are not paused have
        delivered their records.
        """
        for _ in range(times):
            self.produce(tp)
            wanted = Record(tp, self.end(tp) - 1)
            until(
                [consumer],
                partial(consumer.log.__contains__, wanted),
                "a record that was just written",
            )

    def end_case(self) -> None:
        """
        Close the consumers that the case has left open.

        A process that has not answered yet is killed, because otherwise the next case
        would receive its answer.
        """
        for consumer in self._lent:
            if not consumer.process.is_at_rest:
                consumer.process.kill()
            if consumer.is_open and consumer.process.is_alive:
                with contextlib.suppress(ClientError, HangsError):
                    consumer.close()
            if consumer.process.is_alive:
                self._idle.append(consumer.process)
        self._lent.clear()

    def _wait_for_no_commits(self, group: str, tps: list[TopicPartition]) -> None:
        deadline = time.monotonic() + BOUND
        with contextlib.closing(KafkaAdminClient(**self.broker.client_config)) as admin:
            while set(tps) & admin.list_group_offsets(group)[group].keys():
                if time.monotonic() > deadline:
                    message = (
                        f"the commits of a deleted topic are there after {BOUND:g} s"
                    )
                    raise NotReachedError(message)
                time.sleep(0.05)

    def _renew_producer(self) -> None:
        self._producer.close(5)
        self._producer = self._new_producer()

    def _new_producer(self) -> KafkaProducer:
        return KafkaProducer(
            **self.broker.client_config, acks="all", enable_idempotence=False
        )

    def _process(self) -> Process:
        return self._idle.pop() if self._idle else Process(self._launch, self._log)
