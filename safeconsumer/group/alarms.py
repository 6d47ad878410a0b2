"""Emits events when the holds topic is unreadable, readable again, unfit or recreated."""

import math

from safeconsumer.group import events as control_events
from safeconsumer.group import topics
from safeconsumer.group.control_clients import RecreatedTopic
from safeconsumer.holds.ledger import PauseLedger

# Seconds of reading without a failure before the topic counts as readable again. In
# that time, a broker that refuses fetches would have answered, because it answers
# within fetch_max_wait_ms.
_SETTLED = 1.0
# In this many seconds after an outage, the next outage is reported only once it has
# lasted _LASTING seconds.
_UNSTEADY = 60.0
_LASTING = 10.0


class TopicAlarms:
    """
    Emits the events about one holds topic, for members and Spark streams alike.

    An outage is reported immediately, and its end after a second of reading without a
    failure. In the minute after an outage, the next outage is reported only if it lasts
    ten seconds, in case a broker flaps; its end is reported only if the outage was.

    Attributes:
        is_ready: whether all records on the topic were applied and no failure has
            followed.

    Thread rules: only one thread at a time may use this; any thread may use :meth:`judge` and
    :attr:`is_ready`. The events are delivered by the ledger's ``deliver()``.
    """

    def __init__(self, ledger: PauseLedger, topic: str) -> None:
        self._ledger, self._topic = ledger, topic
        self._is_reported = self._is_advised = False
        self._over_at = -math.inf
        self._lost_at: float | None = None
        self._read_at: float | None = None
        self.is_ready = False

    def lost(self, reason: str) -> None:
        """Handle a failure to read the topic; the reader calls this after each failure."""
        self.is_ready, self._read_at = False, None
        now, _ = self._ledger.now()
        if self._lost_at is None:
            self._lost_at = now
        is_steady = self._lost_at - self._over_at >= _UNSTEADY
        if not self._is_reported and (is_steady or now - self._lost_at >= _LASTING):
            self._is_reported = True
            self._ledger.emit(control_events.ControlUnavailable, reason=reason)

    def read(self, holds: int, seconds: float) -> bool:
        """
        Handle reaching the end of the topic; the reader calls this repeatedly.

        Args:
            holds: the number of holds in force.
            seconds: how long reading took.

        Returns:
            Whether this call made the topic ready.
        """
        if self.is_ready:  # nearly every call returns here
            return False
        now, _ = self._ledger.now()
        if self._read_at is None:
            self._read_at = now
        is_first = self._lost_at is None
        if not is_first and now - self._read_at < _SETTLED:
            return False
        if self._is_reported:
            self._over_at = now
        if self._is_reported or is_first:
            self._ledger.emit(
                control_events.ControlReady,
                topics=(self._topic,),
                holds=holds,
                seconds=round(seconds, 3),
            )
        self._is_reported, self._lost_at, self.is_ready = False, None, True
        return True

    def recreated(self, one: RecreatedTopic) -> None:
        """Emit an event saying that the topic was recreated or has lost records."""
        self._ledger.emit(
            control_events.ControlTopicReset,
            topic=one.topic,
            applied=one.applied,
            end=one.end,
        )

    def judge(self, facts: topics.Facts) -> None:
        """
        Check that the topic is fit to keep holds; emit advice about it once.

        Raises:
            ControlTopicError: the topic is unfit; the message gives advice.
        """
        topics.require_fit(facts)
        advice = topics.advice(facts)
        if advice:
            self._advise("; ".join(advice))

    def trusted(self) -> None:
        """Emit, only once, that the topic is not checked because of ``trust_topic=True``."""
        self._advise(
            f"Control(trust_topic=True) skips the check: run safeconsumer doctor to see "
            f"whether {self._topic} is compacted; a topic that is not loses holds"
        )

    def _advise(self, reason: str) -> None:
        if not self._is_advised:
            self._is_advised = True
            self._ledger.emit(
                control_events.ControlUnchecked, topics=(self._topic,), reason=reason
            )
