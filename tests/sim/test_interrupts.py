"""A signal handler raises at every point of a call, and no record is lost (P18)."""

import itertools
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from kafka import AsyncConsumerRebalanceListener

from safeconsumer import Lifetime, SafeConsumer
from safeconsumer.errors import BlockingCallInSignalHandlerError
from tests.harness.audit.journals import entries_in, faults_in
from tests.harness.signals import Places, TimeLimitError
from tests.sim import meddling
from tests.sim.interrupting import (
    OURS,
    THEIRS,
    each_place,
    everywhere,
    interrupting,
    is_mine,
)
from tests.sim.meddling import Meddler, both_decoders, both_steps, trace
from tests.sim.playing import simulated
from tests.sim.reading import (
    COOPERATIVE,
    EAGER,
    Listener,
    Reader,
    both_protocols,
    both_ways,
)

__all__ = ["both_steps"]  # a fixture
pytestmark = pytest.mark.contract("P18")

GROUP_FILE = str(Path(THEIRS) / "consumer" / "group.py")
COMMITTING = str(Path(THEIRS) / "coordinator"), str(Path(THEIRS) / "future.py")


class EndError(BaseException):
    """An exception that a handler raises to end the program."""


class Written:
    """Writes to two partitions, and checks that each record is read once and in order."""

    def __init__(self, lab):
        self.lab = lab
        self.tps = lab.topic("t", 2)
        self.count = 0

    def write(self, count=2):
        """Append to both partitions, and let the records arrive."""
        for tp in self.tps:
            self.lab.append(tp, count, first=self.count)
        self.count += count
        self.lab.sleep(0.01)

    def is_read_by(self, reader, place):
        """Read the rest, and assert that all records have arrived."""
        reader.until(lambda: len(reader.log) >= 2 * self.count)
        for tp in self.tps:
            assert reader.offsets(tp) == [*range(self.count)], place

    def read_everywhere(
        self, reader, *inside, before=lambda: None, least=100, kind=TimeLimitError
    ):
        """Interrupt a read at each point in it."""
        # An iteration reads one record, because the handler's exception ends the loop.
        most = 3 if reader.how == "poll" else 1
        for it in each_place(self.lab, least, *inside, kind=kind):
            self.write()
            before()
            it.interrupt(lambda: reader.poll(1, limit=most))
            self.is_read_by(reader, it.place)


def reading(lab, *topics, **settings):
    """Return a ``Written``, and a reader that subscribes or is assigned its partitions."""
    written = Written(lab)
    tps = () if topics else written.tps
    reader = Reader(
        lab, SafeConsumer, *topics, tps=tps, **{"max_poll_records": 3, **settings}
    )
    if topics:
        reader.owns(written.tps)
    return written, reader


@pytest.mark.contract("P18", "P8")
@both_ways
@both_decoders
@everywhere
def test_interrupted_read_delivers_each_record_once(lab, how, decoder):
    """P18: the call raises the exception immediately."""
    written, reader = reading(lab, how=how, decoder=decoder)
    written.read_everywhere(reader)


@pytest.mark.contract("P18", "P8")
@everywhere
def test_interrupted_traced_step_delivers_each_record_once(lab, monkeypatch):
    """P18: the handler raises in kafka-python's code, in the tracing code, and after both."""
    trace(monkeypatch)
    written, reader = reading(lab, how="iterate")
    written.read_everywhere(reader, OURS, GROUP_FILE, meddling.__file__)


@everywhere
def test_interrupted_step_after_a_batch_repeats_no_record_of_the_batch(lab):
    (tp,) = lab.topic("t", 1)
    reader = Reader(lab, SafeConsumer, tps=[tp], how="iterate")
    for number, it in enumerate(each_place(lab, 20)):
        first = 3 * number
        lab.append(tp, 2, first=first)
        reader.take(2)
        it.interrupt(lambda: reader.poll(0.1, limit=1))
        lab.append(tp, 1, first=first + 2)
        reader.until(lambda end=first + 2: end in reader.offsets(tp))
        assert reader.offsets(tp) == [*range(first + 3)], it.place


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [TimeLimitError, EndError])
@both_ways
@both_decoders
@everywhere
def test_read_interrupted_in_kafka_python_delivers_each_record_once(
    lab, how, decoder, kind
):
    """P18: futures' locks are released, and a finished generator is not used again."""
    written, reader = reading(lab, how=how, decoder=decoder)
    # The compiled decoder has fewer points, and an iteration reads only one record.
    least = 250 if (decoder, how) == ("compiled", "iterate") else 300
    written.read_everywhere(reader, OURS, THEIRS, least=least, kind=kind)


@everywhere
def test_interrupted_read_with_automatic_commits_commits_everything(lab):
    """P18: the lock of a commit's future, which the IO thread also needs, is released."""
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 1}
    written, reader = reading(lab, "t", **settings)
    written.read_everywhere(reader, OURS, *COMMITTING)
    reader.consumer.close()
    assert [lab.committed(tp) for tp in written.tps] == [written.count] * 2


@both_decoders
def test_interrupt_in_a_deserializer_does_not_count_as_its_failure(lab, decoder):
    """P18: the next poll would raise a deserializer's own failure again."""
    settings = {"decoder": decoder, "value_deserializer": Meddler()}
    written, reader = reading(lab, max_poll_records=500, **settings)
    interrupts = interrupting(meddling.__file__)
    for at in range(6):
        written.write()
        assert interrupts.at(at, lambda: reader.poll(1)), at
        written.is_read_by(reader, interrupts.place)


@both_decoders
@everywhere
def test_interrupted_read_of_parked_records_skips_no_record(lab, decoder):
    written, reader = reading(lab, max_poll_records=500, decoder=decoder)
    first, _ = written.tps

    def park():
        reader.poll(0, limit=1)
        reader.consumer.pause(first)
        reader.poll(0.1, limit=1)
        reader.consumer.resume(first)

    written.read_everywhere(reader, before=park)


@pytest.mark.parametrize("how", ["poll", "iterate", "traced"])
@everywhere
def test_journal_of_interrupted_reads_has_no_fault(lab, how, monkeypatch, tmp_path):
    """P18: the journal shows which records were delivered again."""
    inside = (OURS, meddling.__file__)
    if how == "traced":
        trace(monkeypatch)
        how = "iterate"
    written, reader = reading(lab, how=how, journal=str(tmp_path))
    written.read_everywhere(reader, *inside)
    interrupts, points = interrupting(*inside), itertools.count()
    while not _seeks(tmp_path):  # no point so far made a step deliver records again
        written.write()
        interrupts.at(next(points), lambda: reader.poll(1, limit=1))
        written.is_read_by(reader, interrupts.place)
    reader.consumer.close()
    assert faults_in(tmp_path) == []
    assert _seeks(tmp_path)


def _seeks(folder):
    return [one for one in entries_in(folder, "call") if one["op"] == "seek"]


@pytest.mark.contract("P8")
@pytest.mark.usefixtures("both_steps")
@both_ways
@simulated(seeds=1, nightly=16)
def test_reading_continues_at_the_target_of_a_signal_handlers_seek(lab, how):
    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, SafeConsumer, tps=[tp], how=how)
    consumer = reader.consumer
    reader.take(1)
    places = Places((OURS, THEIRS), is_mine())
    for at in itertools.count(lab.world.seed, 16):
        consumer.seek(tp, 0)
        consumer.poll(0)
        lab.sleep(0.5)
        if not places.reach(
            at,
            lambda: reader.poll(1, limit=1 if how == "iterate" else 3),
            lambda: consumer.seek(tp, 7),
        ):
            break
        after = consumer.position(tp)
        assert after >= 7, places.place
        reader.log.clear()
        while consumer.position(tp) < 10:
            reader.poll(1, limit=50)
        assert reader.offsets(tp) == [*range(after, 10)], places.place
    assert at > 100


def _rejoin(_, consumer):
    consumer._coordinator.request_rejoin()


def _be_evicted(lab, consumer):
    consumer.commit()
    lab.network.isolate(lab.world.outside)
    lab.until(lambda: not lab.members())
    lab.network.heal(lab.world.outside)
    lab.sleep(10)  # a heartbeat reports the eviction


@both_protocols
@pytest.mark.parametrize(
    "begin", [_rejoin, pytest.param(_be_evicted, marks=pytest.mark.nightly)]
)
@everywhere
def test_interrupted_poll_that_joins_delivers_each_record_once(lab, begin, assignor):
    settings = {"enable_auto_commit": True, "assignor": assignor}
    written, reader = reading(lab, "t", max_poll_records=500, **settings)
    for it in each_place(lab, 100):
        written.write(1)
        begin(lab, reader.consumer)
        it.interrupt(lambda: reader.poll(2))
        written.is_read_by(reader, it.place)


@pytest.mark.parametrize("is_twice", [False, True], ids=["one poll", "two polls"])
@both_protocols
@everywhere
def test_join_whose_poll_was_interrupted_is_completed_once(lab, assignor, *, is_twice):
    """P18: the next poll waits for the join, and each join calls the listener once."""
    written, calls = Written(lab), []
    listener = Listener(lambda _: calls.append("+"), lambda _: calls.append("-"))
    reader = Reader(lab, SafeConsumer, assignor=assignor)
    reader.consumer.subscribe(["t"], listener=listener)
    reader.owns(written.tps)
    for it in each_place(lab, 30, str(Path(THEIRS) / "net")):
        began = lab.generation()
        calls.clear()
        late = lab.cluster.fail("JoinGroup", is_held=True)
        reader.consumer._coordinator.request_rejoin()
        if is_twice:  # the first poll ends before the join does
            it.interrupt(lambda: reader.poll(0.02))
        it.interrupt(lambda: reader.poll(0.1))
        lab.world.call_later(0.05, late.end)
        reader.until(lambda: lab.generation() > began)  # noqa: B023 - used immediately
        reader.poll()
        eager = "-+" * (lab.generation() - began)
        assert "".join(calls) == (eager if assignor is EAGER else ""), it.place
        written.write(1)
        written.is_read_by(reader, it.place)


class Slow(AsyncConsumerRebalanceListener):
    """A listener that takes three seconds, as if it read offsets from a database."""

    def __init__(self, reader):
        self.reader = reader
        self.has_begun = False

    async def on_partitions_assigned(self, assigned):
        """Seek to offset 10, after three seconds."""
        self.has_begun = True
        await self.reader.consumer._net.sleep(3)
        for tp in assigned:
            self.reader.consumer.seek(tp, 10)

    async def on_partitions_revoked(self, revoked):
        """Do nothing."""


@pytest.mark.contract("P18", "P8")
@both_protocols
def test_poll_after_an_interrupt_waits_for_the_listener(lab, assignor):
    """P18: kafka-python regards the join as done when it calls the listener."""
    (tp,) = lab.topic("t", 1, records=20)
    reader = Reader(lab, SafeConsumer, assignor=assignor)
    listener = Slow(reader)
    reader.consumer.subscribe(["t"], listener=listener)
    coordinator = reader.consumer._coordinator
    run = coordinator._run

    def interrupted(call, timeout_ms):
        if call != coordinator.ensure_active_group_async:
            return run(call, timeout_ms)
        waits = threading.Thread(target=lambda: suppressed(run, call, timeout_ms))
        waits.start()
        lab.until(lambda: listener.has_begun or not waits.is_alive())
        if not listener.has_begun:
            return False
        coordinator._run = run
        raise TimeLimitError  # like a handler that interrupts run(), whose task continues

    coordinator._run = interrupted
    with pytest.raises(TimeLimitError):
        reader.until(lambda: listener.has_begun)
    reader.until(lambda: reader.log)
    assert reader.offsets(tp)[0] == 10


def test_poll_that_only_joins_keeps_the_records_of_an_interrupted_poll(lab):
    written = Written(lab)
    reader = Reader(lab, SafeConsumer, "t", assignor=COOPERATIVE)
    reader.owns(written.tps)
    fetcher = reader.consumer._fetcher
    put_back_quiet = fetcher.put_back_quiet

    def interrupted(records):
        if records:
            fetcher.put_back_quiet = put_back_quiet
            raise TimeLimitError
        return records

    fetcher.put_back_quiet = interrupted
    written.write()
    with pytest.raises(TimeLimitError):
        reader.poll(5)
    late = lab.cluster.fail("JoinGroup", is_held=True)
    reader.consumer._coordinator.request_rejoin()
    assert reader.poll(1) == []
    late.end()
    written.is_read_by(reader, "a join")


# ------------------------------------------------------------ other calls


again_or_once = pytest.mark.parametrize(
    "is_repeated", [True, False], ids=["again", "once"]
)


@again_or_once
@everywhere
def test_interrupted_assign_leads_to_only_one_fetch_at_a_time(lab, *, is_repeated):
    """P18: this holds whether or not the program repeats the call."""
    a, b = lab.topic("t", 2)
    reader = Reader(lab, SafeConsumer, tps=[a])
    for it in each_place(lab, 50):
        reader.consumer.assign([a])
        reader.poll()
        it.interrupt(lambda: reader.consumer.assign([b]))
        if is_repeated:
            reader.consumer.assign([b])
        since, began = len(reader.log), len(lab.cluster.requests)
        reader.poll(0)
        (owned,) = reader.consumer.assignment()
        assert owned == b or not is_repeated, it.place
        lab.append(owned)
        last = lab.cluster.log(owned.topic, owned.partition).end - 1
        while reader.offsets(owned, since)[-1:] != [last]:
            assert reader.poll(10), it.place
        assert lab.kinds(began).count("Fetch") < 5, it.place


CHANGES = {
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "subscribe": lambda consumer: consumer.subscribe(["t"]),
}


@again_or_once
@pytest.mark.parametrize("name", CHANGES)
@everywhere
def test_interrupted_subscription_change_takes_effect_or_does_nothing(
    lab, name, *, is_repeated
):
    tps = lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, "t")
    consumer, change = reader.consumer, CHANGES[name]
    for it in each_place(lab, 10):
        consumer.subscribe(["t"])
        reader.owns(tps)
        if name == "subscribe":
            consumer.unsubscribe()
        it.interrupt(lambda: change(consumer))
        if is_repeated:
            change(consumer)
        reader.poll()
        if is_repeated or not it.place:
            assert bool(consumer.subscription()) is (name == "subscribe")
        if consumer.subscription():
            reader.owns(tps)
        else:
            assert consumer.assignment() == set()


def _pause(consumer, tps):
    consumer.pause(tps[0])


def _pause_all(consumer, _):
    consumer.pause_all()


FOR_GOOD = {"reason": "why", "lifetime": Lifetime.UNTIL_RESUMED}
CALLS = {  # the preceding call, the call, and the number of partitions left paused
    "pause": (None, _pause, 1),
    "pause for good": (None, lambda one, tps: one.pause(tps[0], **FOR_GOOD), 1),
    "pause_all": (None, _pause_all, 2),
    "resume": (_pause, lambda one, tps: one.resume(*tps), 0),
    "resume_all": (_pause_all, lambda one, _: one.resume_all(), 0),
    "seek": (None, lambda one, tps: one.seek(tps[0], one.position(tps[0])), 0),
    "commit": (None, lambda one, _: one.commit(), 0),
    "commit_async": (None, lambda one, _: one.commit_async(), 0),
}


@pytest.mark.parametrize("name", CALLS)
@everywhere
def test_interrupted_call_can_be_repeated(lab, name):
    """P18: each record is read exactly once."""
    before, call, count = CALLS[name]
    written, reader = reading(lab, "t", max_poll_records=500)
    consumer, tps = reader.consumer, written.tps
    for it in each_place(lab, 3):
        written.write(1)
        if before is not None:
            before(consumer, tps)
        it.interrupt(lambda: call(consumer, tps))
        reader.poll(0)
        call(consumer, tps)
        assert consumer.quiet() == set(tps[:count]), it.place
        consumer.resume_all()
        written.is_read_by(reader, it.place)
        consumer.commit()
        assert [lab.committed(tp) for tp in tps] == [written.count] * 2


@pytest.mark.contract("P18", "P3")
@pytest.mark.parametrize("owner", [None, "block"])
@everywhere
def test_interrupted_with_block_ends_its_hold(lab, owner):
    """P18: the hold ends with the next poll or pause at the latest."""
    written, reader = reading(lab, max_poll_records=500)
    consumer, first = reader.consumer, written.tps[0]

    def block():
        with consumer.held(first, owner=owner):
            assert consumer.quiet() == {first}

    for it in each_place(lab, 200):
        written.write(1)
        it.interrupt(block)
        if it.number % 2:
            consumer.pause(first, owner="block")
            reader.poll(0)
            assert consumer.quiet() == {first}, it.place
            consumer.resume(first, owner="block")
        written.is_read_by(reader, it.place)
        assert consumer.holds() == (), it.place


IN_A_BATCH = {
    "seek": lambda consumer, tps: consumer.seek(tps[0], 1),
    "seek to the end": lambda consumer, tps: consumer.seek_to_end(tps[1]),
    "subscribe": lambda consumer, _: consumer.subscribe(["t"]),
    "unsubscribe": lambda consumer, _: consumer.unsubscribe(),
}


@pytest.mark.parametrize("name", IN_A_BATCH)
@everywhere
def test_interrupt_in_a_call_that_ends_an_iteration_is_raised(lab, name):
    """P18: if the garbage collector closed the iteration, the exception would be lost."""
    tps = lab.topic("t", 2, records=3)
    call = IN_A_BATCH[name]
    for it in each_place(lab, 3):
        group = f"g{it.number}"
        reader = Reader(lab, SafeConsumer, "t", how="iterate", group_id=group)
        reader.take(1)
        it.interrupt(lambda: call(reader.consumer, tps))  # noqa: B023 - used immediately
        reader.consumer.close()


@everywhere
def test_interrupted_subscription_without_a_group_is_read_without_delay(lab):
    """P18: kafka-python requests the new topic's metadata only after five minutes."""
    lab.topic("t", 1, records=1)
    for it in each_place(lab, 30, OURS, THEIRS):
        (tp,) = lab.topic(f"t{it.number}", 1, records=1)
        reader = Reader(lab, SafeConsumer, "t", group_id=None)
        reader.take(1)
        it.interrupt(lambda: reader.consumer.subscribe([tp.topic]))  # noqa: B023 - used immediately
        reader.poll(0)
        if tp.topic not in reader.consumer.subscription():  # the change had not started
            reader.consumer.subscribe([tp.topic])
        began = lab.now
        reader.until(lambda: reader.offsets(tp))  # noqa: B023 - used immediately
        assert lab.now - began < 20, it.place
        reader.consumer.close()


@both_ways
@everywhere
def test_interrupted_close_is_finished_by_a_second_close(lab, how):
    """P18: with ``enable_auto_commit`` the interrupted close may commit, too."""
    lab.topic("t", 2, records=3)
    settings = {"enable_auto_commit": how == "poll", "how": how}
    for it in each_place(lab, 20):
        reader = Reader(lab, SafeConsumer, "t", group_id=f"g{it.number}", **settings)
        reader.take(1)
        it.interrupt(reader.consumer.close)
        reader.consumer.close()
        lab.sleep(1)
        assert [one for one in lab.running() if "kafka" in one] == []


def test_interrupt_in_a_hook_does_not_count_as_its_failure(lab):
    """P18: every hook is called with the event."""
    events = []

    def hook(event):
        events.append(event)
        len(events)

    tps = lab.topic("t", 1)
    reader = Reader(lab, SafeConsumer, tps=tps, hooks=[hook, events.append])
    reader.poll()
    interrupts = interrupting(__file__)
    for at in range(1, 4):  # at point 0 the hook has not been called yet
        events.clear()
        assert interrupts.at(at, lambda: reader.consumer.pause(tps[0]))
        assert "hook" in interrupts.place
        assert (len(events) in {1, 2}, reader.consumer.hook_failures) == (True, {})
        assert reader.consumer.quiet() == {tps[0]}
        reader.consumer.resume(tps[0])


AFTER = ("the same topic", "another topic", "assigned by hand")


@pytest.mark.parametrize("after", AFTER)
@everywhere
def test_interrupted_unsubscribe_is_finished_before_the_next_call(lab, after):
    """A member that then subscribes reads again; one that assigns has left the group."""
    tps = lab.topic("t", 2, records=3)
    others = lab.topic("u", 2, records=3)
    first, _ = wanted = tps if after == "the same topic" else others
    is_by_hand = after == "assigned by hand"
    for it in each_place(lab, 50):
        group = f"g{it.number}"
        reader = Reader(lab, SafeConsumer, "t", group_id=group)
        consumer = reader.consumer
        reader.owns(tps)
        it.interrupt(consumer.unsubscribe)
        if consumer.subscription() and is_by_hand:
            consumer.unsubscribe()  # the call had not started
        if is_by_hand:
            consumer.assign(wanted)
        else:
            consumer.subscribe([first.topic])
        reader.owns(wanted)
        lab.append(first)
        newest = lab.cluster.log(*first).end - 1
        reader.until(lambda: reader.offsets(first)[-1:] == [newest])  # noqa: B023 - used immediately
        assert not is_by_hand or not lab.members(group)
        consumer.close()


@everywhere
def test_interrupted_seek_to_the_end_is_requested_again_immediately(lab):
    """P18: otherwise ``position()`` would wait 30 seconds for the lost request."""
    (tp,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, SafeConsumer, tps=[tp])
    reader.take(3)
    for it in each_place(lab, 10, OURS, THEIRS):
        late = lab.cluster.fail("ListOffsets", is_held=True)
        reader.consumer.seek_to_beginning(tp)
        reader.poll(0.1)
        it.interrupt(lambda: reader.consumer.seek_to_end(tp))
        late.end()
        began = lab.now
        assert reader.consumer.position(tp, timeout_ms=60_000) in {0, 3}
        assert lab.now - began < 5


def test_position_waits_for_the_response_to_an_interrupted_polls_request(lab):
    """P18: the handler raises after the request was sent and before the poll recorded it."""
    (tp,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, SafeConsumer, tps=[tp])
    reader.take(3)
    manager = reader.consumer._manager
    call_soon = manager.call_soon

    def interrupted(call, *given):
        future = call_soon(call, *given)
        if call.__name__ != "_reset_offsets_async":
            return future
        manager.call_soon = call_soon
        raise TimeLimitError

    late = lab.cluster.fail("ListOffsets", is_held=True)
    reader.consumer.seek_to_end(tp)
    manager.call_soon = interrupted
    with pytest.raises(TimeLimitError):
        reader.poll(5)
    lab.sleep(0.1)
    lab.world.call_later(0.5, late.end)
    assert reader.consumer.position(tp, timeout_ms=5000) == 3


@pytest.mark.contract("P12")
@pytest.mark.parametrize("inside", [OURS, THEIRS], ids=["ours", "kafka-python's"])
@everywhere
def test_call_in_a_signal_handler_succeeds_or_is_refused(lab, inside):
    """The call would wait forever if the IO thread waited for the interrupted call."""
    (tp,) = lab.topic("t", 1, records=100)
    reader = Reader(lab, SafeConsumer, "t", max_poll_records=1)
    reader.take(1)
    calls = (
        lambda: reader.consumer.commit(timeout_ms=5000),
        lambda: reader.consumer.committed(tp, timeout_ms=5000),
    )
    found = []

    def come(call):
        try:
            call()
        except BlockingCallInSignalHandlerError:
            found.append("refused")
        else:
            found.append("answered")

    for places in each_place(lab, 40, inside):
        for call in calls:
            lab.sleep(0.01)
            places.reach(places.number, reader.poll, partial(come, call))
    assert "answered" in found
    reader.consumer.commit()
    assert lab.committed(tp) == len(reader.log)


SHORT = {
    "pause": lambda consumer, tp: (consumer.pause(tp), consumer.resume(tp)),
    "seek": lambda consumer, tp: consumer.seek(tp, 1),
    "commit_async": lambda consumer, _tp: consumer.commit_async(),
}


@pytest.mark.contract("P12")
@pytest.mark.parametrize("call", SHORT.values(), ids=SHORT)
def test_commit_in_a_signal_handler_during_a_short_call_does_not_hang(
    lab, call, tmp_path
):
    """The IO thread also needs the locks of the ledger, the journal and a future."""
    (tp,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, SafeConsumer, "t", max_poll_records=1, journal=tmp_path)
    reader.take(1)
    interrupts = interrupting(OURS)

    def come():
        with suppress(BlockingCallInSignalHandlerError):
            reader.consumer.commit(timeout_ms=5000)

    for number in itertools.count():
        lab.sleep(0.01)
        if not interrupts.reach(number, partial(call, reader.consumer, tp), come):
            break
    assert number > 10
    reader.consumer.commit()
    assert lab.committed(tp) == 1


LOCKS = {
    "subscription": lambda consumer: consumer._subscription._lock,
    "coordinator": lambda consumer: consumer._coordinator._lock,
    "ledger": lambda consumer: consumer._subscription.ledger._lock,
    "journal": lambda consumer: consumer._safe_journal.writer._lock,
}


@pytest.mark.contract("P12")
@pytest.mark.parametrize("lock", LOCKS.values(), ids=LOCKS)
def test_call_that_would_wait_for_the_interrupted_call_is_refused(lab, lock, tmp_path):
    (tp,) = lab.topic("t", 1, records=1)
    reader = Reader(lab, SafeConsumer, "t", journal=tmp_path)
    consumer = reader.consumer
    reader.take(1)
    consumer.seek_to_beginning(tp)
    refused = (
        consumer.commit,
        consumer.topics,
        consumer.poll,
        consumer.close,
        partial(next, consumer),
        partial(consumer.position, tp),
    )
    with lock(consumer):
        for call in refused:
            with pytest.raises(BlockingCallInSignalHandlerError, match="wakeup"):
                call()
    assert consumer.position(tp) == 0


@simulated(seeds=1, nightly=3)
def test_interrupted_commit_is_not_retried_after_a_newer_commit(lab):
    (tp,) = lab.topic("t", 1, records=100)
    reader = Reader(lab, SafeConsumer, "t")
    reader.take(10)
    loading = lab.cluster.fail("OffsetCommit", error=14)
    began, net = len(lab.kinds()), reader.consumer._net
    run = net.run

    def interrupted(*given, **more):
        net.run = run
        threading.Thread(target=lambda: suppressed(run, *given, **more)).start()
        lab.until(lambda: "OffsetCommit" in lab.kinds(began))
        raise TimeLimitError  # like a handler that interrupts run(), whose task continues

    net.run = interrupted
    with pytest.raises(TimeLimitError):
        reader.consumer.commit()
    loading.end()
    reader.take(10)
    reader.consumer.commit()
    assert lab.committed(tp) == 20
    lab.sleep(60)
    assert lab.committed(tp) == 20


def suppressed(call, *given, **more):
    with suppress(Exception):
        call(*given, **more)
