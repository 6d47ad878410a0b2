"""
Iteration over an overridden ``poll()``, as in tracing and counting wrappers.

Such a method may accept only ``timeout_ms`` and ``max_records``. Its poll then moves
positions past all records, and the iteration step moves the positions back to the
records that it yields next.
"""

from functools import partial

import pytest
from kafka import KafkaConsumer

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from tests.sim.lab import GROUP
from tests.sim.meddling import Making, both_steps
from tests.sim.reading import Reader

__all__ = ["both_steps"]  # a fixture


class Counting(SafeConsumer):
    """A consumer that counts its polls, and does not pass ``update_offsets`` on."""

    polls = 0

    def poll(self, timeout_ms=0, max_records=None, **_):
        self.polls += 1
        return super().poll(timeout_ms, max_records)


class Moving(SafeConsumer):
    """A consumer whose polls move positions (``update_offsets``), even in an iteration."""

    def poll(self, *args, **options):
        return super().poll(*args, **{**options, "update_offsets": True})


own_polls = pytest.mark.parametrize("kind", [Counting, Moving])
pytestmark = [pytest.mark.usefixtures("both_steps"), pytest.mark.contract("P8")]


def stepping(lab, kind, **settings):
    """Return a reader of two partitions of ten records each that has read one record."""
    tps = lab.topic("t", 2, records=10)
    reader = Reader(lab, kind, tps=tps, how="iterate", **settings)
    reader.take(1)
    return reader


def other_than_read(reader):
    """Return the partition of which no record has been yielded yet."""
    (tp,) = (one for one in reader.consumer.assignment() if not reader.offsets(one))
    return tp


@own_polls
@pytest.mark.parametrize("parked_max_bytes", [1, 1_000_000])
def test_pause_before_the_first_record_loses_no_record(lab, kind, parked_max_bytes):
    """The records arrive after the resume, from the buffer or from another fetch."""
    reader = stepping(lab, kind, parked_max_bytes=parked_max_bytes)
    held = other_than_read(reader)
    reader.consumer.pause(held)
    reader.is_silent(of=[held])
    reader.consumer.resume(held)
    reader.reads(held, range(10))


@own_polls
@pytest.mark.parametrize("to", [0, 4, 10])
def test_seek_before_the_first_record_takes_effect(lab, kind, to):
    reader = stepping(lab, kind)
    held = other_than_read(reader)
    reader.consumer.pause(held)
    reader.is_silent(of=[held])
    reader.consumer.seek(held, to)
    reader.consumer.resume(held)
    lab.append(held, 2, first=10)
    reader.reads(held, range(to, 12))


@own_polls
def test_commit_includes_only_the_yielded_records(lab, kind):
    reader = stepping(lab, kind, group_id=GROUP)
    unread = other_than_read(reader)
    reader.consumer.commit()
    committed = {tp: lab.committed(tp) for tp in reader.consumer.assignment()}
    assert committed.pop(unread) in {None, 0}
    assert [*committed.values()] == [1]


class Hoarding(SafeConsumer):
    """A consumer that returns the records of a poll one at a time, and then polls again."""

    kept = ()

    def poll(self, *args, **options):
        if not self.kept:
            found = super().poll(*args, **options)
            self.kept = tuple((tp, one) for tp, batch in found.items() for one in batch)
        first, self.kept = self.kept[:1], self.kept[1:]
        return {tp: [record] for tp, record in first}


def test_records_buffered_by_an_overridden_poll_are_yielded_once(lab):
    """As with kafka-python, the records are not fetched again."""
    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, Hoarding, tps=[tp], how="iterate")
    reader.take(1)
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.reads(tp, range(1, 10))
    late.end()
    reader.is_silent()


# ------------------------------------------------------------ several polls, records left out


def merge(poll, _):
    """Poll three times, and return all records together."""
    found = {}
    for _ in range(3):
        for tp, batch in poll(3).items():
            found.setdefault(tp, []).extend(batch)
    return found


def choose(poll, _):
    """Leave records out, and poll again if no record remains."""
    for _ in range(200):
        got = poll(3)
        kept = with_values(got, range(4, 20, 5))
        if kept or not got:
            return kept
    raise AssertionError


def leave_out(poll, most):
    """Leave out the first ten records."""
    return with_values(poll(most), range(10, 20))


def with_values(found, wanted):
    kept = {
        tp: [one for one in batch if int(one.value) in wanted]
        for tp, batch in found.items()
    }
    return {tp: batch for tp, batch in kept.items() if batch}


METHODS = {merge: range(20), choose: range(4, 20, 5), leave_out: range(10, 20)}


@pytest.mark.contract("P8", "P13")
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
@pytest.mark.parametrize("base", [SafeConsumer, KafkaConsumer], ids=["ours", "stock"])
def test_each_record_returned_by_an_overridden_poll_is_yielded_once(lab, base, method):
    """kafka-python does the same, even if a step polls several times or yields no record."""

    class Own(base):
        def poll(self, timeout_ms=0, max_records=None, **_):
            return method(partial(super().poll, timeout_ms), max_records)

    (tp,) = lab.topic("t", 1, records=20)
    reader = Reader(lab, Own, tps=[tp], how="iterate", max_poll_records=5)
    reader.until(lambda: 19 in reader.offsets(tp))
    assert reader.offsets(tp) == [*METHODS[method]]


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_records_of_a_failed_overridden_poll_are_delivered_again(
    lab, error, *, is_held
):
    """The records of earlier polls in the same step are delivered again, too."""
    failures = [3, 7]

    class Failing(SafeConsumer):
        polls = 0

        def poll(self, timeout_ms=0, **_):
            found = {}
            for _ in range(3):
                for tp, batch in super().poll(timeout_ms, 3).items():
                    found.setdefault(tp, []).extend(batch)
                self.polls += 1
                if self.polls in failures:
                    if is_held:
                        self.pause(*self.assignment())
                    raise error
            return found

    (tp,) = lab.topic("t", 1, records=20)
    reader = Reader(lab, Failing, tps=[tp], how="iterate")
    raised = 0
    for _ in range(30):
        try:
            reader.poll(0.5, limit=1)
        except error:
            raised += 1
            reader.consumer.resume(tp)
    assert reader.offsets(tp) == [*range(20)]
    assert raised == len(failures)


def test_overridden_poll_that_fails_before_it_polls_does_not_move_a_position(lab):
    """The previous step has already yielded its records."""

    class Failing(SafeConsumer):
        fails = False

        def poll(self, *args, **options):
            if self.fails:
                self.fails = False
                raise KeyboardInterrupt
            return super().poll(*args, **options)

    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, Failing, "t", how="iterate", max_poll_records=5)
    reader.take(5)
    reader.consumer.fails = True
    with pytest.raises(KeyboardInterrupt):
        next(reader.consumer)
    assert reader.consumer.position(tp) == 5
    reader.consumer.commit()
    assert lab.committed(tp) == 5
    reader.until(lambda: len(reader.log) == 10)
    assert reader.offsets(tp) == [*range(10)]


def hold_a_while(own, poll):
    own.pause(*own.assignment())
    poll()
    own.resume(*own.assignment())


def drop_decoded_records(own, _):
    own._fetcher.drop_decoded()


@pytest.mark.parametrize("meanwhile", [hold_a_while, drop_decoded_records])
def test_poll_override_that_raises_loses_no_record_of_an_emptied_buffer(lab, meanwhile):
    """The step restores the position that the partition had before the step's first poll."""

    class Failing(SafeConsumer):
        fails = True

        def poll(self, timeout_ms=0, **_):
            poll = partial(super().poll, timeout_ms, 3)
            found = poll()
            if found and self.fails:
                self.fails = False
                meanwhile(self, poll)
                poll()
                raise KeyboardInterrupt
            return found

    (tp,) = lab.topic("t", 1)
    for first in range(0, 20, 4):
        lab.append(tp, 4, first=first)
    small = {"parked_max_bytes": 1, "max_partition_fetch_bytes": 100}
    reader = Reader(lab, Failing, tps=[tp], how="iterate", **small)
    with pytest.raises(KeyboardInterrupt):
        reader.until(lambda: 19 in reader.offsets(tp))
    reader.until(lambda: 19 in reader.offsets(tp))
    assert reader.offsets(tp) == [*range(20)]


def test_records_left_out_by_an_overridden_poll_are_freed(lab):
    """An iteration step may poll for hours before it finds a record to yield."""

    class Choosing(SafeConsumer):
        def poll(self, timeout_ms=0, **_):
            while True:
                found = super().poll(timeout_ms, 10)
                kept = {
                    tp: [one for one in batch if one.offset == 190]
                    for tp, batch in found.items()
                }
                if not found or any(kept.values()):
                    return kept

    (tp,), making = lab.topic("t", 1, records=200), Making()
    settings = {"value_deserializer": making, "decoder": "python"}
    reader = Reader(lab, Choosing, tps=[tp], how="iterate", **settings)
    reader.take(1)
    assert len(making.made) > 190
    assert making.alive() <= 20


@pytest.mark.parametrize("to", [0, 1, 4, 7])
@pytest.mark.parametrize("most", [3, 10])
def test_seek_between_two_polls_of_a_step_takes_effect(lab, to, most):
    """Reading continues at the seek's target, without the records taken before the seek."""

    class Seeking(SafeConsumer):
        has_sought = False

        def poll(self, timeout_ms=0, **_):
            found = super().poll(timeout_ms, max_records=most)
            if found and not self.has_sought:
                self.has_sought = True
                self.seek(tp, to)
                for one, records in super().poll(1000, max_records=most).items():
                    found[one] = [*found.get(one, ()), *records]
            return found

    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, Seeking, tps=[tp], how="iterate")
    reader.until(lambda: 9 in reader.offsets(tp))
    assert reader.offsets(tp) == [*range(to, 10)]
    assert reader.consumer.position(tp) == 10


@pytest.mark.contract("P18")
def test_interrupt_at_the_end_of_the_second_poll_of_a_step_loses_no_record(
    lab, monkeypatch
):
    class Twice(SafeConsumer):
        def poll(self, timeout_ms=0, **_):
            found = super().poll(timeout_ms, max_records=3)
            for tp, records in super().poll(0, max_records=3).items():
                found[tp] = [*found.get(tp, ()), *records]
            return found

    def interrupted(self):
        taken = self._subscriptions.undelivered.taken.values()
        if any(state.position.offset == 6 for state in taken):
            monkeypatch.undo()
            raise KeyboardInterrupt
        delivered(self)

    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, Twice, tps=[tp], how="iterate")
    delivered = PauseSafeFetcher.delivered
    monkeypatch.setattr(PauseSafeFetcher, "delivered", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reader.until(lambda: 9 in reader.offsets(tp))
    reader.until(lambda: 9 in reader.offsets(tp))
    assert reader.offsets(tp) == [*range(10)]
