"""The audit judges the journals of correct workers, and those with planted breaches."""

from collections import Counter
from contextlib import contextmanager

import pytest
from kafka.serializer import Deserializer

from safeconsumer import (
    DeadLetter,
    Drain,
    Limits,
    Pause,
    Reject,
    Retry,
    RetryLater,
    events,
)
from safeconsumer.errors import JournalError
from safeconsumer.journal import writer as writing
from safeconsumer.journal.writer import JournalWriter
from tests.harness.worker.journals import broken, entries
from tests.harness.worker.planted import PLANTS
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.worker.working import (
    OFTEN,
    SOON,
    Handler,
    Working,
    committed,
    expel,
    fails,
    filled,
    in_both,
    in_both_ways,
    journaled,
    producer,
    put,
    quick,
    settled,
)


class Text(Deserializer):
    def deserialize(self, _topic, _headers, data):
        return None if data is None else data.decode()


TEXT = {"key_deserializer": Text()}


def first_time_only(error):
    """Return a handler that raises at the first attempt at a record."""
    seen = set()

    def once(record, _):
        place = record.partition, record.offset
        if place not in seen:
            seen.add(place)
            raise error

    return once


def obeying(lab):
    return Handler(
        lab,
        slow=0.05,
        bad=fails,
        reject=Reject("planted"),
        once=first_time_only(ValueError("planted")),
        later=first_time_only(RetryLater(0.1)),
        pause=first_time_only(Pause(0.3, scope="partition")),
        alone=first_time_only(Pause(0.3, scope="key")),
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
def test_audit_finds_no_fault_in_the_journal_of_a_worker(
    lab, tmp_path, executor, order, batch
):
    """Keys are text, some records have no key, and some records are skipped."""
    tps = filled(lab, 2, *ALL * 2, keys="abc")
    for tp in tps:
        put(lab, tp, *ALL)
    how = {"executor": executor, "order": order, "batch": batch, "on_exhausted": "skip"}
    settings = {**TEXT, "max_poll_records": 7}
    run = journaled(lab, tmp_path, obeying(lab), settings, **how)
    for _ in range(3):
        with run.consumer.held("t"):
            lab.sleep(0.2)
        lab.sleep(0.2)
    run.done(60)
    report = run.stop()
    assert (report.skipped, committed(lab)) == (12, [30, 30])
    assert broken(tmp_path) == set()
    counts = Counter(one.event for one in entries(tmp_path, "handle", "handled"))
    assert counts["handle"] == counts["handled"] > (60 if batch is None else 15)
    lanes = {one["lane"] for one in entries(tmp_path, "handle")}
    if order == "key":
        assert lanes == {"b'a'", "b'b'", "b'c'", "None"}
    else:
        assert lanes == {"None" if order == "partition" else None}


@pytest.mark.contract("W4", "W7")
@in_both
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
@simulated(seeds=1, nightly=2)
def test_completed_record_is_in_the_journal_before_its_event(
    lab, tmp_path, executor, policy
):
    """
    The worker writes no entry under its lock.

    A signal handler that calls ``pause()`` during a write would wait for that lock.
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
            writer.write("reported", {"tp": event.partition, "offset": event.offset})

    options = {"executor": executor, "on_event": tell, **options}
    run = journaled(lab, writer, obeying(lab), **options)
    runs.append(run)
    run.done(40)
    run.stop()
    assert committed(lab) == [20, 20]
    assert broken(tmp_path) == set()
    written = entries(tmp_path, "completed")
    assert len(written) == 20
    assert {one["why"] for one in written} == {
        "skipped" if policy == "skip" else "dead-letter"
    }
    if policy == "skip":
        results = {
            (one["tp"], one["offset"]): one.number
            for one in entries(tmp_path, "reported")
        }
        assert all(one.number < results[one["tp"], one["offset"]] for one in written)


@pytest.mark.contract("W4", "W6", "W7", "W10")
@in_both_ways
@pytest.mark.parametrize("how_it_ends", ["skip", "dead_letter"])
@simulated(seeds=1, nightly=2)
def test_audit_finds_no_fault_in_workers_that_join_and_leave(
    lab, tmp_path, protocol, how_it_ends
):
    filled(lab, 4, *ALL * 3, keys="abc")
    options = {
        "settings": quick(protocol, journal=tmp_path),
        "limits": Limits(records=20),
        "drain": Drain(revoke=0.1),
        "retry": SOON,
        "commit": OFTEN,
        "on_exhausted": "skip",
        "order": "key",
    }
    if how_it_ends == "dead_letter":
        letters = DeadLetter(producer(lab), "dead", max_ratio=None)
        options = {**options, "dead_letter": letters}
    first = Working(lab, obeying(lab), name="first", **options)
    first.done(12)
    second = Working(lab, obeying(lab), name="second", **options)
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
def test_audit_finds_no_fault_in_a_seek_while_handlers_run(
    lab, tmp_path, executor, target
):
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
def test_seek_back_among_queued_records_loses_no_record(lab, tmp_path, executor, first):
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


@pytest.mark.contract("W5")
@pytest.mark.parametrize(
    ("target", "then"), [(10, [*range(10, 150)]), (120, [*range(20, 100)])]
)
def test_seek_during_the_poll_after_a_seek_back_is_kept(lab, tmp_path, target, then):
    """Records before the second target stay queued, and skipped records never arrive."""
    (tp,) = filled(lab, 1, *["a"] * 20, "first", *["b"] * 79)
    handler = Handler(lab, first=RetryLater(3.0))
    run = journaled(lab, tmp_path, handler, concurrency=1)
    lab.until(lambda: handler.times("first") and run.consumer.position(tp) == 100)
    put(lab, tp, *["c"] * 50)
    poll = run.consumer.poll

    def sought(**how):
        polled = poll(**how)
        if polled:
            run.consumer.poll = poll
            run.consumer.seek(tp, target)
        return polled

    run.consumer.poll = sought
    run.consumer.seek(tp, 50)
    handler.does.clear()
    lab.until(lambda: committed(lab) == [150])
    later = [*range(120, 150)] if target == 120 else []
    assert handler.offsets() == [*range(21), *then, *later]
    run.stop()
    # The program has skipped the records before its second target.
    passed_over = {"W4", "W5"} if later else set()
    assert broken(tmp_path) - {"A2"} == passed_over


@pytest.mark.contract("W10")
@pytest.mark.parametrize("asks", [True, False])
def test_running_call_is_not_judged_as_a_start_under_a_hold(lab, tmp_path, *, asks):
    """
    A call may start just before a hold, and be journaled just after the hold.

    1. A thread finds no hold, and calls the handler.
    2. Another thread pauses; the pause returns and is journaled.
    3. The start of the handler is journaled.

    Without the running records in step 2, the call would look like a start under the hold.
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
def test_planted_breach_is_found_by_the_audit(lab, tmp_path, executor, plant):
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
    """Make the disk full from the first entry of this event on."""
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
def test_record_whose_entry_cannot_be_written_is_not_complete(
    lab, tmp_path, executor, event, batch
):
    """A full disk stops the worker under any policy."""
    filled(lab, 1, "bad", "bad", "bad")
    handler = Handler(lab, bad=fails)
    with full(event):
        how = {"executor": executor, "batch": batch, "on_exhausted": "skip"}
        run = journaled(lab, tmp_path, handler, retry=Retry(attempts=1), **how)
        error = run.ends()
    assert isinstance(error, JournalError)
    assert committed(lab) == [None if event == "working" else 0]
    assert bool(handler.calls) is (event in {"handled", "completed"})


def test_dead_letter_whose_entry_cannot_be_written_is_not_complete(lab, tmp_path):
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
def test_worker_leaves_its_group_if_the_end_of_a_hold_cannot_be_journaled(
    lab, tmp_path, executor
):
    filled(lab, 1, "pause")
    handler = Handler(lab, pause=Pause(3600.0))
    run = journaled(lab, tmp_path, handler, executor=executor)
    lab.until(lambda: run.worker.stats().pauses, what="the topic is held")
    with full("call"):
        run.worker.stop()
        run.ends()
    assert lab.members() == 0
