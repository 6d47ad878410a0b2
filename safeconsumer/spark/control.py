"""
Holds on the control topics, read in the driver, with the barrier at every plan.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from safeconsumer.errors import HoldsUnreadableError
from safeconsumer.events import group as control_events
from safeconsumer.events.consumer import Event
from safeconsumer.events.dispatch import Hook
from safeconsumer.group import clients
from safeconsumer.group.barrier import Barrier
from safeconsumer.group.reader import Reader
from safeconsumer.group.reports import Seen
from safeconsumer.group.settings import Control
from safeconsumer.group.state import ControlState
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.state import LedgerState

# What stands behind the barrier is no partition but a plan, by its number.
_PLANS = ""
_SILENT = (
    "nothing was heard of them; do they exist (safeconsumer control init), and is "
    "holds.control.kafka.* right?"
)


class PlanLedger(PauseLedger):
    """
    Keeps the holds of the control topics; what the barrier lets through are plans.
    """

    def __init__(self, hooks: Iterable[Hook], *, group_id: str) -> None:
        super().__init__(hooks, client_id="spark", group_id=group_id)
        self._plans = threading.Condition()
        self._let_through = 0

    def open_gates(self, epochs: Mapping[TopicPartition, int]) -> None:
        """
        Let plans through, up to the greatest of the numbers.
        """
        with self._plans:
            self._let_through = max(self._let_through, *epochs.values())
            self._plans.notify_all()

    def await_plan(self, number: int, timeout: float) -> bool:
        """
        Return whether a plan is let through within so many seconds.
        """
        with self._plans:
            return self._plans.wait_for(lambda: self._let_through >= number, timeout)


class PlanBarrier(Barrier):
    """
    Can forget a plan that nobody waits for any more.
    """

    def forget(self, number: int) -> None:
        """
        Ask no longer for this plan; others may still wait.
        """
        with self._lock:
            self._take(lambda one: (_PLANS, number) in one.epochs)


class ControlFollower:
    """
    Knows the holds of one consumer group that operators and members have placed.

    A plan waits until the topics are read up to an end that is asked after the plan
    began: a hold that was acknowledged before is obeyed by it.

    Thread rules: any thread.

    Args:
        settings: where the control topics are; nothing is reported on.
        group: whose holds they are.
        configs: kafka-python's, for the connection.
        timeout: seconds for which a plan waits at most.
        hooks: take events about the control topics.

    Raises:
        ControlTopicError: a control topic would not keep holds for good.
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
        self._wakers: set[Callable[[], object]] = set()
        self._reader.on_change = self._tell
        self._reader.start(settings.start_timeout)

    def on_change(self, wake: Callable[[], object]) -> None:
        """
        Have something called whenever what is read of the topics may have changed.
        """
        self._wakers |= {wake}

    def seen(self) -> Seen:
        """
        Return how far the control topics are read.
        """
        return Seen(
            state="ready" if self._reader.is_ready else "unavailable",
            skipped=self._state.skipped,
            applied=self._reader.positions(),
            kept=self._state.kept(),
        )

    def _tell(self) -> None:
        for wake in self._wakers:
            wake()

    def state(self) -> LedgerState:
        """
        Return the holds that are known now.
        """
        return self._ledger.view().state

    def fresh(self) -> LedgerState:
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
        """
        End the reader.
        """
        self._reader.stop()
