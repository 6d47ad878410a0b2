"""Provides one client in one scenario with topics, a group and members."""

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from attrs import field, frozen
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from safeconsumer.demo.clients import Client
from safeconsumer.demo.results import (
    CancelledError,
    CannotPlayError,
    PartitionView,
    Progress,
    Report,
    State,
)
from safeconsumer.demo.tally import Row, Tally
from safeconsumer.events import Event, RebalanceCompleted
from safeconsumer.testing.clients import Clients
from safeconsumer.testing.embedded import EmbeddedBroker
from safeconsumer.testing.existing import ExistingCluster

# Longest wait for anything a broker or a group does by itself. A rebalance takes
# 1 to 3 s on the brokers used here, an eviction one session timeout more.
PATIENCE = 60.0

# The first poll of a member that leads its group. It often joins twice, because the
# topic's metadata comes late; a stock leader forgets the second join if its poll ends
# during it, and is left behind for ever. Only one scenario is about that.
FIRST_POLL_MS = 2000
POLL_MS = 500

# What is produced at once to a partition is one batch there, and one fetch later.
_ONE_BATCH = {"linger_ms": 20, "batch_size": 1 << 20}

# Names of topics and groups begin with it, so that a person who finds one that was
# left behind knows where it came from.
PREFIX = "safeconsumer-demo"


@frozen(kw_only=True)
class Setting:
    """
    What all plays of one demo have in common.

    Attributes:
        broker: where they play.
        report: takes their progress.
        cancelled: set it to make them stop at their next poll.
        watch: is given every consumer that is made here; what it returns is called
            before that is closed.
    """

    broker: EmbeddedBroker | ExistingCluster
    report: Report
    cancelled: threading.Event = field(factory=threading.Event)
    watch: Callable[[KafkaConsumer], Callable[[], object]] | None = None


class Stage:
    """
    Gives a scenario its own topics and group, and closes all members at the end.

    Attributes:
        client: the client that plays.
        tally: the referee.
        prefix: what the names of its topics and its group begin with.
        partitions: of all its topics.
        is_evicted: whether a consumer here has learnt that it lost its membership; of
            clients that tell.

    Thread rules: one thread plays.
    """

    def __init__(
        self, scenario: str, client: Client, setting: Setting, tally: Tally
    ) -> None:
        self.client = client
        self.tally = tally
        self.prefix = f"{PREFIX}-{uuid.uuid4().hex[:8]}-"
        self._scenario = scenario
        self._setting = setting
        self._step = ""
        self._clients = Clients(setting.broker)
        self._producer: KafkaProducer = self._clients.producer(**_ONE_BATCH)
        self._closing = ExitStack()
        self._closing.callback(self._clients.close)
        self.partitions: tuple[TopicPartition, ...] = ()
        self.is_evicted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.close()

    def at_end(self, close: Callable[[], object]) -> None:
        """Call this when the scenario is over, before all clients are closed."""
        self._closing.callback(close)

    # ------------------------------------------------------------ topics

    def topic(self, label: str, partitions: int = 4, *, records: int = 0) -> str:
        """Make a topic with so many records in each partition; return its full name."""
        name = self.prefix + label
        self._setting.broker.create_topic(name, partitions)
        tps = tuple(TopicPartition(name, number) for number in range(partitions))
        self.partitions += tps
        self.tally.watched(tps)
        self.produce(tps, records)
        return name

    def control_topic(self, label: str, settings: Mapping[str, str]) -> str:
        """Make a topic of one partition that is no part of the play; return its name."""
        name = self.prefix + label
        self._setting.broker.create_topic(name, 1, settings)
        return name

    def connection(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what a client needs to reach the broker, and what a member does."""
        broker = self._setting.broker
        reach = dict(broker.client_config)
        member = {
            **reach,
            **broker.group_config,
            "group_id": self.prefix + "group",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        }
        return reach, member

    def pattern(self) -> str:
        """Return what a consumer subscribes to that wants every topic of this stage."""
        return f"^{re.escape(self.prefix)}.*"

    def label(self, tp: TopicPartition) -> str:
        """Return a partition's name without what only this stage needs."""
        return f"{tp.topic.removeprefix(self.prefix)}:{tp.partition}"

    def produce(
        self, tps: Iterable[TopicPartition] | None = None, records: int = 1
    ) -> None:
        """Write so many records to each partition (None: all) and await the answers."""
        sent = [
            self._producer.send(tp.topic, b"record", partition=tp.partition)
            for tp in (self.partitions if tps is None else tps)
            for _ in range(records)
        ]
        for future in sent:
            written = future.get(timeout=PATIENCE)
            tp = TopicPartition(written.topic, written.partition)
            self.tally.produced(tp, written.offset)

    # ------------------------------------------------------------ members

    def consumer(
        self,
        make: Callable[..., KafkaConsumer],
        *,
        is_member: bool = True,
        **configs: Any,  # noqa: ANN401 - kafka-python's keys and types
    ) -> KafkaConsumer:
        """Make a consumer, of this stage's group or of none."""
        group = self.prefix + "group" if is_member else None
        if self.client.tells and make is self.client.make:
            configs["hooks"] = [self._hear]
        consumer: KafkaConsumer = self._clients.consumer(make, group=group, **configs)
        if self._setting.watch is not None:
            self._closing.callback(self._setting.watch(consumer))
        return consumer

    def _hear(self, event: Event) -> None:
        if isinstance(event, RebalanceCompleted) and event.lost:
            self.is_evicted = True

    def member_config(self) -> dict[str, Any]:
        """Return what a member in another process needs to reach the broker, as JSON."""
        broker = self._setting.broker
        return {**broker.client_config, **broker.group_config}

    # ------------------------------------------------------------ time

    def check(self) -> None:
        """Leave the scenario if it was asked to stop."""
        if self._setting.cancelled.is_set():
            raise CancelledError

    def rest(self, seconds: float) -> None:
        """Do nothing for a while, as a busy or idle program."""
        if self._setting.cancelled.wait(seconds):
            raise CancelledError

    def until(
        self,
        condition: Callable[[], bool],
        what: str,
        turn: Callable[[], object],
        patience: float = PATIENCE,
    ) -> None:
        """
        Take turns until the condition is met.

        Raises:
            CannotPlayError: it was not in time; the message says what was awaited.
        """
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                message = f"waited {patience:.0f} s in vain: {what}"
                raise CannotPlayError(message)
            self.check()
            turn()

    # ------------------------------------------------------------ telling

    def say(self, step: str, consumer: KafkaConsumer | None = None) -> None:
        """Tell what happens now."""
        self._step = step
        self.show(consumer)

    def show(self, consumer: KafkaConsumer | None) -> None:
        """Report how the partitions stand."""
        assigned = consumer.assignment() if consumer else set()
        paused = consumer.paused() if consumer else set()
        views = (
            PartitionView(
                label=self.label(row.tp),
                state=_state(row, assigned, paused),
                produced=row.produced,
                delivered=row.delivered,
                wrong=row.wrong,
            )
            for row in self.tally.rows()
        )
        self._setting.report(
            Progress(
                scenario=self._scenario,
                client=self.client.name,
                step=self._step,
                partitions=tuple(views),
            )
        )


def _state(
    row: Row,
    assigned: AbstractSet[TopicPartition],
    paused: AbstractSet[TopicPartition],
) -> State:
    if row.tp not in assigned:
        return State.ELSEWHERE
    if row.tp in paused:
        return State.PAUSED
    return State.PAUSE_LOST if row.is_wished_paused else State.FLOWING
