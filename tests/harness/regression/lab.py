"""One test's topics, records, consumers and other members, closed when it ends."""

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.structs import TopicPartition

from tests.harness.members import partitions_of as partitions_of_topic
from tests.harness.producing import write
from tests.harness.regression.members import Member
from tests.harness.regression.support import BOUND, ROUND, Reader, delivered

STOCK_LOOKS_AGAIN = 2000
"""Milliseconds; stock can miss what it subscribed to, see ``test_fetching``."""

ASSIGNOR_CLASSES = {
    one.name: one
    for one in (
        RangePartitionAssignor,
        RoundRobinPartitionAssignor,
        StickyPartitionAssignor,
        CooperativeStickyAssignor,
    )
}


def client_class(client: str) -> Any:  # noqa: ANN401 - either class
    """Return the consumer class of that name; ours is imported only here."""
    if client == "stock":
        return KafkaConsumer
    from safeconsumer import SafeConsumer  # noqa: PLC0415 - stock runs without it

    return SafeConsumer


class Lab:
    """Makes what a test needs on a broker, and closes it all."""

    def __init__(
        self,
        broker: Any,  # noqa: ANN401 - the fixture's object
        producer: KafkaProducer,
        topics: list[str],
    ) -> None:
        self.broker = broker
        self._topics = topics
        self._producer = producer
        self._produced: Counter[TopicPartition] = Counter()
        self._opened: list[Any] = []

    # ------------------------------------------------------------ topics, records

    def name(self, stem: str = "t") -> str:
        """Return a name that nothing on the broker has."""
        return f"{stem}-{uuid.uuid4().hex[:10]}"

    def topic(self, partitions: int = 4, name: str | None = None) -> str:
        """Create a topic; return its name."""
        topic = name or self.name()
        self.broker.create_topic(topic, partitions)
        self._topics.append(topic)
        return topic

    def drop(self, topic: str) -> None:
        """Delete a topic now; only a real broker can."""
        self._topics.remove(topic)
        self.broker.delete_topic(topic)

    def topic_with(
        self, each: int, partitions: int = 4
    ) -> tuple[str, list[TopicPartition]]:
        """Create a topic with ``each`` records in each of its partitions."""
        topic = self.topic(partitions)
        tps = partitions_of_topic(topic, partitions)
        self.produce(tps, each)
        return topic, tps

    def produce(
        self,
        partitions: TopicPartition | Iterable[TopicPartition],
        count: int = 1,
        *,
        apart: bool = False,
    ) -> None:
        """
        Write ``count`` records to each of the partitions, and have them acknowledged.

        ``apart`` writes each record as a batch of its own.
        """
        tps = (
            [partitions] if isinstance(partitions, TopicPartition) else list(partitions)
        )
        records = [self._next(tp) for _ in range(count) for tp in tps]
        for batch in ([one] for one in records) if apart else [records]:
            write(self._producer, batch, BOUND)

    def _next(self, tp: TopicPartition) -> dict[str, Any]:
        number = self._produced[tp]
        self._produced[tp] += 1
        return {"topic": tp.topic, "partition": tp.partition, "value": b"%d" % number}

    @contextlib.contextmanager
    def other_producer(self) -> Iterator[None]:
        """
        Write by another producer in this block.

        One that has written to a topic asks for it from then on, and a broker may
        create again what it is asked for.
        """
        usual = self._producer
        self._producer = KafkaProducer(
            **self.broker.client_config, acks="all", enable_idempotence=False
        )
        try:
            yield
        finally:
            self._producer.close(5)
            self._producer = usual

    def recreated(self, partitions: Iterable[TopicPartition]) -> None:
        """Take note that these partitions are new and empty."""
        for tp in partitions:
            del self._produced[tp]

    def end(self, tp: TopicPartition) -> int:
        """Return the offset after the last record written here."""
        return self._produced[tp]

    def rest(
        self, starts: dict[TopicPartition, int | None]
    ) -> dict[TopicPartition, range]:
        """Return the offsets from each start to the partition's end."""
        return {tp: range(start or 0, self.end(tp)) for tp, start in starts.items()}

    # ------------------------------------------------------------ consumers

    def consumer(
        self,
        client: str,
        *topics: str,
        group: str | None = None,
        assignor: str | Any = "range",  # noqa: ANN401 - a name or an assignor
        **config: Any,  # noqa: ANN401 - kafka-python's keys
    ) -> Any:  # noqa: ANN401 - either client
        """Make a consumer with quick timeouts, from the earliest record, without commits."""
        settings = {
            **self.broker.client_config,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "fetch_max_wait_ms": 50,
            "retry_backoff_ms": 50,
            "partition_assignment_strategy": [ASSIGNOR_CLASSES.get(assignor, assignor)],
            **({"metadata_max_age_ms": STOCK_LOOKS_AGAIN} if client == "stock" else {}),
            **(self.broker.group_config if group else {}),
            **({"heartbeat_interval_ms": 100} if group else {}),
            **config,
        }
        consumer = client_class(client)(*topics, **settings)
        self._opened.append(consumer)
        return consumer

    def reader(
        self,
        client: str,
        *topics: str,
        how: str = "poll",
        **config: Any,  # noqa: ANN401 - as consumer()
    ) -> Reader:
        """Make a consumer as :meth:`consumer` does, read in one of the two ways."""
        # Stock forgets a join that outlasts its poll; where that is not the matter,
        # it must not happen to it.
        patience = 1.5 if client == "stock" else ROUND
        return Reader(self.consumer(client, *topics, **config), how, patience)

    def assigned(
        self,
        client: str,
        tps: Iterable[TopicPartition],
        *,
        how: str = "poll",
        **config: Any,  # noqa: ANN401 - as consumer()
    ) -> Reader:
        """Make a reader with manually assigned partitions, outside of any group."""
        reader = self.reader(client, how=how, **config)
        reader.consumer.assign(list(tps))
        return reader

    def member(
        self,
        *topics: str,
        client: str = "stock",
        pace: float = 0.0,
        commits: bool = False,
        start: bool = True,
        **config: Any,  # noqa: ANN401 - as consumer()
    ) -> Member:
        """Make another member of a group, and start its thread."""
        consumer = self.consumer(client, *topics, **config)
        member = Member(consumer, pace=pace, commits=commits)
        self._opened[-1] = member
        if start:
            member.start()
        return member

    def quick_session(self) -> dict[str, int]:
        """Return the shortest session that is safe here, for members that are to die."""
        quick = {"session_timeout_ms": 1200}  # our own brokers allow 1,000
        return {} if self.broker.kind == "bootstrap" else quick

    # ------------------------------------------------------------ evidence

    def beats(
        self, reader: Reader, witness: TopicPartition, times: int = 3
    ) -> list[Any]:
        """
        Prove ``times`` that the consumer fetches; return what came besides.

        Each beat is a record written to the witness partition, which nobody holds,
        and read until it comes: what could be delivered meanwhile, was.
        """
        others = []
        for _ in range(times):
            self.produce(witness)
            start, wanted = len(reader.log), self.end(witness) - 1
            # Iteration would wait for silence after the last record of a round.
            limit = 500 if reader.how == "poll" else 1
            reader.until(
                lambda start=start, wanted=wanted: any(
                    record.topic == witness.topic
                    and record.partition == witness.partition
                    and record.offset == wanted
                    for record in reader.log[start:]
                ),
                limit=limit,
            )
            others += [
                record
                for record in reader.log[start:]
                if not delivered([record], [witness])
            ]
        return others

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Stop the members and close the consumers, all of them whatever happens."""
        with contextlib.ExitStack() as stack:
            for one in self._opened:
                stack.callback(_close, one)


def _close(one: Any) -> None:  # noqa: ANN401 - a consumer or a member
    if isinstance(one, Member):
        one.stop()
    else:
        one.close(autocommit=False, timeout_ms=5000)
