"""Reads holds from the control topics in the driver, up to date at every plan."""

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from safeconsumer.errors import HoldsUnreadableError
from safeconsumer.events.consumer import Event
from safeconsumer.events.dispatch import Hook
from safeconsumer.group import clients
from safeconsumer.group import events as control_events
from safeconsumer.group.barrier import Barrier
from safeconsumer.group.reader import Reader
from safeconsumer.group.reports import Seen
from safeconsumer.group.settings import Control
from safeconsumer.group.state import ControlState
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import Holds

# The barrier's partitions stand for plans, by their numbers.
_PLANS = ""
_SILENT = (
    "no records were received; do they exist (safeconsumer control init), and is "
    "holds.control.kafka.* right?"
)


class PlanLedger(PauseLedger):
    """Keeps the holds of the control topics; its gates let plans through."""

    def __init__(self, hooks: Iterable[Hook], *, group_id: str) -> None:
        super().__init__(hooks, client_id="spark", group_id=group_id)
        self._plans = threading.Condition()
        self._let_through = 0

    def open_gates(self, epochs: Mapping[TopicPartition, int]) -> None:
        """Let plans through, up to the highest of the numbers."""
        with self._plans:
            self._let_through = max(self._let_through, *epochs.values())
            self._plans.notify_all()

    def await_plan(self, number: int, timeout: float) -> bool:
        """Return whether a plan is let through within so many seconds."""
        with self._plans:
            return self._plans.wait_for(lambda: self._let_through >= number, timeout)


class PlanBarrier(Barrier):
    """A barrier that can forget a plan for which nobody waits any more."""

    def forget(self, number: int) -> None:
        """Ask no longer for this plan; other plans may still wait."""
        with self._lock:
            self._take(lambda one: (_PLANS, number) in one.epochs)


class ControlFollower:
    """
    Reads the holds that operators and members have placed for one consumer group.

    A plan waits until the topics are read up to an end that is asked for after the plan
    began: so it obeys every hold that was acknowledged before.

    Thread rules: any thread.

    Args:
        settings: the names of the control topics; this does not report.
        group: the consumer group.
        configs: kafka-python's settings for the connection.
        timeout: the most seconds for which a plan waits.
        hooks: take events about the control topics.

    Raises:
        ControlTopicError: the settings of a control topic would let Kafka delete holds.
    """

    def __init__(
        self,
        settings: Control,
        group: str,
        configs: Mapping[str, Any],
        *,
        timeout: float,
        hooks: tuple[Hook, ...],
    ) -> None:
        self._topics = settings.topics
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._trouble: str | None = None
        hooks = (self._note, *hooks)
        self._ledger = PlanLedger(hooks, group_id=group)
        self._barrier = PlanBarrier(self._ledger, None)
        sources = ControlState.sources(*settings.topics)
        state = ControlState(group, self._ledger, sources, settings.clock_skew)
        base = clients.connection(configs, settings.client_configs, "spark-control")
        self._reader = Reader(settings, base, self._ledger, state, self._barrier)
        self._state = state
        self._wakers: dict[object, Callable[[], object]] = {}
        self._lock = threading.Lock()  # of these; nothing is called under it
        self._reader.on_change = self._tell
        self._reader.start(settings.start_timeout)

    def on_change(self, wake: Callable[[], object]) -> Callable[[], None]:
        """
        Call a function whenever what was read of the topics may have changed.

        Returns:
            A function that ends this; calling it again does nothing.
        """
        mine = object()  # streams of one reporter pass equal functions
        with self._lock:
            self._wakers[mine] = wake
        return lambda: self._forget(mine)

    def _forget(self, mine: object) -> None:
        with self._lock:
            self._wakers.pop(mine, None)

    def seen(self) -> Seen:
        """Return how far the control topics are read."""
        return Seen(
            state="ready" if self._reader.is_ready else "unavailable",
            skipped=self._state.skipped,
            applied=self._reader.positions(),
            kept=self._state.kept(),
        )

    def _tell(self) -> None:
        with self._lock:
            wakers = tuple(self._wakers.values())
        for wake in wakers:
            wake()

    def state(self) -> Holds:
        """Return the holds that are known now."""
        return self._ledger.view().holds

    def known(self) -> Holds:
        """Return the same as :meth:`state`, which does not read either."""
        return self.state()

    def fresh(self) -> Holds:
        """
        Return every hold that was acknowledged before this call.

        Raises:
            HoldsUnreadableError: the control topics were not read in time.
        """
        number = next(self._numbers)
        self._barrier.close({(_PLANS, number): number})
        if not self._ledger.await_plan(number, self._timeout):
            self._barrier.forget(number)
            why = self._trouble or _SILENT
            message = (
                f"holds.control: {' and '.join(self._topics)} could not be read within "
                f"{self._timeout:g} s: {why}"
            )
            raise HoldsUnreadableError(message)
        return self.state()

    def _note(self, event: Event) -> None:
        match event:
            case control_events.ControlUnavailable():
                self._trouble = event.reason
            case control_events.ControlReady():
                self._trouble = None

    def close(self) -> None:
        """End the reader."""
        self._reader.stop()
