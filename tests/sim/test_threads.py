"""One thread polls while others pause, resume and query, and waits end in time."""

import threading

import pytest
from kafka.errors import IllegalStateError

from safeconsumer import SafeConsumer
from safeconsumer.errors import ConcurrentPollError
from safeconsumer.events import HoldsPlaced
from safeconsumer.events.consumer import ParkedDataDropped
from tests.harness.holds.lab import EventLog
from tests.sim.lab import GROUP
from tests.sim.meddling import Meddled, both_decoders, elsewhere
from tests.sim.playing import simulated
from tests.sim.reading import AN_HOUR, Reader, both_ways, in_flight, parked


@pytest.mark.contract("P10")
@both_ways
@in_flight
@simulated(seeds=1, nightly=50)
def test_resume_on_another_thread_ends_a_wait_within_50_ms(lab, how, *, in_flight):
    """P10: the resume comes before the poll waits, as the wait starts, or during the wait."""
    reader = parked(lab, in_flight=in_flight, how=how)
    (p0, *_) = lab.partitions("t")
    for number in range(1, 10):
        waiting = threading.Thread(target=reader.poll, args=(AN_HOUR, 1))
        waiting.start()
        lab.sleep(
            lab.rng.choice([0, 1e-6, 1e-4, 2e-4, 5e-4, 1e-3, 5 * lab.rng.random()])
        )
        began = lab.now
        reader.consumer.resume(p0)
        waiting.join()
        assert lab.now - began < 0.05
        assert reader.offsets(p0) == [*range(number + 1)]
        reader.consumer.pause(p0)


@pytest.mark.contract("P2", "P10")
@both_ways
@in_flight
@simulated(seeds=1, nightly=10)
def test_expiry_ends_a_wait_on_time_and_never_early(lab, how, *, in_flight):
    """P2: no timer thread exists, so the poll limits its own wait."""
    reader = parked(lab, in_flight=in_flight, how=how)
    (p0, *_) = lab.partitions("t")
    began = lab.now
    reader.poll(20)
    assert 20 <= lab.now - began < 20.1
    began = lab.now
    reader.consumer.pause(p0, owner="timed", for_=9.5)
    reader.consumer.resume(p0)
    reader.poll(AN_HOUR, limit=1)
    assert 9.5 <= lab.now - began < 9.6
    assert reader.offsets(p0) == [0, 1]


# ------------------------------------------------------------ one thread polls

POLLS = {"poll": lambda consumer: consumer.poll(0), "iterate": next}


@pytest.mark.contract("P12")
@both_ways
@pytest.mark.parametrize("call", POLLS)
def test_second_poll_during_a_poll_is_refused(lab, call, how):
    """P12: the first poll still returns its records."""
    reader = parked(lab, in_flight=True, how=how)
    (p0, *_) = lab.partitions("t")
    waiting = threading.Thread(target=reader.poll, args=(AN_HOUR, 1))
    waiting.start()
    lab.sleep(10)
    with pytest.raises(ConcurrentPollError, match="two threads") as caught:
        POLLS[call](reader.consumer)
    assert isinstance(caught.value, IllegalStateError)
    reader.consumer.resume(p0)
    waiting.join()
    elsewhere(lambda: reader.poll(1))  # sequential polls may run on any thread
    reader.until(lambda: len(reader.log) == 10)
    assert reader.offsets(p0) == [*range(10)]


def refused_poll(reader, refused):
    """Poll, and store the message of the refusal."""
    with pytest.raises(ConcurrentPollError) as caught:
        reader.consumer.poll(0)
    refused.append(str(caught.value))


@both_ways
def test_second_poll_during_a_drain_is_refused(lab, how):
    """The drain finishes as if the second poll had not happened."""
    reader = Meddled(lab, how=how)
    refused = []

    for number in (3, 14):
        reader.meddler.at(number, lambda: refused_poll(reader, refused))
    reader.reads_everything()
    assert ["two threads" in one for one in refused] == [True, True]


@both_decoders
def test_second_poll_during_an_iteration_step_is_refused(lab, decoder):
    """An iteration step that only yields a record takes no lock."""
    reader = Meddled(lab, how="iterate", decoder=decoder)
    ledger = reader.consumer._safe_ledger
    quiet = ledger.quiet
    acts = []
    refused = []

    def asked():
        while acts:
            elsewhere(acts.pop())
        return quiet()

    ledger.quiet = (
        asked  # each step calls this, because the ledger always seems unsettled
    )
    unsettled = {"settled": property(lambda _: None, lambda *_: None)}
    ledger.__class__ = type("Unsettled", (type(ledger),), unsettled)
    reader.take(1)
    acts.append(lambda: refused_poll(reader, refused))
    reader.take(1)
    assert acts == []
    reader.reads_everything()
    assert ["two threads" in one for one in refused] == [True]


# ------------------------------------------------------------ hooks


def test_hook_may_pause_but_not_poll(lab):
    refused = []
    made = []
    tps = lab.topic("t", 2, records=3)

    def hook(event):
        if isinstance(event, HoldsPlaced) and event.holds[0].owner == "app":
            made[0].pause(tps[1], owner="hook")
        if made and isinstance(event, HoldsPlaced | ParkedDataDropped):
            with pytest.raises(ConcurrentPollError) as caught:
                made[0].poll(0)
            refused.append(str(caught.value))

    settings = {"hooks": [hook], "parked_max_bytes": 0}
    reader = Reader(lab, SafeConsumer, tps=tps, **settings)
    made.append(reader.consumer)
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.until(lambda: late.kept)
    reader.consumer.pause(tps[0])
    assert reader.consumer.quiet() == set(tps)
    assert len(refused) == 2
    late.end()
    reader.is_silent()
    assert len(refused) == 3  # the third was refused in a poll that dropped its records
    assert all("hook" in one for one in refused)
    reader.consumer.resume(*tps)
    reader.consumer.resume(*tps, owner="hook")
    reader.until(lambda: len(reader.log) == 6)


@pytest.mark.parametrize(
    "settings",
    [{}, {"client_id": "mine", "group_id": GROUP}, {"client_id": None}],
    ids=str,
)
def test_events_have_the_client_and_group_id_of_the_consumer(lab, settings):
    log = EventLog()
    consumer = SafeConsumer(**lab.settings(hooks=[log], **settings))
    consumer.pause("orders")
    placed = log.only(HoldsPlaced)
    ids = consumer.config["client_id"], consumer.config["group_id"]
    assert (placed.client_id, placed.group_id) == ids
    consumer.close()


# ------------------------------------------------------------ blocks on another thread


@pytest.mark.contract("P3", "P12")
@simulated(seeds=1, nightly=2)
def test_poll_does_not_end_a_later_block_of_the_same_owner(lab):
    """
    P3: a slow poll meets a block that is ending, while the block's thread starts another.

    1. The main thread ends a block, and is about to lift the block's hold.
    2. The poll sees that the block has ended, and is about to lift the hold, too.
    3. The main thread lifts the hold, and starts a block of the same owner.
    4. The poll continues; the hold that it would lift now is the second block's.
    """
    (tp,) = lab.topic("t", 1)
    consumer = SafeConsumer(**lab.settings(group_id=None))
    consumer.assign([tp])
    met, second, main = threading.Event(), threading.Event(), threading.get_ident()
    lift = consumer.resume

    def resume(*targets, owner):
        if threading.get_ident() != main:
            met.set()
            second.wait()
        elif not second.is_set():
            polling.start()
            met.wait(1)
        return lift(*targets, owner=owner)

    def poll():
        consumer.poll(0)

    polling = threading.Thread(target=poll)
    consumer.resume = resume
    with consumer.held(tp, owner="block"):
        pass
    with consumer.held(tp, owner="block"):
        second.set()
        polling.join()
        assert [hold.owner for hold in consumer.holds()] == ["block"]
    assert consumer.holds() == ()
    consumer.close()
