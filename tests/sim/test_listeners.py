"""Calls in a rebalance listener, with their effects and results."""

import pytest
from kafka import (
    AsyncConsumerRebalanceListener,
    KafkaConsumer,
)
from kafka.errors import KafkaError, OffsetMetadataTooLargeError, UnknownMemberIdError

from safeconsumer import SafeConsumer
from safeconsumer._kafka.membership import Membership
from safeconsumer.errors import BlockingCallInListenerError
from safeconsumer.events.consumer import HeldPartitionUncommitted
from tests.harness.holds.lab import EventLog
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
    stock_fails,
)


class AsyncListener(AsyncConsumerRebalanceListener):
    """A listener with coroutine methods, one of which calls a given function."""

    def __init__(self, assigned):
        self._assigned = assigned

    async def on_partitions_assigned(self, assigned):
        self._assigned(set(assigned))

    async def on_partitions_revoked(self, revoked):
        """Do nothing."""


@pytest.mark.contract("P7")
@pytest.mark.parametrize("kind", [Listener, AsyncListener])
@both_protocols
def test_pause_seek_and_resume_in_a_listener_take_effect(lab, kind, assignor):
    """P7: a paused partition is quiet immediately, and starts at its new position."""
    paused, sought, resumed = tps = lab.topic("t", 3, records=10)
    reader = Reader(lab, SafeConsumer, assignor=assignor)
    consumer = reader.consumer

    def assigned(partitions):
        if not partitions:
            return  # a first join may complete before the topic's metadata arrives
        consumer.pause(paused, resumed)
        consumer.seek(sought, 7)
        consumer.seek(paused, 4)
        consumer.resume(resumed)

    consumer.subscribe(["t"], listener=kind(assigned=assigned))
    reader.owns(tps)
    reader.until(lambda: len(reader.offsets(resumed)) == 10)
    reader.is_silent()
    assert reader.offsets(sought) == [7, 8, 9]
    assert reader.offsets(paused) == []
    assert consumer.quiet() == {paused}
    consumer.resume(paused)
    reader.reads(paused, range(4, 10))


def member(lab, assignor=EAGER, kind=SafeConsumer):
    """Create a member that has read everything, for a test that then sets a listener."""
    tps = lab.topic("t", 4, records=5)
    reader = Reader(lab, kind, "t", assignor=assignor)
    reader.until(lambda: len(reader.log) == 20, each=5)
    return reader, tps


def another(lab, assignor=EAGER):
    """Start a member that competes for the partitions."""
    settings = {"poll_ms": 2000, "assignor": assignor}
    return lab.member(KafkaConsumer, "t", name="other", **settings)


@both_protocols
@simulated(seeds=1, nightly=2)
def test_quiet_does_not_list_an_unpaused_partition_during_a_revocation(lab, assignor):
    seen = []

    def look(_):
        seen.append(set(reader.consumer.quiet()))

    reader, tps = member(lab, assignor)
    reader.consumer.subscribe(["t"], listener=Listener(look, look))
    reader.consumer.pause(tps[0])
    another(lab, assignor)
    reader.until(lambda: len(reader.consumer.assignment()) == 2, each=1)
    assert seen
    assert all(paused <= {tps[0]} for paused in seen)


@pytest.mark.contract("P8")
@both_protocols
@stock_fails("its listener's error ends a join, and the client does not join again")
def test_subscription_restored_after_a_listener_raised_is_read(lab, kind, assignor):
    """P8: the partitions are read again, whether or not the failed join revoked them."""
    lab.topic("t", 2)
    lab.topic("u", 1)
    failures = []

    def revoked(_):
        if failures:
            raise failures.pop()

    leader = lab.member(kind, "t", assignor=assignor)
    leader.owns(2)
    reader = Reader(lab, kind, assignor=assignor)
    listener = Listener(revoked=revoked)
    reader.consumer.subscribe(["t"], listener=listener)
    reader.until(lambda: len(reader.consumer.assignment()) == 1)
    (mine,) = reader.consumer.assignment()
    failures.append(ValueError("x"))
    reader.consumer.subscribe(["u"], listener=listener)
    with pytest.raises(KafkaError, match="callback throws"):
        reader.until(lambda: not failures)
    reader.consumer.subscribe(["t"], listener=listener)
    lab.append(mine, 3)
    reader.until(lambda: reader.offsets(mine))


class SlowlyLosing(AsyncListener):
    """A listener that records the start and end of a slow ``on_partitions_lost``."""

    def __init__(self, consumer, lab):
        super().__init__(len)
        self._consumer, self._lab = consumer, lab
        self.times = []

    async def on_partitions_lost(self, lost):
        del lost
        self.times.append(self._lab.now)
        await self._consumer._net.sleep(2.0)
        self.times.append(self._lab.now)


@pytest.mark.contract("P19")
@pytest.mark.parametrize("is_woken", [True, False])
@simulated(seeds=1, nightly=2)
def test_poll_waits_for_on_partitions_lost_during_a_join(lab, *, is_woken):
    """P19: the poll waits even if it has no time left, or is woken."""
    tps = lab.topic("t", 2)
    reader = Reader(lab, SafeConsumer, assignor=COOPERATIVE)
    consumer = reader.consumer
    listener = SlowlyLosing(consumer, lab)
    consumer.subscribe(["t"], listener=listener)
    reader.owns(tps)
    lab.cluster.fail("JoinGroup", error=UnknownMemberIdError.errno, count=1)
    consumer._coordinator.request_rejoin()
    returned = []
    end = lab.now + 10
    while lab.now < end:
        if is_woken and listener.times:
            consumer.wakeup()
        reader.poll(0.1)
        returned.append(lab.now)
    began, over = listener.times
    assert [at for at in returned if began < at < over] == []
    reader.owns(tps, seconds=100, each=1)  # the broker has forgotten the member


# ------------------------------------------------------------ queries in a listener

BLOCKING = {
    "commit": lambda consumer, _: consumer.commit(),
    "poll": lambda consumer, _: consumer.poll(0),
    "next": lambda consumer, _: next(consumer),
    "position": lambda consumer, tp: consumer.position(tp),
    "committed": lambda consumer, tp: consumer.committed(tp),
    "topics": lambda consumer, _: consumer.topics(),
    "end_offsets": lambda consumer, tp: consumer.end_offsets([tp]),
    "offsets_for_times": lambda consumer, tp: consumer.offsets_for_times({tp: 1}),
    "partitions_for_topic": lambda consumer, _: consumer.partitions_for_topic("new"),
    "unsubscribe": lambda consumer, _: consumer.unsubscribe(),
    "close": lambda consumer, _: consumer.close(autocommit=False),
}


@pytest.mark.contract("P12")
def test_blocking_call_in_a_listener_raises_a_typed_error(lab):
    """P12: the error names the call to use; the join continues if the error is caught."""
    tps = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer)
    refused = []

    def block(assigned):
        if not assigned:
            return
        for name, call in BLOCKING.items():
            # kafka-python also raises a RuntimeError in a listener
            with pytest.raises(RuntimeError) as caught:
                call(reader.consumer, min(assigned))
            assert isinstance(caught.value, BlockingCallInListenerError), name
            assert ("commit_async" in str(caught.value)) == (name == "commit"), name
            refused.append(name)

    reader.consumer.subscribe(["t"], listener=Listener(assigned=block))
    reader.until(lambda: len(reader.log) == 20)
    assert refused == [*BLOCKING]
    assert all(reader.offsets(tp) == [*range(10)] for tp in tps)


@pytest.mark.contract("P12")
def test_calls_that_do_not_wait_work_in_a_listener(lab):
    """P12, P7: ``position`` works, for example, and a held partition is listed as held."""
    tps = lab.topic("t", 2, records=10)
    lab.topic("u", 1)
    saved = {}
    asked = []
    reader = Reader(lab, SafeConsumer)
    consumer = reader.consumer

    def assigned(gained):
        if tps[0] in gained and not asked:
            asked.append(consumer.partitions_for_topic("t"))
            asked.append(consumer.paused())
            asked.append(consumer.quiet())
            asked.append(len(consumer.holds()))
            asked.append(len(consumer.explain(tps[0])))

    def revoked(lost):
        saved.update({tp: consumer.position(tp) for tp in lost})

    listener = Listener(assigned=assigned, revoked=revoked)
    consumer.subscribe(["t"], listener=listener)
    consumer.pause(tps[0])
    reader.owns(tps)
    assert asked == [{0, 1}, {tps[0]}, {tps[0]}, 1, 1]
    consumer.resume(tps[0])
    reader.until(lambda: len(reader.log) == 20)
    consumer.subscribe(["t", "u"], listener=listener)
    reader.owns([*tps, *lab.partitions("u")])
    assert saved == dict.fromkeys(tps, 10)


class ListenerError(Exception):
    """An error that a listener raises."""


def _raise(partitions):
    if partitions:
        raise ListenerError


@pytest.mark.parametrize("when", ["assigned", "revoked"])
@both_protocols
def test_listener_that_raises_loses_no_record_and_no_hold(lab, when, assignor):
    """``poll`` raises the error, as kafka-python's does."""
    held, flowing = lab.topic("t", 2, records=10)
    lab.topic("u", 1, records=10)
    reader = Reader(lab, SafeConsumer, assignor=assignor)
    listener = Listener()
    reader.consumer.subscribe(["t", "u"], listener=listener)
    reader.consumer.pause(held)
    if when == "revoked":
        reader.reads(flowing, range(10))
        listener._revoked = _raise
        reader.consumer.subscribe(["t"], listener=listener)
    else:
        listener._assigned = _raise
    with pytest.raises(KafkaError, match="callback") as caught:
        reader.until(lambda: False)
    assert isinstance(caught.value.__cause__, ListenerError)
    listener._revoked = listener._assigned = len
    reader.until(lambda: reader.offsets(flowing) == [*range(10)])
    reader.is_silent(of=[held])
    assert reader.consumer.quiet() == {held}
    reader.consumer.resume(held)
    reader.reads(held, range(10))


@pytest.mark.contract("P8", "P12")
@pytest.mark.parametrize("is_awaited", [True, False])
@both_protocols
@simulated(seeds=1, nightly=10)
def test_commit_async_in_a_listener_reaches_the_broker_before_the_join(
    lab, assignor, *, is_awaited
):
    """P12: no record is delivered twice, by this member or another."""
    tps = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer, assignor=assignor)

    def commit(revoked):
        # A cooperative rebalance has already revoked these partitions, so they must be
        # named.
        named = {tp: at(10) for tp in revoked} if assignor is COOPERATIVE else None
        return reader.consumer.commit_async(named)

    awaiting = Awaiting(commit)
    listener = awaiting if is_awaited else Listener(revoked=commit)
    reader.consumer.subscribe(["t"], listener=listener)
    reader.until(lambda: len(reader.log) == 20)
    other, _ = reader.shares()
    for tp in tps:
        lab.append(tp, 1, first=10)
    reader.until(lambda: len(reader.log) + len(other.records) == 22)
    reader.is_silent(seconds=2)
    assert len(reader.log) + len(other.records) == 22
    assert awaiting.answered > 0 or not is_awaited


def test_close_whose_listener_raises_leaves_no_thread_and_no_socket(lab):
    """kafka-python leaves a thread and four sockets after each such close."""
    lab.topic("t", 2)
    reader = Reader(lab, SafeConsumer)
    reader.consumer.subscribe(["t"], listener=Listener(revoked=_raise))
    reader.until(lambda: len(reader.consumer.assignment()) == 2)
    with pytest.raises(KafkaError) as raised:
        reader.consumer.close()
    assert isinstance(raised.value.__cause__, ListenerError)
    lab.sleep(1)
    assert lab.running() == []
    assert lab.cluster._connections == {}
    assert reader.consumer.holds() == ()
    reader.consumer.close()


# ------------------------------------------------------------ before a join


class NotYet(Exception):  # noqa: N818 - a signal
    """An error that is raised before a join."""


@simulated(seeds=1, nightly=10)
def test_refused_join_ends_the_poll_immediately_without_consuming_a_record(lab):
    """Each poll calls the function again, and joins once the function does not raise."""
    tps = lab.topic("t", 2, records=5)
    reader = Reader(lab, SafeConsumer, "t")
    membership, refusals = Membership(reader.consumer), [NotYet] * 3

    def say():
        if refusals:
            raise refusals.pop()

    membership.ask_before_join(say)
    for _ in range(3):
        with pytest.raises(NotYet):
            reader.poll(600)
        assert not membership.is_joining()
    reader.until(lambda: len(reader.log) == 10)
    refusals += [NotYet] * 2
    other = lab.member(KafkaConsumer, "t", name="b")
    for tp in tps:
        lab.append(tp, 1, first=5)
    for _ in range(2):
        with pytest.raises(NotYet):
            reader.until(lambda: False, each=600)
    assert lab.now < 60
    other.stop()
    reader.until(lambda: all(5 in reader.offsets(tp) for tp in tps))
    assert all(reader.offsets(tp)[:5] == [*range(5)] for tp in tps)


def test_cooperative_join_revokes_only_unsubscribed_topics_when_it_starts(lab):
    tps = lab.topic("t", 2)
    lab.topic("u", 1)
    reader = Reader(lab, SafeConsumer, "t", assignor=COOPERATIVE)
    membership = Membership(reader.consumer)
    reader.owns(tps)
    assert membership.revokes_on_join() == set()
    reader.consumer.subscribe(["u"])
    assert membership.revokes_on_join() == set(tps)


# ------------------------------------------------------------ revoked without a commit


def _close(consumer, *_):
    consumer.close(autocommit=False)


def _refused_commit(consumer, tp, lab):
    lab.cluster.fail("OffsetCommit", error=12, count=1)
    with pytest.raises(OffsetMetadataTooLargeError):
        consumer.commit({tp: at(5)})


def _ask(consumer, *_):
    consumer.poll(1000)


def _commit(consumer, tp, *_):
    consumer.commit({tp: at(5)})


def _send_to_transaction(consumer, *_):
    consumer.group_metadata()


def _seek(consumer, tp, *_):
    consumer.seek(tp, 1)


def _seek_to_beginning(consumer, tp, *_):
    consumer.seek_to_beginning(tp)


def _commit_earlier(_consumer, tp, lab):
    earlier = Reader(lab, SafeConsumer, tps=[tp], group_id=GROUP).consumer
    earlier.commit({tp: at(2)})
    _close(earlier)


# The calls before a quiet partition is given up, the call that gives it up, and whether
# a warning says that the partition has no commit. No warning is due if a producer may have
# committed for the group, or if the broker was not asked for a commit.
DEPARTURES = {
    "close": ([_ask], _close, True),
    "unsubscribe": ([_ask], lambda consumer, _: consumer.unsubscribe(), True),
    "assign": ([_ask], lambda consumer, other: consumer.assign([other]), True),
    "a refused commit": ([_refused_commit, _ask], _close, True),
    "a commit": ([_ask, _commit], _close, False),
    "a transaction": ([_ask, _send_to_transaction], _close, False),
    "a seek": ([_seek, _ask], _close, True),
    "a seek to the beginning": ([_seek_to_beginning, _ask], _close, True),
    "an earlier commit": ([_commit_earlier, _seek, _ask], _close, False),
    "not asked": ([], _close, False),
}


@pytest.mark.contract("P8")
@pytest.mark.parametrize("name", DEPARTURES)
def test_giving_up_a_quiet_partition_without_a_commit_causes_a_warning(lab, name):
    """P8: under ``latest`` the partition's next owner would skip the records."""
    before, depart, is_warned = DEPARTURES[name]
    log = EventLog()
    p0, p1 = lab.topic("t", 2, records=3)
    more = {"group_id": GROUP, "auto_offset_reset": "latest", "hooks": [log]}
    consumer = Reader(lab, SafeConsumer, tps=[p0, p1], **more).consumer
    consumer.pause(p0)
    for act in before:
        act(consumer, p0, lab)
    depart(consumer, p1)
    _close(consumer)
    named = [one.partitions for one in log.of(HeldPartitionUncommitted)]
    assert named == [(p0,)] * is_warned


@pytest.mark.contract("P19")
@both_protocols
@pytest.mark.parametrize("kind", [Listener, AsyncListener])
def test_polls_wait_for_a_listener_that_takes_longer_than_one_poll(lab, kind, assignor):
    """P19: kafka-python 3.1 gives up a poll after 5 s."""
    (tp,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, SafeConsumer, assignor=assignor, max_poll_interval_ms=900_000)
    began, ended, early = [], [], []

    def assigned(partitions):
        if partitions:
            began.append(lab.now)
            lab.sleep(20)
            reader.consumer.seek(tp, 1)
            ended.append(lab.now)

    reader.consumer.subscribe(["t"], listener=kind(assigned=assigned))
    while not ended:
        records = reader.consumer.poll(500)
        if not ended:
            early.append(records)
    assert len(began) == len(ended) == 1
    assert not any(early)
    reader.reads(tp, [1, 2])
    assert len(began) == 1
