"""What a worker promises, whichever executor runs the handlers."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.events import worker as worker_events
from safeconsumer.worker import DeadLetter, Drain, Limits, RecordFailedError, Retry
from safeconsumer.worker.executors import processes
from tests.broker.worker.handlers import (
    AsyncBatchRecording,
    AsyncRecording,
    BatchRecording,
    Recording,
    Trace,
)
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab, Running

pytestmark = pytest.mark.any_broker

QUICK = Retry(attempts=3, first=0.05, most=0.1)
Run = Callable[..., Running]


@pytest.fixture(params=["thread", "asyncio", "process", "foreign"])
def executor(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Lend each executor in turn."""
    if request.param != "foreign":
        yield request.param
        return
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def recording(executor: Any, tmp_path: Path) -> Recording:  # noqa: ANN401
    """Make the handler that fits the executor."""
    return (AsyncRecording if executor == "asyncio" else Recording)(tmp_path)


@pytest.fixture
def run(lab: Lab, executor: Any, recording: Recording) -> Run:  # noqa: ANN401
    """Run a worker with this executor."""

    def start(handle: Any = None, **settings: Any) -> Running:  # noqa: ANN401
        settings = {"concurrency": 3, "retry": QUICK, **settings}
        return lab.run(handle or recording, executor=executor, **settings)

    return start


def overlaps(traces: list[Trace]) -> bool:
    """Tell whether any two calls overlap."""
    return any(later.began < earlier.ended for earlier, later in pairwise(traces))


@pytest.mark.contract("W4", "W5")
def test_everything_is_done_once_and_committed(
    lab: Lab, run: Run, recording: Recording
) -> None:
    """W4, W5: in the end the committed offsets are the ends of the partitions."""
    lab.new_topic(partitions=3)
    count = lab.produce({number: [""] * 70 for number in range(3)})
    running = run()
    running.wait_done(count)
    report = running.end()
    assert (report.done, report.dropped, report.committed) == (count, 0, True)
    assert lab.committed() == {0: 70, 1: 70, 2: 70}
    assert {n: list(range(70)) for n in range(3)} == recording.offsets()


@pytest.mark.contract("W3")
@pytest.mark.parametrize("order", ["partition", "key"])
def test_order_holds_with_retries(
    lab: Lab, run: Run, recording: Recording, order: str
) -> None:
    """W3: calls of one lane never overlap, and none comes before one in front of it."""
    lab.new_topic(partitions=2)
    values = ["sleep=0.005"] * 12
    values[3], values[7] = "fail=2", "later=0.05"
    count = lab.produce({0: values, 1: values}, key=lambda n: b"%d" % (n % 3))
    running = run(order=order)
    running.wait_done(count)
    running.end()
    lanes: dict[object, list[Trace]] = {}
    for one in recording.traces():
        lane = (one.partition, one.key if order == "key" else None)
        lanes.setdefault(lane, []).append(one)
    assert len(lanes) == (6 if order == "key" else 2)
    for traces in lanes.values():
        assert not overlaps(traces)
        offsets = [one.offset for one in traces]
        assert offsets == sorted(offsets)


@pytest.mark.contract("W3")
def test_unordered_work_is_not_kept_by_one_record(lab: Lab, run: Run) -> None:
    """W3: a failing record waits by itself while all others are done."""
    lab.new_topic(partitions=1)
    values = [""] * 40
    values[0] = "fail"
    lab.produce({0: values})
    slow = Retry(attempts=3, first=60.0, most=60.0)
    running = run(order="unordered", retry=slow)
    running.wait_done(39)
    running.end()
    assert lab.committed() == {0: 0}


@pytest.mark.contract("W7")
def test_a_record_that_failed_for_good_stops_the_worker(lab: Lab, run: Run) -> None:
    """W7: nothing is committed past it, and ``run`` raises with the handler's error."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "", "fail", "", ""]})
    running = run()
    running.wait_end()
    assert isinstance(running.error, RecordFailedError)
    assert isinstance(running.error.__cause__, ValueError)
    assert lab.committed() == {0: 2}


def test_a_skipped_record_is_passed_over(
    lab: Lab, run: Run, recording: Recording
) -> None:
    """W7: after as many attempts as the policy has."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "fail", ""]})
    running = run(on_exhausted="skip")
    running.wait_done(3)
    report = running.end()
    assert (report.skipped, lab.committed()) == (1, {0: 3})
    assert recording.offsets()[0] == [0, 1, 1, 1, 2]
    assert [o.attempt for o in recording.traces() if o.offset == 1] == [1, 2, 3]


@pytest.mark.contract("W7")
def test_a_dead_letter_completes_its_record(
    lab: Lab, run: Run, recording: Recording
) -> None:
    """W7: with where it stood and why, and at once for a rejected record."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "fail", "reject", ""]}, key=lambda n: b"k%d" % n)
    dead = lab.other_topic()
    running = run(dead_letter=DeadLetter(lab.producer, dead))
    running.wait_done(4)
    report = running.end()
    assert (report.dead_letters, lab.committed()) == (2, {0: 4})
    assert recording.offsets()[0] == [0, 1, 1, 1, 2, 3]
    letters = read_all(lab, dead, 2)
    assert [one.value for one in letters] == [b"fail", b"reject"]
    headers = dict(letters[0].headers)
    assert headers["dead-letter-offset"] == b"1"
    assert headers["dead-letter-topic"] == lab.topic.encode()
    assert headers["dead-letter-attempts"] == b"3"
    assert headers["dead-letter-exception"] == b"builtins.ValueError"


def read_all(lab: Lab, topic: str, count: int) -> list[Any]:
    """Read records of a topic of one partition."""
    reader = lab._make_consumer(topic, group=f"g-{topic}")
    got: list[Any] = []

    def more() -> bool:
        for records in reader.poll(200).values():
            got.extend(records)
        return len(got) >= count

    wait_for(more, f"{count} records of {topic}")
    return got


@pytest.mark.contract("W7")
def test_a_dead_letter_that_is_refused_is_tried_again(lab: Lab, run: Run) -> None:
    """W7: the record is complete after the acknowledgement, not before."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "fail", ""]})
    refused: list[int] = []

    def sink(record: Any, _failure: Any) -> None:  # noqa: ANN401
        if len(refused) < 3:
            refused.append(record.offset)
            message = "planted"
            raise OSError(message)

    running = run(dead_letter=sink)
    running.wait_done(3)
    running.end()
    assert refused == [1, 1, 1]
    assert lab.committed() == {0: 3}
    failed = [e for e in running.events if type(e) is worker_events.DeadLetterFailed]
    assert [event.attempt for event in failed] == [1, 2, 3]


def test_stop_worker_leaves_its_record_undone(lab: Lab, run: Run) -> None:
    """The worker ends without an error; the record comes again next time."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "", "stop", ""]})
    running = run()
    running.wait_end()
    assert running.error is None
    assert lab.committed() == {0: 2}


def test_what_is_no_exception_ends_the_worker_after_a_commit(
    lab: Lab, run: Run
) -> None:
    """``SystemExit`` out of a handler: drain, commit what is done, raise it again."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "exit", ""]})
    running = run()
    running.wait_end()
    assert isinstance(running.error, SystemExit)
    assert lab.committed() == {0: 1}


@pytest.mark.contract("W8")
def test_stop_waits_for_running_handlers(
    lab: Lab, run: Run, recording: Recording
) -> None:
    """W8: what runs is finished and committed; what is queued is not begun."""
    lab.new_topic(partitions=2)
    begun = {number: f"begun{number}" for number in (0, 1)}
    lab.produce(
        {
            number: ["", f"touch={name};until=go", *6 * [""]]
            for number, name in begun.items()
        }
    )
    running = run(concurrency=2, drain=Drain(shutdown=60.0))
    # A process that is still starting has begun nothing, and its record comes back.
    paths = [recording.folder / name for name in begun.values()]
    wait_for(lambda: all(path.exists() for path in paths), "two handlers to run")
    running.worker.stop()
    wait_for(lambda: running.worker.stats().state == "draining", "it to drain")
    (recording.folder / "go").touch()
    running.wait_end()
    report = running.report
    assert report is not None
    assert report.done >= 4
    assert report.done + report.dropped == 16
    assert sum(offset or 0 for offset in lab.committed().values()) == report.done


@pytest.mark.contract("W8")
def test_stop_is_bounded_when_a_handler_hangs(lab: Lab, run: Run) -> None:
    """W8: at the deadline it gives up, commits what is done, and leaves."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "sleep=4", ""]})
    running = run(drain=Drain(shutdown=0.3))
    running.wait_done(1)
    wait_for(lambda: running.worker.stats().running, "the handler to hang")
    report = running.end()
    assert report.seconds < 3
    assert (report.done, report.dropped) == (1, 2)
    assert lab.committed() == {0: 1}


def test_a_batch_fails_record_by_record(
    lab: Lab,
    executor: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    """The records that a ``BatchFailure`` names are tried again, the others are done."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "fail=1", "", "", ""]})
    is_async = executor == "asyncio"
    handle = (AsyncBatchRecording if is_async else BatchRecording)(tmp_path)
    running = lab.run(handle, executor=executor, batch=5, retry=QUICK)
    running.wait_done(5)
    running.end()
    offsets = handle.offsets()[0]
    assert sorted(offsets) == [0, 1, 1, 2, 3, 4]
    assert lab.committed() == {0: 5}


def test_a_handler_that_stands_still_is_named_with_its_stack(
    lab: Lab,
    run: Run,
    executor: Any,  # noqa: ANN401
    recording: Recording,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the handler itself stands, in whatever thread, process or coroutine it is."""
    monkeypatch.setattr(processes, "_LOOK_SECONDS", 10.0)
    lab.new_topic(partitions=1)
    lab.produce({0: ["until=go"]})
    running = run(limits=Limits(age=0.2), drain=Drain(shutdown=0.1))
    sleep = "await asyncio.sleep" if executor == "asyncio" else "time.sleep"
    found: list[str] = []

    def is_named() -> bool:
        reasons = running.worker.healthy().reasons
        found[:] = [one for one in reasons if f"{sleep}(seconds)" in one]
        return bool(found)

    wait_for(is_named, f"it to be found at {sleep}")
    (reason,) = found
    assert f"{lab.topic}:0 offset 0" in reason
    wait_for(
        lambda: any(
            type(event) is worker_events.HandlerStalled and event.stack
            for event in running.events
        ),
        "its event",
    )
    (recording.folder / "go").touch()
