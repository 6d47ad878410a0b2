"""What the scripts share: a broker in this process, topics with records, and patience."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from safeconsumer.testing import EmbeddedBroker
from safeconsumer.testing.scenarios import SCENARIOS, STOCK, Setting, play
from safeconsumer.testing.scenarios.results import Counts
from tests.harness.producing import produce
from tests.harness.waiting import looks


@contextmanager
def a_topic(records: int = 0, partitions: int = 1) -> Iterator[EmbeddedBroker]:
    """Yield a broker with the topic ``orders``, so many records in each partition."""
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", partitions)
        with closing(KafkaProducer(**broker.client_config)) as producer:
            produce(producer, "orders", *[records] * partitions)
        yield broker


def stock(broker: EmbeddedBroker, group: str | None = None, **more: Any) -> Any:  # noqa: ANN401 - untyped
    """Return kafka-python's own consumer."""
    config = {**broker.client_config, **(broker.group_config if group else {})}
    config |= {"group_id": group, "auto_offset_reset": "earliest"}
    return KafkaConsumer(**{**config, "enable_auto_commit": False, **more})


def played(name: str) -> Counts:
    """Play a scenario of the demo with kafka-python's own consumer."""
    (scenario,) = (one for one in SCENARIOS if one.name == name)
    with EmbeddedBroker() as broker:
        setting = Setting(broker=broker, report=lambda _progress: None)
        return play(scenario, STOCK, setting).counts


def until(condition: Callable[[], object], turn: Callable[[], object]) -> None:
    """Take turns until the condition is met; 20 s at most."""
    for _ in looks(condition, "the set-up; nothing is shown", 20):
        turn()


def tp(number: int = 0) -> TopicPartition:
    """Return a partition of the topic."""
    return TopicPartition("orders", number)
