"""Runs group control for one consumer: reading holds, gating partitions and reporting."""

import time

from safeconsumer.errors.base import ControlSettingError
from safeconsumer.group import wire
from safeconsumer.group.barrier import Barrier
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.control_clients import ControlClients, StatusTopic
from safeconsumer.group.reader import Reader
from safeconsumer.group.reports import Client, ControlStatus, MemberReports, Reporter
from safeconsumer.group.settings import Control
from safeconsumer.group.state import ControlState
from safeconsumer.holds.resets import Resets

# Seconds after which threads and clients are abandoned, whatever the broker does.
_CLOSE_SECONDS = 2.0


class GroupControl:
    """
    The group-control objects that ``control=`` adds to one consumer.

    Thread rules: every method may be called on any thread.
    """

    def __init__(
        self, settings: Control, client: Client, clients: ControlClients
    ) -> None:
        group = clients.group_id
        if not wire.is_group(group):
            message = f"control= needs a group_id that can be printed, not {group!r}"
            raise ControlSettingError(message)
        self._settings = settings
        self._client, self._ledger = client, client.ledger
        self._is_closed = False
        self._group = str(group)
        self._clock = BrokerClock(
            is_reporting=settings.status_topic is not None,
            on_measure=client.note_broker_time,
        )
        run_after = settings.run_after if settings.unavailable == "run" else None
        self._barrier = Barrier(client.ledger, run_after)
        self._resets: Resets | None = None
        resets = Resets(client.ledger, self._barrier.unread)
        if settings.resets and client.carry_out(resets):
            self._resets = resets
        self._state = ControlState(
            self._group, client.ledger, settings.clock_skew, self._clock, self._resets
        )
        holds = clients.holds_topic(settings.holds_topic)
        self._reader = Reader(
            settings, holds, client.ledger, self._state, self._barrier
        )
        self._status: StatusTopic | None = None
        self._reporter: Reporter | None = None
        if settings.status_topic is not None:
            self._status = clients.status_topic(settings.status_topic)
            self._reporter = self._make_reporter(self._status, clients.client_id)

    def start(self) -> None:
        """
        Gate newly assigned partitions, and start to read the holds topic and to report.

        Raises:
            ControlTopicError: the holds topic is unfit; no thread keeps running.
        """
        self._ledger.watch(self._barrier.close)
        self._reader.start(self._settings.start_timeout)
        if self._reporter is not None:
            self._reader.on_change = self._reporter.wake
            self._ledger.wakers.append(self._reporter.wake)
            self._client.call_after_joins(self._reporter.wake)
            self._reporter.start()

    def report_soon(self) -> None:
        """Send a report soon, without blocking. Any thread may call this method."""
        if self._reporter is not None:
            self._reporter.wake()

    @property
    def is_caught_up(self) -> bool:
        """Whether the holds topic has been read to its end; False after :meth:`close`."""
        return self._reader.is_ready and not self._is_closed

    def close(self, seconds: float | None = None) -> None:
        """
        Stop all threads and close all clients; a second call has no effect.

        Args:
            seconds: the time limit; threads that are still running after it are
                abandoned.
        """
        self._is_closed = True
        most = _CLOSE_SECONDS if seconds is None else min(seconds, _CLOSE_SECONDS)
        until = time.monotonic() + most
        if self._reporter is not None:
            wake, wakers = self._reporter.wake, self._ledger.wakers
            self._ledger.wakers = [one for one in wakers if one != wake]
            self._reporter.ask_to_stop()  # both threads stop at the same time
        self._reader.stop(until)
        if self._reporter is not None:
            self._reporter.stop(until)
        if self._status is not None:
            self._status.close()

    def abandon(self) -> None:
        """
        Tell all threads and clients to stop after a last report, and do not wait.

        The garbage collector may call this method on any thread, so the method takes no
        lock.
        """
        self._is_closed = True
        self._reader.ask_to_stop()
        if self._reporter is not None:
            self._reporter.abandon()

    # ------------------------------------------------------------ reports

    def _make_reporter(self, topic: StatusTopic, client_id: str) -> Reporter:
        made = MemberReports(
            group=self._group,
            client_id=(client_id or "safeconsumer")[:200],
            read_status=self._control_status,
            client=self._client,
            skew=self._settings.clock_skew,
        )
        return Reporter(
            topic=topic,
            interval=self._settings.status_interval,
            report=made.report,
            clock=self._clock,
        )

    def _control_status(self) -> ControlStatus:
        return ControlStatus(
            state="ready" if self._reader.is_ready else "unavailable",
            skipped=self._state.skipped,
            applied=self._reader.positions(),
            kept=self._state.kept(),
            resets=self._resets,
            gated=len(self._ledger.control_gates()),
        )
