"""
Records that a poll reads but does not return are not committed, and a seek drops them.

In these tests another thread changes something, or a deserializer raises, during the poll.
"""

import threading

import pytest

from safeconsumer import SafeConsumer
from safeconsumer.events.consumer import FetchesPurged, ParkedDataDropped
from tests.sim.lab import GROUP
from tests.sim.meddling import Making, Meddled, both_decoders, elsewhere
from tests.sim.reading import Reader, Watching, both_ways


@pytest.mark.contract("P1", "P8")
@both_decoders
def test_commit_during_a_poll_excludes_records_that_a_pause_puts_back(lab, decoder):
    """
    P8: a pause on another thread makes the poll put back records that it has read.

    1. A poll reads records of both partitions from the buffer.
    2. Another thread pauses one partition and commits.
    3. The records of the paused partition go back into the buffer.
    """
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
def test_commit_during_a_poll_includes_the_records_of_earlier_polls(lab, how):
    """In an iteration, the commit includes the records that were yielded."""
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


def act_in_a_hook(lab, act):
    """
    Call a function in the hook for dropped data, at the end of a poll with records.

    One response has records of both partitions. While it is held back, the second
    partition is paused, and there is no room to park its records.
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


def test_commit_in_a_hook_excludes_the_records_of_the_running_poll(lab):
    seen = []

    def commit(reader):
        reader.consumer.commit()
        seen.append(lab.committed(reader.tps[0]))

    reader = act_in_a_hook(lab, commit)
    assert seen == [0]
    assert reader.offsets(reader.tps[0]) == [*range(10)]


def test_pause_and_seek_in_a_hook_apply_to_the_running_poll(lab):
    def pause_and_seek(reader):
        reader.consumer.pause(reader.tps[0])
        reader.consumer.seek(reader.tps[0], 7)

    reader = act_in_a_hook(lab, pause_and_seek)
    assert reader.log == []
    assert reader.consumer.position(reader.tps[0]) == 7
    reader.consumer.resume(*reader.tps)
    reader.reads(reader.tps[0], [7, 8, 9])


@pytest.mark.contract("P1")
def test_pause_on_another_thread_during_a_hook_applies_to_the_running_poll(lab):
    """P1: the final check of the poll runs after the hooks."""
    reader = act_in_a_hook(
        lab, lambda it: elsewhere(lambda: it.consumer.pause(it.tps[0]))
    )
    assert reader.log == []
    assert reader.consumer.position(reader.tps[0]) == 0
    reader.consumer.resume(*reader.tps)
    reader.reads_everything()


@both_decoders
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
@pytest.mark.parametrize("at", [1, 10, 14])
def test_records_of_a_poll_that_raised_are_delivered_later(lab, decoder, error, at):
    """kafka-python never delivers these records, and its next poll does not return."""
    reader = Meddled(lab, group_id=GROUP, decoder=decoder)
    reader.meddler.raise_at(at, error)
    if error is ValueError and at > 10:
        reader.once()  # records before an ordinary error are delivered first
    with pytest.raises(error):
        reader.until(lambda: False)
    reader.consumer.commit()
    for tp in reader.tps:
        assert lab.committed(tp) == reader.consumer.position(tp)
        assert lab.committed(tp) == len(reader.offsets(tp))
    reader.reads_everything()


@pytest.mark.contract("P8")
@both_decoders
def test_partition_reassigned_during_a_drain_gets_a_new_position(lab, decoder):
    """P8: poll raises no ``KeyError``, and the new ownership has its own position."""
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


def test_partition_unassigned_while_its_response_is_unpacked_raises_no_error(lab):
    """P8: poll raises no ``KeyError``, although kafka-python reads the assignment twice."""
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
            lab.sleep(1)  # the lock keeps the thread waiting for longer than this
        return found

    subscription.is_fetchable = is_fetchable_and_departs
    reader.until(lambda: len(reader.offsets(staying)) == 10)
    assert len(others) == 1
    assert reader.offsets(staying) == [*range(10)]
    # depends on which of the two calls comes first
    assert reader.offsets(departing) in ([], [*range(10)])


def _seek(reader, tp, to):
    reader.consumer.seek(tp, to)


def _to_the_beginning(reader, tp, to):
    reader.consumer.seek(tp, to)
    reader.consumer.seek_to_beginning(tp)
    reader.consumer.pause(tp)


@pytest.mark.parametrize("move", [_seek, _to_the_beginning])
@pytest.mark.parametrize("to", [7, 20])
@pytest.mark.parametrize(
    ("decoder", "at"), [("python", 5), ("compiled", 5), ("compiled", 45)]
)
def test_seek_during_a_drain_is_not_undone(lab, decoder, move, to, at):
    """kafka-python sets the position after decoding, which undoes a seek in between."""
    reader = Meddled(lab, records=30, decoder=decoder)
    reader.meddler.at(at, lambda: move(reader, reader.in_order[0], to))
    reader.until(lambda: len(reader.meddler.seen) >= at)
    sought, other = reader.in_order
    first = 0 if move is _to_the_beginning else to
    assert reader.consumer.position(sought) == first
    since = len(reader.log)
    # they were read before the seek
    assert reader.offsets(sought) in ([], [*range(30)])
    reader.consumer.resume(*reader.tps)
    reader.until(lambda: reader.offsets(sought, since)[-1:] == [29])
    assert reader.offsets(sought, since) == [*range(first, 30)]
    assert reader.offsets(other) == [*range(30)]


@both_decoders
def test_reset_waits_for_records_that_were_put_back(lab, decoder):
    """These records arrive before the first record that retention has kept."""
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


@both_decoders
def test_only_the_caller_references_returned_records(lab, decoder):
    """A program that works on its records for minutes can free each record."""
    (tp,) = lab.topic("t", 1, records=100)
    making = Making()
    reader = Reader(
        lab, SafeConsumer, tps=[tp], value_deserializer=making, decoder=decoder
    )
    found = reader.consumer.poll(1000, max_records=50)
    assert making.alive() == sum(map(len, found.values())) > 0
    del found
    assert making.alive() <= 1  # kafka-python's generator still refers to one record


@pytest.mark.contract("P14")
def test_close_purges_the_records_that_a_failed_poll_had_taken(lab):
    """The event counts these records, and none of them stays in memory."""
    tps, making = lab.topic("t", 2, records=10), Making(fails_at=15)
    reader = Watching(lab, tps=tps, value_deserializer=making, decoder="compiled")
    with pytest.raises(KeyboardInterrupt):
        reader.until(lambda: False)
    assert (reader.log, making.alive()) == ([], 10)
    reader.consumer.close()
    assert making.alive() == 0
    assert [one.records for one in reader.events_of(FetchesPurged)] == [10]
