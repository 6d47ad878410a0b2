"""Other members of a group, each on a thread of its own, with a record of what they got."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from attrs import field, frozen, mutable
from kafka import ConsumerRebalanceListener
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from tests.harness.regression.support import BOUND, partition_of, wait_until
from tests.harness.waiting import NotReachedError


@frozen
class Delivery:
    """One record given to an application, and when, on the monotonic clock."""

    tp: TopicPartition
    offset: int
    at: float


@frozen(eq=False)
class InListener(ConsumerRebalanceListener):
    """A listener made of functions, each given the set of partitions."""

    assigned: Callable[[set[TopicPartition]], object] = len
    revoked: Callable[[set[TopicPartition]], object] = len

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.assigned(set(assigned))

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.revoked(set(revoked))


@mutable
class Ownership(ConsumerRebalanceListener):
    """Records since when and until when a member owned each partition."""

    since: dict[TopicPartition, float] = field(factory=dict)
    spans: list[tuple[TopicPartition, float, float]] = field(factory=list)

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        now = time.monotonic()
        for tp in assigned:
            self.since.setdefault(tp, now)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        now = time.monotonic()
        for tp in revoked:
            if tp in self.since:
                self.spans.append((tp, self.since.pop(tp), now))

    def owned(self, delivery: Delivery) -> bool:
        """Tell whether this member owned the partition when the record was delivered."""
        now = time.monotonic()
        open_ = [(tp, start, now) for tp, start in list(self.since.items())]
        return any(
            tp == delivery.tp and start <= delivery.at <= end
            for tp, start, end in [*self.spans, *open_]
        )


class Member(threading.Thread):
    """
    A consumer that polls at its own pace until it is told to stop.

    Args:
        consumer: of either client; only this thread polls it.
        pace: seconds between the end of a poll and the next one.
        commits: whether it commits after each poll that gave something.
        poll_ms: what it passes to ``poll`` once something is assigned to it.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - either client
        *,
        pace: float = 0.0,
        commits: bool = False,
        poll_ms: int = 50,
    ) -> None:
        super().__init__(daemon=True)
        self.consumer = consumer
        self.pace = pace
        self.commits = commits
        self.poll_ms = poll_ms
        self.polls = 0
        self.log: list[Delivery] = []
        self.refused: list[KafkaError] = []
        self.error: BaseException | None = None
        self._stop_asked = threading.Event()
        self._may_poll = threading.Event()
        self._may_poll.set()
        self._waits = threading.Event()

    def run(self) -> None:
        try:
            while not self._stop_asked.is_set():
                self._poll_once()
                self._stop_asked.wait(self.pace)
                self._waits.set()
                self._may_poll.wait()
        except Exception as error:  # noqa: BLE001 - told by stop()
            self.error = error

    def _poll_once(self) -> None:
        # A stock member must not forget its first join: it polls that longer.
        wait_ms = self.poll_ms if self.consumer.assignment() else 1000
        batches = self.consumer.poll(wait_ms, max_records=50)
        now = time.monotonic()
        self.log += [
            Delivery(partition_of(record), record.offset, now)
            for batch in batches.values()
            for record in batch
        ]
        self.polls += 1
        if batches and self.commits:
            try:
                self.consumer.commit(timeout_ms=2000)
            except KafkaError as error:
                self.refused.append(error)  # a commit may be refused in a rebalance

    def hold_back(self) -> None:
        """Let it poll no more until :meth:`go_on`; on return no poll is under way."""
        self._may_poll.clear()
        self._waits.clear()
        if not self._waits.wait(BOUND):
            message = "a member did not end its poll"
            raise NotReachedError(message)

    def go_on(self) -> None:
        """Let it poll again, at its pace."""
        self._may_poll.set()

    def wait_for(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until exactly these partitions are assigned to it."""
        wanted = set(partitions)
        wait_until(lambda: self.consumer.assignment() == wanted)

    def stop_polling(self) -> None:
        """End the thread, with the consumer still open."""
        self._stop_asked.set()
        self._may_poll.set()
        if self.ident is None:
            return
        self.join(BOUND)
        if self.is_alive():
            message = "a member did not end its poll"
            raise NotReachedError(message)

    def stop(self) -> None:
        """Leave the group as a consumer does that is closed."""
        self.stop_polling()
        self.consumer.close(autocommit=False, timeout_ms=5000)

    def die(self) -> None:
        """Vanish without a word to the group, as a killed process does."""
        self.stop_polling()

        async def say_nothing(*_args: object, **_named: object) -> None:
            return

        self.consumer._coordinator.maybe_leave_group_async = say_nothing
        self.consumer.close(autocommit=False, timeout_ms=5000)
