"""Reads holds from the holds topic in the driver, up to the topic's end at each plan."""

import math
import threading
import time
from contextlib import suppress

from safeconsumer.errors.base import (
    ClientPropertyError,
    ControlTopicError,
    HoldsUnreadableError,
    SafeConsumerError,
)
from safeconsumer.events.dispatch import Hook
from safeconsumer.group.alarms import TopicAlarms
from safeconsumer.group.reports import ControlStatus
from safeconsumer.group.state import ControlState
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.view import Holds
from safeconsumer.spark.clients import Clients

# Seconds between checks of the topic's settings, as for members; each new connection
# also checks them.
_CHECK = 300.0
# The longest wait of one poll, in milliseconds; a poll returns at the first record, so
# this only limits the delay at the end of a read.
_POLL_MS = 20


class ControlFollower:
    """
    Reads the holds that were placed for one consumer group.

    After a plan has started, it requests the topic's end and reads up to that end, so
    it obeys every hold that was acknowledged before the plan started.

    Thread rules: any thread may use this; one thread reads at a time, and the others
    wait for it.

    Args:
        clients: creates the clients.
        topic: the holds topic.
        group: the consumer group.
        skew: seconds by which a hold is kept beyond its end, because clocks may differ.
        timeout: the maximum number of seconds for which a plan waits.
        hooks: functions that receive events about the holds topic.
    """

    def __init__(  # noqa: PLR0913 - a reader has these parts
        self,
        clients: Clients,
        topic: str,
        group: str,
        *,
        skew: float,
        timeout: float,
        hooks: tuple[Hook, ...],
    ) -> None:
        self._topic = topic
        self._timeout = timeout
        self._clients = clients
        self._reader = clients.holds_topic(topic)
        self._ledger = PauseLedger(hooks, client_id="spark", group_id=group)
        self._state = ControlState(group, self._ledger, skew)
        self._reading = threading.Lock()
        self._is_closed = False
        self._alarms = TopicAlarms(self._ledger, topic)
        self._checked_at = -math.inf

    def status(self) -> ControlStatus:
        """Return whether the holds topic can be read, and how far it was read."""
        return ControlStatus(
            state="ready" if self._alarms.is_ready else "unavailable",
            skipped=self._state.skipped,
            applied=dict(self._reader.positions),
            kept=self._state.kept(),
        )

    def known_holds(self) -> Holds:
        """Return the holds that are known now, without a request."""
        return self._ledger.view().holds

    def current_holds(self) -> Holds:
        """
        Return every hold that was acknowledged before this call.

        Raises:
            ClientPropertyError: a property of the clients is not acceptable.
            ControlTopicError: the settings of the holds topic would let Kafka delete
                holds.
            HoldsUnreadableError: the holds topic was not read in time.
        """
        until = time.monotonic() + self._timeout
        try:
            if not self._reading.acquire(timeout=self._timeout):
                raise TimeoutError
            try:
                self._read_all(until)
            finally:
                self._reading.release()
        except (ClientPropertyError, ControlTopicError) as error:
            self._lose(str(error))
            raise
        except self._clients.errors as error:
            why = self._clients.reason(self._topic, error)
            self._lose(why)
            message = (
                f"holds.control: {self._topic} could not be read within "
                f"{self._timeout:g} s: {why}"
            )
            # without the cause, which would print Java's stack trace
            raise HoldsUnreadableError(message) from None
        self._ledger.deliver()
        return self.known_holds()

    def refresh(self) -> None:
        """Read the topic up to its end; :meth:`status` shows whether that succeeded."""
        with suppress(SafeConsumerError):
            self.current_holds()

    def close(self) -> None:
        """End the clients."""
        self._is_closed = True
        with self._reading:
            self._reader.close()

    # ------------------------------------------------------------ reading

    def _read_all(self, until: float) -> None:
        if self._is_closed:
            raise ConnectionError
        began = time.monotonic()
        try:
            self._check(until)
            for remade in self._reader.begin(until):
                self._state.topic_recreated()
                self._alarms.recreated(remade)
            self._read_to_end(until)
        except BaseException:
            self._reader.close()
            self._checked_at = -math.inf
            raise
        self._alarms.read(self._state.count(), time.monotonic() - began)

    def _read_to_end(self, until: float) -> None:
        while not self._reader.is_complete:
            if time.monotonic() > until:
                raise TimeoutError
            self._state.absorb(self._topic, self._reader.turn(_POLL_MS))

    def _check(self, until: float) -> None:
        if time.monotonic() - self._checked_at < _CHECK:
            return
        self._alarms.judge(self._reader.facts(until))
        self._checked_at = time.monotonic()

    def _lose(self, reason: str) -> None:
        if not self._is_closed:
            self._alarms.lost(reason)
        self._ledger.deliver()
