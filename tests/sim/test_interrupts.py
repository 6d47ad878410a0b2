"""A signal handler raises at every place of a call: it comes out, and nothing is lost."""

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import kafka
import pytest
from kafka import AsyncConsumerRebalanceListener, TopicPartition

import safeconsumer
from safeconsumer import Lifetime, SafeConsumer
from tests.harness.signals import Interrupts, TimeLimitError
from tests.sim import meddling
from tests.sim.meddling import Meddler, both_decoders, trace
from tests.sim.playing import simulated
from tests.sim.reading import (
    COOPERATIVE,
    EAGER,
    Listener,
    Reader,
    both_protocols,
    both_ways,
)
from tests.sim.test_journal import faults, of
from tests.sim.world import World

pytestmark = pytest.mark.contract("P18")

OURS = str(Path(safeconsumer.__file__).parent)
THEIRS = str(Path(kafka.__file__).parent)
DESERIALIZER = meddling.__file__


class EndError(BaseException):
    """What a handler raises that means to end the program."""


def interrupting(*inside, kind=TimeLimitError):
    """Return what raises in ours, or in these, on the thread of the test."""
    world = World.current
    assert world is not None
    mine = world.task
    # A handler interrupts the main thread, never the IO thread.
    return Interrupts(inside or (OURS,), lambda: world.task is mine, kind)


class Written:
    """Two partitions; what is written to them is read, once and in order."""

    def __init__(self, lab):
        self.lab = lab
        self.tps = lab.topic("t", 2)
        self.count = 0

    def write(self, count=2):
        """Append to both, and let it arrive at who asked for it."""
        for tp in self.tps:
            self.lab.append(tp, count, first=self.count)
        self.count += count
        self.lab.sleep(0.01)

    def is_read_by(self, reader, place):
        """Read the rest, and assert what came so far."""
        reader.until(lambda: len(reader.log) >= 2 * self.count)
        for tp in self.tps:
            assert reader.offsets(tp) == [*range(self.count)], place


STEP = 7
"""
Each seed has every seventh place, and seven seeds have all.
"""

everywhere = simulated(seeds=1, nightly=STEP)


def places(lab):
    return itertools.count(lab.world.seed, STEP)


def read_everywhere(written, reader, interrupts, before=lambda: None):
    """Raise at each place of a read; return how many it had."""
    most = (
        3 if reader.how == "poll" else 1
    )  # what a handler takes from a loop is its own
    for at in places(written.lab):
        written.write()
        before()
        has_come = interrupts.at(at, lambda: reader.poll(1, limit=most))
        written.is_read_by(reader, interrupts.place)
        if not has_come:
            return at
    raise AssertionError


@pytest.mark.contract("P18", "P8")
@both_ways
@both_decoders
@everywhere
def test_at_every_place_of_a_read(lab, how, decoder):
    """P18: each record comes once and in order, and what was raised at once."""
    written = Written(lab)
    settings = {"tps": written.tps, "how": how, "decoder": decoder}
    reader = Reader(lab, SafeConsumer, max_poll_records=3, **settings)
    assert read_everywhere(written, reader, interrupting()) > 100


@pytest.mark.contract("P18", "P8")
@everywhere
def test_at_every_place_of_a_traced_step(lab, monkeypatch):
    """P18: in upstream's half of it, in the tracing, and behind both."""
    trace(monkeypatch)
    written = Written(lab)
    settings = {"tps": written.tps, "how": "iterate"}
    reader = Reader(lab, SafeConsumer, max_poll_records=3, **settings)
    group = str(Path(THEIRS) / "consumer" / "group.py")
    interrupts = interrupting(OURS, group, meddling.__file__)
    assert read_everywhere(written, reader, interrupts) > 100


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [TimeLimitError, EndError])
@both_ways
@both_decoders
@everywhere
def test_in_kafka_pythons_half_of_a_read_too(lab, how, decoder, kind):
    """P18: no lock of a future stays taken, and no generator is used when it has ended."""
    written = Written(lab)
    settings = {"tps": written.tps, "how": how, "decoder": decoder}
    reader = Reader(lab, SafeConsumer, max_poll_records=3, **settings)
    interrupts = interrupting(OURS, THEIRS, kind=kind)
    assert read_everywhere(written, reader, interrupts) > 300


@everywhere
def test_while_it_commits_by_itself(lab):
    """P18: no lock of a commit's future stays taken, for which the IO thread would wait."""
    written = Written(lab)
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 1}
    reader = Reader(lab, SafeConsumer, "t", **settings)
    reader.owns(written.tps)
    coordinator = str(Path(THEIRS) / "coordinator")
    interrupts = interrupting(OURS, coordinator, str(Path(THEIRS) / "future.py"))
    assert read_everywhere(written, reader, interrupts) > 100
    reader.consumer.close()
    assert [lab.committed(tp) for tp in written.tps] == [written.count] * 2


@both_decoders
def test_in_a_deserializer(lab, decoder):
    """P18: it is no failure of the deserializer, which would be kept for the next poll."""
    written = Written(lab)
    settings = {"decoder": decoder, "value_deserializer": Meddler()}
    reader = Reader(lab, SafeConsumer, tps=written.tps, **settings)
    interrupts = interrupting(DESERIALIZER)
    for at in range(6):
        written.write()
        assert interrupts.at(at, lambda: reader.poll(1)), at
        written.is_read_by(reader, interrupts.place)


@both_decoders
@everywhere
def test_while_parked_records_are_given_back(lab, decoder):
    """P18: what was put back in front of half a batch is not passed over."""
    written = Written(lab)
    reader = Reader(lab, SafeConsumer, tps=written.tps, decoder=decoder)
    first, _ = written.tps

    def park():
        reader.poll(0, limit=1)
        reader.consumer.pause(first)
        reader.poll(0.1, limit=1)
        reader.consumer.resume(first)

    assert read_everywhere(written, reader, interrupting(), park) > 100


@both_ways
@everywhere
def test_of_a_consumer_with_a_journal(lab, how, tmp_path):
    """P18: nothing is lost, and its journal says which records came again."""
    written = Written(lab)
    settings = {"tps": written.tps, "how": how, "max_poll_records": 3}
    reader = Reader(lab, SafeConsumer, journal=str(tmp_path), **settings)
    assert read_everywhere(written, reader, interrupting()) > 100
    reader.consumer.close()
    assert faults(tmp_path) == []
    written_again = [one for one in of(tmp_path, "call") if one["op"] == "seek"]
    assert len(written_again) > 1


@everywhere
def test_of_a_traced_step_with_a_journal(lab, monkeypatch, tmp_path):
    """P18: a record that the tracing did not return is written as one that came again."""
    trace(monkeypatch)
    written = Written(lab)
    settings = {"tps": written.tps, "how": "iterate", "journal": str(tmp_path)}
    reader = Reader(lab, SafeConsumer, max_poll_records=3, **settings)
    assert read_everywhere(written, reader, interrupting(OURS, meddling.__file__)) > 100
    reader.consumer.close()
    assert faults(tmp_path) == []


def _rejoin(_, consumer):
    consumer._coordinator.request_rejoin()


def _be_evicted(lab, consumer):
    consumer.commit()
    lab.network.isolate(lab.world.outside)
    lab.until(lambda: not lab.members())
    lab.network.heal(lab.world.outside)
    lab.sleep(10)  # a heartbeat is told


@both_protocols
@pytest.mark.parametrize(
    "begin", [_rejoin, pytest.param(_be_evicted, marks=pytest.mark.nightly)]
)
@everywhere
def test_at_every_place_of_a_poll_that_joins(lab, begin, assignor):
    """P18: what the join assigns is read, once, and what it holds is quiet."""
    written = Written(lab)
    settings = {"enable_auto_commit": True, "assignor": assignor}
    reader = Reader(lab, SafeConsumer, "t", **settings)
    reader.owns(written.tps)
    interrupts = interrupting()
    for at in places(lab):
        written.write(1)
        begin(lab, reader.consumer)
        has_come = interrupts.at(at, lambda: reader.poll(2))
        written.is_read_by(reader, interrupts.place)
        if not has_come:
            break
    assert at > 100


@pytest.mark.parametrize("is_twice", [False, True], ids=["one poll", "two polls"])
@both_protocols
def test_a_join_that_it_waited_for_is_completed_once(lab, assignor, *, is_twice):
    """P18: the next poll waits for it, and a listener is called once, for each join."""
    written, told = Written(lab), list[str]()
    listener = Listener(lambda _: told.append("+"), lambda _: told.append("-"))
    reader = Reader(lab, SafeConsumer, assignor=assignor)
    reader.consumer.subscribe(["t"], listener=listener)
    reader.owns(written.tps)
    interrupts = interrupting(str(Path(THEIRS) / "net"))
    for at in itertools.count():
        began = lab.generation()
        told.clear()
        late = lab.cluster.fail("JoinGroup", is_held=True)
        reader.consumer._coordinator.request_rejoin()
        if is_twice:  # the first one ends before the join does
            interrupts.at(at, lambda: reader.poll(0.02))
        has_come = interrupts.at(at, lambda: reader.poll(0.1))
        lab.world.call_later(0.05, late.end)
        reader.until(lambda: lab.generation() > began)  # noqa: B023 - used at once
        reader.poll()
        eager = "-+" * (lab.generation() - began)
        assert "".join(told) == (eager if assignor is EAGER else ""), interrupts.place
        written.write(1)
        written.is_read_by(reader, interrupts.place)
        if not has_come:
            break
    assert at > 30


class Slow(AsyncConsumerRebalanceListener):
    """Asks a database where to begin, say, for three seconds."""

    def __init__(self, reader):
        self.reader = reader
        self.has_begun = False

    async def on_partitions_assigned(self, assigned):
        """Begin at the tenth record."""
        self.has_begun = True
        await self.reader.consumer._net.sleep(3)
        for tp in assigned:
            self.reader.consumer.seek(tp, 10)

    async def on_partitions_revoked(self, revoked):
        """Do nothing."""


@pytest.mark.contract("P18", "P8")
@both_protocols
def test_a_listener_is_waited_for_whatever_ended_its_poll(lab, assignor):
    """P18: upstream takes the join for done as it calls the listener, and reads on."""
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
        raise TimeLimitError  # as a handler in the wait of run(), which leaves its task

    coordinator._run = interrupted
    with pytest.raises(TimeLimitError):
        reader.until(lambda: listener.has_begun)
    reader.until(lambda: reader.log)
    assert reader.offsets(tp)[0] == 10


def test_a_poll_that_only_joins_comes_after_it(lab):
    """P18: it returns nothing, so what the one before took is not returned yet."""
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


def _unsubscribe(consumer, _):
    consumer.unsubscribe()


def _subscribe(consumer, _):
    consumer.subscribe(["t"])


Change = Callable[[SafeConsumer, list[TopicPartition]], None]


@pytest.mark.parametrize("is_repeated", [True, False], ids=["again", "once"])
@everywhere
def test_at_every_place_of_assign(lab, *, is_repeated):
    """P18: what is assigned then is read, by one fetch at a time, repeated or not."""
    a, b = Written(lab).tps
    reader = Reader(lab, SafeConsumer, tps=[a])
    interrupts = interrupting()
    for at in places(lab):
        reader.consumer.assign([a])
        reader.poll()
        has_come = interrupts.at(at, lambda: reader.consumer.assign([b]))
        if is_repeated:
            reader.consumer.assign([b])
        since, began = len(reader.log), len(lab.cluster.requests)
        reader.poll(0)
        (owned,) = reader.consumer.assignment()
        assert owned == b or not is_repeated, interrupts.place
        lab.append(owned)
        last = lab.cluster.log(owned.topic, owned.partition).end - 1
        while reader.offsets(owned, since)[-1:] != [last]:
            assert reader.poll(10), interrupts.place
        assert lab.kinds(began).count("Fetch") < 5, interrupts.place
        if not has_come:
            break
    assert at > 50


@pytest.mark.parametrize("is_repeated", [True, False], ids=["again", "once"])
@pytest.mark.parametrize("change", [_unsubscribe, _subscribe])
@everywhere
def test_at_every_place_of_a_changed_subscription(lab, change, *, is_repeated):
    """P18: it takes effect at the next poll, or had not begun, and then it can be done."""
    tps = lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, "t")
    interrupts = interrupting()
    for at in places(lab):
        reader.consumer.subscribe(["t"])
        reader.owns(tps)
        if change is _subscribe:
            reader.consumer.unsubscribe()
        has_come = interrupts.at(at, lambda: change(reader.consumer, tps))
        if is_repeated:
            change(reader.consumer, tps)
        reader.poll()
        if is_repeated or not has_come:
            is_subscribed = change is _subscribe
            assert bool(reader.consumer.subscription()) is is_subscribed
        if reader.consumer.subscription():
            reader.owns(tps)
        else:
            assert reader.consumer.assignment() == set()
        if not has_come:
            break
    assert at > 10


def _pause(consumer, tps):
    consumer.pause(tps[0])


def _pause_for_good(consumer, tps):
    consumer.pause(tps[0], reason="why", lifetime=Lifetime.UNTIL_RESUMED)


def _resume(consumer, tps):
    consumer.resume(*tps)


def _seek(consumer, tps):
    position = consumer.position(tps[0])
    assert position is not None
    consumer.seek(tps[0], position)


def _commit(consumer, _):
    consumer.commit()


def _commit_async(consumer, _):
    consumer.commit_async()


def _pause_all(consumer, _):
    consumer.pause_all()


def _resume_all(consumer, _):
    consumer.resume_all()


CALLS = {
    "pause": (None, _pause),
    "pause for good": (None, _pause_for_good),
    "pause_all": (None, _pause_all),
    "resume": (_pause, _resume),
    "resume_all": (_pause_all, _resume_all),
    "seek": (None, _seek),
    "commit": (None, _commit),
    "commit_async": (None, _commit_async),
}
PAUSES = {_pause: 1, _pause_for_good: 1, _pause_all: 2}  # how many partitions


@pytest.mark.parametrize("name", CALLS)
def test_at_every_place_of_a_call(lab, name):
    """P18: the same call again does what it says, and everything is read once."""
    before, call = CALLS[name]
    written = Written(lab)
    reader = Reader(lab, SafeConsumer, "t")
    reader.owns(written.tps)
    consumer, tps = reader.consumer, written.tps
    interrupts = interrupting()
    for at in places(lab):
        written.write(1)
        if before is not None:
            before(consumer, tps)
        has_come = interrupts.at(at, lambda: call(consumer, tps))
        reader.poll(0)
        call(consumer, tps)
        wanted = set(tps[: PAUSES.get(call, 0)])
        assert consumer.quiet() == wanted, interrupts.place
        consumer.resume_all()
        written.is_read_by(reader, interrupts.place)
        consumer.commit()
        assert [lab.committed(tp) for tp in tps] == [written.count] * 2
        if not has_come:
            break
    assert at > 3


@pytest.mark.contract("P18", "P3")
@pytest.mark.parametrize("owner", [None, "block"])
@everywhere
def test_at_every_place_of_a_block(lab, owner):
    """P18: its hold ends with it, at the latest by the next poll or pause."""
    written = Written(lab)
    reader = Reader(lab, SafeConsumer, tps=written.tps)
    consumer, first = reader.consumer, written.tps[0]
    interrupts = interrupting()

    def block():
        with consumer.held(first, owner=owner):
            assert consumer.quiet() == {first}

    for at in places(lab):
        written.write(1)
        has_come = interrupts.at(at, block)
        if at % 2:
            consumer.pause(first, owner="block")
            reader.poll(0)
            assert consumer.quiet() == {first}, interrupts.place
            consumer.resume(first, owner="block")
        written.is_read_by(reader, interrupts.place)
        assert consumer.holds() == (), interrupts.place
        if not has_come:
            break
    assert at > 200


IN_A_BATCH = {
    "seek": lambda consumer, tps: consumer.seek(tps[0], 1),
    "seek to the end": lambda consumer, tps: consumer.seek_to_end(tps[1]),
    "subscribe": lambda consumer, _: consumer.subscribe(["t"]),
    "unsubscribe": lambda consumer, _: consumer.unsubscribe(),
}


@pytest.mark.parametrize("name", IN_A_BATCH)
@everywhere
def test_at_every_place_of_what_ends_an_iteration(lab, name):
    """P18: the collector does not close it, which would swallow what was raised."""
    tps = lab.topic("t", 2, records=3)
    interrupts = interrupting()
    for at in places(lab):
        reader = Reader(lab, SafeConsumer, "t", how="iterate", group_id=f"g{at}")
        reader.take(1)
        has_come = interrupts.at(at, lambda: IN_A_BATCH[name](reader.consumer, tps))  # noqa: B023 - used at once
        reader.consumer.close()
        if not has_come:
            break
    assert at > 3


@everywhere
def test_at_every_place_of_a_subscription_without_a_group(lab):
    """P18: what was stored and not asked for is asked for; upstream waits 5 minutes."""
    lab.topic("t", 1, records=1)
    interrupts = interrupting(OURS, THEIRS)
    for at in places(lab):
        (tp,) = lab.topic(f"t{at}", 1, records=1)
        reader = Reader(lab, SafeConsumer, "t", group_id=None)
        reader.take(1)
        has_come = interrupts.at(at, lambda: reader.consumer.subscribe([tp.topic]))  # noqa: B023 - used at once
        reader.poll(0)
        if tp.topic not in reader.consumer.subscription():  # it had not begun
            reader.consumer.subscribe([tp.topic])
        began = lab.now
        reader.until(lambda: reader.offsets(tp))  # noqa: B023 - used at once
        assert lab.now - began < 20, interrupts.place
        reader.consumer.close()
        if not has_come:
            break
    assert at > 30


@both_ways
@everywhere
def test_at_every_place_of_close(lab, how):
    """P18: also where it commits; a second close ends what is left of its threads."""
    lab.topic("t", 2, records=3)
    settings = {"enable_auto_commit": how == "poll", "how": how}
    for at in places(lab):
        reader = Reader(lab, SafeConsumer, "t", group_id=f"g{at}", **settings)
        reader.take(1)
        has_come = interrupting().at(at, reader.consumer.close)
        reader.consumer.close()
        lab.sleep(1)
        assert [one for one in lab.running() if "kafka" in one] == []
        if not has_come:
            break
    assert at > 20


def test_in_a_hook(lab):
    """P18: it is no failure of the hook, and all hooks have the event."""
    told = []

    def hook(event):
        told.append(event)
        len(told)

    tps = lab.topic("t", 1)
    reader = Reader(lab, SafeConsumer, tps=tps, hooks=[hook, told.append])
    reader.poll()
    interrupts = interrupting(__file__)
    for at in range(1, 4):  # at 0 it has not called yet
        told.clear()
        assert interrupts.at(at, lambda: reader.consumer.pause(tps[0]))
        assert "hook" in interrupts.place
        assert (len(told) in {1, 2}, reader.consumer.hook_failures) == (True, {})
        assert reader.consumer.quiet() == {tps[0]}
        reader.consumer.resume(tps[0])


AFTER = ("the same topic", "another topic", "assigned by hand")


@pytest.mark.parametrize("after", AFTER)
def test_an_interrupted_unsubscribe_is_finished_before_what_follows(lab, after):
    """A subscription reads, and who assigns by hand is no member any more."""
    tps = lab.topic("t", 2, records=3)
    others = lab.topic("u", 2, records=3)
    wanted = tps if after == "the same topic" else others
    interrupts = interrupting()
    for place in itertools.count(0, 7):
        reader = Reader(lab, SafeConsumer, "t", group_id=f"g{place}")
        reader.owns(tps)
        has_come = interrupts.at(place, reader.consumer.unsubscribe)
        if reader.consumer.subscription() and after == "assigned by hand":
            reader.consumer.unsubscribe()  # it had not begun
        if after == "assigned by hand":
            reader.consumer.assign(wanted)
        else:
            reader.consumer.subscribe([wanted[0].topic])
        lab.append(wanted[0], 1, first=3 + place)
        newest = 3 + place // 7

        def has_read(reader=reader, newest=newest):
            is_its_own = reader.consumer.assignment() == set(wanted)
            return is_its_own and reader.offsets(wanted[0])[-1:] == [newest]

        reader.until(has_read)
        if after == "assigned by hand":
            assert not lab.members(f"g{place}")
        reader.consumer.close()
        if not has_come:
            break
    assert place > 50


def test_at_every_place_of_a_seek_to_the_end_while_another_is_answered(lab):
    """P18: it is asked for again at once; else the position waits for 30 seconds."""
    (tp,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, SafeConsumer, tps=[tp])
    reader.take(3)
    interrupts = interrupting(OURS, THEIRS)
    for at in itertools.count():
        late = lab.cluster.fail("ListOffsets", is_held=True)
        reader.consumer.seek_to_beginning(tp)
        reader.poll(0.1)
        has_come = interrupts.at(at, lambda: reader.consumer.seek_to_end(tp))
        late.end()
        began = lab.now
        assert reader.consumer.position(tp, timeout_ms=60_000) in {0, 3}
        assert lab.now - began < 5
        if not has_come:
            break
    assert at > 10


def test_a_position_is_waited_for_whatever_ended_the_poll_that_asked(lab):
    """P18: a handler raises before the poll has noted that it asks; it was None at once."""
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


@simulated(seeds=1, nightly=3)
def test_a_commit_that_was_interrupted_is_not_tried_again_later(lab):
    """P18: a handler raises while it waits; the broker takes it only after a newer one."""
    (tp,) = lab.topic("t", 1, records=100)
    reader = Reader(lab, SafeConsumer, "t")
    reader.take(10)
    loading = lab.cluster.fail("OffsetCommit", error=14)
    began, net = len(lab.kinds()), reader.consumer._net
    run = net.run

    def interrupted(*given):
        net.run = run
        threading.Thread(target=lambda: suppressed(run, *given)).start()
        lab.until(lambda: "OffsetCommit" in lab.kinds(began))
        raise TimeLimitError  # as a handler in the wait of run(), which leaves its task

    net.run = interrupted
    with pytest.raises(TimeLimitError):
        reader.consumer.commit()
    loading.end()
    reader.take(10)
    reader.consumer.commit()
    assert lab.committed(tp) == 20
    lab.sleep(60)
    assert lab.committed(tp) == 20


def suppressed(call, *given):
    with suppress(Exception):
        call(*given)
