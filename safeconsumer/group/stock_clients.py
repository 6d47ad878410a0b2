"""Reads and writes the control topics for members on kafka-python."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import kafka.errors as kafka_errors
from kafka import TopicPartition

from safeconsumer._kafka.of_group.control_reader import EndOffsets
from safeconsumer._kafka.of_group.producers import AskingOnceProducer
from safeconsumer.consumer import SafeConsumer
from safeconsumer.group import clients, described_topics
from safeconsumer.group.barrier import Offsets
from safeconsumer.group.control_clients import Remade
from safeconsumer.group.fold import Written
from safeconsumer.group.topic_reader import TopicReader, written
from safeconsumer.group.topics import Facts

_ASK_TIMEOUT_MS = 5_000
_CLOSE_MS = 500
_WRITE_TIMEOUT = 10.0
# Errors after which the next report is not expected to succeed.
_REFUSED = (
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TopicAuthorizationFailedError,
)


class StockHoldsTopic:
    """A :class:`~safeconsumer.group.control_clients.HoldsTopic` on kafka-python."""

    def __init__(self, base: Mapping[str, Any], name: str) -> None:
        self._base, self._name = base, name
        self._partition = TopicPartition(name, 0)
        self._reader = TopicReader(base)
        self._asker: SafeConsumer | None = None

    @property
    def positions(self) -> Offsets:
        """The offset below which everything was returned."""
        return self._reader.positions

    @property
    def is_complete(self) -> bool:
        """Whether it has read up to where the topic ended at its beginning."""
        return self._reader.is_complete

    def facts(self) -> Facts:
        """Return the topic's settings; raise if it is missing or may not be read."""
        with clients.admin(self._base) as admin:
            described_topics.require(admin, self._name)
            (found,) = described_topics.ask(admin, [self._name])
        return found

    def begin(self) -> tuple[Remade, ...]:
        """Connect; return the topic if it was made again."""
        self._asker = asker = clients.reader(self._base)
        asker.assign([self._partition])
        return self._reader.begin([self._name], asker=asker)

    def turn(self, wait_ms: float) -> Sequence[Written]:
        """Return the next records."""
        polled = self._reader.turn(wait_ms)
        return [written(one) for records in polled.values() for one in records]

    def ask_end(self, answer: Callable[[Offsets | None], object]) -> None:
        """Ask where the topic ends now."""
        EndOffsets(self._asker).ask([self._partition], _ASK_TIMEOUT_MS, answer)

    def wake(self) -> None:
        """End the wait of a turn under way."""
        self._reader.wake()

    def close(self) -> None:
        """Close the clients."""
        with ExitStack() as closing:
            if self._asker is not None:
                closing.callback(
                    self._asker.close, autocommit=False, timeout_ms=_CLOSE_MS
                )
            closing.callback(self._reader.close)


class StockStatusTopic:
    """A :class:`~safeconsumer.group.control_clients.StatusTopic` on kafka-python."""

    def __init__(self, base: Mapping[str, Any], name: str) -> None:
        self._name = name
        self._producer = clients.LazyProducer(
            lambda: clients.producer(base, _WRITE_TIMEOUT, AskingOnceProducer)
        )

    def send(
        self,
        key: bytes,
        value: bytes,
        at_ms: int,
        acknowledged: Callable[[int, float], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        """Send a report."""
        producer = self._producer()
        sent = time.monotonic()
        future = producer.send(
            self._name, key=key, value=value, partition=0, timestamp_ms=at_ms
        )
        future.add_callback(lambda one: acknowledged(one.timestamp, sent))
        future.add_errback(failed)

    def is_missing(self, error: BaseException) -> bool:
        """Tell whether an error says that there is no such topic."""
        return isinstance(error, kafka_errors.KafkaTimeoutError)

    def is_refused(self, error: BaseException) -> bool:
        """Tell whether an error says that this client may not write it."""
        return isinstance(error, _REFUSED)

    def drop(self) -> None:
        """Give up the producer, if there is one."""
        self._producer.drop()

    def close(self, until: float) -> None:
        """Close the producer, if there is one."""
        self._producer.close(until)


class StockClients:
    """
    Makes control clients out of a consumer's kafka-python configuration.

    Args:
        configs: the consumer's configuration.
        more: settings that differ for control clients, as ``Control`` has checked them.
    """

    def __init__(self, configs: Mapping[str, Any], more: Mapping[str, Any]) -> None:
        self.group_id: str | None = configs.get("group_id")
        self.client_id = str(configs.get("client_id") or "")
        self._base = clients.connection(configs, more, "control")

    def holds_topic(self, name: str) -> StockHoldsTopic:
        """Return what reads the holds topic."""
        return StockHoldsTopic(self._base, name)

    def status_topic(self, name: str) -> StockStatusTopic:
        """Return what writes the status topic."""
        return StockStatusTopic(self._base, name)
