"""Positions, seeks and commits of a paused partition."""

import threading
from contextlib import contextmanager

import pytest

from safeconsumer import SafeConsumer
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import Reader, at, both_ways, stock_fails


@both_ways
@pytest.mark.parametrize("is_first", [True, False], ids=["seek-pause", "pause-seek"])
@pytest.mark.parametrize("state", ["parsed", "on its way"])
def test_a_seek_wins_over_parked_data(lab, how, state, *, is_first):
    """After a seek while paused the sought offset comes, not parked data."""
    (p0,) = lab.topic("t", 1, records=30)
    reader = Reader(lab, SafeConsumer, tps=[p0], how=how)
    late = lab.cluster.fail("Fetch", is_held=True)
    if state == "parsed":
        late.end()
        reader.take(4)
    else:
        reader.until(lambda: late.kept)
    steps = [lambda: reader.consumer.seek(p0, 20), lambda: reader.consumer.pause(p0)]
    for step in steps if is_first else reversed(steps):
        step()
    late.end()
    reader.is_silent()
    reader.consumer.resume(p0)
    reader.reads(p0, range(20, 30))


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("latest", 10), ("none", 4)]
)
@simulated(seeds=1, nightly=2)
def test_a_partition_paused_before_its_first_position_gets_one(lab, reset, first):
    """By reset or by commit; and it stays quiet until it is resumed."""
    p0, flowing = lab.topic("t", 2, records=10)
    settings = {"group_id": GROUP, "auto_offset_reset": reset}
    reader = Reader(lab, SafeConsumer, tps=[p0, flowing], **settings)
    if reset == "none":
        reader.consumer.commit({p0: at(4), flowing: at(4)})
    reader.consumer.pause(p0)
    assert reader.consumer.position(p0) == first
    assert reader.consumer.position(flowing) == first
    reader.is_silent(of=[p0])
    lab.append(p0)
    reader.consumer.resume(p0)
    reader.reads(p0, range(first, 11))


@pytest.mark.parametrize("is_own", [True, False], ids=["its own", "another's"])
@stock_fails("an answer that nobody took is kept under its partitions alone")
@simulated(seeds=1, nightly=2)
def test_an_answer_about_commits_is_not_used_after_newer_ones(lab, kind, *, is_own):
    """In the same ownership after a commit of its own, in the next one whoever committed."""
    p0, other = lab.topic("t", 2, records=10)
    reader = Reader(lab, kind, tps=[p0], group_id=GROUP)
    consumer = reader.consumer
    consumer.commit({p0: at(2)})
    late = lab.cluster.fail("OffsetFetch", is_held=True)
    reader.until(lambda: late.kept)
    consumer.seek(p0, 7)  # the question is not asked again; its answer comes
    late.end()
    lab.sleep(1)
    reader.reads(p0, range(7, 10))
    if is_own:
        consumer.commit()
        assert consumer.committed(p0) == 10
        return
    consumer.assign([other])
    Reader(lab, kind).consumer.commit({p0: at(10)})
    consumer.assign([p0])
    assert consumer.position(p0) == 10


@contextmanager
def asked_what_is_committed(lab, reader, tp):
    """Poll on another thread until the block is over; the answer comes after it."""
    late = lab.cluster.fail("OffsetFetch", is_held=True)
    reader.consumer.assign([tp])
    thread = threading.Thread(target=reader.poll, args=(20, 1))
    thread.start()
    lab.until(lambda: late.kept)
    yield
    late.end()
    thread.join()


@pytest.mark.parametrize("committed", [True, False])
@simulated(seeds=1, nightly=2)
def test_an_answer_about_commits_counts_in_its_ownership_only(lab, *, committed):
    """1. It is asked. 2. The partition goes, others commit. 3. It is back. 4. The answer."""
    p0, p1 = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer)
    other = Reader(lab, SafeConsumer, client_id="other")
    if committed:
        other.consumer.commit({p0: at(2)})
    with asked_what_is_committed(lab, reader, p0):
        reader.consumer.assign([p1])
        other.consumer.commit({p0: at(6)})
        reader.consumer.assign([p0])
    reader.take(4 - len(reader.log))
    assert reader.offsets(p0) == [6, 7, 8, 9]


@simulated(seeds=1, nightly=2)
def test_a_seek_while_it_is_asked_what_is_committed_stays(lab):
    """The answer is about a position that nobody needs any more."""
    (p0,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, SafeConsumer)
    reader.consumer.commit({p0: at(2)})
    with asked_what_is_committed(lab, reader, p0):
        reader.consumer.seek(p0, 7)
    reader.take(3 - len(reader.log))
    assert reader.offsets(p0) == [7, 8, 9]
