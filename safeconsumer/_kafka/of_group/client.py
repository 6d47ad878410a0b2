"""Gives ``safeconsumer.group`` access to a consumer as a member of its group."""

import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

from safeconsumer._kafka.resetting import Resetting
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.resets import Resets
from safeconsumer.holds.scope import TopicPartition


class ConsumerClient:
    """
    A consumer as a member of its group, for ``safeconsumer.group``.

    Thread rules: any thread may call the methods. The object keeps no reference to the
    consumer.

    Attributes:
        ledger: the ledger of the consumer's holds.
        view: a function that returns the ledger's view.
    """

    def __init__(self, consumer: Any) -> None:  # noqa: ANN401 - a SafeConsumer
        self._consumer = weakref.ref(consumer)
        self._coordinator = consumer._coordinator
        self._subscription = consumer._subscription
        self.ledger: PauseLedger = self._subscription.ledger
        self.view = self.ledger.view

    def membership(self) -> tuple[str, int]:
        """Return Kafka's member id and the generation, or "" and -1 outside a group."""
        found: tuple[str, int] = self._coordinator.membership()
        return found

    def busy(self) -> Collection[TopicPartition]:
        """Return the partitions whose records the program or a worker is processing."""
        found: Collection[TopicPartition] = self._subscription.busy()
        return found

    def busy_elsewhere(self) -> Iterable[TopicPartition]:
        """Return the result of the program's ``busy``, which may raise any exception."""
        consumer = self._consumer()
        ask = None if consumer is None else consumer.busy
        return () if ask is None else ask()

    def recreated(self) -> list[str]:
        """Return the recreated topics from which no record was read yet."""
        found: list[str] = self._subscription.recreated()
        return found

    def call_after_joins(self, call: Callable[[], object]) -> None:
        """Call a function after each join, under upstream's locks; it must return quickly."""
        self._subscription.on_joined = call

    def note_broker_time(self, at: float, sent: float, received: float) -> None:
        """Write a broker's clock time to the journal, with the local times around it."""
        if self._subscription.journal is not None:
            self._subscription.journal.clock(at, sent, received)

    def carry_out(self, resets: Resets) -> bool:
        """Start to move owned partitions to the target offsets of resets."""
        consumer = self._consumer()
        if consumer is not None:
            resets.on_change = Resetting(consumer, resets, self._in_use).wake
        return True

    def _in_use(self) -> frozenset[TopicPartition]:
        # If the program's ``busy`` raises, every partition counts as in use, as in a
        # report.
        try:
            named = [(str(topic), int(one)) for topic, one in self.busy_elsewhere()]
        except Exception:  # noqa: BLE001 - the report logs it
            named = list(self._subscription.assignment)
        return frozenset((*self.busy(), *named))
