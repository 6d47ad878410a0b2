"""
Streams tell operators what they obey, as members do, on the status topic.
"""

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import field, frozen

from safeconsumer.group import clients
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.report_wire import STREAM, Report
from safeconsumer.group.reports import (
    HOST,
    LazyProducer,
    Reporter,
    Seen,
    member_name,
    ranges,
)
from safeconsumer.holds.explain import hold_line
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.state import LedgerState
from safeconsumer.spark.activity import Watched

_INTERVAL = 3.0
_WRITE_TIMEOUT = 10.0
_CLOSE_SECONDS = 1.0
# For a plan that is being made while a report is.
_DECISION_SECONDS = 0.5


class Follower(Protocol):
    """
    Knows the holds of the control topics.
    """

    def seen(self) -> Seen:
        """
        Return how far the topics are read.
        """

    def state(self) -> LedgerState:
        """
        Return the holds that are known now.
        """


class StreamReport:
    """
    Makes the reports of one stream.

    Args:
        group: whose holds it obeys.
        watched: what it reads.
        follower: of the control topics.
        covers: tells whether a hold of any kind covers a partition now.
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

    def report(self, state: str | None = None) -> Report:
        """
        Return what would be reported now.

        What is read last bounds what was read first: whoever obeys everything below
        ``applied``, and has no batch under way on a partition that is held, will not
        read of it, because the next plan looks at the same holds.
        """
        seen = self._follower.seen()
        holds = sum(hold.is_remote for hold in self._follower.state())
        quiet, activity = self._quiet(_DECISION_SECONDS)
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
            kept=tuple(map(hold_line, seen.kept)),
            member_id="",
            generation=-1,
            busy=ranges(activity.reading) if state is None else {},
            skew=self._skew,
            kind=STREAM,
        )

    def is_news(self) -> bool:
        """
        Tell whether operators would be told something else than last.
        """
        quiet, activity = self._quiet(0.0)
        return self._told != (quiet, activity.partitions, activity.is_known)

    def _quiet(self, timeout: float) -> Any:  # noqa: ANN401 - a pair
        # Holds first, then what is read: not the other way round.
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
        self._running: dict[object, _Running] = {}

    def add(
        self, topic: str, configs: Mapping[str, Any], stream: StreamReport
    ) -> Callable[[], None]:
        """
        Begin to report on a stream; returns what reports soon that something changed.
        """
        with self._lock:
            if not self._running:
                atexit.register(self.close)
            key = _key(topic, configs)
            running = self._running.get(key)
            is_new = running is None
            if running is None:
                running = self._running[key] = _running(topic, configs)
            running.present.append(stream)
            if is_new:
                running.reporter.start()
            running.reporter.wake()
            return running.reporter.wake

    def remove(self, stream: StreamReport) -> None:
        """
        Report that a stream stops; the last one ends the thread, in a second at most.
        """
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
        for _, one in found:
            if one.present:
                one.reporter.wake()
            else:
                _end([one])

    def close(self) -> None:
        """
        Report that all streams stop, and end all threads, in a second at most.
        """
        with self._lock:
            running = list(self._running.values())
            self._running.clear()
            for one in running:
                one.leaving.extend(one.present)
                one.present.clear()
        _end(running)


def _key(topic: str, configs: Mapping[str, Any]) -> object:
    return topic, *sorted((name, str(value)) for name, value in configs.items())


def _running(topic: str, configs: Mapping[str, Any]) -> _Running:
    base = clients.connection(configs, {}, "spark-status")
    producer = LazyProducer(lambda: clients.producer(base, _WRITE_TIMEOUT))

    def tell(state: str | None) -> list[Report]:
        leaving, made.leaving[:] = list(made.leaving), []
        said = [one.report("stopped") for one in leaving]
        return said + [one.report(state) for one in list(made.present)]

    reporter = Reporter(
        topic=topic,
        interval=_INTERVAL,
        producer=producer,
        tell=tell,
        clock=BrokerClock(is_told=False),
    )
    made = _Running(reporter, producer)
    return made


def _end(running: list[_Running]) -> None:
    until = time.monotonic() + _CLOSE_SECONDS
    for one in running:
        one.reporter.ask_to_stop()
    for one in running:
        one.reporter.stop(until)
        one.producer.close(until)
