"""
Programs that pause as people write them: one that is right on kafka-python is right here.

Each is played with both clients, as the only member of a group whose assignment the test
dictates, and is judged by what it believes: a record that comes while it had said stop is
a leak; a partition that gives nothing at the end, though it has said go, is a stall.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import pytest
from attrs import Factory, define, field, frozen
from kafka import KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.abstract import ConsumerProtocolAssignment

from safeconsumer import SafeConsumer
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.reading import COOPERATIVE, EAGER, Listener

A = [TopicPartition("a", number) for number in range(4)]
B = TopicPartition("b", 0)

# Turns, of a second each. Programs are busy between the first two.
BUSY, FREE, END = 2, 10, 18
CHANGE, LATER = 4, 13

REBALANCE, LOADING = 27, 14  # Kafka's codes


# ------------------------------------------------------------ programs


class Program:
    """
    Does something in each turn, before it polls.

    Attributes:
        topics: what it subscribes to; one partition of ``b`` is always assigned to those
            that read it.
        is_ours_only: whether it calls what kafka-python has not.
        is_busy: whether it has said stop.
        turn: the number of the turn.
        own: partitions that it remembers, with the turn until which it does.
    """

    topics: ClassVar[Sequence[str]] = ("a",)
    is_ours_only: ClassVar[bool] = False

    def __init__(self, consumer: KafkaConsumer) -> None:
        self.consumer = consumer
        self.is_busy = False
        self.turn = 0
        self.own: dict[TopicPartition, int] = {}

    def on_turn(self) -> None:
        """Pause or resume."""
        if self.turn == BUSY:
            self.stop()
            self.is_busy = True
        if self.turn == FREE:
            self.go()
            self.is_busy = False

    def stop(self) -> None:
        """Pause what it pauses."""
        self.consumer.pause(*self.consumer.assignment())

    def go(self) -> None:
        """Resume it."""
        self.consumer.resume(*self.consumer.assignment())

    def on_record(self, tp: TopicPartition) -> None:
        """Take a record."""

    def on_assigned(self, tps: set[TopicPartition]) -> None:
        """Take partitions."""

    def on_revoked(self, tps: set[TopicPartition]) -> None:
        """Give partitions up."""

    def says_stop(self, tp: TopicPartition) -> bool:  # noqa: ARG002 - for children
        """Tell whether it wants nothing of a partition now."""
        return self.is_busy


class Flag(Program):
    """``pause(*assignment())`` once, ``resume(*assignment())`` once."""


class ResumePaused(Program):
    """The same, with ``resume(*paused())``."""

    def go(self) -> None:
        self.consumer.resume(*self.consumer.paused())


class Saved(Program):
    """It resumes the list that it has paused."""

    def stop(self) -> None:
        self.own = dict.fromkeys(self.consumer.assignment(), 0)
        self.consumer.pause(*self.own)

    def go(self) -> None:
        self.consumer.resume(*self.own)


class SavedByValue(Saved):
    """The same, of partitions that it has made anew, as out of JSON."""

    def stop(self) -> None:
        made = (TopicPartition(*tp) for tp in self.consumer.assignment())
        self.own = dict.fromkeys(made, 0)
        self.consumer.pause(*self.own)


class SavedGuarded(Saved):
    """It resumes what of the list is assigned."""

    def go(self) -> None:
        for tp in self.own:
            if tp in self.consumer.assignment():
                self.consumer.resume(tp)


class OneByOne(Program):
    """``for tp in assignment(): pause(tp)``, and the same to resume."""

    def stop(self) -> None:
        for tp in self.consumer.assignment():
            self.consumer.pause(tp)

    def go(self) -> None:
        for tp in self.consumer.assignment():
            self.consumer.resume(tp)


class Again(Program):
    """It pauses twice: what was paused, for a moment not, and then again."""

    def stop(self) -> None:
        super().stop()
        paused = self.consumer.paused()
        self.consumer.resume(*paused)
        self.consumer.pause(*paused)


class EachTurn(Program):
    """Each turn it pauses what is not paused yet, or resumes what is."""

    def on_turn(self) -> None:
        self.is_busy = BUSY <= self.turn < FREE
        paused = self.consumer.paused()
        if self.is_busy:
            self.consumer.pause(*(self.consumer.assignment() - paused))
        else:
            self.consumer.resume(*paused)


class Loop(Program):
    """The loop of KAFKA-13463: each turn it pauses everything."""

    def on_turn(self) -> None:
        self.is_busy = BUSY <= self.turn < FREE
        if self.is_busy:
            self.stop()
        elif self.turn == FREE:
            self.go()


class OwnSet(Program):
    """Each turn it pauses what is not in a set of its own, and resumes that set."""

    def on_turn(self) -> None:
        self.is_busy = BUSY <= self.turn < FREE
        new = self.consumer.assignment() - set(self.own)
        if self.is_busy and new:
            self.consumer.pause(*new)
            self.own.update(dict.fromkeys(new, 0))
        elif not self.is_busy and self.own:
            for tp in self.own:
                resumed(self.consumer, tp)
            self.own.clear()


class ListenerPauses(Program):
    """Its listener pauses what is gained while it is busy."""

    def on_assigned(self, tps: set[TopicPartition]) -> None:
        if self.is_busy:
            self.consumer.pause(*tps)


class ListenerTidiesUp(Program):
    """Its listener resumes what is revoked, and pauses all that is assigned."""

    def on_revoked(self, tps: set[TopicPartition]) -> None:
        if self.is_busy:
            self.consumer.resume(*(tps & self.consumer.assignment()))

    def on_assigned(self, tps: set[TopicPartition]) -> None:  # noqa: ARG002 - all of it
        if self.is_busy:
            self.stop()


class Unsubscribing(Program):
    """It pauses everything, and subscribes anew to be free."""

    def go(self) -> None:
        listener = listener_of(self)
        self.consumer.unsubscribe()
        self.consumer.subscribe(list(self.topics), listener=listener)


class Work(Program):
    """It pauses a partition while its batch is worked on; a guard before the resume."""

    seconds = 3

    def on_turn(self) -> None:
        for tp, until in list(self.own.items()):
            if self.turn >= until:
                del self.own[tp]
                self.done(tp)

    def done(self, tp: TopicPartition) -> None:
        """Resume a partition."""
        if tp in self.consumer.assignment():
            self.consumer.resume(tp)

    def on_record(self, tp: TopicPartition) -> None:
        if self.turn < LATER and tp not in self.own:
            self.consumer.pause(tp)
            self.own[tp] = self.turn + self.seconds

    def says_stop(self, tp: TopicPartition) -> bool:
        return tp in self.own


class WorkForgets(Work):
    """The same, and it forgets what is revoked."""

    def on_revoked(self, tps: set[TopicPartition]) -> None:
        for tp in tps:
            self.own.pop(tp, None)


class WorkUnguarded(Work):
    """The same, with no guard but an ``except KeyError``."""

    def done(self, tp: TopicPartition) -> None:
        resumed(self.consumer, tp)


class Backoff(Work):
    """One record fails, and its partition waits; a guard before the resume."""

    seconds = 8
    has_failed = False

    def on_record(self, tp: TopicPartition) -> None:
        if not self.has_failed and self.turn >= BUSY and tp == A[0]:
            self.has_failed = True
            super().on_record(tp)


class BackoffForgets(Backoff, WorkForgets):
    """The same, and it forgets what is revoked."""


class Quarantine(Backoff):
    """One partition is paused for good."""

    seconds = 1000


class OneTopic(Program):
    """It pauses one of two topics, by a filter over ``assignment()``."""

    topics = ("a", "b")

    def mine(self) -> list[TopicPartition]:
        """Return what is assigned of it."""
        return [tp for tp in self.consumer.assignment() if tp.topic == "a"]

    def stop(self) -> None:
        self.consumer.pause(*self.mine())

    def go(self) -> None:
        self.consumer.resume(*self.mine())

    def says_stop(self, tp: TopicPartition) -> bool:
        return self.is_busy and tp.topic == "a"


class Priority(OneTopic):
    """Topic ``a`` waits, each turn, until enough has come of topic ``b``."""

    count = 0

    def on_turn(self) -> None:
        if self.turn >= BUSY:
            self.is_busy = self.count < LATER
            (self.stop if self.is_busy else self.go)()

    def on_record(self, tp: TopicPartition) -> None:
        self.count += tp.topic == "b"


class OtherThread(Program):
    """Another thread pauses and resumes, while it polls."""

    def on_turn(self) -> None:
        if self.turn in {BUSY, FREE}:
            threading.Thread(target=self.act, args=(self.turn == BUSY,)).start()

    def act(self, is_busy: bool) -> None:  # noqa: FBT001 - a thread's argument
        """Pause or resume, in the middle of a poll or after it."""
        time.sleep(0.1)
        (self.stop if is_busy else self.go)()
        self.is_busy = is_busy


class Restoring(Program):
    """Its listener pauses what is gained; it resumes each when it is restored."""

    def on_assigned(self, tps: set[TopicPartition]) -> None:
        self.consumer.pause(*tps)
        for number, tp in enumerate(sorted(tps)):
            self.own[tp] = self.turn + 2 + number

    def on_revoked(self, tps: set[TopicPartition]) -> None:
        for tp in tps:
            self.own.pop(tp, None)

    def on_turn(self) -> None:
        for tp, until in sorted(self.own.items()):
            if self.turn >= until:
                del self.own[tp]
                self.consumer.resume(tp)

    def says_stop(self, tp: TopicPartition) -> bool:
        return tp in self.own


class TwoAtOnce(Program):
    """A flag and a backoff share it: one partition is resumed while the flag is set."""

    def on_turn(self) -> None:
        super().on_turn()
        if self.turn == BUSY + 1 and A[0] in self.consumer.assignment():
            self.consumer.resume(A[0])
            self.own[A[0]] = 0

    def says_stop(self, tp: TopicPartition) -> bool:
        return self.is_busy and tp not in self.own


class OwnersQuarantine(Quarantine):
    """One partition is paused for good, by an owner of its own; a flag comes and goes."""

    is_ours_only = True

    def on_turn(self) -> None:
        Program.on_turn(self)

    def on_record(self, tp: TopicPartition) -> None:
        if self.turn == 1 and tp == A[0]:
            self.consumer.pause(tp, owner="quarantine")
            self.own[tp] = END

    def says_stop(self, tp: TopicPartition) -> bool:
        return self.is_busy or tp in self.own


class PauseAll(Program):
    """It pauses the whole consumer."""

    is_ours_only = True
    topics = ("a", "b")

    def stop(self) -> None:
        self.consumer.pause_all()

    def go(self) -> None:
        self.consumer.resume_all()


def resumed(consumer: KafkaConsumer, tp: TopicPartition) -> None:
    """Resume what may have left."""
    with suppress(KeyError):
        consumer.resume(tp)


def listener_of(program: Program) -> Listener:
    """Return the listener with which a program subscribes."""
    return Listener(assigned=program.on_assigned, revoked=program.on_revoked)


# ------------------------------------------------------------ situations


@frozen
class Situation:
    """
    What happens to the assignment.

    Attributes:
        first: what is assigned first.
        changes: by turn, what is assigned from then on.
        lost_at: the turn in which the membership is lost; it joins again at once, or
            where the first change is later, not before that.
    """

    first: Collection[TopicPartition]
    changes: Mapping[int, Collection[TopicPartition]]
    lost_at: int = -1


SITUATIONS = {
    "gained": Situation(A[:2], {CHANGE: A}),
    "exchanged": Situation(A[:1], {CHANGE: A[1:2]}),
    "away, back": Situation(A, {CHANGE: A[1:3], CHANGE + 3: A}),
    "away at go": Situation(A[:2], {CHANGE: A[1:2], LATER: A[:2]}),
    "idle at go": Situation(A[:1], {CHANGE: [], LATER: A[:1]}),
    "lost, back": Situation(A[:2], {CHANGE: A[:2]}, lost_at=CHANGE),
    "lost, more": Situation(A[:2], {CHANGE: A}, lost_at=CHANGE),
    "lost at go": Situation(A[:2], {LATER: A[:2]}, lost_at=CHANGE),
}


class Dictated:
    """Assigns what it is told to, whoever joins."""

    wanted: Collection[TopicPartition] = ()

    def assign(self, _: object, members: Iterable[Any]) -> dict[str, Any]:
        """Give everything to the only member."""
        (member,) = members
        by_topic: dict[str, list[int]] = {}
        for tp in self.wanted:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        given = ConsumerProtocolAssignment(self.version, [*by_topic.items()], b"")  # type: ignore[attr-defined]  # the assignor's
        return {member.member_id: given}


class DictatedEagerly(Dictated, EAGER):
    """Of the eager kind."""


class DictatedCooperatively(Dictated, COOPERATIVE):
    """Of the cooperative kind."""


# ------------------------------------------------------------ the judge


@define
class Verdict:
    """
    How a program fared.

    Attributes:
        leaked: how many records came while it had said stop.
        stalled: the partitions that gave nothing at the end.
        raised: what upstream's calls raised into it.
    """

    leaked: int = 0
    stalled: set[TopicPartition] = field(default=Factory(set))
    raised: list[str] = field(default=Factory(list))

    def __str__(self) -> str:
        letters = {"L": self.leaked, "S": self.stalled, "E": self.raised}
        return "".join(letter for letter, found in letters.items() if found) or "."


class Stage:
    """One program, one client, one situation."""

    def __init__(
        self,
        lab: Lab,
        program: type[Program],
        kind: type[KafkaConsumer],
        assignor: Any,  # noqa: ANN401 - one of the two above
    ) -> None:
        self.lab = lab
        self.assignor = assignor
        self.group = f"of-{kind.__name__}"
        self.consumer = kind(
            **lab.settings(
                group_id=self.group,
                partition_assignment_strategy=[assignor],
                heartbeat_interval_ms=400,
            ),
            **({"log": False} if kind is SafeConsumer else {}),
        )
        self.program = program(self.consumer)
        self.consumer.subscribe(
            list(program.topics), listener=listener_of(self.program)
        )
        self.verdict = Verdict()
        self.refusal: Any = None
        self.newest: dict[TopicPartition, int] = {}

    def play(self, situation: Situation) -> Verdict:
        """Play it to the end."""
        self._assign(situation.first)
        began = self.lab.now
        for turn in range(END):
            self.program.turn = turn
            if turn == situation.lost_at:
                self._lose(until=min(situation.changes))
            if turn in situation.changes:
                self._assign(situation.changes[turn])
            for tp in (*A, B):
                self.lab.append(tp, 1, first=turn)
            self._guarded(self.program.on_turn)
            self._poll(until=began + turn + 0.7)
            self.lab.sleep(max(0.0, began + turn + 1 - self.lab.now))
        self.verdict.stalled = {
            tp
            for tp in self.consumer.assignment()
            if not self.program.says_stop(tp) and self.newest.get(tp, 0) < END - 3
        }
        self.consumer.close(autocommit=False)
        return self.verdict

    def _poll(self, until: float) -> None:
        self._take()
        while self._is_joining() and self.lab.now < until:
            self._take()

    def _is_joining(self) -> bool:
        is_told = set(self.consumer.assignment()) == set(self.assignor.wanted)
        return not is_told and self.refusal is None

    def _take(self) -> None:
        for tp, batch in self.consumer.poll(300, max_records=500).items():
            self.verdict.leaked += len(batch) * self.program.says_stop(tp)
            self.newest[tp] = int(batch[-1].value)
            self._guarded(partial(self.program.on_record, tp))

    def _assign(self, tps: Collection[TopicPartition]) -> None:
        self.assignor.wanted = [*tps, *([B] if "b" in self.program.topics else [])]
        if self.refusal is not None:
            self.refusal.end()
            self.refusal = None
        elif self.lab.members(self.group):
            self.lab.cluster.fail("Heartbeat", error=REBALANCE, count=1)

    def _lose(self, until: int) -> None:
        group = self.lab.cluster.groups.find(self.group)
        for member in list(group.members):
            group.leave(member)
        if until > self.program.turn:
            self.refusal = self.lab.cluster.fail("JoinGroup", error=LOADING)

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except KeyError as error:  # kafka-python's, for what is not assigned
            self.verdict.raised.append(str(error))


def played(
    lab: Lab,
    program: type[Program],
    kind: type[KafkaConsumer],
    name: str,
    assignor: type,
) -> str:
    """Play one program with one client in one situation; return the verdict's letters."""
    if program.is_ours_only and kind is KafkaConsumer:
        return "-"
    for topic, count in (("a", 4), ("b", 1)):
        if lab.cluster.topics.get(topic) is not None:
            lab.cluster.delete_topic(topic)
        lab.topic(topic, count)
    return str(Stage(lab, program, kind, assignor()).play(SITUATIONS[name]))


# ------------------------------------------------------------ the table

TABLE = """
Flag                        L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
ResumePaused                L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
Saved                       L/.    LE/.   L/.    LE/.   LE/.   L/.    L/.    LE/.
SavedByValue                L/L    LE/L   L/L    LE/.   LE/.   L/.    L/L    LE/.
SavedGuarded                L/.    L/S    L/.    ./.    ./S    L/.    L/.    ./S
OneByOne                    L/.    L/.    L/.    ./.    ./S    L/.    L/.    ./S
Again                       L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
EachTurn                    L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
Loop                        L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
OwnSet                      L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
ListenerPauses              ./.    ./.    ./.    ./.    ./.    ./.    ./.    ./.
ListenerTidiesUp            ./.    ./.    ./.    ./.    ./.    ./.    ./.    ./.
Unsubscribing               L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
Work                        ./.    ./.    ./.    ./.    ./.    L/.    L/.    ./S
WorkForgets-eager           S/S    ./.    S/S    S/S    ./.    ./S    ./S    ./S
WorkForgets-cooperative     ./.    ./.    ./.    ./.    ./.    ./S    ./S    ./S
WorkUnguarded               ./.    ./.    ./.    ./.    ./.    L/.    L/.    ./.
Backoff                     ./.    ./.    L/L    ./.    ./.    L/.    L/.    ./S
BackoffForgets-eager        S/S    ./.    ./.    ./.    ./.    ./S    ./S    ./S
BackoffForgets-cooperative  ./.    ./.    ./.    ./.    ./.    ./S    ./S    ./S
Quarantine                  ./.    ./.    L/L    L/L    L/L    L/.    L/.    L/.
OneTopic                    L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
Priority                    L/.    L/.    ?/.    ./.    ./.    L/.    L/.    L/.
OtherThread                 L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
Restoring                   ./.    ./.    ./.    ./.    ./.    ./.    ./.    ./.
TwoAtOnce                   L/L    L/L    L/L    ./.    ./.    L/.    L/L    ./.
OwnersQuarantine            -/.    -/.    -/.    -/.    -/.    -/.    -/.    -/.
PauseAll                    -/.    -/.    -/.    -/.    -/.    -/.    -/.    -/.
"""
"""
By program and situation: what goes wrong with kafka-python / with ours, with either kind
of assignor but where a row names one. L: leak, S: stall, E: an error of kafka-python's,
?: what comes first, the next pause or what was gained, is a matter of chance there.
"""

EXCEPTED: dict[str, set[str]] = {
    "resumed one by one, or by a loop, while nothing of it was assigned": {
        "SavedGuarded, idle at go",
        "SavedGuarded, lost at go",
        "OneByOne, idle at go",
        "OneByOne, lost at go",
    },
    # P7 says that a pause is held after a lost membership, P3 that no program that is
    # right on kafka-python stalls. These are both; one of the two has to give way.
    "forgotten by the listener, or passed over by a guard, in a lost membership": {
        "Work, lost at go",
        "WorkForgets-eager, lost, back",
        "WorkForgets-eager, lost, more",
        "WorkForgets-eager, lost at go",
        "WorkForgets-cooperative, lost, back",
        "WorkForgets-cooperative, lost, more",
        "WorkForgets-cooperative, lost at go",
        "Backoff, lost at go",
        "BackoffForgets-eager, lost, back",
        "BackoffForgets-eager, lost, more",
        "BackoffForgets-eager, lost at go",
        "BackoffForgets-cooperative, lost, back",
        "BackoffForgets-cooperative, lost, more",
        "BackoffForgets-cooperative, lost at go",
    },
}
"""The programs that are right on kafka-python and stall here, and why that is known."""


def rows() -> dict[str, dict[str, str]]:
    """Return the table's cells, by program, or program and assignor, and situation."""
    found = {}
    for line in TABLE.strip().splitlines():
        name, *cells = line.split()
        found[name] = dict(zip(SITUATIONS, cells, strict=True))
    return found


PROGRAMS = {
    one.__name__: one
    for one in list(globals().values())
    if isinstance(one, type) and issubclass(one, Program) and one is not Program
}
ASSIGNORS = {"eager": DictatedEagerly, "cooperative": DictatedCooperatively}


def expected(program: str, assignor: str, situation: str) -> str:
    """Return a cell of the table."""
    table = rows()
    row = table.get(f"{program}-{assignor}") or table[program]
    return row[situation]


def played_by_day(number: int, assignor: str) -> bool:
    """Let every second game be of the eager kind by day, and the others of the other."""
    return number % 2 == [*ASSIGNORS].index(assignor)


GAMES = [
    pytest.param(
        program,
        assignor,
        situation,
        id=f"{program}-{situation}-{assignor}",
        marks=[] if played_by_day(row + column, assignor) else pytest.mark.nightly,
    )
    for row, program in enumerate(PROGRAMS)
    for column, situation in enumerate(SITUATIONS)
    for assignor in ASSIGNORS
]


@pytest.mark.contract("P3", "P6", "P7")
@pytest.mark.parametrize(("program", "assignor", "situation"), GAMES)
@simulated(seeds=1, nightly=10)
def test_a_program_as_people_write_it(
    lab: Lab, program: str, assignor: str, situation: str
) -> None:
    """Both clients do what the table says, and no more than that goes wrong."""
    stock, ours = (
        played(lab, PROGRAMS[program], kind, situation, ASSIGNORS[assignor])
        for kind in (KafkaConsumer, SafeConsumer)
    )
    cell = expected(program, assignor, situation)
    assert f"{stock}/{ours}" == cell.replace("?", stock)


@pytest.mark.contract("P3")
def test_what_is_right_on_kafka_python_is_right_here() -> None:
    """By the table, but for what is excepted by name; the exceptions are all needed."""
    worse = {
        f"{name}, {situation}"
        for name, cells in rows().items()
        for situation, cell in cells.items()
        if cell.startswith("./") and cell != "./."
    }
    assert worse == set().union(*EXCEPTED.values())


@pytest.mark.contract("P7")
def test_it_leaks_only_where_kafka_python_leaks() -> None:
    """By the table."""
    cells = [cell for row in rows().values() for cell in row.values()]
    ours = [cell.split("/") for cell in cells]
    assert [one for one in ours if "L" in one[1] and "L" not in one[0]] == []
