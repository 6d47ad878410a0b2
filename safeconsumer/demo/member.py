"""Runs the member of a scenario's group that is observed."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition

from safeconsumer.demo.clients import Level, covers
from safeconsumer.demo.other import Other
from safeconsumer.demo.results import CannotPlayError
from safeconsumer.demo.stage import (
    FIRST_POLL_MS,
    PATIENCE,
    POLL_MS,
    Stage,
)

NAME = "watched"

# A rebalance takes seconds; where a member must be thrown out first, that takes its
# session timeout (6 s at Kafka's default minimum) in addition.
GAIN_PATIENCE = 15.0

# A resumed partition must deliver within fetch.max.wait.ms (500), a round trip and a
# poll (250); this is more than twice as much.
DRAIN_PATIENCE = 2.0


class Member:
    """
    One consumer whose deliveries are judged.

    Attributes:
        consumer: the client's consumer itself.
        lost: set once the consumer has learnt that it lost its membership.
    """

    def __init__(self, stage: Stage, *topics: str, **configs: Any) -> None:  # noqa: ANN401 - kafka-python's keys and types
        self.stage = stage
        self.lost = threading.Event()
        self.consumer = stage.consumer(stage.client.make, **configs)
        if topics:
            self.subscribe(*topics)

    def subscribe(
        self, *topics: str, pattern: str | None = None, is_watched: bool = True
    ) -> None:
        """Subscribe to topics or a pattern, with a rebalance listener or without."""
        listener = _Watch(self) if is_watched else None
        self.consumer.subscribe(topics, pattern=pattern, listener=listener)

    def assignment(self) -> set[TopicPartition]:
        """Return what is assigned here, by the consumer's own account."""
        return set(self.consumer.assignment())

    def owns(self, partitions: int) -> bool:
        """Whether so many partitions are assigned here."""
        return len(self.assignment()) == partitions

    def say(self, step: str) -> None:
        """Tell what happens now."""
        self.stage.say(step, self.consumer)

    # ------------------------------------------------------------ polling

    def poll(self, timeout_ms: int = POLL_MS, max_records: int | None = None) -> int:
        """Poll once and have what came judged; return how many records came."""
        self.stage.check()
        batches = self.consumer.poll(timeout_ms, max_records=max_records)
        tally = self.stage.tally
        tally.owned(NAME, self.consumer.assignment())
        for tp, records in batches.items():
            for record in records:
                tally.delivered(NAME, tp, record.offset)
        self.stage.show(self.consumer)
        return sum(map(len, batches.values()))

    def until(
        self,
        condition: Callable[[], bool],
        what: str,
        turn: Callable[[], object] | None = None,
    ) -> None:
        """
        Poll until the condition is met.

        Raises:
            CannotPlayError: it was not in time.
        """
        self.stage.until(condition, what, turn or self.poll)

    def await_all(self) -> None:
        """
        Join a group that nobody else is in, and poll until every partition is here.

        Raises:
            CannotPlayError: it was not in time.
        """
        self.until(
            lambda: self.owns(len(self.stage.partitions)),
            "all partitions",
            lambda: self.poll(FIRST_POLL_MS),
        )

    def await_share(self, other: Other, partitions: int) -> None:
        """
        Join a group with one other member, and poll until each has so many partitions.

        With long polls: the stock client forgets a join that lasts longer than one.

        Raises:
            CannotPlayError: it was not in time.
        """
        self.until(
            lambda: self.owns(partitions) and other.owns(partitions),
            f"{partitions} partitions each",
            lambda: self.poll(FIRST_POLL_MS),
        )

    def await_gain(
        self, condition: Callable[[], bool], turn: Callable[[], object] | None = None
    ) -> None:
        """
        Poll until partitions are here that this member should gain, or give them up.

        A client that never gets them has lost their records: they will be missing.
        """
        with suppress(CannotPlayError):
            self.stage.until(condition, "", turn or self.poll, GAIN_PATIENCE)

    def read(self, records: int) -> None:
        """Read at least so many records, then commit and wait for the answer."""
        missing = self.stage.tally.missing
        goal = missing() - records
        self.until(
            lambda: missing() <= goal,
            f"{records} records to start with",
            lambda: self.poll(max_records=10),
        )
        self.commit()

    def commit(self) -> None:
        """Commit the positions and wait for the answer."""
        patience = PATIENCE * 1000
        self.consumer.commit(timeout_ms=patience)
        positions = {
            tp: self.consumer.position(tp, timeout_ms=patience)
            for tp in self.assignment()
        }
        self.stage.tally.committed(positions)

    def linger(self, rounds: int = 5, timeout_ms: int = 250) -> None:
        """Poll several full rounds, for what must not come; a fetch takes less than one."""
        for _ in range(rounds):
            self.poll(timeout_ms)

    def drain(self, also: Callable[[], object] = lambda: None) -> None:
        """Poll until every record was delivered, or none came for a while."""
        missing = self.stage.tally.missing
        left, deadline = missing(), time.monotonic() + DRAIN_PATIENCE
        while left and time.monotonic() < deadline:
            also()
            self.poll(250)
            if missing() < left:
                left, deadline = missing(), time.monotonic() + DRAIN_PATIENCE
        # What was written during the last turns may still be on its way.
        while self.poll(250):
            pass

    # ------------------------------------------------------------ pausing

    def pause(self, *tps: TopicPartition) -> None:
        """Pause partitions: the same call with either client."""
        self.stage.tally.paused(frozenset(tps).__contains__)
        self.consumer.pause(*tps)
        self.stage.show(self.consumer)

    def pause_level(self, level: Level) -> None:
        """Pause a topic, a pattern or everything, as a program would with this client."""
        self.stage.tally.paused(lambda tp: covers(level, tp))
        self.stage.client.pause(self.consumer, level)
        self.stage.show(self.consumer)

    def resume(self, *tps: TopicPartition) -> None:
        """Resume partitions: the same call with either client."""
        self.stage.tally.resumed()
        self.consumer.resume(*tps)

    def resume_level(self, level: Level) -> None:
        """End the pause of a level."""
        self.stage.tally.resumed()
        self.stage.client.resume(self.consumer, level)


class _Watch(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python ships no type information
    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._member.stage.tally.assigned(NAME, assigned)

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Nothing to do: what the consumer works on is asked for at each poll."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:  # noqa: ARG002 - upstream's signature
        self._member.lost.set()
