"""
Runs two calls so that they meet: the whole second call runs at one point in the first.

The second call runs on another thread, or in a signal handler on the same thread, or it
is an event outside the program, such as a broker's response or the passing of time. A
place is a point at which Python may switch to another thread or run a signal handler.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from attrs import frozen
from kafka import TopicPartition
from kafka.errors import CommitFailedError, IllegalStateError, KafkaError

import safeconsumer
from safeconsumer import SafeConsumer
from tests.harness.holds.lab import EventLog
from tests.harness.signals import Places
from tests.sim.idioms import DictatedEagerly
from tests.sim.lab import GROUP
from tests.sim.reading import Reader

OURS = str(Path(safeconsumer.__file__).parent)
OWNERS = ("app", "ops")
# Virtual seconds for which one call waits for the other before the test continues.
_WAIT = 1.0


class Meeting:
    """
    A member that owns both partitions of a topic, and has read and committed everything.

    Attributes:
        held: the partitions that the second call left held.
        sought: the target of the second call's seek in the first partition, or None.
        places: the places at which the first call may be stopped.
    """

    def __init__(self, lab, how="poll"):
        self.lab = lab
        self.tps = lab.topic("t", 2)
        self.first, self.second = self.tps
        self.assignor = DictatedEagerly()
        self.assignor.wanted = self.tps
        self.log = EventLog()
        self.reader = Reader(
            lab,
            SafeConsumer,
            "t",
            how=how,
            assignor=self.assignor,
            hooks=[self.log],
        )
        self.consumer = self.reader.consumer
        self.count = 0  # the number of records in each partition
        self.held = set()
        self.sought = None
        self.is_handler = self.is_read = False
        self._has_returned = self._was_there = False
        mine = lab.world.task
        self.places = Places((OURS,), lambda: lab.world.task is mine)
        self._watch()
        self.reader.owns(self.tps)

    def _watch(self):
        """Record at the final check of each poll whether the second call had returned."""
        fetcher = self.consumer._fetcher
        put_back_quiet = fetcher.put_back_quiet

        def checked(records):
            self._was_there = self._has_returned
            return put_back_quiet(records)

        fetcher.put_back_quiet = checked
        for part in (self.consumer._subscription, self.consumer._coordinator):
            part._lock = _Watched(part._lock, self)

    def write(self):
        """Append two records to each partition, and let them arrive."""
        for tp in self.tps:
            self.lab.append(tp, 2, first=self.count)
        self.count += 2
        self.lab.sleep(0.01)

    def meet(self, a, b, at, mode):
        """Run call b at one point in call a; judge, and return whether a has reached it."""
        self._begin(a, b)
        self.is_read = a in READS.values()
        first, since = self.count - 2, len(self.reader.log)
        come, over = self._coming(b, mode)
        has_come = self.places.reach(at, lambda: self._run(a, b.disturbs), come)
        if not has_come:
            come()
        over()
        from_a = self.reader.log[since:]
        if self.reader.how == "poll" and has_come and self._was_there:
            came = [one for one in from_a if TopicPartition(*one[:2]) in self.held]
            assert came == [], f"P1: {self.held} was held"
        seen = len(self.reader.log)
        self._read_on()
        for tp in self.tps:
            parts = self.reader.offsets(tp, since), self.reader.offsets(tp, seen)
            self._judge(tp, first, *parts, repeats=a.repeats or b.repeats)
        return has_come

    def _begin(self, a, b):
        self.held, self.sought = set(), None
        self._has_returned = self._was_there = False
        for one in (a, b):
            one.prepare(self)
        self.log.events.clear()
        self._before = self._keys()
        self.write()

    def _run(self, one, disturbed=()):
        with suppress(*one.may_raise, *disturbed):
            return one.run(self)
        return None

    def _coming(self, b, mode):
        """Return two functions: one starts b, the other waits until b has ended."""
        if mode == "thread":
            thread = threading.Thread(target=self._come, args=(b,))

            def start():
                thread.start()
                thread.join(_WAIT)

            return start, thread.join

        def come():
            self.is_handler = mode == "handler"
            self._come(b)
            self.is_handler = False

        return come, lambda: None

    def _come(self, b):
        self.held = set(self._run(b) or ())
        self._has_returned = True

    def _keys(self):
        return {(str(one.scope), one.owner) for one in self.consumer.holds()}

    def _replay(self):
        """P14: a replay of the events yields the holds in force."""
        now, replayed = self._keys(), set(self._before)
        for event in self.log.events:
            keys = {(str(h.scope), h.owner) for h in getattr(event, "holds", ())}
            if event.name == "hold_placed":
                replayed |= keys
            elif event.name in {"hold_removed", "hold_expired", "hold_ended"}:
                replayed -= keys
        assert replayed == now, f"P14: by the events {replayed}"

    def _read_on(self):
        """Read, lift all holds, and read until everything is committed."""
        still = set()
        for hold in self.consumer.holds():
            still |= {tp for tp in self.tps if hold.scope.covers(tp)}
        before = len(self.reader.log)
        self.reader.poll(0.2)
        self._replay()
        came = {TopicPartition(*one[:2]) for one in self.reader.log[before:]}
        assert not came & still, f"P1: of {still} something came afterwards"
        assert self.held <= still or not self.is_read, f"P3: {self.held} was held"
        for tp in self.tps:
            most = max(self.reader.offsets(tp), default=-1) + 1
            assert (self.lab.committed(tp) or 0) <= most, "P8: committed, not delivered"
        self.consumer.resume()
        for owner in OWNERS:
            self.consumer.resume_all(owner)
        if not self.consumer.subscription():
            self.consumer.subscribe(["t"])
        self.reader.until(self._is_at_the_end, 60)

    def _is_at_the_end(self):
        last = [self.count - 1]
        if not all(self.reader.offsets(tp)[-1:] == last for tp in self.tps):
            return False
        # A commit fails if the member has lost its membership, and the member joins
        # again.
        with suppress(*_COMMITS):
            self.consumer.commit()
        return all(self.lab.committed(tp) == self.count for tp in self.tps)

    def _judge(self, tp, first, all_of_it, later, *, repeats):
        """P8: each record arrives once, in order, from the position where reading resumes."""
        from_a = all_of_it[: len(all_of_it) - len(later)]
        goes_on = {first + len(from_a)}
        allowed = []
        if repeats:  # a new ownership starts at the committed offset
            went_on = range(first + len(from_a), self.count)
            allowed += [
                [*went_on[:end], *range(first, self.count)]
                for end in range(len(went_on) + 1)
            ]
        if self.sought is not None and tp == self.first:
            goes_on = {self.sought, max([self.sought, *(one + 1 for one in from_a)])}
            if from_a[:1] != [self.sought]:
                goes_on = {self.sought}
        message = f"P8: {tp.partition}: {from_a}, then {later}"
        allowed += [[*range(one, self.count)] for one in goes_on]
        assert later in allowed, message


class _Watched:
    """One of kafka-python's locks, which a signal handler must not take (P12)."""

    def __init__(self, lock, meeting):
        self._lock, self._meeting = lock, meeting

    def __enter__(self):
        assert not self._meeting.is_handler, "P12: a handler takes a lock"
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()

    def __getattr__(self, name):
        return getattr(self._lock, name)


@frozen
class Call:
    """
    A call or another event.

    Attributes:
        run: makes the call, and returns the partitions that the call leaves held.
        prepare: is called before both calls start.
        may_raise: the exceptions that the call may raise.
        disturbs: the exceptions that the other call may raise because of this one.
        repeats: whether the call may start a new ownership, which starts at the committed
            offset.
        modes: the ways in which the call may run during another call.
    """

    run: Callable
    prepare: Callable = lambda _: None
    may_raise: tuple[type[Exception], ...] = ()
    disturbs: tuple[type[Exception], ...] = ()
    repeats: bool = False
    modes: tuple[str, ...] = ("thread",)


# ------------------------------------------------------------ interrupted calls


def _poll(it):
    it.reader.poll(0.1)


def _step(it):
    it.reader.poll(0.1, limit=1)


def _join(it):
    it.reader.poll(2)


def _asked_to_join(it):
    it.consumer._coordinator.request_rejoin()


def _one_away(it):
    it.assignor.wanted = [it.first]
    _asked_to_join(it)
    it.reader.owns([it.first])
    it.assignor.wanted = it.tps
    _asked_to_join(it)


READS = {
    "poll": Call(_poll),
    "step": Call(_step),
    "poll that joins": Call(_join, _asked_to_join, repeats=True),
    "poll that gains": Call(_join, _one_away, repeats=True),
}


# ------------------------------------------------------------ interrupting calls


def _pause(it):
    it.consumer.pause(it.first)
    return [it.first]


def _pause_both(it):
    it.consumer.pause(*it.tps)


def _pause_resume(it):
    it.consumer.pause(it.first)
    it.consumer.resume(it.first)


def _pause_assigned(it):
    assigned = it.consumer.assignment()
    it.consumer.pause(*assigned)
    return it.tps if assigned else []


def _resume_both(it):
    _is_free(it, it.consumer.resume(*it.tps))


def _resume_assigned(it):
    _is_free(it, it.consumer.resume(*it.consumer.assignment()))


def _is_free(it, answer):
    """P3, P10: assert that ``resume()`` returned no remaining hold, and nothing is quiet."""
    # The effect of a handler's call may be delayed.
    if it.is_read and not it.is_handler:
        assert answer == ()
        assert it.consumer.quiet() == set(), "P10: resume answered free"


def _all_and_back(it):
    it.consumer.pause_all(owner="ops")
    it.consumer.resume_all("ops")


def _block(it):
    with it.consumer.held(it.first):
        it.consumer.explain(it.first)


def _ask(it):
    consumer = it.consumer
    assert consumer.subscription() == {"t"}
    assert consumer.quiet() | consumer.paused() <= consumer.assignment()
    assert (consumer.holds(), consumer.explain(it.first)) == ((), ())


def _pause_seek(it):
    it.consumer.pause(it.first)
    it.consumer.seek(it.first, it.count - 1)
    it.sought = it.count - 1
    return [it.first]


def _commit(it):
    it.consumer.commit(timeout_ms=500)


def _pause_commit(it):
    it.consumer.pause(*it.tps)
    it.consumer.commit(timeout_ms=500)
    return it.tps


def _commit_async(it):
    it.consumer.commit_async()


def _again(it):
    it.consumer.unsubscribe()
    it.consumer.subscribe(["t"])


def _answers_come(it):
    it.lab.sleep(1)


def _hold_for_a_while(it):
    it.consumer.pause(it.first, owner="ops", for_=5)


def _its_time_passes(it):
    it.lab.sleep(6)


def _membership_is_lost(it):
    group = it.lab.cluster.groups.find(GROUP)
    for member in list(group.members):
        group.leave(member)
    it.lab.sleep(4)  # the next heartbeat reports the loss


def _request_to_join(it):
    _asked_to_join(it)
    it.lab.sleep(1)


_ANYWHERE = ("thread", "handler")
_COMMITS = (CommitFailedError, KafkaError, IllegalStateError)

HOLDS = {
    "pause": Call(_pause, modes=_ANYWHERE),
    "pause, resume": Call(_pause_resume, modes=_ANYWHERE),
    "resume both": Call(_resume_both, _pause_both, modes=_ANYWHERE),
    "pause(*assignment())": Call(_pause_assigned, modes=_ANYWHERE),
    "resume(*assignment())": Call(_resume_assigned, _pause_assigned, modes=_ANYWHERE),
    "pause_all, resume_all": Call(_all_and_back, modes=_ANYWHERE),
    "held": Call(_block, modes=_ANYWHERE),
}
OTHERS = {
    "questions": Call(_ask, modes=_ANYWHERE),
    "pause, seek": Call(_pause_seek, may_raise=(IllegalStateError,)),
    "commit": Call(_commit, may_raise=_COMMITS),
    "pause, commit": Call(_pause_commit, may_raise=_COMMITS),
    "commit_async": Call(_commit_async),
    "unsubscribe, subscribe": Call(_again, disturbs=(IllegalStateError,), repeats=True),
    "answers": Call(_answers_come, modes=("world",)),
    "an expiry": Call(_its_time_passes, _hold_for_a_while, modes=("world",)),
    "a loss": Call(_membership_is_lost, repeats=True, modes=("world",)),
    "a request to join": Call(_request_to_join, repeats=True, modes=("world",)),
}
COMING = {**HOLDS, **OTHERS}
