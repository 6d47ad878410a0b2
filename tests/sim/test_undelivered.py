"""
What a poll has taken and not returned is not committed, and a seek moves past it.

Something happens on another thread, or an error, while a record of it is deserialized.
"""

import gc
import threading
import weakref

import pytest
from kafka.serializer import Deserializer

from safeconsumer import SafeConsumer
from safeconsumer.events.consumer import FetchesPurged, ParkedDataDropped
from tests.sim.lab import GROUP
from tests.sim.meddling import Meddled, both_decoders, elsewhere
from tests.sim.reading import Reader, both_ways


@pytest.mark.contract("P1", "P8")
@both_decoders
def test_a_commit_behind_a_pause_has_nothing_that_goes_back(lab, decoder):
    """P8: 1. A poll takes both. 2. Another thread pauses one and commits. 3. It goes back."""
    reader = Meddled(lab, group_id=GROUP, decoder=decoder)
    consumer = reader.consumer

    def pause_and_commit():
        consumer.pause(reader.in_order[0])
        consumer.commit()

    reader.meddler.at(20, pause_and_commit)
    reader.once()
    held, flowing = reader.in_order
    assert (reader.offsets(held), reader.offsets(flowing)) == ([], [*range(10)])
    assert [lab.committed(tp) for tp in (held, flowing)] == [0, 0]
    consumer.commit()
    assert [lab.committed(tp) for tp in (held, flowing)] == [0, 10]
    consumer.resume(held)
    reader.reads_everything()
    consumer.commit()
    assert [lab.committed(tp) for tp in (held, flowing)] == [10, 10]


@both_ways
def test_a_commit_counts_what_was_returned_before(lab, how):
    """Only what this poll has taken is left out; an iteration commits what it yielded."""
    reader = Meddled(lab, group_id=GROUP, max_poll_records=4, how=how)
    seen = []

    def commit():
        reader.consumer.commit()
        seen.append(lab.committed(reader.in_order[0]))

    reader.meddler.at(2, commit)
    reader.meddler.at(6, commit)
    for _ in range(7):
        reader.poll(1, limit=4 if how == "poll" else 1)
    assert seen == [0, 4]
    reader.consumer.commit()
    assert lab.committed(reader.in_order[0]) == reader.consumer.position(
        reader.in_order[0]
    )
    if how == "iterate":
        assert lab.committed(reader.in_order[0]) == len(reader.log)


def told_at_the_end_of_a_poll(lab, act):
    """
    Have a hook act while it is told that data was dropped: by a poll that took records.

    Both partitions are asked for; while the answer is held back the second one is
    paused, and there is no room to park it.
    """
    made = []

    def hook(event):
        if isinstance(event, ParkedDataDropped) and made:
            act(made.pop())

    settings = {"hooks": [hook], "parked_max_bytes": 0, "group_id": GROUP}
    reader = Meddled(lab, **settings)
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.until(lambda: late.kept)
    reader.consumer.pause(reader.tps[1])
    made.append(reader)
    late.end()
    lab.sleep(1)
    reader.poll(0)
    assert made == []
    return reader


def test_a_commit_in_a_hook_at_the_end_of_a_poll(lab):
    seen = []

    def commit(reader):
        reader.consumer.commit()
        seen.append(lab.committed(reader.tps[0]))

    reader = told_at_the_end_of_a_poll(lab, commit)
    assert seen == [0]
    assert reader.offsets(reader.tps[0]) == [*range(10)]


def test_a_hook_that_pauses_and_seeks(lab):
    def pause_and_seek(reader):
        reader.consumer.pause(reader.tps[0])
        reader.consumer.seek(reader.tps[0], 7)

    reader = told_at_the_end_of_a_poll(lab, pause_and_seek)
    assert reader.log == []
    assert reader.consumer.position(reader.tps[0]) == 7
    reader.consumer.resume(*reader.tps)
    reader.reads(reader.tps[0], [7, 8, 9])


@pytest.mark.contract("P1")
def test_a_pause_while_a_hook_takes_its_time_is_obeyed(lab):
    """P1: the final check comes after the hooks, which may take longer than a pause."""
    reader = told_at_the_end_of_a_poll(
        lab, lambda it: elsewhere(lambda: it.consumer.pause(it.tps[0]))
    )
    assert reader.log == []
    assert reader.consumer.position(reader.tps[0]) == 0
    reader.consumer.resume(*reader.tps)
    reader.reads_everything()


@both_decoders
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
@pytest.mark.parametrize("at", [1, 10, 14])
def test_records_of_a_poll_that_raised_come_again(lab, decoder, error, at):
    """Stock's never come, nor does its next poll return: positions moved with the drain."""
    reader = Meddled(lab, group_id=GROUP, decoder=decoder)
    reader.meddler.raise_at(at, error)
    if error is ValueError and at > 10:
        reader.once()  # what stands before an ordinary error comes first
    with pytest.raises(error):
        reader.until(lambda: False)
    reader.consumer.commit()
    for tp in reader.tps:
        assert lab.committed(tp) == reader.consumer.position(tp)
        assert lab.committed(tp) == len(reader.offsets(tp))
    reader.reads_everything()


def test_a_seek_behind_a_poll_that_raised_stands(lab):
    reader = Meddled(lab)
    reader.meddler.raise_at(15, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        reader.until(lambda: False)
    reader.consumer.seek(reader.tps[0], 7)
    reader.until(lambda: len(reader.log) == 13)
    assert reader.offsets(reader.tps[0]) == [7, 8, 9]
    assert reader.offsets(reader.tps[1]) == [*range(10)]


@pytest.mark.contract("P8")
@both_decoders
def test_what_departs_and_returns_in_the_middle_of_a_drain(lab, decoder):
    """P8: no ``KeyError`` out of poll; its new ownership has a position of its own."""
    reader = Meddled(lab, group_id=GROUP, decoder=decoder)
    consumer = reader.consumer

    def away_and_back():
        first, second = reader.in_order
        consumer.assign([second])
        consumer.commit()
        consumer.assign([first, second])
        consumer.seek(first, 3)
        consumer.commit()

    reader.meddler.at(20, away_and_back)
    reader.once()
    first, second = reader.in_order
    assert reader.offsets(first) == []
    assert reader.offsets(second) == [*range(10)]
    assert [lab.committed(tp) for tp in (first, second)] == [3, 0]
    reader.reads(first, range(3, 10))


def test_what_departs_while_its_answer_is_looked_at(lab):
    """P8: no ``KeyError`` out of poll, though upstream looks at the assignment twice."""
    reader = Meddled(lab)
    departing, staying = reader.tps
    subscription = reader.consumer._subscription
    is_fetchable = subscription.is_fetchable
    others = []

    def is_fetchable_and_departs(tp):
        found = bool(is_fetchable(tp))
        if found and tp == departing and not others:
            assign = subscription.assign_from_user
            others.append(threading.Thread(target=assign, args=([staying],)))
            others[0].start()
            lab.sleep(1)  # under the lock it has to wait; without one it is done by now
        return found

    subscription.is_fetchable = is_fetchable_and_departs
    reader.until(lambda: len(reader.offsets(staying)) == 10)
    assert len(others) == 1
    assert reader.offsets(staying) == [*range(10)]
    assert reader.offsets(departing) in ([], [*range(10)])  # whoever was first


def _seek(reader, tp, to):
    reader.consumer.seek(tp, to)


def _pause_and_seek(reader, tp, to):
    reader.consumer.pause(tp)
    reader.consumer.seek(tp, to)


def _seek_while_held(reader, tp, to):
    with reader.consumer.held(tp):
        reader.consumer.seek(tp, to)


def _to_the_beginning(reader, tp, to):
    reader.consumer.seek(tp, to)
    reader.consumer.seek_to_beginning(tp)
    reader.consumer.pause(tp)


@pytest.mark.parametrize(
    "move", [_seek, _pause_and_seek, _seek_while_held, _to_the_beginning]
)
@pytest.mark.parametrize("to", [7, 20])
@pytest.mark.parametrize(
    ("decoder", "at"), [("python", 5), ("compiled", 5), ("compiled", 45)]
)
def test_a_seek_in_the_middle_of_a_drain_stands(lab, decoder, move, to, at):
    """Upstream reads the position, decodes, and sets it: the seek between is undone."""
    reader = Meddled(lab, records=30, decoder=decoder)
    reader.meddler.at(at, lambda: move(reader, reader.in_order[0], to))
    reader.until(lambda: len(reader.meddler.seen) >= at)
    sought, other = reader.in_order
    first = 0 if move is _to_the_beginning else to
    assert reader.consumer.position(sought) == first
    since = len(reader.log)
    assert reader.offsets(sought) in ([], [*range(30)])  # taken before the seek
    reader.consumer.resume(*reader.tps)
    reader.until(lambda: reader.offsets(sought, since)[-1:] == [29])
    assert reader.offsets(sought, since) == [*range(first, 30)]
    assert reader.offsets(other) == [*range(30)]


@both_decoders
def test_retention_behind_records_that_went_back(lab, decoder):
    """They come all the same, and then what is left: a reset waits for them."""
    reader = Meddled(lab, records=5, decoder=decoder)
    consumer = reader.consumer
    reader.meddler.at(10, lambda: consumer.pause(reader.in_order[0]))
    reader.once()
    held = reader.in_order[0]
    lab.append(held, 10, first=5)
    lab.cluster.delete_before("t", held.partition, 12)
    reader.is_silent(of=[held])
    consumer.resume(held)
    reader.reads(held, [*range(5), *range(12, 15)])


class Value:
    """A deserialized value, of which a weak reference tells whether anybody keeps it."""


class Making(Deserializer):
    def __init__(self, fails_at=None):
        self.fails_at, self.made = fails_at, []

    def deserialize(self, _topic, _headers, _data):
        value = Value()
        self.made.append(weakref.ref(value))
        if len(self.made) == self.fails_at:
            raise KeyboardInterrupt
        return value

    def alive(self):
        gc.collect()
        return sum(one() is not None for one in self.made)


@both_decoders
def test_what_a_poll_has_returned_is_kept_by_its_caller_alone(lab, decoder):
    """A program that works for minutes frees each record, or the memory of all, by then."""
    (tp,) = lab.topic("t", 1, records=100)
    making = Making()
    reader = Reader(
        lab, SafeConsumer, tps=[tp], value_deserializer=making, decoder=decoder
    )
    found = reader.consumer.poll(1000, max_records=50)
    assert making.alive() == sum(map(len, found.values())) > 0
    del found
    assert making.alive() <= 1  # kafka-python's generator stands at one


@pytest.mark.contract("P14")
def test_a_closed_consumer_reports_what_a_failed_poll_had_taken(lab):
    """It is purged with the rest, and nothing of it stays in memory."""
    tps = lab.topic("t", 2, records=10)
    told, making = [], Making(fails_at=15)
    settings = {"value_deserializer": making, "hooks": [told.append]}
    reader = Reader(lab, SafeConsumer, tps=tps, **settings, decoder="compiled")
    with pytest.raises(KeyboardInterrupt):
        reader.until(lambda: False)
    assert (reader.log, making.alive()) == ([], 10)
    reader.consumer.close()
    assert making.alive() == 0
    assert [one.records for one in told if isinstance(one, FetchesPurged)] == [10]
