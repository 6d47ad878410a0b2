"""Reports to the status topic which holds streams obey, as members do."""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator

from attrs import evolve

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.group import report_wire
from safeconsumer.group.report_wire import STREAM, Report
from safeconsumer.group.reports import ControlStatus, MemberReports
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import View
from safeconsumer.spark.activity import ActivityTracker
from safeconsumer.spark.clients import Clients
from safeconsumer.spark.control import ControlFollower

# Seconds between two reports while nothing changes, and between two reads of the
# control topics: a stream must report even if its next trigger is an hour away.
_INTERVAL = 3.0
_READ_INTERVAL = 1.0
_CLOSE_SECONDS = 1.0
# Seconds to wait for plans in progress, for all streams together: a report is valid for
# fifteen seconds, and no report may be late because of other streams.
_DECISION_SECONDS = 0.5

log = logging.getLogger("safeconsumer.spark")


class StreamReport:
    """
    Creates the reports of one stream, with the methods of a member's client.

    For each report this class reads ``applied`` first and the activity last. So if a
    stream obeys every hold below ``applied`` and is not running a batch on a held
    partition, it will not read that partition, because the next plan obeys the same
    holds.

    Args:
        group: the group whose holds the stream obeys.
        activity: the stream's activity.
        follower: reads the control topics.
        covers: returns whether any hold covers a partition now.
        skew: seconds by which the stream lets holds expire late.

    Attributes:
        follower: see the argument of the same name.
    """

    def __init__(
        self,
        *,
        group: str,
        activity: ActivityTracker,
        follower: ControlFollower,
        covers: Callable[[TopicPartition], bool],
        skew: float,
    ) -> None:
        self._activity = activity
        self.follower = follower
        self._covers = covers
        self._last_content: object = None
        self._reports = MemberReports(
            group=group,
            client_id=STREAM,
            read_status=self._look,
            client=self,
            skew=skew,
        )
        self.member = self._reports.member

    def report(
        self, state: str | None = None, patience: float = _DECISION_SECONDS
    ) -> Report:
        """
        Return the current report.

        Args:
            state: the state to report instead of the actual state.
            patience: the maximum number of seconds to wait while a batch is being
                planned.
        """
        self._activity.now(patience)
        if state is None:
            self._last_content = self._content()
        report = self._reports.report(state)
        name = f"{STREAM} {self._activity.now().query}"[:200].strip()
        return evolve(report, client_id=name, kind=STREAM)

    def has_changed(self) -> bool:
        """Return whether the report would differ from the last one."""
        return self._last_content != self._content()

    def _content(self) -> tuple[object, ...]:
        seen, view = self._look(), self.view()
        quiet = view.quiet - self.busy()
        return quiet, view.assigned, seen.state, seen.applied

    def _look(self) -> ControlStatus:
        seen, activity = self.follower.status(), self._activity.now()
        if not activity.is_planned:
            return evolve(seen, state="starting")
        return evolve(seen, state="deciding") if activity.is_deciding else seen

    # ------------------------------------------------------------ as a member's client

    def view(self) -> View:
        """Return the stream's holds; no partition is quiet while a batch is being planned."""
        # The holds must be read before the activity.
        holds = self.follower.known_holds()
        held = {tp for tp in self._activity.now().partitions if self._covers(tp)}
        activity = self._activity.now()
        assigned: dict[str, dict[TopicPartition, TopicPartition]] = {}
        for tp in activity.partitions:
            assigned.setdefault(tp[0], {})[tp] = tp
        quiet = frozenset(held if activity.is_known else ())
        return View(holds, assigned, {}, quiet)

    def busy(self) -> frozenset[TopicPartition]:
        """
        Return the partitions that the last planned batch reads.

        These partitions remain busy even when the stream stops, because an unfinished
        batch runs again in full when its query is restarted.
        """
        return self._activity.now().reading

    def busy_elsewhere(self) -> Collection[TopicPartition]:
        """Return no partitions: :meth:`busy` includes all of the batch until it has ended."""
        return ()

    def membership(self) -> tuple[str, int]:
        """Return an empty id and -1, because to Kafka a stream is not a member."""
        return "", -1

    def recreated(self) -> Collection[str]:
        """Return no topics, because Spark's source detects recreated topics."""
        return ()


class StatusReporter:
    """
    Sends, on one thread, the reports of streams that share a status topic and a login.

    Thread rules: any thread may use this.

    Args:
        topic: the status topic.
        clients: creates the client that writes to the topic; only the reporter's
            thread uses that client.
    """

    def __init__(self, topic: str, clients: Clients) -> None:
        self._topic = clients.status_topic(topic)
        self._errors = clients.errors
        self._streams: tuple[StreamReport, ...] = ()
        self._leaving: tuple[StreamReport, ...] = ()
        self._lock = threading.Lock()  # guards the two tuples of streams
        self._is_failure_logged = False
        self._is_over = False
        self._changed = InterruptibleEvent()
        self._thread = threading.Thread(
            target=self._run, name="safeconsumer-status", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def add(self, stream: StreamReport) -> None:
        """Start to report on a stream."""
        with self._lock:
            self._streams = (*self._streams, stream)
        self._changed.set()

    def remove(self, stream: StreamReport) -> None:
        """Report that a stream has stopped."""
        with self._lock:
            self._streams = tuple(one for one in self._streams if one is not stream)
            self._leaving = (*self._leaving, stream)
        self._changed.set()

    def wake(self) -> None:
        """Make the thread report changes soon, without blocking."""
        self._changed.set()

    def close(self) -> None:
        """Report that all streams have stopped, and end the thread, within a second."""
        atexit.unregister(self.close)
        self._is_over = True
        self._changed.set()
        self._thread.join(_CLOSE_SECONDS)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        sent_at = 0.0
        while not self._is_over:
            is_due = time.monotonic() - sent_at >= _INTERVAL
            if self._send_all(is_due=is_due) and is_due:
                sent_at = time.monotonic()
            self._changed.wait(_READ_INTERVAL)
            self._changed.clear()
        with self._lock:
            self._leaving, self._streams = (*self._leaving, *self._streams), ()
        self._send_all(is_due=True)
        self._topic.close()

    def _send_all(self, *, is_due: bool) -> bool:
        with self._lock:
            leaving, self._leaving = self._leaving, ()
            streams = self._streams
        try:
            self._send(leaving, "stopped")
            # Send known changes first, because reading the control topics may take
            # seconds.
            self._send([one for one in streams if is_due or one.has_changed()])
            for follower in {one.follower for one in streams}:
                follower.refresh()
            self._send([one for one in streams if one.has_changed()])
        except self._errors:
            log.debug("a report could not be sent", exc_info=True)
            return False
        except Exception:
            if not self._is_failure_logged:
                self._is_failure_logged = True
                log.exception("no reports can be sent")
            return False
        return True

    def _send(
        self, streams: Collection[StreamReport], state: str | None = None
    ) -> None:
        for report in reports(streams, state):
            key = report_wire.encode_report_key(report.group, report.member)
            self._topic.send(key, report_wire.encode_report(report), report.at_ms)


def reports(
    streams: Collection[StreamReport], state: str | None = None
) -> Iterator[Report]:
    """Yield the streams' reports; the caller sends each one before the next is created."""
    until = time.monotonic() + (_DECISION_SECONDS if state is None else 0.0)
    for one in streams:
        try:
            report = one.report(state, max(0.0, until - time.monotonic()))
        except Exception:  # one failure must not stop other reports
            log.exception("a stream's report could not be made")
            continue
        yield report
