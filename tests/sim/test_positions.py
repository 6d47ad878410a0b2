"""Positions at which reading starts, late responses, and the rate of requests."""

import threading
from contextlib import contextmanager

import pytest

from safeconsumer import SafeConsumer
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import Reader, at, stock_fails


@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", 0), ("latest", 10), ("none", 4)]
)
def test_partition_paused_before_its_first_position_gets_a_position(lab, reset, first):
    """A reset or a commit sets the position; the partition stays quiet until the resume."""
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
@stock_fails("an unused response is cached by its partitions alone")
def test_late_offset_fetch_response_is_not_used_after_a_newer_commit(
    lab, kind, *, is_own
):
    """The newer commit is the member's own, or any commit in a later ownership."""
    p0, other = lab.topic("t", 2, records=10)
    reader = Reader(lab, kind, tps=[p0], group_id=GROUP)
    consumer = reader.consumer
    consumer.commit({p0: at(2)})
    late = lab.cluster.fail("OffsetFetch", is_held=True)
    reader.until(lambda: late.kept)
    consumer.seek(p0, 7)  # no further request follows, but the response arrives
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
def while_committed_offsets_are_requested(lab, reader, tp):
    """Poll on another thread; the response arrives when the ``with`` block has ended."""
    late = lab.cluster.fail("OffsetFetch", is_held=True)
    reader.consumer.assign([tp])
    thread = threading.Thread(target=reader.poll, args=(20, 1))
    thread.start()
    lab.until(lambda: late.kept)
    yield
    late.end()
    thread.join()


@pytest.mark.parametrize("committed", [True, False])
def test_offset_fetch_response_is_used_only_in_its_ownership(lab, *, committed):
    """The partition is unassigned and assigned again between the request and the response."""
    p0, p1 = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer)
    other = Reader(lab, SafeConsumer, client_id="other")
    if committed:
        other.consumer.commit({p0: at(2)})
    with while_committed_offsets_are_requested(lab, reader, p0):
        reader.consumer.assign([p1])
        other.consumer.commit({p0: at(6)})
        reader.consumer.assign([p0])
    reader.take(4 - len(reader.log))
    assert reader.offsets(p0) == [6, 7, 8, 9]


def test_seek_during_a_request_for_committed_offsets_takes_precedence(lab):
    (p0,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, SafeConsumer)
    reader.consumer.commit({p0: at(2)})
    with while_committed_offsets_are_requested(lab, reader, p0):
        reader.consumer.seek(p0, 7)
    reader.take(3 - len(reader.log))
    assert reader.offsets(p0) == [7, 8, 9]


# ------------------------------------------------------------ resets

NOT_LEADER_OR_FOLLOWER = 6
BACKOFF = 0.1  # seconds, kafka-python's retry_backoff_ms


class Asked(Reader):
    """A reader on another thread; the test controls the responses to its offset requests."""

    def __init__(self, lab, *tps, **settings):
        self.questions = []
        super().__init__(lab, SafeConsumer, tps=tps, **settings)

    @contextmanager
    def polling(self):
        """Read on another thread until the ``with`` block has ended."""
        is_over = []
        thread = threading.Thread(target=lambda: self.until(lambda: is_over, 300))
        thread.start()
        yield
        is_over.append(True)
        thread.join()

    def asks(self, act=int):
        """Call a function, and return the held-back response to the request that follows."""
        question = self.lab.cluster.fail("ListOffsets", is_held=True, count=1)
        act()
        self.lab.until(lambda: question.kept)
        return question

    def answered(self, question):
        question.end()
        self.lab.sleep(0.2)


@simulated(seeds=1, nightly=10)
def test_offset_response_is_used_only_for_a_partition_that_stayed_assigned(lab):
    """The other partition was unassigned and assigned again after the request."""
    p0, p1 = lab.topic("t", 2, records=3)
    reader = Asked(lab, p0, p1, auto_offset_reset="latest")
    consumer = reader.consumer
    with reader.polling():
        before = reader.asks()
        consumer.assign([p1])
        for tp in (p0, p1):
            lab.append(tp, 2, first=3)
        consumer.assign([p0, p1])
        reader.answered(before)
        lab.until(lambda: reader.offsets(p1) == [3, 4])
        lab.append(p0, 1, first=5)
        lab.until(lambda: reader.offsets(p0))
    assert reader.offsets(p0) == [5]


@simulated(seeds=1, nightly=10)
def test_response_from_before_a_seek_is_not_used_for_a_later_reset(lab):
    """The program seeks to the end, to an offset, and again to the end, which has moved."""
    (p0,) = lab.topic("t", 1, records=3)
    reader = Asked(lab, p0)
    consumer = reader.consumer
    reader.take(3)
    with reader.polling():
        before = reader.asks(lambda: consumer.seek_to_end(p0))
        consumer.pause(p0)
        consumer.seek(p0, 1)
        lab.append(p0, 5, first=3)
        again = reader.asks(lambda: consumer.seek_to_end(p0))
        consumer.resume(p0)
        reader.answered(before)
        lab.sleep(1)
        reader.answered(again)
        lab.append(p0, 1, first=8)
        lab.until(lambda: reader.offsets(p0)[-1:] == [8])
    assert reader.offsets(p0) == [0, 1, 2, 8]


@simulated(seeds=1, nightly=10)
def test_repeated_seeks_to_the_end_do_not_starve_reading(lab):
    (p0,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, SafeConsumer, tps=[p0], fetch_max_wait_ms=10)
    reader.take(3)
    slow = lab.cluster.fail("ListOffsets", delay=0.25)
    for number in range(20):
        reader.consumer.seek_to_end(p0)
        reader.poll(0.1)
        lab.append(p0, 1, first=3 + number)
        reader.poll(0.1)
    slow.end()
    assert len(reader.log) > 3


@pytest.mark.contract("P8")
@stock_fails("the old request's mark stays for the duration of a request")
def test_seek_while_an_offset_request_is_prepared_sends_another_request(lab, kind):
    """P8: the seek comes between the IO thread's choice of partitions and their marking."""
    (tp,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, kind, tps=[tp])
    reader.until(lambda: len(reader.log) == 3)
    fetcher = reader.consumer._fetcher
    grouped = fetcher._group_list_offset_requests

    def slow(wanted):
        fetcher._group_list_offset_requests = grouped
        found = grouped(wanted)
        lab.sleep(0.02)
        return found

    fetcher._group_list_offset_requests = slow
    reader.consumer.seek_to_beginning(tp)
    fetcher.reset_offsets_if_needed()  # the first part of a poll, which does not wait
    lab.sleep(0.01)
    reader.consumer.seek_to_end(tp)
    began = lab.now
    reader.until(lambda: reader.consumer._subscription.assignment[tp].position)
    assert lab.now - began < 1


@simulated(seeds=1, nightly=10)
def test_failed_request_for_an_unassigned_partition_does_not_delay_others(lab):
    """kafka-python raises ``KeyError``, and the other partitions wait 30 s."""
    p0, p1 = lab.topic("t", 2, records=3)
    reader = Asked(lab, p0, p1)
    with reader.polling():
        question = reader.asks()
        reader.consumer.assign([p1])
        began = lab.now
        lab.network.reset(lab.world.outside)
        lab.until(lambda: reader.offsets(p1) == [0, 1, 2])
        assert lab.now - began < 2
    question.end()


@pytest.mark.contract("P10")
@simulated(seeds=1, nightly=10, nodes=2)
def test_leader_that_was_down_is_used_again_once_it_returns(lab):
    """P10: the leader goes down without a successor, and is used again once it returns."""
    p0, p1 = lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, tps=[p0, p1])
    reader.take(6)
    away = lab.cluster.log(*p0).leader
    lab.cluster.down(away, failover=None)
    reader.is_silent(seconds=10)
    lab.cluster.up(away)
    lab.append(p0, 1, first=3)
    reader.reads(p0, [3])


@pytest.mark.contract("P11")
def test_refused_request_is_repeated_after_a_backoff_and_a_pending_one_is_not(lab):
    """P11: the request is for the offset at which reading starts."""
    (tp,) = lab.topic("t", 1, records=3)
    refused = lab.cluster.fail("ListOffsets", error=NOT_LEADER_OR_FOLLOWER)
    reader = Reader(lab, SafeConsumer, tps=[tp])
    reader.poll(10)
    assert 1 < lab.kinds().count("ListOffsets") <= 10 / BACKOFF
    late = lab.cluster.fail("ListOffsets", is_held=True)
    refused.end()
    reader.until(lambda: late.kept)
    reader.poll(10)
    assert len(late.kept) == 1
    late.end()
    reader.reads(tp, range(3))
