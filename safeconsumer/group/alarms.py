"""Emits events about the holds topic: it is lost, read again, unfit, or recreated."""

import math

from safeconsumer.group import events as control_events
from safeconsumer.group import topics
from safeconsumer.group.control_clients import RecreatedTopic
from safeconsumer.holds.ledger import PauseLedger

# Seconds of reading without a failure before a lost topic counts as read again: a
# broker may refuse a fetch, and it answers every fetch within fetch_max_wait_ms.
_SETTLED = 1.0
# Seconds after an outage within which the next is reported only if it lasts.
_UNSTEADY = 60.0
_LASTING = 10.0


class TopicAlarms:
    """
    Emits the events about one holds topic, for members and Spark streams alike.

    An outage is reported at once, and its end once reading has gone well for a second.
    If a broker flaps, an outage within the next minute is reported only if it lasts ten
    seconds, and its end only if the outage was reported.

    Attributes:
        is_ready: whether everything on the topic was applied, and no failure followed.

    Thread rules: one thread at a time; :meth:`judge` and :attr:`is_ready` on any. Events
    wait for the ledger's ``deliver()``.
    """

    def __init__(self, ledger: PauseLedger, topic: str) -> None:
        self._ledger, self._topic = ledger, topic
        self._is_reported = self._is_advised = False
        self._over_at = -math.inf
        self._lost_at: float | None = None
        self._read_at: float | None = None
        self.is_ready = False

    def lost(self, reason: str) -> None:
        """Note that the topic cannot be read; the reader calls this at each failure."""
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
        Note that the topic is read to its end; the reader repeats this call.

        Args:
            holds: the number of holds in force.
            seconds: the time that reading took.

        Returns:
            Whether it became ready by this call.
        """
        if self.is_ready:  # nearly every call
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
        """Emit an event: the topic was recreated, or lost records."""
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
            ControlTopicError: the topic is unfit; the message has advice.
        """
        topics.require_fit(facts)
        advice = topics.advice(facts)
        if advice:
            self._advise("; ".join(advice))

    def trusted(self) -> None:
        """Emit once that the topic is not checked, as ``trust_topic=True`` asks for."""
        self._advise(
            f"Control(trust_topic=True) skips the check: run safeconsumer doctor to see "
            f"whether {self._topic} is compacted, as another topic loses holds"
        )

    def _advise(self, reason: str) -> None:
        if not self._is_advised:
            self._is_advised = True
            self._ledger.emit(
                control_events.ControlUnchecked, topics=(self._topic,), reason=reason
            )
