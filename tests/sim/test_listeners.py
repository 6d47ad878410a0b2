"""What a rebalance listener may do, and what it sees."""

import pytest
from kafka import (
    AsyncConsumerRebalanceListener,
    KafkaConsumer,
)
from kafka.errors import KafkaError, UnknownMemberIdError

from safeconsumer import SafeConsumer
from tests.sim.playing import simulated
from tests.sim.reading import (
    COOPERATIVE,
    EAGER,
    Listener,
    Reader,
    both_protocols,
    stock_fails,
)


class AsyncListener(AsyncConsumerRebalanceListener):
    """A listener of coroutines around one function."""

    def __init__(self, assigned):
        self._assigned = assigned

    async def on_partitions_assigned(self, assigned):
        self._assigned(set(assigned))

    async def on_partitions_revoked(self, revoked):
        """Do nothing."""


@pytest.mark.contract("P7")
@pytest.mark.parametrize("kind", [Listener, AsyncListener])
@both_protocols
def test_pause_seek_and_resume_in_a_listener_stand(lab, kind, assignor):
    """P7: what it paused is quiet at once, and starts where it sought."""
    paused, sought, resumed = tps = lab.topic("t", 3, records=10)
    reader = Reader(lab, SafeConsumer, assignor=assignor)
    consumer = reader.consumer

    def assigned(partitions):
        if not partitions:
            return  # a first join may come before the topic's metadata
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
    """Make a member that has read everything; a test gives it a listener."""
    tps = lab.topic("t", 4, records=5)
    reader = Reader(lab, kind, "t", assignor=assignor)
    reader.until(lambda: len(reader.log) == 20, each=5)
    return reader, tps


def another(lab, assignor=EAGER):
    """Start a member that competes for the partitions."""
    strategy = {"partition_assignment_strategy": [assignor]}
    return lab.member(KafkaConsumer, "t", name="other", poll_ms=2000, **strategy)


@both_protocols
@simulated(seeds=1, nightly=2)
def test_paused_does_not_list_what_is_being_revoked(lab, assignor):
    """Partitions that wait for their revocation are no pause of the user's."""
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
@stock_fails("what its listener raised ended a join, and nobody asks for another")
def test_a_change_that_is_taken_back_after_a_listener_raised(lab, kind, assignor):
    """P8: its partitions are read again, whether the join before revoked them or not."""
    lab.topic("t", 2)
    lab.topic("u", 1)
    failures = []

    def revoked(_):
        if failures:
            raise failures.pop()

    leader = lab.member(kind, "t", partition_assignment_strategy=[assignor])
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
    """Takes two seconds over a loss, and notes when they began and were over."""

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
def test_no_poll_returns_while_a_listener_hears_of_a_loss_inside_a_join(
    lab, *, is_woken
):
    """P19: a listener that runs is waited for, whether a poll has time, and is woken."""
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
    reader.owns(tps, seconds=100)  # the broker has forgotten who it was
