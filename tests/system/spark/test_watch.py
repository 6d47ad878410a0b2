"""What is held is looked after: loss is noticed while it is held, and warned of before."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer.events.consumer import Event
from safeconsumer.spark.controller import Controller, ledger
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.stream import Stream
from safeconsumer.spark.watch import HeldWatch, Seen
from tests.harness.spark.lake import LIMIT, Lake
from tests.harness.spark.waiting import until
from tests.harness.waiting import retried

HOUR = 3600.0


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Seen(frozen=5, beginning=0, end=9), None),
        (Seen(frozen=5, beginning=5, end=9), None),
        (Seen(frozen=5, beginning=6, end=9), "deleted offsets 5 to 5"),
        (Seen(frozen=5, beginning=0, end=9, is_another=True), "made again"),
    ],
)
def test_a_loss_is_told(seen: Seen, said: str | None) -> None:
    """What begins after the frozen offset has lost it."""
    loss = seen.loss()
    assert (loss is None) if said is None else (said in str(loss))


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (Seen(frozen=5, beginning=0, end=9, young=4, is_limited=True), None),
        (
            Seen(frozen=5, beginning=0, end=9, young=6, is_limited=True),
            "older than 75%",
        ),
        (Seen(frozen=5, beginning=0, end=9, is_limited=True), "older than 75%"),
        (Seen(frozen=9, beginning=0, end=9, is_limited=True), None),
        (Seen(frozen=5, beginning=0, end=9, is_limited=False), None),
        (Seen(frozen=60, beginning=50, end=999, young=0, is_limited=True), "begins at"),
        (Seen(frozen=5, beginning=6, end=9, is_limited=True), None),
    ],
)
def test_retention_that_is_near_is_warned_of(seen: Seen, said: str | None) -> None:
    """By time and by size; what is lost needs no warning."""
    warning = seen.warning()
    assert (warning is None) if said is None else (said in str(warning))


class Watched:
    """A topic of its own, and a watch that looks every 50 ms."""

    def __init__(self, broker: Any) -> None:  # noqa: ANN401 - any kind
        self.broker = broker
        self.topic = f"held-{uuid4().hex[:8]}"
        self.tp = TopicPartition(self.topic, 0)
        self.events: list[Event] = []
        options = SourceOptions(
            watch_interval=0.05, client={"bootstrap.servers": broker.bootstrap}
        )
        self.watch = HeldWatch("1", options, ledger((self.events.append,)))

    def create(self, **settings: str) -> None:
        configs = {name.replace("_", "."): one for name, one in settings.items()}
        wanted = {"num_partitions": 1, "replication_factor": 1, "configs": configs}
        with KafkaAdminClient(**self.broker.client_config) as admin:

            def create() -> None:
                admin.create_topics({self.topic: wanted}, wait_for_metadata=True)

            # It is still being deleted for a while.
            retried(create, KafkaError, limit=LIMIT)

    def produce(self, count: int, age: float = 0.0) -> None:
        producer = KafkaProducer(**self.broker.client_config)
        at = int((time.time() - age) * 1000)
        for _ in range(count):
            producer.send(self.topic, b"x", timestamp_ms=at).get(10)
        producer.close()

    def delete(self) -> None:
        with KafkaAdminClient(**self.broker.client_config) as admin:
            admin.delete_topics([self.topic])


@pytest.fixture
def watched(kafka_broker: Any) -> Iterator[Watched]:  # noqa: ANN401 - any kind
    made = Watched(kafka_broker)
    yield made
    made.watch.close()


def said(watched: Watched) -> Callable[[str], bool]:
    return lambda text: text in str(watched.watch.losses())


@pytest.mark.real_broker
class TestOnABroker:
    """The watch alone, on a real broker."""

    def test_a_topic_that_is_made_again(self, watched: Watched) -> None:
        """Even if it is longer than before: its identity tells."""
        watched.create()
        watched.produce(3)
        watched.watch.look_at({watched.tp: 2})
        until(lambda: watched.topic in watched.watch._identities)
        watched.delete()
        watched.create()
        watched.produce(9)
        until(lambda: said(watched)("deleted and made again"))

    def test_an_old_record_is_warned_of_once(self, watched: Watched) -> None:
        """While it is still there."""
        watched.create(retention_ms=str(int(HOUR * 1000)))
        watched.produce(2, age=0.9 * HOUR)
        watched.produce(2)
        watched.watch.look_at({watched.tp: 1})

        def near() -> list[Any]:
            return [
                one for one in watched.events if one.name == "spark_retention_is_near"
            ]

        until(lambda: bool(near()))
        watched.watch.look_at({watched.tp: 1})
        (event,) = near()
        assert "older than 75%" in str(event)

    def test_an_unreachable_broker_is_told_once(self, watched: Watched) -> None:
        """The stream goes on."""
        options = SourceOptions(
            watch_interval=0.05, client={"bootstrap.servers": "127.0.0.1:1"}
        )
        watch = HeldWatch("1", options, ledger((watched.events.append,)))
        watch.look_at({watched.tp: 0})
        until(lambda: [one.name for one in watched.events] == ["spark_watch_failed"])
        watch.close()


@pytest.mark.spark
@pytest.mark.real_broker
@pytest.mark.timeout(400)
class TestOnSpark:
    """In a stream: data loss by failOnDataLoss, as the official source has it."""

    def test_a_held_topic_that_loses_records_fails_the_query(
        self, lake: Lake, controller: Controller
    ) -> None:
        """It is said which records, and what to do."""
        lake.produce(lake.orders, 10)
        controller.pause(lake.orders)
        query = lake.start(
            trigger={"processingTime": "100 milliseconds"}, holds_watchIntervalMs="50"
        )
        until(lambda: (lake.orders, 0) in controller.lag(), query)
        with KafkaAdminClient(**lake.broker.client_config) as admin:
            admin.delete_records({TopicPartition(lake.orders, 0): 4})
        with pytest.raises(Exception, match=r"deleted offsets 0 to 3.*failOnDataLoss"):
            query.awaitTermination(LIMIT)

    def test_a_held_topic_that_is_deleted_while_a_batch_is_planned_is_named(
        self, lake: Lake, controller: Controller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The official source sees it first then, and its words name no topic."""
        real, doomed = Stream.plan, threading.Event()

        def plan(self: Stream, facts: Any) -> Any:  # noqa: ANN401 - pairs of text
            said = real(self, facts)
            if doomed.is_set():
                doomed.clear()
                lake.broker.delete_topic(lake.orders)
                until(lambda: is_gone(lake))
            return said

        monkeypatch.setattr(Stream, "plan", plan)
        controller.pause(lake.orders)
        query = lake.start(trigger={"processingTime": "100 milliseconds"})
        until(lambda: (lake.orders, 0) in controller.lag(), query)
        doomed.set()
        gone = rf"{lake.orders}:0: it is gone.*UnknownTopicOrPartitionException"
        with pytest.raises(Exception, match=gone):
            query.awaitTermination(LIMIT)

    def test_a_run_that_ends_by_itself_looks_before_it_ends(
        self, lake: Lake, controller: Controller
    ) -> None:
        """A watch that looks every 30 s would come too late."""
        lake.produce(lake.orders, 10)
        controller.pause(lake.orders)
        lake.run()
        with KafkaAdminClient(**lake.broker.client_config) as admin:
            admin.delete_records({TopicPartition(lake.orders, 0): 4})
        with pytest.raises(Exception, match=r"deleted offsets 0 to 3.*failOnDataLoss"):
            lake.run()
        lake.run(failOnDataLoss="false")

    def test_a_held_topic_that_is_made_again_shorter_lets_others_go_on(
        self, lake: Lake, controller: Controller
    ) -> None:
        """With failOnDataLoss=false; AvailableNow refuses ends beyond what is there."""
        lake.produce(lake.orders, 10)
        lake.run()
        lake.broker.delete_topic(lake.orders)
        recreate(lake)
        lake.produce(lake.orders, 3)
        lake.produce(lake.returns, 5)
        controller.pause(lake.orders)
        lake.run(failOnDataLoss="false")
        assert lake.rows(lake.returns) == lake.produced(lake.returns)
        lake.produce(lake.returns, 5)
        lake.run(failOnDataLoss="false")
        assert lake.rows(lake.returns) == lake.produced(lake.returns)
        assert sum(lake.rows(lake.orders).values()) == 40


def is_gone(lake: Lake) -> bool:
    with KafkaAdminClient(**lake.broker.client_config) as admin:
        (found,) = admin.describe_topics([lake.orders])
    return not found["partitions"]


def recreate(lake: Lake) -> None:
    def create() -> None:
        lake.broker.create_topic(lake.orders, lake.partitions)

    retried(create, KafkaError, limit=LIMIT)  # it is still being deleted for a while
