"""A member commits the partitions that it owns, and no others (P17)."""

import threading

import pytest
from kafka.errors import CommitFailedError, KafkaError

from safeconsumer import SafeConsumer, SafeConsumerError
from safeconsumer._kafka.membership import Membership
from safeconsumer.errors import NotOwnedError
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import (
    COOPERATIVE,
    EAGER,
    Awaiting,
    Listener,
    Reader,
    at,
    both_protocols,
)

pytestmark = pytest.mark.contract("P17")


def sent(lab, origin=None):
    """Return the number of commits that one program, or all programs, have sent."""
    return sum(
        one.api == "OffsetCommit" and origin in {None, one.origin}
        for one in lab.cluster.requests
    )


def half_has_left(lab, assignor=EAGER, *, drains=False):
    """Return a reader, the partition that it keeps, and the partition that it lost."""
    tps = lab.topic("t", 2, records=100)
    reader = Reader(lab, SafeConsumer, "t", assignor=assignor)
    if drains:  # a worker also sets a function that runs before a join
        Membership(reader.consumer).ask_before_join(lambda: None)
    reader.until(lambda: len(reader.log) == 200)
    other, left = reader.shares(SafeConsumer, poll_ms=100)
    (kept,) = {*tps} - {left}
    other.call(lambda consumer: consumer.commit({left: at(100)}))
    return reader, kept, left


@pytest.mark.parametrize("drains", [True, False])
@both_protocols
@simulated(seeds=1, nightly=2)
def test_commit_that_names_an_unowned_partition_is_refused_as_a_whole(
    lab, assignor, *, drains
):
    """P17: the error has a base class of kafka-python and one of ours; nothing is sent."""
    reader, kept, left = half_has_left(lab, assignor, drains=drains)
    before = sent(lab)
    with pytest.raises(CommitFailedError) as caught:
        reader.consumer.commit({kept: at(70), left: at(50)})
    assert isinstance(caught.value, NotOwnedError)
    assert isinstance(caught.value, SafeConsumerError)
    assert f"t:{left.partition} " in str(caught.value)
    assert f"t:{kept.partition} " not in str(caught.value)
    assert (sent(lab), lab.committed(kept), lab.committed(left)) == (before, None, 100)
    reader.consumer.commit({kept: at(70)})
    assert lab.committed(kept) == 70


@pytest.mark.parametrize("is_known", [True, False], ids=["found", "not found"])
@simulated(seeds=1, nightly=2)
def test_commit_async_passes_the_refusal_to_its_future_and_callback(lab, *, is_known):
    """P17: the next poll calls the callback, whether the coordinator is known or not."""
    reader, kept, left = half_has_left(lab)
    given = []
    if not is_known:
        reader.consumer._coordinator.coordinator_dead("a test")
    before, named = sent(lab), {kept: at(70), left: at(50)}
    future = reader.consumer.commit_async(
        named, callback=lambda offsets, result: given.append((offsets, result))
    )
    reader.until(lambda: given)
    ((offsets, error),) = given
    assert offsets == named
    assert isinstance(error, NotOwnedError)
    assert future.exception is error
    assert (sent(lab), lab.committed(left)) == (before, 100)


@simulated(seeds=1, nightly=2)
def test_retried_commit_is_refused_after_its_partition_was_revoked(lab):
    """P17: the partition is revoked while the broker loads its groups."""
    tps = lab.topic("t", 2, records=100)
    reader = Reader(lab, SafeConsumer, "t", assignor=COOPERATIVE)
    reader.until(lambda: len(reader.log) == 200)
    loading = lab.cluster.fail("OffsetCommit", error=14, client_id="reader")
    raised = []

    def commit():
        try:
            reader.consumer.commit({tp: at(50) for tp in tps})
        except KafkaError as error:
            raised.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    other, left = reader.shares(SafeConsumer, poll_ms=100)
    other.call(lambda consumer: consumer.commit({left: at(100)}))
    loading.end()
    thread.join()
    assert lab.committed(left) == 100
    assert [type(one) for one in raised] == [NotOwnedError]


# ------------------------------------------------------------ in a listener


@pytest.mark.parametrize("is_known", [True, False], ids=["found", "not found"])
@pytest.mark.parametrize("is_awaited", [True, False])
@both_protocols
@simulated(seeds=1, nightly=2)
def test_commit_of_revoked_partitions_in_their_listener_is_sent(
    lab, assignor, *, is_awaited, is_known
):
    """P17: the commit is sent even if the listener has returned by then."""
    lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer, assignor=assignor)
    futures = []
    last = set()

    def commit(revoked):
        if not is_known:
            reader.consumer._coordinator.coordinator_dead("a test")
        last.update(revoked)
        futures.append(reader.consumer.commit_async({tp: at(10) for tp in revoked}))
        return futures[-1]

    awaiting = Awaiting(commit)
    listener = awaiting if is_awaited else Listener(revoked=commit)
    reader.consumer.subscribe(["t"], listener=listener)
    reader.until(lambda: len(reader.log) == 20)
    futures.clear()
    last.clear()
    _, left = reader.shares()
    assert left in last
    assert [one.exception for one in futures] == [None] * len(futures)
    if is_awaited or is_known:
        assert all(lab.committed(tp) == 10 for tp in last)


@simulated(seeds=1, nightly=2)
def test_commit_of_revoked_partitions_after_the_listener_is_refused(lab):
    """P17: the cooperative rebalance has revoked the partitions by then."""
    revoked = []
    lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer, assignor=COOPERATIVE)
    reader.consumer.subscribe(["t"], listener=Listener(revoked=revoked.append))
    reader.until(lambda: len(reader.log) == 20)
    reader.shares(SafeConsumer)
    with pytest.raises(NotOwnedError):
        reader.consumer.commit({tp: at(10) for tp in revoked[-1]})


@both_protocols
@simulated(seeds=1, nightly=2)
def test_commit_in_on_partitions_lost_is_refused(lab, assignor):
    """P17: the request of this commit is never sent."""
    lab.topic("t", 1, records=10)
    futures = []
    reader = Reader(lab, SafeConsumer, assignor=assignor, session_timeout_ms=6000)

    def commit(lost):
        futures.append(reader.consumer.commit_async({tp: at(5) for tp in lost}))

    reader.consumer.subscribe(["t"], listener=Listener(lost=commit))
    reader.until(lambda: len(reader.log) == 10)
    silent = lab.cluster.fail("Heartbeat", is_held=True)
    lab.sleep(10)
    silent.end()
    before = sent(lab)
    reader.until(lambda: futures)
    reader.until(lambda: len(reader.log) == 20)
    assert [type(one.exception) for one in futures] == [NotOwnedError]
    assert "max_poll_interval_ms" in str(futures[0].exception)
    assert sent(lab) == before


def test_commit_before_the_first_join_is_refused_with_the_reason(lab):
    (tp,) = lab.topic("t", 1, records=1)
    reader = Reader(lab, SafeConsumer, "t")
    with pytest.raises(NotOwnedError, match="has not joined its group yet"):
        reader.consumer.commit({tp: at(1)})
    assert sent(lab) == 0


@both_protocols
@simulated(seeds=1, nightly=2)
def test_close_commits_and_then_lets_its_listener_commit(lab, assignor):
    (p0,) = lab.topic("t", 1, records=10)
    futures = []
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 3_600_000}
    reader = Reader(lab, SafeConsumer, assignor=assignor, **settings)

    def commit(revoked):
        if revoked:
            assert lab.committed(p0) == 10
            futures.append(reader.consumer.commit_async({tp: at(7) for tp in revoked}))

    reader.consumer.subscribe(["t"], listener=Listener(revoked=commit))
    reader.until(lambda: len(reader.log) == 10)
    reader.consumer.close()
    assert [one.exception for one in futures] == [None]
    assert lab.committed(p0) == 7


# ------------------------------------------------------------ without an ownership


@simulated(seeds=1, nightly=2)
def test_commit_without_a_subscription_may_name_any_partition(lab):
    p0, p1 = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer, tps=[p0], group_id=GROUP)
    reader.consumer.commit({p1: at(5)})
    assert lab.committed(p1) == 5
    reader.consumer.unsubscribe()
    reader.consumer.commit({p0: at(6)})
    assert lab.committed(p0) == 6
    reader.consumer.subscribe(["t"])
    with pytest.raises(NotOwnedError):  # the consumer has not joined
        reader.consumer.commit({p0: at(1)})
    assert lab.committed(p0) == 6


@simulated(seeds=1, nightly=2)
def test_commit_during_a_join_raises_kafka_pythons_error(lab):
    """The error's message advises a poll, which completes the join."""
    (p0,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, SafeConsumer, "t")
    reader.until(lambda: len(reader.log) == 10)
    late = lab.cluster.fail("JoinGroup", is_held=True)
    reader.consumer._coordinator.request_rejoin()
    reader.until(lambda: late.kept)
    with pytest.raises(KafkaError) as caught:
        reader.consumer.commit({p0: at(10)})
    assert type(caught.value).__name__ == "RebalanceInProgressError"
    late.end()


def test_commit_of_wrong_types_raises_type_error_immediately(lab):
    """kafka-python only logs the error."""
    (p0,) = lab.topic("t", 1)
    reader = Reader(lab, SafeConsumer, "t")
    reader.owns([p0])
    for wrong in ({p0: 5}, {"t:0": at(5)}):
        with pytest.raises(TypeError, match="OffsetAndMetadata"):
            reader.consumer.commit(wrong)
        for is_known in (True, False):
            if not is_known:
                reader.consumer._coordinator.coordinator_dead("a test")
            with pytest.raises(TypeError, match="OffsetAndMetadata"):
                reader.consumer.commit_async(wrong)
