"""Reports which holds a member obeys, at each change and every few seconds."""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol

from attrs import frozen

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.group import report_wire
from safeconsumer.group.barrier import Offsets
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.control_clients import StatusTopic
from safeconsumer.group.report_wire import KeptHold, Report
from safeconsumer.holds.explain import hold_line
from safeconsumer.holds.hold import OUTAGES, Hold
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.resets import Resets
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import View

log = logging.getLogger("safeconsumer.group")

# Seconds; changes within this time are combined in one report, so that an application
# that pauses in a loop does not flood the topic.
_SETTLE = 0.05
# Seconds to wait before the next report if the status topic was not found.
_REST = 20.0
# The year 2011, when Kafka was first released; no broker's clock shows an earlier time.
_KAFKA_MS = 1_293_840_000_000
# The maximum seconds between reports until the broker's time is known, because no hold
# expires before that.
_RETRY = 3.0
# Seconds to wait for the last report; short, because the group waits until the member
# has left.
_LAST_SECONDS = 1.0
# The name of this host in reports, for people.
HOST = socket.gethostname()[:100]
# The state of a partition that has not been reset yet, without a known obstacle.
MOVING = "is being moved"
# The maximum length of the client id in the member's name, because readers limit the
# name's length.
_MOST_NAME = 200


@frozen(kw_only=True)
class ControlStatus:
    """
    What a report says about the control topics.

    Attributes:
        state: ``ready`` or ``unavailable``.
        skipped: the number of unreadable records.
        applied: the offsets up to which the member obeys the control records.
        kept: the holds that the member obeys although their topic has since been
            recreated.
        resets: the reset targets of the member's partitions; None if the member does
            not carry out resets.
        gated: the number of partitions that are gated until the control topics are
            read.
    """

    state: str
    skipped: int
    applied: Offsets
    kept: tuple[Hold, ...] = ()
    resets: Resets | None = None
    gated: int = 0


class ReportSource(Protocol):
    """
    The state that a report needs from a consumer's client or a Spark stream.

    Any thread may call these methods. A report must read the view of holds before the
    busy partitions, because the program may have received records from a partition just
    before the hold. A busy partition is not reported as quiet.
    """

    @property
    def view(self) -> Callable[[], View]:
        """Returns a view of the obeyed holds, and the owned and quiet partitions."""

    def busy(self) -> Collection[TopicPartition]:
        """Return the partitions whose records the program or a worker is processing."""

    def busy_elsewhere(self) -> Iterable[TopicPartition]:
        """Return the partitions that the program processes on other threads; may raise."""

    def membership(self) -> tuple[str, int]:
        """Return Kafka's member id and the generation; "" and -1 outside a group."""

    def recreated(self) -> Collection[str]:
        """Return the recreated topics from which no new records have been read yet."""


class Client(ReportSource, Protocol):
    """A client. Group control manages its holds."""

    ledger: PauseLedger

    def call_after_joins(self, call: Callable[[], object]) -> None:
        """Call a function, which must be quick, after each completed join."""

    def note_broker_time(self, at: float, sent: float, received: float) -> None:
        """Record that the broker's clock showed ``at`` between two monotonic times."""

    def carry_out(self, resets: Resets) -> bool:
        """Carry out resets on owned partitions; return False if the client cannot do that."""


class Reporter:
    """
    Sends reports on its own thread, without blocking any other thread.

    Args:
        topic: writes the status topic.
        interval: seconds between reports while nothing changes.
        report: creates a report; called with ``stopped`` for the last one, otherwise
            with None.
        clock: receives the timestamps that the broker gives to reports.
    """

    def __init__(
        self,
        *,
        topic: StatusTopic,
        interval: float,
        report: Callable[[str | None], Report],
        clock: BrokerClock,
    ) -> None:
        self._topic = topic
        self._interval = interval
        self._make = report
        self._soon = min(interval, _RETRY)
        self._clock = clock
        # Unlike an Event's set(), put() is reentrant: a signal handler that pauses may
        # call it.
        self._changes: SimpleQueue[None] = SimpleQueue()
        self._stopping = InterruptibleEvent()
        self._is_missing = False
        self._is_given_up = False
        self._is_abandoned = False
        self._thread = threading.Thread(
            target=self._run, name="safeconsumer-status", daemon=True
        )

    def start(self) -> None:
        """Start to report."""
        self._thread.start()

    def wake(self) -> None:
        """Send a report soon, without blocking. Any thread may call this method."""
        self._changes.put(None)

    def ask_to_stop(self) -> None:
        """Tell the thread to send a last report and stop, without waiting for that."""
        self._stopping.set()
        self._changes.put(None)

    def abandon(self) -> None:
        """Tell the thread to send a last report, close its client and stop; takes no lock."""
        self._is_abandoned = True
        self.ask_to_stop()

    def stop(self, until: float) -> None:
        """
        Send a last report, and stop the thread.

        Args:
            until: when the call stops waiting, on the monotonic clock; a thread that is
                still running then does not start another report.
        """
        self.ask_to_stop()
        self._thread.join(max(0.0, min(until - time.monotonic(), _LAST_SECONDS)))
        self._is_given_up = True

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._report()
            is_settled = self._clock.is_settled
            with suppress(Empty):
                self._changes.get(timeout=self._interval if is_settled else self._soon)
            self._stopping.wait(_REST if self._is_missing else _SETTLE)
            with suppress(Empty):
                while True:
                    self._changes.get_nowait()
        self._report(state="stopped")
        if self._is_abandoned:
            self._topic.close()

    def _report(self, state: str | None = None) -> None:
        if self._is_given_up:  # busy() would call into a program that may have exited
            return
        try:
            self._send(self._make(state))
            self._is_missing = False
        except Exception as error:
            log.debug("a report could not be sent", exc_info=True)
            self._is_missing = self._topic.is_missing(error)
            is_final = self._topic.is_refused(error)
            self._clock.failed(time.monotonic(), is_final=is_final)

    def _send(self, report: Report) -> None:
        key = report_wire.encode_report_key(report.group, report.member)
        value, at_ms = report_wire.encode_report(report), report.at_ms
        written_ms, sent = self._topic.send(key, value, at_ms)
        now = time.monotonic()
        # If our own timestamp comes back, the topic does not use the broker's
        # timestamps.
        if written_ms == at_ms or written_ms < _KAFKA_MS:
            self._clock.failed(now, is_final=True)
        else:
            self._clock.acknowledged(written_ms / 1000, sent, now)


class MemberReports:
    """
    Creates the reports of one member or Spark stream.

    Args:
        group: the consumer group.
        client_id: the consumer's ``client_id``.
        read_status: returns the state of the control topics.
        client: provides the holds that the member obeys, and its busy partitions.
        skew: the seconds by which this member lifts holds late.
    """

    def __init__(
        self,
        *,
        group: str,
        client_id: str,
        read_status: Callable[[], ControlStatus],
        client: ReportSource,
        skew: float,
    ) -> None:
        shown = report_wire.for_people(client_id)[:_MOST_NAME]
        self.member = f"{shown}-{uuid.uuid4().hex[:12]}"  # unique
        self._group = group
        self._client_id = client_id
        self._read_status = read_status
        self._client = client
        self._skew = skew
        self._has_failed = False

    def report(self, state: str | None = None) -> Report:
        """Return the current report; with a ``state`` it omits owned and quiet partitions."""
        status = self._read_status()
        view = self._client.view()
        busy = {*self._client.busy(), *self._busy_elsewhere(view)}
        member_id, generation = self._client.membership()
        return Report(
            group=self._group,
            member=self.member,
            client_id=self._client_id,
            host=HOST,
            state=state or status.state,
            at_ms=int(time.time() * 1000),
            applied={tp[0]: offset for tp, offset in status.applied.items()},
            holds=sum(hold.is_remote for hold in view.holds),
            skipped=status.skipped,
            assigned=report_wire.ranges(view.partitions()) if state is None else {},
            quiet=report_wire.ranges(set(view.quiet) - busy) if state is None else {},
            kept=tuple(
                KeptHold(owner=one.owner, scope=str(one.scope), line=hold_line(one))
                for one in status.kept
            ),
            recreated=tuple(self._client.recreated()),
            member_id=member_id,
            generation=generation,
            resets=None
            if status.resets is None
            else unmoved_lines(status.resets, {*view.partitions()}),
            busy=report_wire.ranges(busy),
            skew=self._skew,
            gated=status.gated,
            outages=tuple(
                hold_line(hold) for hold in view.holds if hold.owner in OUTAGES
            ),
        )

    def _busy_elsewhere(self, view: View) -> frozenset[TopicPartition]:
        # Revoked partitions count as busy, because their next owner cannot report these
        # threads.
        try:
            named = self._client.busy_elsewhere()
            return frozenset((str(topic), int(number)) for topic, number in named)
        except BaseException:
            if not self._has_failed:
                self._has_failed = True
                log.exception("consumer.busy failed: held partitions count as busy")
            return frozenset(view.partitions())


def unmoved_lines(resets: Resets, owned: Collection[TopicPartition]) -> tuple[str, ...]:
    """Return a line for each partition that has not been reset yet, with the reason."""
    pending = dict.fromkeys(resets.pending() & {tuple(tp) for tp in owned}, MOVING)
    several = sorted({**pending, **resets.troubles}.items())
    return tuple(
        f"{report_wire.place(tp)} {report_wire.for_people(why)}" for tp, why in several
    )
