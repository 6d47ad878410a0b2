"""
The subject of one run: a consumer whose broker answers by hand, and what is seen of it.

The only file here that knows more of ``SafeConsumer`` than its public names.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self
from unittest import mock

import kafka.util
from attrs import define, field, frozen
from kafka.coordinator.assignors.cooperative_sticky import (
    CooperativeStickyAssignor,
)
from kafka.coordinator.base import MemberState
from kafka.future import Future
from kafka.protocol.consumer import HeartbeatResponse
from kafka.structs import TopicPartition

from safeconsumer import Hold, SafeConsumer
from safeconsumer._kafka.fixes import timers
from safeconsumer.holds.hold import WHOLE
from safeconsumer.holds.ownership import Cause
from tests.harness.explorer.engine import InfeasibleError
from tests.system.explorer.broker import END, ONE, THREE, TOPIC, TWO, Broker
from tests.system.explorer.network import (
    Client,
    Cluster,
    IoThread,
    Manager,
    Net,
    Request,
    spawn,
)
from tests.system.explorer.waits import others_may_come

OTHER_TOPIC = "audit"
GROUP, MANUAL, ALONE = "group", "manual", "alone"
"""
Who assigns: the group, the user, or the IO thread to a subscription without a group.
"""

_UNKNOWN_MEMBER, _REBALANCING = 25, 27


@define(eq=False)
class Call:
    """One call that reads: a ``poll`` or a step of an iteration."""

    began: int  # on the stage's count of steps, as each of these
    # When it made its last check of what is quiet, from when to when.
    checked: tuple[int, int] | None = None
    ended: int = 0
    offsets: dict[TopicPartition, list[int]] = field(factory=dict)  # what it delivered


@define(eq=False)
class Start:
    """Something that decides where reading goes on."""

    tp: TopicPartition
    offset: int
    began: int  # it took effect between this step and the next one
    ended: int
    why: str  # for the report


@define(eq=False)
class Held:
    """A hold as the application sees it."""

    covers: frozenset[TopicPartition]
    owner: str
    began: int  # when the call that placed it began, and next when it had returned
    since: int


@frozen
class Lifted:
    """Something that may have ended a hold."""

    # Exactly what the hold covers; None: whatever it covers.
    covers: frozenset[TopicPartition] | None
    owner: str
    began: int
    ended: int


@frozen
class Free:
    """What a call that lifts holds answered, and what was seen right after it."""

    asked: frozenset[TopicPartition]
    own: frozenset[Hold]  # the holds that it was to lift
    is_in_handler: bool  # whether a signal handler called
    answer: tuple[Hold, ...]
    before: tuple[Hold, ...]
    paused: frozenset[TopicPartition]
    after: tuple[Hold, ...]

    @property
    def holds(self) -> tuple[Hold, ...]:
        """Holds that were there before or after the question for what is quiet."""
        return (*self.before, *self.after)

    @property
    def stayed(self) -> tuple[Hold, ...]:
        """Holds that were there before and after."""
        return tuple(hold for hold in self.before if hold in self.after)


class _TwoTries(float):
    """A deadline that lets a step of an iteration ask twice, without waiting."""

    def __new__(cls) -> Self:
        return super().__new__(cls, 0.0)

    def __init__(self) -> None:
        self._left = 2

    def __gt__(self, _: object) -> bool:
        self._left -= 1
        return self._left >= 0


class _Consumer(SafeConsumer):
    """Ours; its iteration does not wait."""

    def _set_consumer_timeout(self) -> None:
        self._consumer_timeout = _TwoTries()


class _WatchedLock:
    """
    A lock that says who of a signal handler's calls took it.

    One that the IO thread has, played by the thread that the handler interrupts, is no
    deadlock: the real IO thread goes on meanwhile, and gives it back.
    """

    def __init__(self, lock: Any, name: str, stage: Stage) -> None:  # noqa: ANN401 - either
        self._lock = lock
        self._name = name
        self._stage = stage
        self._taken_by_io = 0

    def acquire(self, *args: Any, **kwargs: Any) -> bool:  # noqa: ANN401 - as a lock
        io = self._stage.io
        if io.in_handler:
            if self._taken_by_io:
                raise InfeasibleError
            self._stage.taken_in_handler.add(self._name)
        is_taken = bool(self._lock.acquire(*args, **kwargs))
        if is_taken and (self._taken_by_io or io.is_played_here()):
            self._taken_by_io += 1
        return is_taken

    def release(self) -> None:
        if self._taken_by_io:
            self._taken_by_io -= 1
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Stage:
    """
    One consumer with its broker, and a diary of what happened.

    Args:
        mode: who assigns.
        is_cooperative: whether the group rebalances in steps.
        watches_locks: whether upstream's locks that a signal handler takes are noted.
    """

    def __init__(
        self, mode: str, *, is_cooperative: bool = False, watches_locks: bool = False
    ) -> None:
        self._mode = mode
        self._ticks = itertools.count(1)
        self.now = 1000.0
        self.calls: list[Call] = []
        self.starts: list[Start] = []
        self.holds: list[Held] = []
        self.lifted: list[Lifted] = []
        self.freed: list[Free] = []
        self.events: list[Any] = []
        self.is_closed = False
        self.is_reassigned = False
        self.may_rewind = False
        self._reading = threading.local()
        self._gained: dict[TopicPartition, int] = {}
        self._missing: dict[int, frozenset[TopicPartition]] = {}
        self.io = IoThread()
        self.broker = Broker(self.tick)
        self.broker.on_start = self._started
        self.cluster = Cluster({TOPIC: {0, 1, 2}, OTHER_TOPIC: {0}})
        net = Net(self.io, self._wait)
        manager = Manager(net, self.cluster, self._send)
        _clock.set_back()
        random.seed(7)  # upstream shuffles what it assigns
        self.consumer = self._made(manager, is_cooperative=is_cooperative)
        self.taken_in_handler: set[str] = set()
        if watches_locks:
            self._watch_locks()
        self._watch_checks()
        self._watch_assignment()
        self._begin()
        self.events.clear()
        self.is_reassigned = False

    def tick(self) -> int:
        return next(self._ticks)

    # ------------------------------------------------------------ making

    def _made(self, manager: Manager, *, is_cooperative: bool) -> SafeConsumer:
        more: dict[str, Any] = {}
        if is_cooperative:
            more["partition_assignment_strategy"] = (CooperativeStickyAssignor,)
        consumer = _Consumer(
            kafka_client=lambda **_: Client(manager),
            group_id=None if self._mode == ALONE else "g",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            enable_incremental_fetch_sessions=False,
            metrics_enabled=False,
            retry_backoff_ms=1,
            decoder="python",
            hooks=(self.events.append,),
            **more,
        )
        consumer._safe_ledger._clock = lambda: self.now
        consumer._coordinator.coordinator_id = 0
        consumer._coordinator._maybe_start_heartbeat_loop = lambda: None
        return consumer

    def _watch_locks(self) -> None:
        consumer = self.consumer
        parts: dict[str, Any] = {
            "subscription": consumer._subscription,
            "coordinator": consumer._coordinator,
        }
        for name, part in parts.items():
            part._lock = _WatchedLock(part._lock, name, self)

    def _watch_checks(self) -> None:
        # Which look at what is quiet was a call's last: nothing else tells, from
        # outside, whether a pause had returned before it.
        fetcher, ledger = self.consumer._fetcher, self.consumer._safe_ledger
        put_back_quiet, quiet = fetcher.put_back_quiet, ledger.quiet

        def checked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the original
            with self._checking(is_step=False):
                return put_back_quiet(*args, **kwargs)

        def looked() -> Any:  # noqa: ANN401 - as the original
            with self._checking(is_step=True):
                return quiet()

        fetcher.put_back_quiet = checked
        ledger.quiet = looked

    def _watch_assignment(self) -> None:
        ledger = self.consumer._safe_ledger
        assign = ledger.assign

        def assigned(
            assignment: Iterable[TopicPartition], cause: Cause = Cause.JOINED
        ) -> None:
            before, now = self._owned(), set(assignment)
            began = self.tick()
            assign(now, cause)
            self.is_reassigned |= before != now
            for tp in now - before:
                self._gained[tp] = self.tick()
            # Plain pauses end where what was decided leaves their partition out.
            for tp in _EVERYTHING - now if cause is not Cause.PASSING else ():
                self.note_lifted(frozenset({tp}), "app", began)
            if cause in {Cause.ASSIGNED, Cause.UNSUBSCRIBED}:
                self.note_lifted(None, WHOLE, began)

        ledger.assign = assigned

    @contextmanager
    def _checking(self, *, is_step: bool) -> Iterator[None]:
        call, of_step = getattr(self._reading, "call", (None, False))
        began = self.tick()
        yield
        if call is not None and of_step is is_step:
            call.checked = began, self.tick()

    def _begin(self) -> None:
        if self._mode == MANUAL:
            self.broker.member = None
            self.consumer.assign([ONE, TWO])
            self.consumer.seek(ONE, 0)
            self.consumer.seek(TWO, 0)
            self.consumer.poll(0)
            return
        self.broker.committed = {ONE: 0, TWO: 0}
        self.consumer.subscribe([TOPIC])
        if self._mode == ALONE:
            self.have_partitions(0, 1)
        else:
            self._join()
        self.consumer.seek(ONE, 0)
        self.consumer.seek(TWO, 0)
        for _ in range(3):
            self.consumer.poll(0)
            if self.broker.of("Fetch"):
                break
            self.answer_all()
        assert self.consumer.assignment() == {ONE, TWO}
        assert self.broker.of("Fetch")
        self.starts.clear()

    def _join(self) -> None:
        # As after a join, without its requests: it takes half the time.
        coordinator = self.consumer._coordinator
        coordinator._generation = generation = self.broker.admit()
        coordinator._joined_subscription = {TOPIC}
        coordinator.state = MemberState.STABLE
        coordinator.rejoin_needed = False
        with self.io.step():
            done = spawn(
                coordinator._on_join_complete_async(
                    generation.generation_id,
                    generation.member_id,
                    next(iter(coordinator._assignors)),
                    self.broker.assigned(),
                )
            )
        assert done.succeeded(), done.exception

    # ------------------------------------------------------------ the diary

    def _started(self, request: Request, tp: TopicPartition, offset: int) -> None:
        # An answer decides only for the ownership that it was asked in, and only where
        # no position was known then.
        is_missing = tp in self._missing.get(id(request.future), ())
        if self._gained.get(tp, 0) <= request.asked_at and is_missing:
            self.starts.append(
                Start(tp, offset, request.asked_at, request.asked_at, request.api)
            )

    @contextmanager
    def reading(self, *, is_step: bool) -> Iterator[Call]:
        """Note what a call delivers: put the offsets into what this yields."""
        call = Call(self.tick())
        self._reading.call = call, is_step
        try:
            yield call
        finally:
            self._reading.call = None, False
            call.ended = self.tick()
            self.calls.append(call)

    # ------------------------------------------------------------ the application

    def poll(
        self, timeout_ms: float = 0, most: int | None = None
    ) -> dict[int, list[int]]:
        with self.reading(is_step=False) as call:
            records = self.consumer.poll(timeout_ms, max_records=most)
            call.offsets = {
                tp: [one.offset for one in found] for tp, found in records.items()
            }
        return {tp.partition: found for tp, found in call.offsets.items()}

    def step(self) -> tuple[int, int] | None:
        with self.reading(is_step=True) as call:
            record = next(self.consumer, None)
            if record is None:
                return None
            tp = TopicPartition(record.topic, record.partition)
            call.offsets = {tp: [record.offset]}
        return record.partition, record.offset

    def pause(self, *targets: Any, owner: str = "app", **how: Any) -> None:  # noqa: ANN401 - as pause()
        """Pause, and remember that it had returned."""
        began = self.tick()
        self.consumer.pause(*targets, owner=owner, **how)
        for one in targets:
            self.note_held(_covered([one]), owner, began)

    def pause_assigned(self) -> None:
        """Pause what is assigned, which pauses its topics whole."""
        assigned = self.consumer.assignment()
        began = self.tick()
        self.pause(*assigned)
        for topic in {tp.topic for tp in assigned}:
            self.note_held(_covered([topic]), WHOLE, began)

    def pause_all(self, *, owner: str = "app") -> None:
        """Pause everything, and remember that it had returned."""
        began = self.tick()
        self.consumer.pause_all(owner=owner)
        self.note_held(_EVERYTHING, owner, began)

    def note_held(
        self, covers: frozenset[TopicPartition], owner: str, began: int
    ) -> None:
        """Remember a hold whose call has returned."""
        self.holds.append(Held(covers, owner, began, self.tick()))

    def resume_assigned(self) -> None:
        self.resume(*self.consumer.assignment())

    def resume(self, *targets: Any, owner: str = "app") -> None:  # noqa: ANN401 - as resume()
        """Resume, and remember the answer and what was to be seen then."""
        began, here, before = self.tick(), self._owned(), self.consumer.holds()
        try:
            answer = self.consumer.resume(*targets, owner=owner)
        finally:
            for one in targets:
                self.note_lifted(_covered([one]), owner, began)
            if owner == "app":
                self._note_spoken(began, here)
        scopes = {_text(one) for one in targets}
        own = frozenset(
            hold for hold in before if hold.owner == owner and str(hold.scope) in scopes
        )
        self._note_freed(_covered(targets), own, before, answer)

    def resume_all(self, *, owner: str = "app") -> None:
        """Resume everything, and remember the answer and what was to be seen then."""
        began, here, before = self.tick(), self._owned(), self.consumer.holds()
        try:
            answer = self.consumer.resume_all(owner=owner)
        finally:
            self.note_lifted(None, owner, began)
            if owner == "app":
                self._note_spoken(began, here)
        own = frozenset(hold for hold in before if hold.owner == owner)
        self._note_freed(_EVERYTHING, own, before, answer)

    def _owned(self) -> set[TopicPartition]:
        return set(self.consumer._safe_ledger.ownership().epochs)

    def _note_spoken(self, began: int, owned: set[TopicPartition]) -> None:
        # A resume of the application ends whole pauses, and plain ones of what is away.
        self.note_lifted(None, WHOLE, began)
        for tp in _EVERYTHING - owned.intersection(self._owned()):
            self.note_lifted(frozenset({tp}), "app", began)

    def note_lifted(
        self, covers: frozenset[TopicPartition] | None, owner: str, began: int
    ) -> None:
        """Remember that a hold may have ended since then."""
        self.lifted.append(Lifted(covers, owner, began, self.tick()))

    def _note_freed(
        self,
        asked: frozenset[TopicPartition],
        own: frozenset[Hold],
        before: tuple[Hold, ...],
        answer: tuple[Hold, ...],
    ) -> None:
        paused, after = frozenset(self.quiet()), self.consumer.holds()
        self.freed.append(
            Free(asked, own, self.io.in_handler, answer, before, paused, after)
        )

    def seek(self, tp: TopicPartition, offset: int) -> None:
        began = self.tick()
        self.consumer.seek(tp, offset)
        self.note_start(tp, offset, began, "seek")

    def note_start(self, tp: TopicPartition, offset: int, began: int, why: str) -> None:
        """Remember that reading is to go on elsewhere."""
        self.starts.append(Start(tp, offset, began, self.tick(), why))

    def expire(self) -> None:
        """Let a minute pass for holds."""
        began = self.tick()
        self.now += 60
        self.note_lifted(None, "expiring", began)

    def close(self) -> None:
        try:
            self.consumer.close(timeout_ms=5)
        finally:
            self.is_closed = True

    # ------------------------------------------------------------ questions

    def quiet(self) -> set[TopicPartition]:
        return {TopicPartition(*tp) for tp in self.consumer._safe_ledger.view().quiet}

    def positions(self) -> dict[TopicPartition, int | None]:
        """Return where each assigned partition stands; None if that is to be found out."""
        return {
            tp: None if state.position is None else state.position.offset
            for tp, state in self.consumer._subscription.assignment.items()
        }

    def is_settled(self) -> bool:
        """Tell whether no join is wanted or under way."""
        coordinator = self.consumer._coordinator
        return not coordinator.need_rejoin()

    def flush(self) -> None:
        self.consumer.holds()
        self.consumer._safe_ledger.deliver()

    def lift_everything(self) -> None:
        self.resume()  # whole pauses
        for hold in self.consumer.holds():
            match type(hold.scope).__name__:
                case "Partition":
                    tp = TopicPartition(hold.scope.topic, hold.scope.partition)
                    self.resume(tp, owner=hold.owner)
                case "Topic":
                    self.resume(hold.scope.topic, owner=hold.owner)
                case "Everything":
                    self.resume_all(owner=hold.owner)

    # ------------------------------------------------------------ the broker

    def _send(self, body: Any) -> Future:  # noqa: ANN401 - upstream's
        # Whose position is missing now is what the answer may decide.
        future = self.broker.take(body)
        assignment = self.consumer._subscription.assignment
        self._missing[id(future)] = frozenset(
            tp for tp, state in assignment.items() if state.position is None
        )
        return future

    def _wait(self, future: Future) -> None:
        others_may_come()
        while not future.is_done:
            if not self._answer_next():
                break

    def _answer_next(self) -> bool:
        with self.io.step():
            return self.broker.answer_next()

    def answer(self, requests: Iterable[Request]) -> None:
        """Answer requests, as the IO thread gets them."""
        for one in list(requests):
            with self.io.step():
                self.broker.answer(one)

    def answer_all(self) -> None:
        """Answer what waits, but for what is kept."""
        while self._answer_next():
            pass

    def heartbeat(self, error: int) -> None:
        with self.io.step(), suppress(Exception):
            self.consumer._coordinator._handle_heartbeat_response(
                HeartbeatResponse(version=3, error_code=error), 0.0
            )

    def ask_to_rejoin(self, *plan: TopicPartition) -> None:
        """Have the group rebalance: the consumer is told, and will be given the plan."""
        self.broker.plan = plan
        self.heartbeat(_REBALANCING)

    def expel(self) -> None:
        """Remove the consumer from its group; another member goes on, and commits."""
        self.broker.expel()
        for tp in (ONE, TWO):
            read = [
                offsets[-1] + 1
                for call in self.calls
                if (offsets := call.offsets.get(tp))
            ]
            committed = self.broker.committed.get(tp, 0)
            self.broker.commit_elsewhere(tp, min(END, max([committed, *read]) + 1))
        self.heartbeat(_UNKNOWN_MEMBER)

    def have_partitions(self, *numbers: int) -> None:
        """Have the topic's partitions change; without a group the IO thread assigns them."""
        with self.io.step():
            self.cluster.known[TOPIC] = set(numbers)
            self.cluster.refreshed()

    # ------------------------------------------------------------ the end

    def end(self) -> None:
        """Close what may be open still."""
        self.broker.kept.clear()
        self.io.in_handler = False
        with suppress(Exception):
            self.consumer.close(autocommit=False, timeout_ms=0)


_EVERYTHING = frozenset({ONE, TWO, THREE, TopicPartition(OTHER_TOPIC, 0)})


def _text(target: Any) -> str:  # noqa: ANN401 - a partition or a topic
    return target if isinstance(target, str) else f"{target.topic}:{target.partition}"


def _covered(targets: Iterable[Any]) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for one in targets:
        if isinstance(one, TopicPartition):
            found.add(one)
        else:
            found.update(tp for tp in _EVERYTHING if tp.topic == one)
    return frozenset(found)


class _Clock:
    """The clock of upstream's timeouts: each look at it takes a millisecond."""

    def __init__(self) -> None:
        self.set_back()

    def set_back(self) -> None:
        self._looks = itertools.count(1)

    def monotonic(self) -> float:
        return next(self._looks) / 1000


_clock = _Clock()


@contextmanager
def rehearsed() -> Iterator[None]:
    """Make runs repeatable and quiet: timeouts by a clock of their own, no log lines."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            mock.patch.object(kafka.util, "time", _clock),
            mock.patch.object(timers, "time", _clock),  # it looks at upstream's
        ):
            yield
    finally:
        logging.disable(level)
