"""A world's clock, turns and threads, and the history that its seed determines."""

import gc
import random
import threading
import time
import weakref
from contextlib import nullcontext

import pytest
from kafka import KafkaConsumer, KafkaProducer

from safeconsumer import SafeConsumer
from safeconsumer._kafka.network import NetworkSelector
from tests.sim.lab import play
from tests.sim.world import DeadlockError, EndlessError, NotYetError, Process, World


def run(main, seed=0, **more):
    """Run, in a world, a function that needs no Kafka."""
    world = World(seed, **more)
    return world.run(lambda: main(world))


def threads(*targets):
    found = [threading.Thread(target=one) for one in targets]
    for one in found:
        one.start()
    return found


def test_threads_and_locks_are_real_outside_a_world():
    seen = []
    own = threading.get_ident()
    thread = threading.Thread(target=lambda: seen.append(threading.get_ident() == own))
    thread.start()
    thread.join()
    assert seen == [False]
    assert type(threading.Lock()).__module__ == "_thread"
    assert type(threading.RLock()).__module__ == "_thread"


def deadlock(_):
    one, other = threading.Lock(), threading.Lock()

    def takes(first, second):
        with first:
            time.sleep(1)
            second.acquire()

    for this in threads(lambda: takes(one, other), lambda: takes(other, one)):
        this.join()


def timers_for_ever(_):
    threads(lambda: [time.sleep(60) for _ in range(10_000)])
    threading.Event().wait()


def failing_thread(world):
    def fails():
        time.sleep(5)
        message = "as planned"
        raise RuntimeError(message)

    threads(fails)
    world.sleep(1000)


def turns_without_sleep(world):
    """Other tasks get their turns, but time hardly passes."""
    threads(lambda: [world.give_way() for _ in range(10**7)])
    world.sleep(1e6)


ENDED = {
    deadlock: (DeadlockError, r"(?s)virtual second 1\.0.* takes.* takes"),
    timers_for_ever: (NotYetError, "still waiting after 7200 virtual seconds"),
    failing_thread: (RuntimeError, "as planned"),
    turns_without_sleep: (EndlessError, "50000 turns without sleep"),
}


@pytest.mark.parametrize("main", ENDED, ids=lambda main: main.__name__)
def test_world_that_cannot_continue_raises_an_error_with_the_reason(main):
    error, reason = ENDED[main]
    with pytest.raises(error, match=reason):
        run(main, limit=7200)


def test_loop_that_logs_an_error_forever_is_stopped(monkeypatch):
    """kafka-python's metadata loop once wrote 7 GB of logs in one turn."""

    def no_timers(*_):
        message = "as planned"
        raise TypeError(message)

    play(lambda _: None)  # a warm-up world runs before the first world of a process
    monkeypatch.setattr(NetworkSelector, "call_later", no_timers)
    with pytest.raises(EndlessError, match=r"(?s)20000 looks at .* _refresh_loop <"):
        play(lambda lab: lab.member(SafeConsumer, "orders"))


def test_busy_processes_do_not_slow_each_other_down():
    """The same turns in a single process would take 76 virtual seconds."""

    def main(world):
        def work():
            for _ in range(100):
                world.give_way()

        tasks = [world.spawn(work, process=Process(str(one))) for one in range(100)]
        world.until(lambda: all(one.dead for one in tasks))
        return world.now

    assert run(main) < 2


@pytest.mark.parametrize("fails", [False, True])
def test_finished_world_is_garbage_collected(*, fails, caplog):
    """One process runs hundreds of worlds, and a failed world leaves unfinished threads."""
    # A captured log record would keep the frames of its error.
    caplog.set_level("CRITICAL", "kafka")
    worlds = []

    def scenario(lab):
        worlds.append(weakref.ref(lab.world))
        lab.topic("orders", 1, records=1)
        member = lab.member(SafeConsumer, "orders")
        lab.until(lambda: member.records)
        lab.until(lambda: not fails, 1)

    with pytest.raises(NotYetError) if fails else nullcontext():
        play(scenario)
    gc.collect()
    assert [world() for world in worlds] == [None]


def test_world_names_and_unwinds_the_threads_that_run_at_its_end():
    world, ended = World(), []

    def stays():
        try:
            time.sleep(1e6)
        finally:
            ended.append(True)

    def main():
        threading.Thread(target=stays, name="stays").start()
        time.sleep(1)

    world.run(main)
    assert world.still_ran == ("test/stays",)
    assert ended == [True]


@pytest.mark.parametrize("seed", range(5))
def test_lock_admits_one_thread_at_a_time(seed):
    def main(_):
        lock, count = threading.Lock(), [0]

        def add():
            for _ in range(20):
                with lock:
                    was = count[0]
                    time.sleep(0.001)
                    count[0] = was + 1

        for one in threads(add, add, add):
            one.join()
        return count[0]

    assert run(main, seed, preempt=0.2) == 60


def test_world_leaves_no_thread_behind():
    """Python would create a dummy thread for the first task, and keep it forever."""
    before, seen = set(threading.enumerate()), []
    World().run(lambda: seen.append(threading.current_thread()))
    assert seen == [threading.main_thread()]
    assert set(threading.enumerate()) <= before


def _life_of_a_group(lab):
    """Return the requests of two different consumers and a producer, with two faults."""
    lab.topic("t", 4, records=20)
    a = lab.member(SafeConsumer, "t", name="a")
    b = lab.member(KafkaConsumer, "t", name="b")
    a.owns(2)
    b.owns(2)
    sender = KafkaProducer(**lab.connection)
    for number in range(40):
        sender.send("t", b"%d" % number, partition=number % 4)
    lab.network.reset(a.process)
    sender.close()
    lab.freeze(b.process)
    a.owns(4)
    lab.thaw(b.process)
    b.owns(2)
    a.stop()
    b.stop()
    return lab.history()


@pytest.fixture
def drawing():
    """Draw random numbers on a real thread, as an unclosed client of another test does."""
    stop = []

    def draw():
        while not stop:
            random.uniform(0.8, 1.2)  # noqa: S311 - as the client does

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    yield
    stop.append(True)
    thread.join()


@pytest.mark.usefixtures("drawing")
@pytest.mark.parametrize(
    ("seed", "preempt"),
    [pytest.param(0, 0.0, marks=pytest.mark.nightly), (1, 0.05)],
)
def test_same_seed_gives_the_same_history(seed, preempt):
    """Every request arrives in the same microsecond, from the same client."""
    first = play(_life_of_a_group, seed, nodes=3, preempt=preempt)
    assert first == play(_life_of_a_group, seed, nodes=3, preempt=preempt)
    assert len(first) > 100


def test_different_seeds_give_different_histories():
    assert len({play(_life_of_a_group, seed, nodes=3) for seed in range(3)}) == 3


def test_end_of_a_world_logs_no_error(caplog):
    """kafka-python would log an unwound thread as a crash."""

    def leave(lab):
        lab.topic("t", 1, records=1)
        member = lab.member(KafkaConsumer, "t")
        lab.until(lambda: member.records)

    play(leave)
    assert [
        one.getMessage() for one in caplog.records if one.levelname == "ERROR"
    ] == []
