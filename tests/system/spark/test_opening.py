"""What a session keeps open: one reader for a group, and nothing of streams that failed."""

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from safeconsumer.errors import ClientPropertyError
from safeconsumer.group.reader import Reader
from safeconsumer.group.reports import Seen
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.view import Holds
from safeconsumer.spark import Controller, control
from safeconsumer.spark import opening as opening_module
from safeconsumer.spark.control import PlanBarrier, PlanLedger
from safeconsumer.spark.opening import Leased, Opening, Shared
from safeconsumer.spark.options import parse as options_of
from safeconsumer.spark.reporting import StreamReport
from safeconsumer.spark.stream import Stream
from tests.harness.group.team import Team
from tests.harness.spark.lake import LIMIT, Lake
from tests.harness.spark.waiting import until


def readers() -> int:
    return sum(one.name == "safeconsumer-control" for one in threading.enumerate())


class Reading(Reader):
    """A reader that reads nothing."""

    def start(self, timeout: float) -> None:
        """Do nothing."""

    def stop(self, *_: object) -> None:
        """Do nothing."""


def test_a_stream_that_has_ended_is_woken_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader that it shared lives on, and so do the others' reports."""
    monkeypatch.setattr(control, "Reader", Reading)
    opening = Opening(PauseLedger())
    named = {"kafka.bootstrap.servers": "127.0.0.1:1", "holds.control": "true"}
    options = options_of({**named, "holds.group": "g", "holds.watchIntervalMs": "0"})
    streams = [opening.stream(str(number), options) for number in range(3)]
    (leased,) = streams[0]._followers
    wakers = leased._follower._wakers  # type: ignore[attr-defined]  # it is a lease
    assert len(wakers) == 3
    for one in streams[1:]:
        one.close()
        one.close()
        assert len(wakers) == 3 - streams.index(one)
    streams[0].close()
    assert not wakers


class Recorded:
    """The reports and the reader of the control topics, without a broker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.present: list[StreamReport] = []
        self.states: list[str] = []
        self.readers: list[str] = []
        self.wakers: list[object] = []
        monkeypatch.setattr(opening_module, "ControlFollower", self.reader)
        self.opening = Opening(PauseLedger())
        monkeypatch.setattr(self.opening, "_reports", self)

    def add(self, *rest: Any) -> Callable[[], object]:  # noqa: ANN401 - as it is called
        self.present.append(rest[-1])
        return tuple

    def remove(self, report: StreamReport) -> None:
        self.present.remove(report)

    def reader(self, *_: object, **__: object) -> "Recorded":
        self.told()
        self.readers.append("open")
        return self

    def told(self) -> None:
        self.states += [one.report().state for one in self.present]

    def seen(self) -> Seen:
        return Seen(state="ready", skipped=0, applied={})

    def state(self) -> Holds:
        return Holds()

    fresh = known = state

    def on_change(self, wake: object) -> Callable[[], None]:
        self.wakers.append(wake)
        return self.wakers.clear

    def close(self) -> None:
        self.readers.remove("open")

    def open(self) -> Stream:
        given = {"holds.control": "true", "holds.group": "g", "subscribe": "orders"}
        return self.opening.stream("s", options_of(given))


def test_a_stream_reports_before_it_can_read_the_control_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To connect takes seconds, and a batch of before a restart is about to be run again."""
    lab = Recorded(monkeypatch)
    stream = lab.open()
    assert lab.states == ["starting"]
    stream.plan({"start": '{"orders":{"0":0}}', "batch": ""})
    stream.freeze({"end": '{"orders":{"0":5}}', "latest": "{}", "ends": "no"})
    lab.told()
    assert lab.states == ["starting", "ready"]
    (report,) = lab.present
    assert report.report().busy == {"orders": ((0, 0),)}
    stream.close()
    assert (lab.present, lab.readers, lab.wakers) == ([], [], [])


def test_a_stream_that_cannot_be_made_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a report that says for ever that it starts, nor its reader."""
    lab = Recorded(monkeypatch)

    def refuse(*_: object, **__: object) -> None:
        message = "token endpoint: 503"
        raise ClientPropertyError(message)

    monkeypatch.setattr(opening_module, "HeldWatch", refuse)
    with pytest.raises(ClientPropertyError, match="503"):
        lab.open()
    assert (lab.present, lab.readers, lab.wakers) == ([], [], [])
    monkeypatch.setattr(opening_module, "ControlFollower", refuse)
    with pytest.raises(ClientPropertyError, match="503"):
        lab.open()
    assert (lab.present, lab.readers, lab.wakers) == ([], [], [])


def test_nothing_keeps_what_a_closed_session_had() -> None:
    """A program may register and close a session for each of its jobs."""
    options = options_of(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "holds.control": "true",
            "holds.group": "g",
            "holds.controlTimeoutMs": "1",
        }
    )

    def reports_of(streams: int) -> weakref.ref[object]:
        opening = Opening(PauseLedger())
        for one in [opening.stream(str(number), options) for number in range(streams)]:
            one.close()
        return weakref.ref(opening._reports)

    for streams in (0, 1):
        reports = reports_of(streams)
        until(lambda reports=reports: gc.collect() >= 0 and reports() is None)


class Reads:
    """What is lent: it only tells whether it is closed."""

    def __init__(self, waits: Callable[[], object] = tuple) -> None:
        self.is_closed = False
        waits()

    def close(self) -> None:
        self.is_closed = True


def test_a_reader_without_a_broker_delays_only_those_who_want_the_same() -> None:
    """Four of them took twenty seconds to open, and the decision has ten."""
    shared = Shared()
    begun, others = threading.Event(), threading.Event()
    waited: list[bool] = []
    made: list[Reads] = []

    def slow() -> Any:  # noqa: ANN401 - as much of a follower as is asked for
        begun.set()
        made.append(Reads(lambda: waited.append(others.wait(10))))
        return made[-1]

    def lease() -> None:
        leases.append(shared.lease("slow", slow))

    leases: list[Leased] = []
    threads = [threading.Thread(target=lease) for _ in range(2)]
    for one in threads:
        one.start()
    assert begun.wait(10)
    quick: Any = Reads()
    shared.lease("quick", lambda: quick).close()
    assert quick.is_closed
    others.set()
    for one in threads:
        one.join(20)
    assert waited == [True]  # once: they share it
    leases[0].close()
    assert not made[0].is_closed
    leases[1].close()
    assert made[0].is_closed


def test_who_waited_for_a_reader_that_could_not_be_made_makes_its_own() -> None:
    """And nothing is kept where none could be made."""
    shared = Shared()

    def refuse() -> Any:  # noqa: ANN401 - it returns nothing
        message = "token endpoint: 503"
        raise ClientPropertyError(message)

    with pytest.raises(ClientPropertyError, match="503"):
        shared.lease("a", refuse)
    one: Any = Reads()
    shared.lease("a", lambda: one).close()
    assert one.is_closed


def test_a_plan_that_is_given_up_leaves_the_others_waiting() -> None:
    """Streams that share a reader wait beside each other."""
    ledger = PlanLedger((), group_id="g")
    barrier = PlanBarrier(ledger, None)
    barrier.close({("", 1): 1})
    barrier.close({("", 2): 2})
    barrier.forget(1)
    assert barrier.is_waiting()
    barrier.connect(lambda answered: answered({}), {})
    assert ledger.await_plan(2, 0.0)


class TestOnSpark:
    """In a session."""

    pytestmark: ClassVar = [
        pytest.mark.spark,
        pytest.mark.real_broker,
        pytest.mark.timeout(600),
    ]

    def test_nothing_is_left_of_streams_that_could_not_be_opened(
        self, lake: Lake, controller: Controller
    ) -> None:
        """No stream, no thread of Python's, none of the JVM's."""
        with Team(lake.broker, partitions=1, records=0) as team:
            team.create("not-compacted", {"cleanup.policy": "delete"})
            options = {
                "holds.control": f"not-compacted,{team.settings.topics[1]}",
                "holds.group": team.group,
            }
            before = set(threading.enumerate())
            for _ in range(3):
                query = lake.start(**options)
                with pytest.raises(Exception, match="not-compacted"):
                    query.awaitTermination(60)
            assert controller.bridge.streams() == ()
            until(lambda: readers() == 0)
            left = {one.name for one in set(threading.enumerate()) - before}
            assert not {one for one in left if one.startswith(("safe", "kafka"))}
            until(lambda: "safekafka-decision" not in java_threads(lake))

    def test_a_stopped_session_leaves_no_stream_and_says_things_once(
        self, lake: Lake
    ) -> None:
        """In a process of its own; a decision hangs for twenty triggers before that."""
        done = subprocess.run(  # noqa: S603 - our own command line
            [
                *(sys.executable, "-m", "tests.system.spark.stopping"),
                *(lake.broker.bootstrap, lake.orders),
            ],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.stdout.splitlines() == [
            "streams: 1",
            "after the stop: 0",
            "refused: this session was stopped",
            "another handle: True",
            "and it runs: True",
            "not ended: 1",
            "its port is free: True",
        ], done.stderr
        said = [line for line in done.stderr.splitlines() if "safekafka: " in line]
        held = [line for line in said if "everything is held" in line]
        assert len(held) == 2, said  # no decision in time; the earlier one not back yet
        assert sum("there are decisions again" in line for line in said) == 1, said


def java_threads(lake: Lake) -> set[str]:
    java = lake.spark.sparkContext._jvm.java.lang
    return {one.getName() for one in java.Thread.getAllStackTraces().keySet()}
