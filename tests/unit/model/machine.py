"""The state machine: random histories of one member, judged at every step."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from kafka.structs import TopicPartition

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Lifetime
from tests.unit.model import checks, finale
from tests.unit.model.broker import How
from tests.unit.model.group import Kind, Partitions
from tests.unit.model.member import Mode, ModelMember
from tests.unit.model.subject import SafeSubject

SCOPES = (
    scopes.partition("a", 0),
    scopes.partition("a", 1),
    scopes.partition("b", 0),
    scopes.topic("a"),
    scopes.topic("c"),
    scopes.pattern(re.compile("a|c")),
    scopes.pattern(re.compile("b.*")),
    scopes.Everything(),
)
ROOMY, TIGHT = 2**26, 250

places = st.integers(0, 5)
scope_choices = st.sampled_from(SCOPES)
UNTIL_RESUMED = Lifetime.UNTIL_RESUMED
owners = st.sampled_from(("app", "app", "ops"))
durations = st.sampled_from((None, None, None, 1.0, 5.0))
lifetimes = st.sampled_from((UNTIL_RESUMED,) * 2 + (Lifetime.WHILE_ASSIGNED,))
hows = st.sampled_from((How.DATA,) * 5 + tuple(How))
numbers = st.sampled_from((1, 1, 2, 3, 50))
masks = st.sampled_from((63, 63, 0)) | st.integers(0, 63)
kinds = st.sampled_from(Kind)

pauses = st.tuples(st.just("pause"), scope_choices, owners, durations, lifetimes)
resumes = st.tuples(st.just("resume"), scope_choices, owners)
answers = st.tuples(st.just("answer"), places, hows, st.integers(1, 3))
ticks = st.tuples(st.just("tick"), st.sampled_from((0.5, 2.0, 6.0)))
seeks = st.tuples(st.just("seek"), places, st.none() | st.integers(0, 8))
reassignments = st.tuples(st.just("assign_from_elsewhere"), masks)

# What another thread, the network or time can do in the middle of a call, and where.
this = st.just(("pause_this",))
points = st.sampled_from(("wait", "parse", "append", "drained"))
elsewhere = st.one_of(this, pauses, resumes, answers, ticks, reassignments)
waiting = st.tuples(st.just("wait"), answers)
interruptions = st.one_of(
    st.just([]),
    waiting.map(lambda one: [one]),
    st.lists(st.tuples(points, elsewhere), min_size=1, max_size=2),
    st.tuples(waiting, st.tuples(points, elsewhere)).map(list),
    st.tuples(st.tuples(points, this), st.tuples(points, reassignments)).map(list),
    st.tuples(points, this).map(lambda one: [one]),
)
in_listener = st.none() | pauses | resumes | seeks

Act = tuple[Any, ...]


def step(**strategies: st.SearchStrategy[Any]) -> Callable[..., Any]:
    """Make a rule; after one has failed the history is not ended but left."""

    def decorate(function: Callable[..., None]) -> Any:  # noqa: ANN401 - Hypothesis' own
        @functools.wraps(function)
        def guarded(self: Model, **drawn: Any) -> None:  # noqa: ANN401 - drawn values
            try:
                function(self, **drawn)
                checks.check(self.member)
            except BaseException:
                self.is_broken = True
                raise
            type(self).steps["rule calls"] += 1

        return rule(**strategies)(guarded)

    return decorate


class Model(RuleBasedStateMachine):
    """Our consumer; the subjects with planted faults are subclasses."""

    subject: ClassVar[Any] = SafeSubject
    sights: ClassVar[Counter[str]] = Counter()
    steps: ClassVar[Counter[str]] = Counter()

    member: ModelMember
    is_broken = False

    @initialize(
        mode=st.sampled_from((Mode.GROUP, Mode.GROUP, Mode.MANUAL, Mode.SOLO)),
        iterates=st.booleans(),
        cap=st.sampled_from((ROOMY, TIGHT)),
        counts=st.lists(st.integers(0, 6), min_size=4, max_size=4),
        commits=st.booleans(),
        is_slow=st.sampled_from((False, False, True)),
    )
    def begin(
        self,
        mode: Mode,
        cap: int,
        counts: list[int],
        *,
        iterates: bool,
        commits: bool,
        is_slow: bool,
    ) -> None:
        self.member = ModelMember(
            self.subject,
            mode,
            iterates=iterates,
            parked_max_bytes=cap,
            is_slow=is_slow,
        )
        for tp, count in zip(self.member.existing(), counts, strict=True):
            if count:
                self.member.broker.logs[tp].append(count, 0)
        self._rebalance(63, Kind.EAGER)
        for _ in range(2):  # what is committed, where the logs begin
            self.member.read(1)
            self.member.answer_all()
        self.member.read(1)
        if commits:
            self.member.commit()

    # ------------------------------------------------------------ what can happen

    @step(mask=masks, count=st.integers(1, 4), gap=st.sampled_from((0, 0, 0, 2)))
    def produce(self, mask: int, count: int, gap: int) -> None:
        for tp in sorted(self.member.pick(mask)):
            self.member.broker.logs[tp].append(count, gap)

    @step()
    def send(self) -> None:
        self.member.fetcher.send_fetches()

    @step(act=answers)
    def respond(self, act: Act) -> None:
        self._do(act)

    @step(n=numbers, meanwhile=interruptions)
    def read(self, n: int, meanwhile: list[tuple[str, Act]]) -> None:
        self._interrupt(meanwhile)
        self.member.read(n)

    @step(act=answers, n=numbers, meanwhile=interruptions)
    def respond_and_read(
        self, act: Act, n: int, meanwhile: list[tuple[str, Act]]
    ) -> None:
        self._do(act)
        self._interrupt(meanwhile)
        self.member.read(n)

    @step(n=numbers, meanwhile=interruptions)
    def respond_all_and_read(self, n: int, meanwhile: list[tuple[str, Act]]) -> None:
        self.member.answer_all()
        self._interrupt(meanwhile)
        self.member.read(n)

    @step(act=pauses)
    def pause(self, act: Act) -> None:
        self._do(act)

    @step(is_topic=st.booleans(), owner=owners, lifetime=lifetimes)
    def pause_what_is_buffered(
        self, owner: str, lifetime: Lifetime, *, is_topic: bool
    ) -> None:
        for tp in self.member.truth.flowing_buffered():
            scope = scopes.topic(tp.topic) if is_topic else scopes.partition(*tp)
            self.member.pause(scope, owner, None, lifetime)
            return

    @step(n=numbers, fewer=st.integers(1, 14), kind=kinds)
    def pause_the_assignment_and_gain(self, n: int, fewer: int, kind: Kind) -> None:
        self.member.commit()
        self._rebalance(fewer, kind)
        self.member.read(1)
        for tp in sorted(self.member.truth.owned):
            self.member.pause(scopes.partition(*tp), "app", None, UNTIL_RESUMED)
        self.member.answer_all()
        self._rebalance(63, kind)
        self.member.read(n)

    @step(n=numbers, point=points)
    def pause_what_is_being_read(self, n: int, point: str) -> None:
        self.member.answer_all()
        self._interrupt([(point, ("pause_this",))])
        self.member.read(n)

    @step(at=places)
    def resume_a_hold(self, at: int) -> None:
        holds = list(self.member.truth.holds.holds.values())
        if holds:
            hold = holds[at % len(holds)]
            self.member.resume(hold.scope, hold.owner)

    @step(n=numbers)
    def resume_all_and_read(self, n: int) -> None:
        for hold in list(self.member.truth.holds.holds.values()):
            self.member.resume(hold.scope, hold.owner)
        self.member.read(n)

    @step(act=resumes)
    def resume(self, act: Act) -> None:
        self._do(act)

    @step(act=ticks)
    def tick(self, act: Act) -> None:
        self._do(act)

    @step(act=seeks)
    def seek(self, act: Act) -> None:
        self._do(act)

    @step()
    def commit(self) -> None:
        self.member.commit()

    @step(
        mask=masks,
        kind=kinds,
        is_split=st.booleans(),
        act=in_listener,
        n=numbers,
        meanwhile=interruptions,
    )
    def rebalance(
        self,
        mask: int,
        kind: Kind,
        act: Act | None,
        n: int,
        meanwhile: list[tuple[str, Act]],
        *,
        is_split: bool,
    ) -> None:
        self._rebalance(mask, kind, is_split=is_split, act=act)
        self._interrupt(meanwhile)
        self.member.read(n)

    @step(
        kind=kinds,
        commits=st.booleans(),
        reads=st.booleans(),
        other=st.integers(0, 2),
        n=numbers,
    )
    def lose_and_regain(
        self, kind: Kind, other: int, n: int, *, commits: bool, reads: bool
    ) -> None:
        if commits:
            self.member.answer_all()
            self.member.read(1)
            self.member.commit()
        mask = self.member.mask(self.member.truth.owned)
        if reads:
            self._rebalance(0, kind)
            self.member.read(1)
        elif self.member.mode is Mode.GROUP:
            kind = Kind.LOST  # the only one that takes and gives in one poll
        else:
            self._rebalance(0, kind)
        if other:
            self.member.consume_elsewhere(self._partition(other), other)
        self._rebalance(mask, kind)
        self.member.read(n)

    @step(at=places, count=st.integers(1, 3))
    def consume_elsewhere(self, at: int, count: int) -> None:
        self.member.consume_elsewhere(self._partition(at), count)

    @step(what=st.sampled_from(("grow", "grow", "unsubscribe", "restart", "start")))
    def upheaval(self, what: str) -> None:
        if what == "grow":
            self._grow()
        elif what == "unsubscribe":
            self.member.unsubscribe()
        else:
            self.member.stop()
            self.member.start(start_paused=what == "start")

    def _grow(self) -> None:
        for tp in (TopicPartition("a", 2), TopicPartition("c", 0)):
            if tp not in self.member.broker.logs:
                self.member.broker.create(tp)
                return

    @step()
    def catch_up(self) -> None:
        finale.catch_up(self.member, "L2")

    def teardown(self) -> None:
        """End the history, if it got that far, and keep what was seen."""
        if not hasattr(self, "member"):
            return
        if not self.is_broken:
            finale.end(self.member)
            type(self).steps["histories"] += 1
        type(self).sights.update(self.member.sights)

    # ------------------------------------------------------------ how it is done

    def _partition(self, at: int) -> TopicPartition:
        existing = self.member.existing()
        return existing[at % len(existing)]

    def _do(self, act: Act) -> None:
        match act:
            case ("tick", seconds):
                self.member.truth.pass_time(seconds)
            case ("seek", at, offset):
                self.member.seek(self._partition(at), offset)
            case ("assign_from_elsewhere", mask):
                self.member.assign_from_elsewhere(self.member.pick(mask))
            case (name, *arguments):
                getattr(self.member, name)(*arguments)

    def _interrupt(self, meanwhile: list[tuple[str, Act]]) -> None:
        self.member.interruptions = [
            (point, functools.partial(self._do, act)) for point, act in meanwhile
        ]

    def _rebalance(
        self, mask: int, kind: Kind, *, is_split: bool = False, act: Act | None = None
    ) -> None:
        if self.member.group.join is not None:
            return  # one is under way; the next poll completes it

        def listener(_: Partitions) -> None:
            if act is not None:
                self.member.sights["the listener acted"] += 1
                self._do(act)

        self.member.rebalance(
            self.member.pick(mask), kind, is_split=is_split, listener=listener
        )
