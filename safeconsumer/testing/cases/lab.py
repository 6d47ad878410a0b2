"""
What the cases of one client need: topics, records, and consumers in processes.
"""

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from kafka import KafkaProducer
from kafka.structs import TopicPartition

from tests.conformance.clients import Client
from tests.conformance.consumer import BOUND, Consumer, until
from tests.conformance.process import ClientError, HangsError, Process


class Lab:
    """
    Lends a client's processes to one case after the other; ends them with the block.

    Args:
        broker: a real one, of any kind that the test suite runs on.
        client: whose consumers are made.
        log: what the client's processes write to stderr.
    """

    def __init__(self, broker: Any, client: Client, log: Path) -> None:  # noqa: ANN401 - one of several kinds
        self.client = client
        self.broker = broker
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
        if self._topics:
            with self.broker.admin() as admin:
                admin.delete_topics(self._topics)

    def versions(self) -> dict[str, str]:
        """
        Return the versions of the client and of what it stands on.
        """
        process = self._process()
        self._idle.append(process)
        return process.call("versions")

    # ------------------------------------------------------------ topics, records

    def name(self, stem: str = "t") -> str:
        """
        Return a name that nothing on the broker has.
        """
        return f"{stem}-{uuid.uuid4().hex[:10]}"

    def topic(self, partitions: int, name: str | None = None) -> list[TopicPartition]:
        """
        Create a topic; return its partitions.
        """
        topic = name or self.name()
        self.broker.create_topic(topic, partitions)
        self._topics.append(topic)
        return [TopicPartition(topic, number) for number in range(partitions)]

    def topic_with(self, each: int, partitions: int) -> list[TopicPartition]:
        """
        Create a topic with ``each`` records in each partition; return the partitions.
        """
        tps = self.topic(partitions)
        self.produce(tps, each)
        return tps

    def drop(self, tps: list[TopicPartition]) -> None:
        """
        Delete the topic of these partitions, which nothing was written to.
        """
        self.broker.delete_topic(tps[0].topic)
        self._topics.remove(tps[0].topic)

    def add_partition(self, tps: list[TopicPartition]) -> TopicPartition:
        """
        Let the topic of these partitions grow by one; return the new one.
        """
        topic = tps[0].topic
        self.broker.add_partitions(topic, len(tps) + 1)
        self._producer.close(5)  # the old one knows the old number for five minutes
        self._producer = self._new_producer()
        return TopicPartition(topic, len(tps))

    def produce(
        self, tps: TopicPartition | Iterable[TopicPartition], count: int = 1
    ) -> None:
        """
        Write ``count`` records to each partition, and have them acknowledged.
        """
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
        """
        Return the offset after the last record written here.
        """
        return self._produced[tp]

    # ------------------------------------------------------------ consumers

    def consumer(self, group: str | None = None, **settings: object) -> Consumer:
        """
        Make a consumer with quick timeouts, from the earliest record, without commits.
        """
        quick = self.broker.group_config
        process = self._process()
        consumer = Consumer(process)
        self._lent.append(consumer)
        wanted = {
            "bootstrap": self.broker.bootstrap,
            "group": group,
            "protocol": self.client.protocol,
            "session": quick["session_timeout_ms"] / 1000,
            "heartbeat": quick["heartbeat_interval_ms"] / 1000,
            "max_poll_interval": 300.0,
            "auto_commit": False,
            "fetch_wait": 0.05,
            "metadata_age": 1.0,
            "pause_on_assign": False,
            "carries": False,
            **settings,
        }
        process.call("open", settings=wanted)
        return consumer

    def assigned(self, tps: list[TopicPartition], **settings: object) -> Consumer:
        """
        Make a consumer with these partitions assigned by hand, in no group.
        """
        consumer = self.consumer(**settings)
        consumer.assign(tps)
        return consumer

    def beat(self, consumer: Consumer, tp: TopicPartition, times: int = 3) -> None:
        """
        Prove ``times`` over that it fetches: write a record, read until it comes.

        What could come of other partitions meanwhile has come.
        """
        for _ in range(times):
            self.produce(tp)
            wanted = (tp, self.end(tp) - 1)
            until(
                [consumer],
                lambda wanted=wanted: wanted in consumer.log,
                "a record that was just written",
            )

    def end_case(self) -> None:
        """
        Close what the case left open.
        """
        for consumer in self._lent:
            if consumer.is_open and consumer.process.is_alive:
                with contextlib.suppress(ClientError, HangsError):
                    consumer.close()
            if consumer.process.is_alive:
                self._idle.append(consumer.process)
        self._lent.clear()

    def _new_producer(self) -> KafkaProducer:
        return KafkaProducer(
            **self.broker.client_config, acks="all", enable_idempotence=False
        )

    def _process(self) -> Process:
        return self._idle.pop() if self._idle else Process(self.client, self._log)
