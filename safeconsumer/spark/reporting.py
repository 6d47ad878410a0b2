"""Reports on the status topic what streams obey, as members do."""

import atexit
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Protocol

from attrs import field, frozen
from kafka import KafkaProducer

from safeconsumer.group import clients
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.report_wire import STREAM, Report
from safeconsumer.group.reports import (
    HOST,
    LazyProducer,
    Reporter,
    Seen,
    kept_of,
    member_name,
    ranges,
)
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import Holds
from safeconsumer.spark.activity import Watched

_INTERVAL = 3.0
_WRITE_TIMEOUT = 10.0
_CLOSE_SECONDS = 1.0
# Seconds to wait for plans that are being made, for all streams together: a report
# counts for fifteen seconds, and none may be late because of the others.
_DECISION_SECONDS = 0.5

log = logging.getLogger("safeconsumer.spark")


class Follower(Protocol):
    """Reads the holds of the control topics."""

    def seen(self) -> Seen:
        """Return how far the topics are read."""

    def state(self) -> Holds:
        """Return the holds that are known now."""


class StreamReport:
    """
    Makes the reports of one stream.

    Args:
        group: the group whose holds it obeys.
        watched: the stream's activity.
        follower: reads the control topics.
        covers: returns whether any hold covers a partition now.
        skew: seconds by which it lifts holds late.
    """

    def __init__(
        self,
        *,
        group: str,
        watched: Watched,
        follower: Follower,
        covers: Callable[[TopicPartition], bool],
        skew: float,
    ) -> None:
        self._member = member_name(STREAM)
        self._group = group
        self._watched = watched
        self._follower = follower
        self._covers = covers
        self._skew = skew
        self._told: object = None

    def report(
        self, state: str | None = None, patience: float = _DECISION_SECONDS
    ) -> Report:
        """
        Return what would be reported now.

        Args:
            state: the state to report, instead of the actual one.
            patience: the most seconds to wait for a plan that is being made.

        What is read first is confirmed by what is read last: a stream that obeys
        everything below ``applied``, and has no batch under way on a held partition,
        will not read it, because the next plan reads the same holds.
        """
        seen = self._follower.seen()
        holds = sum(hold.is_remote for hold in self._follower.state())
        quiet, activity = self._quiet(patience)
        if state is None:
            self._told = quiet, activity.partitions, activity.is_known
        if not activity.is_planned:
            found = "starting"
        elif activity.is_deciding:
            found = "deciding"
        else:
            found = seen.state
        return Report(
            group=self._group,
            member=self._member,
            client_id=f"{STREAM} {activity.query}"[:200].strip(),
            host=HOST,
            state=state or (found if seen.state == "ready" else seen.state),
            at_ms=int(time.time() * 1000),
            applied={tp[0]: offset for tp, offset in seen.applied.items()},
            holds=holds,
            skipped=seen.skipped,
            assigned=ranges(activity.partitions) if state is None else {},
            quiet=ranges(quiet) if state is None else {},
            kept=tuple(map(kept_of, seen.kept)),
            member_id="",
            generation=-1,
            # Also when it stops: a batch that has not ended then runs again in full
            # when its query is started again.
            busy=ranges(activity.reading),
            skew=self._skew,
            kind=STREAM,
        )

    def is_news(self) -> bool:
        """Tell whether the report would differ from the last one."""
        quiet, activity = self._quiet(0.0)
        return self._told != (quiet, activity.partitions, activity.is_known)

    def _quiet(self, timeout: float) -> Any:  # noqa: ANN401 - a pair
        # Holds are read first, then the activity: never the other way round.
        before = self._watched.now(timeout).partitions
        held = {tp for tp in before if self._covers(tp)}
        activity = self._watched.now()
        return frozenset(tp for tp in held if not activity.may_read(tp)), activity


@frozen
class _Running:
    reporter: Reporter
    producer: LazyProducer
    present: list[StreamReport] = field(factory=list)
    leaving: list[StreamReport] = field(factory=list)


class StreamReports:
    """
    Sends the reports of a session's streams: one thread per status topic and login.

    Thread rules: any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[Hashable, _Running] = {}

    def add(
        self,
        topic: str,
        login: Hashable,
        connect: Callable[[], Mapping[str, Any]],
        stream: StreamReport,
    ) -> Callable[[], None]:
        """
        Begin to report on a stream; return a function that reports a change soon.

        Args:
            topic: the status topic.
            login: streams with the same login share a thread and a producer.
            connect: returns kafka-python's configuration; called by that thread.
            stream: makes the stream's reports.
        """
        with self._lock:
            running = self._running.get(login)
            is_new = running is None
            if running is None:
                if not self._running:
                    atexit.register(self.close)  # it would keep this for ever
                running = self._running[login] = _running(topic, connect)
            running.present.append(stream)
            if is_new:
                running.reporter.start()
            running.reporter.wake()
            return running.reporter.wake

    def remove(self, stream: StreamReport) -> None:
        """Report that a stream stops; the last one ends the thread, in a second at most."""
        with self._lock:
            found = [
                (key, one)
                for key, one in self._running.items()
                if stream in one.present
            ]
            for key, one in found:
                one.present.remove(stream)
                one.leaving.append(stream)
                if not one.present:
                    del self._running[key]
            if not self._running:
                atexit.unregister(self.close)
        for _, one in found:
            if one.present:
                one.reporter.wake()
            else:
                _end([one])

    def close(self) -> None:
        """Report that all streams stop, and end all threads, in a second at most."""
        with self._lock:
            running = list(self._running.values())
            self._running.clear()
            atexit.unregister(self.close)
            for one in running:
                one.leaving.extend(one.present)
                one.present.clear()
        _end(running)


def _running(topic: str, connect: Callable[[], Mapping[str, Any]]) -> _Running:
    def produce() -> KafkaProducer:
        base = clients.connection(connect(), {}, "spark-status")
        return clients.producer(base, _WRITE_TIMEOUT)

    producer = LazyProducer(produce)

    def tell(state: str | None) -> Iterator[Report]:
        leaving, made.leaving[:] = list(made.leaving), []
        yield from _reports(leaving, "stopped")
        yield from _reports(list(made.present), state)

    reporter = Reporter(
        topic=topic,
        interval=_INTERVAL,
        producer=producer,
        tell=tell,
        clock=BrokerClock(is_told=False),
    )
    made = _Running(reporter, producer)
    return made


def _reports(streams: list[StreamReport], state: str | None) -> Iterator[Report]:
    # Each is sent before the next one is made.
    until = time.monotonic() + (_DECISION_SECONDS if state is None else 0.0)
    for one in streams:
        try:
            report = one.report(state, max(0.0, until - time.monotonic()))
        except Exception:  # one failure must not stop the others
            log.exception("a stream's report could not be made")
            continue
        yield report


def _end(running: list[_Running]) -> None:
    until = time.monotonic() + _CLOSE_SECONDS
    for one in running:
        one.reporter.ask_to_stop()
    for one in running:
        one.reporter.stop(until)
        one.producer.close(until)
