"""Workers whose consumers keep journals, judged by the audit: clean, or caught."""

from collections import Counter
from contextlib import contextmanager

import pytest
from kafka.serializer import Deserializer

from safeconsumer import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Pause,
    Reject,
    Retry,
    RetryLater,
    events,
)
from safeconsumer.audit.results import Settings
from safeconsumer.errors import JournalError
from safeconsumer.journal import writer as writing
from safeconsumer.journal.writer import JournalWriter
from tests.harness.audit.journals import check, findings_of, read
from tests.harness.worker.planted import PLANTS
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.worker.test_letters import fails, producer
from tests.sim.worker.test_rebalances import settled
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    consumer,
    expel,
    filled,
    in_both,
    in_both_ways,
    put,
    quick,
)

QUICK = Retry(attempts=2, first=0.01, jitter=False)
OFTEN = Commit(every=0.2)


class Text(Deserializer):
    def deserialize(self, _topic, _headers, data):
        return None if data is None else data.decode()


TEXT = {"key_deserializer": Text()}


def broken(folder):
    """Return the checks that found something in the journals of a folder."""
    journals = [read(path) for path in folder.glob("*.journal")]
    found = findings_of(check(journals, Settings(is_drained=True, patience=60)))
    return {one.check for one in found}


def entries(folder, *kinds):
    """Return the entries of these events in the only journal of a folder."""
    (path,) = folder.glob("*.journal")
    return [one for one in read(path).lines if one.event in kinds]


def first_time_only(error):
    """Return what raises for the first attempt at a record."""
    seen = set()

    def once(record, _):
        place = record.partition, record.offset
        if place not in seen:
            seen.add(place)
            raise error

    return once


def told_to(lab):
    return Handler(
        lab,
        slow=0.05,
        bad=fails,
        reject=Reject("told to"),
        once=first_time_only(ValueError("told to")),
        later=first_time_only(RetryLater(0.1)),
        pause=first_time_only(Pause(0.3, scope="partition")),
        alone=first_time_only(Pause(0.3, scope="key")),
    )


def journaled(lab, folder, handle, settings=None, **options):
    """Start a worker that commits soon and tries again soon, with a journal."""
    options = {"retry": QUICK, "commit": OFTEN, **options}
    return Working(
        lab, handle, settings={"journal": folder, **(settings or {})}, **options
    )


ALL = ["", "slow", "once", "bad", "later", "reject", "", "pause", "slow", "alone"]


@pytest.mark.contract("W3", "W4", "W5", "W7", "W10")
@in_both
@pytest.mark.parametrize(
    ("order", "batch"),
    [
        ("key", None),
        ("partition", None),
        ("partition", 4),
        ("unordered", None),
        ("unordered", 4),
    ],
)
@simulated(seeds=1, nightly=2)
def test_a_worker_with_a_journal_is_judged(lab, tmp_path, executor, order, batch):
    """W7: its keys are text, and some records have none; some are skipped for good."""
    tps = filled(lab, 2, *ALL * 2, keys="abc")
    for tp in tps:
        put(lab, tp, *ALL)
    how = {"executor": executor, "order": order, "batch": batch, "on_exhausted": "skip"}
    settings = {**TEXT, "max_poll_records": 7}
    run = journaled(lab, tmp_path, told_to(lab), settings, **how)
    for _ in range(3):
        with run.consumer.held("t"):
            lab.sleep(0.2)
        lab.sleep(0.2)
    run.done(60)
    report = run.stop()
    assert (report.skipped, committed(lab)) == (12, [30, 30])
    assert broken(tmp_path) == set()
    said = Counter(one.event for one in entries(tmp_path, "handle", "handled"))
    assert said["handle"] == said["handled"] > (60 if batch is None else 15)
    lanes = {one["lane"] for one in entries(tmp_path, "handle")}
    if order == "key":
        assert lanes == {"b'a'", "b'b'", "b'c'", "None"}
    else:
        assert lanes == {"None" if order == "partition" else None}


@pytest.mark.contract("W4", "W7")
@in_both
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
@simulated(seeds=1, nightly=2)
def test_what_is_complete_is_written_before_anybody_hears_of_it(
    lab, tmp_path, executor, policy
):
    """
    W4, W7: a record that was skipped, or whose letter arrived, is as one that is done.

    Nothing is written under the worker's lock: a signal handler that interrupts a write
    and pauses waits for that lock.
    """
    filled(lab, 2, *["", "bad", "", "reject"] * 5, keys="ab")
    writer, runs = JournalWriter(tmp_path, group=GROUP), []
    flush = writer.flush

    def flush_unlocked():
        assert not any(run.worker._engine.kept.lock._is_owned() for run in runs)
        flush()

    writer.flush = flush_unlocked
    options = {"on_exhausted": "skip"}
    if policy == "dead_letter":
        options = {"dead_letter": DeadLetter(producer(lab), "dead", max_ratio=None)}

    def tell(event):
        if isinstance(event, events.RecordExhausted):
            writer.write("heard", {"tp": event.partition, "offset": event.offset})

    options = {"executor": executor, "on_event": tell, **options}
    run = journaled(lab, writer, told_to(lab), **options)
    runs.append(run)
    run.done(40)
    run.stop()
    assert committed(lab) == [20, 20]
    assert broken(tmp_path) == set()
    said = entries(tmp_path, "completed")
    assert len(said) == 20
    assert {one["why"] for one in said} == {
        "skipped" if policy == "skip" else "dead-letter"
    }
    if policy == "skip":
        heard = {
            (one["tp"], one["offset"]): one.number for one in entries(tmp_path, "heard")
        }
        assert all(one.number < heard[one["tp"], one["offset"]] for one in said)


@pytest.mark.contract("W4", "W6", "W7", "W10")
@in_both_ways
@pytest.mark.parametrize("how_it_ends", ["skip", "dead_letter"])
@simulated(seeds=1, nightly=2)
def test_workers_that_come_and_go_are_judged(lab, tmp_path, protocol, how_it_ends):
    """W6: small limits, so that they give records back; letters; expelled; not drained."""
    filled(lab, 4, *ALL * 3, keys="abc")
    options = {
        "settings": quick(protocol, journal=tmp_path),
        "limits": Limits(records=20),
        "drain": Drain(revoke=0.1),
        "retry": QUICK,
        "commit": OFTEN,
        "on_exhausted": "skip",
        "order": "key",
    }
    if how_it_ends == "dead_letter":
        letters = DeadLetter(producer(lab), "dead", max_ratio=None)
        options = {**options, "dead_letter": letters}
    first = Working(lab, told_to(lab), name="first", **options)
    first.done(12)
    second = Working(lab, told_to(lab), name="second", **options)
    settled(lab, first, second)
    with second.consumer.held("t"):
        lab.sleep(1.0)
    expel(lab)
    settled(lab, first, second)
    lab.sleep(1.0)
    first.stop(drain=False)
    second.owns(4)
    lab.until(lambda: committed(lab) == [30] * 4, 300.0)
    second.stop()
    assert broken(tmp_path) == set()


@in_both
@pytest.mark.parametrize("target", [8, 15])
@simulated(seeds=1, nightly=2)
def test_a_position_that_the_program_moves(lab, tmp_path, executor, target):
    """
    While handlers are at what came: that is dropped, and no fault.

    Nor is it that some of what came is passed over before a handler has it.
    """
    (tp,) = filled(lab, 1, *["slow"] * 30)
    how = {"executor": executor, "order": "unordered", "concurrency": 4}
    handler = Handler(lab, slow=0.3)
    run = journaled(lab, tmp_path, handler, {"max_poll_records": 20}, **how)
    run.done(3)
    polls = iter([True])
    polling = run.consumer.poll

    def poll(**how):
        if next(polls, False):
            run.consumer.seek(tp, target)
        return polling(**how)

    run.consumer.poll = poll
    lab.until(lambda: committed(lab) == [30], 100.0)
    run.stop()
    assert len(entries(tmp_path, "dropped")) == 1
    assert broken(tmp_path) - {"A2"} == set()


@pytest.mark.contract("W5")
@in_both
@pytest.mark.parametrize("first", [3.0, RetryLater(3.0)], ids=["runs", "waits"])
@simulated(seeds=1)
def test_a_seek_back_into_what_is_kept_loses_no_record(lab, tmp_path, executor, first):
    """The first record that is not done is before the target, so it comes again."""
    (tp,) = filled(lab, 1, *["a"] * 20, "first", *["b"] * 79)
    handler = Handler(lab, first=first)
    how = {"executor": executor, "concurrency": 1}
    run = journaled(lab, tmp_path, handler, **how)
    lab.until(lambda: handler.times("first") and run.consumer.position(tp) == 100)
    run.consumer.seek(tp, 50)
    handler.does.clear()
    lab.until(lambda: committed(lab) == [100])
    assert {*range(100)} == {one.offset for one in handler.calls if one.ended}
    assert run.stop().dropped == 80
    assert handler.offsets().count(20) == 2
    assert broken(tmp_path) == set()


@pytest.mark.contract("W10")
@pytest.mark.parametrize("asks", [True, False])
@simulated(seeds=1)
def test_what_had_begun_when_the_hold_came_is_no_start_under_it(lab, tmp_path, *, asks):
    """
    W10: the handler's first line may run after the pause returned that it preceded.

    1. A place looks for holds, finds none, and calls the handler. 2. Another thread
    pauses; the pause returns and is journaled. 3. The handler writes that it begins.
    Without what ran at 2 nobody could tell it from a start under the hold.
    """
    filled(lab, 2, "", "")
    writer, first = JournalWriter(tmp_path, group=GROUP), iter([True])
    writing = writer.write

    def write(event, fields):
        if event == "handle" and next(first, False):
            if not asks:
                writer.running = None
            run.consumer.pause(fields["tp"])
        writing(event, fields)

    writer.write = write
    run = journaled(lab, writer, Handler(lab))
    run.done(3)
    run.consumer.resume_all(owner="app")
    run.done(4)
    run.stop()
    assert broken(tmp_path) == (set() if asks else {"W10"})


# ------------------------------------------------------------ planted


@in_both
@pytest.mark.parametrize("plant", PLANTS)
@simulated(seeds=1)
def test_a_worker_that_breaks_its_promise_is_found(lab, tmp_path, executor, plant):
    with pytest.MonkeyPatch.context() as patch:
        check_name = plant(patch)
        filled(lab, 2, *["slow"] * 20)
        handler, how = Handler(lab, slow=0.2), {"executor": executor, "concurrency": 4}
        run = journaled(lab, tmp_path, handler, {"max_poll_records": 4}, **how)
        run.done(4)
        run.consumer.pause("t", owner="ops")
        lab.sleep(1.0)
        run.consumer.resume("t", owner="ops")
        lab.sleep(2.0)
        run.worker.stop()
        run.ends()
    assert check_name in broken(tmp_path)


# ------------------------------------------------------------ a journal that fails


@contextmanager
def full(event):
    """Have the disk full from the first entry of this event on."""
    appending = writing._append

    def append(file, path, line):
        if f'"e":"{event}"' in line:
            message = "is the disk full?"
            raise JournalError(message)
        return appending(file, path, line)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_append", append)
        yield


@in_both
@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("event", ["working", "handle", "handled", "completed"])
@simulated(seeds=1)
def test_what_cannot_be_written_is_not_complete(lab, tmp_path, executor, event, batch):
    """W4: a full disk stops the worker, whatever its policy; the record comes again."""
    filled(lab, 1, "bad", "bad", "bad")
    handler = Handler(lab, bad=fails)
    with full(event):
        how = {"executor": executor, "batch": batch, "on_exhausted": "skip"}
        run = journaled(lab, tmp_path, handler, retry=Retry(attempts=1), **how)
        error = run.ends()
    assert isinstance(error, JournalError)
    assert committed(lab) == [None if event == "working" else 0]
    assert bool(handler.calls) is (event in {"handled", "completed"})


@simulated(seeds=1)
def test_a_letter_that_cannot_be_written_down_is_not_complete(lab, tmp_path):
    filled(lab, 1, "bad", "")
    arrived = []
    with full("completed"):
        run = journaled(
            lab,
            tmp_path,
            Handler(lab, bad=fails),
            retry=Retry(attempts=1),
            dead_letter=lambda record, _: arrived.append(record.offset),
        )
        assert isinstance(run.ends(), JournalError)
    assert (arrived, committed(lab)) == ([0], [0])


@in_both
@simulated(seeds=1)
def test_a_hold_whose_end_cannot_be_written_keeps_no_member_in_its_group(
    lab, tmp_path, executor
):
    """W8: the worker ends with the error, and its consumer is closed."""
    filled(lab, 1, "pause")
    handler = Handler(lab, pause=Pause(3600.0))
    run = journaled(lab, tmp_path, handler, executor=executor)
    lab.until(lambda: run.worker.stats().pauses, what="the topic is held")
    with full("call"):
        run.worker.stop()
        run.ends()
    assert lab.members() == 0


# ------------------------------------------------------------ others


@simulated(seeds=1)
def test_workers_with_one_writer(lab, tmp_path):
    filled(lab, 1, *["slow"] * 10)
    writer = JournalWriter(tmp_path, group=GROUP)
    settings = {"journal": writer, "max_poll_records": 2}
    first = Working(lab, Handler(lab, slow=0.5), settings=settings)
    first.done(1)
    with pytest.raises(JournalError, match="another consumer"):
        consumer(lab, "t", **settings)
    first.stop(drain=False)  # a handler is given up
    third = Working(lab, Handler(lab, slow=0.5), name="third", settings=settings)
    lab.until(lambda: committed(lab) == [10], 100.0)
    third.stop()
    assert broken(tmp_path) == set()
