"""Reports to operators what this member obeys, at each change and every few seconds."""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol

from attrs import frozen

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.group import report_wire
from safeconsumer.group.barrier import Offsets
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.control_clients import StatusTopic
from safeconsumer.group.report_wire import Kept, Report
from safeconsumer.holds.explain import hold_line
from safeconsumer.holds.hold import OUTAGES, Hold
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.resets import Resets
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import View

log = logging.getLogger("safeconsumer.group")

# Seconds; changes within this time make one report, so that an application that pauses
# in a loop does not flood the topic.
_SETTLE = 0.05
# Seconds between two tries where the status topic was not found.
_REST = 20.0
# The year 2011; earlier times are not taken for a clock's.
_KAFKA_MS = 1_293_840_000_000
# Seconds for the client of a member that nobody closes.
_END_SECONDS = 2.0
# Seconds between reports until the broker's time is known: holds cannot expire before.
_RETRY = 3.0
# The host that reports name, for people.
HOST = socket.gethostname()[:100]
# Of what is not moved yet, if nothing is known to be in the way.
MOVING = "is being moved"
# The most characters of a client's name in its reports' name, which readers limit.
_MOST_NAME = 200


@frozen(kw_only=True)
class ControlStatus:
    """
    What a report says of the control topics.

    Attributes:
        state: ``ready`` or ``unavailable``.
        skipped: how many records could not be read.
        applied: the offsets up to which it obeys.
        kept: holds that it obeys although their topic was created again since.
        resets: where it moves its partitions; None: it moves nothing.
        gated: how many partitions wait for the control topics.
    """

    state: str
    skipped: int
    applied: Offsets
    kept: tuple[Hold, ...] = ()
    resets: Resets | None = None
    gated: int = 0


class Shows(Protocol):
    """Shows what is held, what is owned, and what of it is quiet; a ledger does."""

    def view(self) -> View:
        """Return all that of one moment."""


class InHand(Protocol):
    """
    The questions that a report asks of a consumer's client, or of a Spark stream.

    Any thread asks, the ledger first, then what is in hand: what is held from now on may
    have been given out just before. What is in hand is not reported as quiet.
    """

    @property
    def ledger(self) -> Shows:
        """Has the holds."""

    def busy(self) -> Collection[TopicPartition]:
        """Return the partitions of which the program, or a worker, has records in hand."""

    def busy_elsewhere(self) -> Iterable[TopicPartition]:
        """Return what the program itself says of its threads; it may raise anything."""

    def membership(self) -> tuple[str, int]:
        """Return Kafka's member id and the generation; empty and -1 outside a group."""

    def recreated(self) -> Collection[str]:
        """Return the topics that were recreated, of which nothing was read yet."""


class Client(InHand, Protocol):
    """The client whose holds group control keeps."""

    ledger: PauseLedger

    def call_after_joins(self, call: Callable[[], object]) -> None:
        """Have a function called after each completed join; it must be quick."""

    def note_broker_time(self, at: float, sent: float, received: float) -> None:
        """Note that the broker's clock showed a time between two monotonic moments."""

    def carry_out(self, resets: Resets) -> bool:
        """Move owned partitions to the targets of resets from now on; False: it cannot."""


class Reporter:
    """
    Sends reports on a separate thread, for which nothing waits.

    Args:
        topic: writes the status topic; where that is missing, its client is closed,
            since it would ask for the topic ten times a second.
        interval: seconds between reports while nothing changes.
        tell: returns the reports; called with ``stopped`` at the end, otherwise None.
        clock: gets the times that the broker puts into reports.
    """

    def __init__(
        self,
        *,
        topic: StatusTopic,
        interval: float,
        tell: Callable[[str | None], Iterable[Report]],
        clock: BrokerClock,
    ) -> None:
        self._topic = topic
        self._interval = interval
        self._tell = tell
        self._soon = min(interval, _RETRY)
        self._clock = clock
        # Unlike an Event's, its put() may interrupt itself: signal handlers pause, too.
        self._changes: SimpleQueue[None] = SimpleQueue()
        self._stopping = InterruptibleEvent()
        self._is_missing = False
        self._is_given_up = False
        self._is_abandoned = False
        self._thread = threading.Thread(
            target=self._run, name="safeconsumer-status", daemon=True
        )

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def wake(self) -> None:
        """Report soon, because something changed. Any thread; it does not block."""
        self._changes.put(None)

    def ask_to_stop(self) -> None:
        """Let it send a last report and end, without waiting for it."""
        self._stopping.set()
        self._changes.put(None)

    def abandon(self) -> None:
        """Let it send a last report, close its client, and end; it takes no lock."""
        self._is_abandoned = True
        self.ask_to_stop()

    def stop(self, until: float) -> None:
        """
        Send a last report, and end the thread.

        Args:
            until: how long to wait for that, on the monotonic clock; a thread that has
                not ended by then begins no further report.
        """
        self.ask_to_stop()
        self._thread.join(max(0.0, until - time.monotonic()))
        self._is_given_up = True

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._say()
            is_settled = self._clock.is_settled
            with suppress(Empty):
                self._changes.get(timeout=self._interval if is_settled else self._soon)
            self._stopping.wait(_REST if self._is_missing else _SETTLE)
            with suppress(Empty):
                while True:
                    self._changes.get_nowait()
        self._say(state="stopped")
        if self._is_abandoned:
            self._topic.close(time.monotonic() + _END_SECONDS)

    def _say(self, state: str | None = None) -> None:
        if self._is_given_up:  # the program may have taken down what busy asks
            return
        try:
            for report in self._tell(state):
                self._send(report)
            self._is_missing = False
        except Exception as error:
            log.debug("a report could not be sent", exc_info=True)
            self._is_missing = self._topic.is_missing(error)
            if self._is_missing:
                self._topic.drop()
            self._failed(error)

    def _send(self, report: Report) -> None:
        self._topic.send(
            report_wire.encode_report_key(report.group, report.member),
            report_wire.encode_report(report),
            report.at_ms,
            partial(self._acknowledged, report.at_ms),
            self._failed,
        )

    def _acknowledged(self, at_ms: int, written_ms: int, sent: float) -> None:
        now = time.monotonic()
        # If our own time was kept, the topic does not have the broker's times.
        if written_ms == at_ms or written_ms < _KAFKA_MS:
            self._clock.untold(now, is_final=True)
        else:
            self._clock.told(written_ms / 1000, sent, now)

    def _failed(self, error: BaseException) -> None:
        is_final = self._topic.is_refused(error)
        self._clock.untold(time.monotonic(), is_final=is_final)


class MemberReports:
    """
    Makes the reports of one member, or of a Spark stream.

    Args:
        group: the consumer group.
        client_id: the consumer's ``client_id``.
        look: returns the state of the control topics.
        client: answers what it obeys, and has in hand.
        skew: seconds by which this member lifts holds late.
    """

    def __init__(
        self,
        *,
        group: str,
        client_id: str,
        look: Callable[[], ControlStatus],
        client: InHand,
        skew: float,
    ) -> None:
        shown = report_wire.for_people(client_id)[:_MOST_NAME]
        self.member = f"{shown}-{uuid.uuid4().hex[:12]}"  # as no other member has
        self._group = group
        self._client_id = client_id
        self._look = look
        self._client = client
        self._skew = skew
        self._has_failed = False

    def tell(self, state: str | None = None) -> tuple[Report, ...]:
        """Return what would be reported now."""
        return (self.report(state),)

    def report(self, state: str | None = None) -> Report:
        """Return the report of now; with a state, it owns nothing any more."""
        seen = self._look()
        view = self._client.ledger.view()
        busy = {*self._client.busy(), *self._busy_elsewhere(view)}
        member_id, generation = self._client.membership()
        return Report(
            group=self._group,
            member=self.member,
            client_id=self._client_id,
            host=HOST,
            state=state or seen.state,
            at_ms=int(time.time() * 1000),
            applied={tp[0]: offset for tp, offset in seen.applied.items()},
            holds=sum(hold.is_remote for hold in view.holds),
            skipped=seen.skipped,
            assigned=report_wire.ranges(view.partitions()) if state is None else {},
            quiet=report_wire.ranges(set(view.quiet) - busy) if state is None else {},
            kept=tuple(
                Kept(owner=one.owner, scope=str(one.scope), line=hold_line(one))
                for one in seen.kept
            ),
            recreated=tuple(self._client.recreated()),
            member_id=member_id,
            generation=generation,
            resets=None
            if seen.resets is None
            else unmoved_of(seen.resets, {*view.partitions()}),
            busy=report_wire.ranges(busy),
            skew=self._skew,
            gated=seen.gated,
            outages=tuple(
                hold_line(hold) for hold in view.holds if hold.owner in OUTAGES
            ),
        )

    def _busy_elsewhere(self, view: View) -> frozenset[TopicPartition]:
        # Also of what was taken away: its next owner's word does not cover that.
        try:
            named = self._client.busy_elsewhere()
            return frozenset((str(topic), int(number)) for topic, number in named)
        except BaseException:
            if not self._has_failed:
                self._has_failed = True
                log.exception("consumer.busy failed: what is held counts as busy")
            return frozenset(view.partitions())


def unmoved_of(resets: Resets, owned: Collection[TopicPartition]) -> tuple[str, ...]:
    """Return why partitions are not moved yet, as a report says it."""
    pending = dict.fromkeys(resets.pending() & {tuple(tp) for tp in owned}, MOVING)
    several = sorted({**pending, **resets.troubles}.items())
    return tuple(
        f"{topic}:{number} {report_wire.for_people(why)}"
        for (topic, number), why in several
    )
