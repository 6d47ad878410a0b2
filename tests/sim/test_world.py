"""The world itself: its clock, its turns, its threads, and that a seed is a history."""

import asyncio
import queue
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from safeconsumer import SafeConsumer
from tests.sim.lab import Lab, play
from tests.sim.world import DeadlockError, NotYetError, World


def run(main: Callable[[World], Any], seed: int = 0, **more: float) -> Any:  # noqa: ANN401 - what main returns
    """Play a function that needs no Kafka."""
    world = World(seed, **more)
    return world.run(lambda: main(world))


def threads(*targets: Callable[[], Any]) -> list[threading.Thread]:
    """Start a thread for each function."""
    found = [threading.Thread(target=one) for one in targets]
    for one in found:
        one.start()
    return found


def test_an_hour_passes_at_once_on_every_clock() -> None:
    """All clocks move together, by what is slept and by a little more."""

    def main(_: World) -> list[float]:
        clocks = (time.monotonic, time.time, time.perf_counter)
        before = [clock() for clock in clocks]
        time.sleep(3600)
        return [clock() - was for clock, was in zip(clocks, before, strict=True)]

    assert all(3600 <= passed < 3600.01 for passed in run(main))


def test_outside_a_world_all_is_as_it_was() -> None:
    """The patch does nothing to a thread, a lock or a clock that no world made."""
    seen: list[bool] = []
    own = threading.get_ident()
    thread = threading.Thread(target=lambda: seen.append(threading.get_ident() == own))
    thread.start()
    thread.join()
    assert seen == [False]
    assert type(threading.Lock()).__module__ == "_thread"
    assert type(threading.RLock()).__module__ == "_thread"


def test_a_real_thread_is_no_part_of_a_world() -> None:
    """What another thread of the operating system does meanwhile stays real."""
    go, found = threading.Event(), []

    def real() -> None:
        go.wait()
        found.append((time.monotonic() < 1e9, type(threading.Lock()).__module__))

    thread = threading.Thread(target=real)
    thread.start()
    run(lambda _: go.set())
    thread.join()
    assert found[0][1] == "_thread"


def test_nobody_can_run_and_nothing_is_due_is_told_at_once() -> None:
    """A deadlock names every task, and where it waits."""
    one, other = [], []

    def main(_: World) -> None:
        one.append(threading.Lock())
        other.append(threading.Lock())
        for this in threads(lambda: takes(one, other), lambda: takes(other, one)):
            this.join()

    def takes(first: list[Any], second: list[Any]) -> None:
        with first[0]:
            time.sleep(1)
            second[0].acquire()

    with pytest.raises(DeadlockError) as told:
        run(main)
    assert str(told.value).count(" takes") == 2
    assert "virtual second 1.0" in str(told.value)


def test_what_never_comes_ends_at_the_worlds_limit() -> None:
    """Timers that go on for ever are no deadlock; the limit tells where all stand."""

    def main(_: World) -> None:
        threads(lambda: [time.sleep(60) for _ in range(10_000)])
        threading.Event().wait()

    with pytest.raises(NotYetError, match="still waiting after 7200 virtual seconds"):
        run(main, limit=7200)


def test_an_exception_in_a_thread_comes_out_of_the_world() -> None:
    """A thread that dies of an exception fails the test, at once."""

    def fails() -> None:
        time.sleep(5)
        message = "as planned"
        raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="as planned"):
        run(lambda world: (threads(fails), world.sleep(1000)))


def test_a_world_says_at_its_end_which_threads_still_ran() -> None:
    """They are named, and unwound: their ``finally`` runs."""
    world, ended = World(), []

    def stays() -> None:
        try:
            time.sleep(1e6)
        finally:
            ended.append(True)

    def main() -> None:
        threading.Thread(target=stays, name="stays").start()
        time.sleep(1)

    world.run(main)
    assert world.still_ran == ("test/stays",)
    assert ended == [True]


@pytest.mark.parametrize("seed", range(5))
def test_a_lock_lets_one_in(seed: int) -> None:
    """Locks exclude each other's holders, also where turns are lost at each."""

    def main(_: World) -> int:
        lock, count = threading.Lock(), [0]

        def add() -> None:
            for _ in range(20):
                with lock:
                    was = count[0]
                    time.sleep(0.001)
                    count[0] = was + 1

        for one in threads(add, add, add):
            one.join()
        return count[0]

    assert run(main, seed, preempt=0.2) == 60


def test_a_lock_waits_as_long_as_it_was_told() -> None:
    """A timeout is exact; without waiting nothing is waited for."""

    def main(world: World) -> tuple[bool, bool, float]:
        lock = threading.Lock()
        lock.acquire()
        began = world.now
        was_taken = lock.acquire(blocking=False)
        return was_taken, lock.acquire(timeout=7), world.now - began

    was_taken, came, passed = run(main)
    assert (was_taken, came) == (False, False)
    assert 7 <= passed < 7.01


def test_a_reentrant_lock_belongs_to_its_thread() -> None:
    """Its owner may take it again, another thread may not."""

    def main(_: World) -> list[bool]:
        lock, seen = threading.RLock(), []
        with lock, lock:
            (other,) = threads(lambda: seen.append(lock.acquire(timeout=1)))
            other.join()
        return seen

    assert run(main) == [False]


def test_conditions_events_barriers_and_semaphores_are_pythons_own() -> None:
    """They are made of locks, and wait in virtual time."""

    def main(world: World) -> tuple[bool, bool, int, float]:
        condition, event = threading.Condition(), threading.Event()
        barrier, semaphore = threading.Barrier(2), threading.Semaphore(0)

        def other() -> None:
            time.sleep(10)
            with condition:
                condition.notify_all()
            time.sleep(10)
            event.set()
            barrier.wait()
            semaphore.release()

        threads(other)
        with condition:
            was_told = condition.wait(60)
        was_set = event.wait(60)
        barrier.wait()
        semaphore.acquire()
        assert not semaphore.acquire(timeout=40)
        with condition:
            assert not condition.wait_for(lambda: False, 40)
        return was_told, was_set, barrier.n_waiting, world.now

    was_told, was_set, waiting, now = run(main)
    assert (was_told, was_set, waiting) == (True, True, 0)
    assert 100 <= now < 100.1


def test_queues_of_both_kinds_hand_over_and_time_out() -> None:
    """queue.Queue and queue.SimpleQueue wait in virtual time."""

    def main(_: World) -> list[int]:
        got = []
        for one in (queue.Queue(1), queue.SimpleQueue()):
            threads(lambda one=one: [one.put(n) for n in range(5)])
            got += [one.get(timeout=1) for _ in range(5)]
            with pytest.raises(queue.Empty):
                one.get(timeout=1000)
        return got

    assert run(main) == [0, 1, 2, 3, 4] * 2


def test_timers_and_thread_pools_run_in_virtual_time() -> None:
    """threading.Timer and concurrent.futures are Python's own."""

    def main(world: World) -> tuple[list[float], list[int], float]:
        fired: list[float] = []
        threading.Timer(30, lambda: fired.append(world.now)).start()
        never = threading.Timer(40, lambda: fired.append(-1.0))
        never.start()
        never.cancel()
        with ThreadPoolExecutor(2) as pool:
            squares = list(pool.map(lambda n: time.sleep(100) or n * n, range(4)))
        return fired, squares, world.now

    fired, squares, now = run(main)
    assert squares == [0, 1, 4, 9]
    assert [round(at, 1) for at in fired] == [30.0]
    assert 200 <= now < 200.1


def test_threads_have_names_numbers_and_an_end() -> None:
    """Each thread is itself to Python, and joins as one."""

    def main(_: World) -> list[Any]:
        seen: list[Any] = []

        def tell() -> None:
            own = threading.current_thread()
            seen.append((own.name, own.ident == threading.get_ident(), own.is_alive()))
            time.sleep(5)

        one = threading.Thread(target=tell, name="one")
        seen.append(one.is_alive())
        one.start()
        one.join(1)
        seen.append((one.is_alive(), one in threading.enumerate()))
        one.join()
        seen.append((one.is_alive(), one in threading.enumerate()))
        with pytest.raises(RuntimeError, match="only be started once"):
            one.start()
        return seen

    assert run(main) == [False, ("one", True, True), (True, True), (False, False)]


def test_a_world_leaves_no_thread_behind() -> None:
    """Of what it runs first Python would make a dummy, and keep it for ever."""
    before, seen = set(threading.enumerate()), []
    World().run(lambda: seen.append(threading.current_thread()))
    assert seen == [threading.main_thread()]
    assert set(threading.enumerate()) <= before


def test_two_loops_of_asyncio_run_beside_each_other() -> None:
    """Each simulated thread has a running loop of its own."""

    def main(_: World) -> list[tuple[str, int]]:
        seen: list[tuple[str, int]] = []

        async def count(name: str, every: float) -> None:
            for number in range(3):
                await asyncio.sleep(every)
                seen.append((name, number))

        one, other = threads(
            lambda: asyncio.run(count("slow", 20)),
            lambda: asyncio.run(count("quick", 15)),
        )
        one.join()
        other.join()
        return seen

    slow, quick = ("slow", "quick")
    expected = [(quick, 0), (slow, 0), (quick, 1), (slow, 1), (quick, 2), (slow, 2)]
    assert run(main) == expected


def test_a_seed_decides_who_is_next() -> None:
    """Threads that could all run are drawn: the same for one seed, not for all."""

    def main(_: World) -> tuple[int, ...]:
        seen: list[int] = []
        for one in threads(*[lambda n=n: seen.append(n) for n in range(6)]):
            one.join()
        return (*seen, uuid.uuid4().int)

    orders = [run(main, seed) for seed in range(20)]
    assert orders == [run(main, seed) for seed in range(20)]
    assert len(set(orders)) == 20


def _life_of_a_group(lab: Lab) -> tuple[Any, ...]:
    """Two clients of two kinds, a producer, a cut: what the brokers were asked."""
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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("preempt", [0.0, 0.05])
def test_the_same_seed_is_the_same_history(seed: int, preempt: float) -> None:
    """Every request comes at the same microsecond, from the same client, once more."""
    first = play(_life_of_a_group, seed, nodes=3, preempt=preempt)
    assert first == play(_life_of_a_group, seed, nodes=3, preempt=preempt)
    assert len(first) > 100


def test_another_seed_is_another_history() -> None:
    """Five seeds are five histories."""
    assert len({play(_life_of_a_group, seed, nodes=3) for seed in range(5)}) == 5
