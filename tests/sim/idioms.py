"""
Programs that pause as users' programs do, with a verdict for both clients.

A test runs each program as the only member of a group and dictates its assignment. A
record that arrives while the program wants none is a leak. If the program wants a
partition's records when the test ends, but no longer receives them, that is a stall.
The programs run in the simulation (``test_idioms.py``) and on Kafka
(``tests/broker/parity``).
"""

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from itertools import product
from typing import ClassVar

import pytest
from attrs import astuple, frozen
from kafka import TopicPartition
from kafka.coordinator.assignors.abstract import ConsumerProtocolAssignment

from tests.sim.parity.stages import BareStage
from tests.sim.playing import of_this_run
from tests.sim.reading import COOPERATIVE, EAGER, Listener

A = [TopicPartition("a", number) for number in range(4)]
B = TopicPartition("b", 0)

# Numbers of turns. Programs are busy from turn BUSY to turn FREE.
BUSY, FREE, END = 2, 10, 18
CHANGE, LATER = 4, 13

# ------------------------------------------------------------ programs


class Program:
    """
    A program that acts in each turn, before it polls.

    Attributes:
        reads_b: whether it subscribes to topic ``b``, too; one partition of that topic
            is always assigned.
        is_ours_only: whether it calls methods that kafka-python lacks.
        is_busy: whether it wants no records.
        turn: the number of the turn.
        own: the partitions that the program remembers, each with the turn in which the
            program resumes it.
    """

    reads_b: ClassVar[bool] = False
    is_ours_only: ClassVar[bool] = False

    def __init__(self, consumer, prefix=""):
        self.consumer = consumer
        self.a, self.b = prefix + "a", prefix + "b"
        self.first = TopicPartition(self.a, 0)
        self.is_busy = False
        self.turn = 0
        self.own = {}

    def subscribe(self):
        topics = [self.a, self.b] if self.reads_b else [self.a]
        listener = Listener(assigned=self.on_assigned, revoked=self.on_revoked)
        self.consumer.subscribe(topics, listener=listener)

    def on_turn(self):
        """Pause or resume."""
        if self.turn == BUSY:
            self.stop()
            self.is_busy = True
        if self.turn == FREE:
            self.go()
            self.is_busy = False

    def stop(self):
        self.consumer.pause(*self.consumer.assignment())

    def go(self):
        self.consumer.resume(*self.consumer.assignment())

    def on_record(self, tp):
        """Handle a record of a partition."""

    def on_assigned(self, tps):
        """Handle assigned partitions."""

    def on_revoked(self, tps):
        """Handle revoked partitions."""

    def says_stop(self, tp):  # noqa: ARG002 - for subclasses
        """Return whether the program wants no record of a partition now."""
        return self.is_busy

    def is_working(self):
        """Return whether another thread of the program is still working in this turn."""
        return False


class Flag(Program):
    """The program calls ``pause(*assignment())`` once, and ``resume(*assignment())`` once."""


class ResumePaused(Program):
    """The program pauses like ``Flag``, and resumes with ``resume(*paused())``."""

    def go(self):
        self.consumer.resume(*self.consumer.paused())


class Saved(Program):
    """The program resumes the list of partitions that it has paused."""

    def stop(self):
        self.own = dict.fromkeys(self.consumer.assignment(), 0)
        self.consumer.pause(*self.own)

    def go(self):
        self.consumer.resume(*self.own)


class SavedByValue(Saved):
    """The program pauses and resumes equal copies of the partitions, like those from JSON."""

    def stop(self):
        made = (TopicPartition(*tp) for tp in self.consumer.assignment())
        self.own = dict.fromkeys(made, 0)
        self.consumer.pause(*self.own)


class SavedGuarded(Saved):
    """The program resumes the partitions of its list that are still assigned."""

    def go(self):
        for tp in self.own:
            if tp in self.consumer.assignment():
                self.consumer.resume(tp)


class OneByOne(Program):
    """The program pauses with ``for tp in assignment(): pause(tp)``, and resumes likewise."""

    def stop(self):
        for tp in self.consumer.assignment():
            self.consumer.pause(tp)

    def go(self):
        for tp in self.consumer.assignment():
            self.consumer.resume(tp)


class TheRest(ResumePaused):
    """The program pauses the partitions that ``paused()`` does not list."""

    def stop(self):
        self.consumer.pause(*(self.consumer.assignment() - self.consumer.paused()))


class UnlessPaused(Program):
    """A busy program pauses all partitions if none is paused; an idle one resumes all."""

    def on_turn(self):
        self.is_busy = BUSY <= self.turn < FREE
        if not self.is_busy:
            self.consumer.resume(*self.consumer.paused())
        elif not self.consumer.paused():
            self.stop()


class Again(Program):
    """The program pauses everything, resumes everything briefly, and pauses it again."""

    def stop(self):
        super().stop()
        paused = self.consumer.paused()
        self.consumer.resume(*paused)
        self.consumer.pause(*paused)


class EachTurn(Program):
    """A busy program pauses the unpaused partitions in each turn; an idle one resumes all."""

    def on_turn(self):
        self.is_busy = BUSY <= self.turn < FREE
        paused = self.consumer.paused()
        if self.is_busy:
            self.consumer.pause(*(self.consumer.assignment() - paused))
        else:
            self.consumer.resume(*paused)


class Loop(Program):
    """A busy program pauses everything in each turn, like the loop in KAFKA-13463."""

    def on_turn(self):
        self.is_busy = BUSY <= self.turn < FREE
        if self.is_busy:
            self.stop()
        elif self.turn == FREE:
            self.go()


class OwnSet(Program):
    """A busy program pauses partitions outside its own set; an idle one resumes that set."""

    def on_turn(self):
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
    """The program's listener pauses partitions that are gained while the program is busy."""

    def on_assigned(self, tps):
        if self.is_busy:
            self.consumer.pause(*tps)


class ListenerTidiesUp(Program):
    """The program's listener resumes revoked partitions, and pauses all assigned ones."""

    def on_revoked(self, tps):
        if self.is_busy:
            self.consumer.resume(*(tps & self.consumer.assignment()))

    def on_assigned(self, tps):  # noqa: ARG002 - the listener pauses all of them
        if self.is_busy:
            self.stop()


class Unsubscribing(Program):
    """The program pauses everything, and subscribes again to receive records."""

    def go(self):
        self.consumer.unsubscribe()
        self.subscribe()


class Work(Program):
    """The program pauses a partition for its work, and resumes it if it is still assigned."""

    seconds = 3

    def on_turn(self):
        for tp, until in list(self.own.items()):
            if self.turn >= until:
                del self.own[tp]
                self.done(tp)

    def done(self, tp):
        if tp in self.consumer.assignment():
            self.consumer.resume(tp)

    def on_record(self, tp):
        if self.turn < LATER and tp not in self.own:
            self.consumer.pause(tp)
            self.own[tp] = self.turn + self.seconds

    def says_stop(self, tp):
        return tp in self.own


class WorkForgets(Work):
    """The program works like ``Work``, and forgets revoked partitions."""

    def on_revoked(self, tps):
        for tp in tps:
            self.own.pop(tp, None)


class WorkUnguarded(Work):
    """The program works like ``Work``, but its only guard is an ``except KeyError``."""

    def done(self, tp):
        resumed(self.consumer, tp)


class Backoff(Work):
    """A failed record pauses its partition, which is resumed only if it is still assigned."""

    seconds = 8
    has_failed = False

    def on_record(self, tp):
        if not self.has_failed and self.turn >= BUSY and tp == self.first:
            self.has_failed = True
            super().on_record(tp)


class BackoffForgets(Backoff, WorkForgets):
    """The program works like ``Backoff``, and forgets revoked partitions."""


class Quarantine(Backoff):
    """The program pauses one partition and never resumes it."""

    seconds = 1000


class OneTopic(Program):
    """The program pauses one of two topics, by a filter over ``assignment()``."""

    reads_b = True

    def mine(self):
        return [tp for tp in self.consumer.assignment() if tp.topic == self.a]

    def stop(self):
        self.consumer.pause(*self.mine())

    def go(self):
        self.consumer.resume(*self.mine())

    def says_stop(self, tp):
        return self.is_busy and tp.topic == self.a


class Priority(OneTopic):
    """The program pauses topic ``a`` until enough records of topic ``b`` have arrived."""

    count = 0

    def on_turn(self):
        if self.turn >= BUSY:
            self.is_busy = self.count < LATER
            (self.stop if self.is_busy else self.go)()

    def on_record(self, tp):
        self.count += tp.topic == self.b


class OtherThread(Program):
    """Another thread pauses and resumes while the program polls."""

    thread: threading.Thread | None = None

    def on_turn(self):
        if self.turn in {BUSY, FREE}:
            given = (self.turn == BUSY,)
            self.thread = threading.Thread(target=self.act, args=given)
            self.thread.start()

    def is_working(self):
        return self.thread is not None and self.thread.is_alive()

    def act(self, is_busy):
        """Wait a little; then pause if the program becomes busy, otherwise resume."""
        time.sleep(0.1)
        (self.stop if is_busy else self.go)()
        self.is_busy = is_busy


class Restoring(Program):
    """The program's listener pauses gained partitions until their state is restored."""

    def on_assigned(self, tps):
        self.consumer.pause(*tps)
        for number, tp in enumerate(sorted(tps)):
            self.own[tp] = self.turn + 2 + number

    def on_revoked(self, tps):
        for tp in tps:
            self.own.pop(tp, None)

    def on_turn(self):
        for tp, until in sorted(self.own.items()):
            if self.turn >= until:
                del self.own[tp]
                self.consumer.resume(tp)

    def says_stop(self, tp):
        return tp in self.own


class TwoAtOnce(Program):
    """The program pauses like ``Flag``, but resumes one partition while it is busy."""

    def on_turn(self):
        super().on_turn()
        if self.turn == BUSY + 1 and self.first in self.consumer.assignment():
            self.consumer.resume(self.first)
            self.own[self.first] = 0

    def says_stop(self, tp):
        return self.is_busy and tp not in self.own


class OwnersQuarantine(Quarantine):
    """The program pauses like ``Flag``, and quarantines one partition under another owner."""

    is_ours_only = True

    def on_turn(self):
        Program.on_turn(self)

    def on_record(self, tp):
        if self.turn == 1 and tp == self.first:
            self.consumer.pause(tp, owner="quarantine")
            self.own[tp] = END

    def says_stop(self, tp):
        return self.is_busy or tp in self.own


class PauseAll(Program):
    is_ours_only = True
    reads_b = True

    def stop(self):
        self.consumer.pause_all()

    def go(self):
        self.consumer.resume_all()


def resumed(consumer, tp):
    with suppress(KeyError):
        consumer.resume(tp)


# ------------------------------------------------------------ situations


@frozen
class Situation:
    """
    A sequence of assignments to the only member.

    Attributes:
        first: the partitions that are assigned first.
        changes: by turn, the partitions that are assigned from then on.
        lost_at: the turn in which the membership is lost; the member joins again
            immediately, or with the first change if that comes later.
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
    """Assigns the wanted partitions to the only member."""

    wanted: Collection[TopicPartition] = ()

    def assign(self, _, members):
        (member,) = members
        by_topic = {}
        for tp in self.wanted:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        given = ConsumerProtocolAssignment(self.version, [*by_topic.items()], b"")
        return {member.member_id: given}


class DictatedEagerly(Dictated, EAGER):
    """An eager assignor."""


class DictatedCooperatively(Dictated, COOPERATIVE):
    """A cooperative assignor."""


# ------------------------------------------------------------ the game


class NothingElse:
    """Adds nothing to the program's own pauses; subclasses add a hold or a gate."""

    def meet(self, consumer, program):
        """Prepare the hold or gate before the program subscribes."""

    def on_turn(self, turn):
        """Make the changes that are due in a turn, before the program acts."""

    def keeps(self, tp):  # noqa: ARG002 - for subclasses
        """Return whether a hold or a gate keeps a partition quiet now."""
        return False


class Game:
    """
    Runs a program as the only member of a group, in one situation.

    A turn ends when every record that is not held back has been read.

    Attributes:
        consumer: the program's client.
        leaked: the number of records that arrived while the program wanted none.
        raised: the errors that the client's methods raised in the program.
        disobeyed: the partitions whose records arrived although another hold or a gate
            kept them quiet.
        verdict: the letters for the table; None until the game has ended.
    """

    def __init__(self, stage, situation, program, assignor, other=None):
        self._stage, self._situation = stage, situation
        self._assignor = ASSIGNORS[assignor]()
        self._reader = stage.consumer(
            group_id=f"{stage.group}-{program}-{assignor}",
            partition_assignment_strategy=[self._assignor],
        )
        self.consumer = self._reader.consumer
        self._program = PROGRAMS[program](self.consumer, stage.name(""))
        self._other = other or NothingElse()
        self._other.meet(self.consumer, self._program)
        self.leaked, self.raised, self.disobeyed = 0, [], []
        self.verdict = None
        self._newest = {}
        self._refusal, self._is_rejoining = None, False
        self._assign(situation.first)
        self._program.subscribe()

    def change(self, number):
        """Change the membership or the assignment, if the situation requires a change."""
        self._has_joined = self._changed(number)

    def turn(self, number):
        """Let the program act, and poll until all records not held back have been read."""
        self._other.on_turn(number)
        self._program.turn = number
        self._guarded(self._program.on_turn)
        if self._is_rejoining:
            self._poll()  # a poll that returns records immediately does not complete a join
            self.consumer._coordinator.request_rejoin()
            self._is_rejoining = False

        def has_ended():
            self._poll()
            return (
                self._has_joined()
                and not self._program.is_working()
                and self._has_read_all()
            )

        self._stage.until(has_ended, f"the end of turn {number}")

    def end(self):
        """Set the verdict; a wanted partition whose records stop arriving is a stall."""
        stalled = [
            tp
            for tp in self.consumer.assignment()
            if not self._program.says_stop(tp) and self._newest.get(tp, 0) < END - 3
        ]
        letters = {"L": self.leaked, "S": stalled, "E": self.raised}
        found = "".join(letter for letter, some in letters.items() if some)
        self.verdict = found or "."

    def _changed(self, number):
        # Return a function that checks whether the join that follows is complete.
        reader, changes = self._reader, self._situation.changes
        if number in changes:
            self._assign(changes[number])
        if number == self._situation.lost_at:
            forgotten = reader.member_id()
            if min(changes) > number:
                self._refusal = self._stage.refuse_joins()
            reader.forget()
            return lambda: self._refusal or reader.member_id() != forgotten
        if number not in changes:
            return lambda: True
        generation = reader.generation()
        if self._refusal is None:
            self._is_rejoining = True
        else:
            self._refusal.end()
            self._refusal = None
        return lambda: reader.generation() > generation

    def _assign(self, tps):
        program = self._program
        b = [TopicPartition(program.b, 0)] if program.reads_b else []
        self._assignor.wanted = [TopicPartition(program.a, tp.partition) for tp in tps]
        self._assignor.wanted += b

    def _has_read_all(self):
        assigned = self.consumer.assignment()
        if self._refusal is not None:
            return not assigned
        if assigned != {*self._assignor.wanted} or not self._reader.is_settled():
            return False
        return not assigned or self._reader.has_read_all()

    def _poll(self):
        polled = self.consumer.poll(300, max_records=500)
        self.disobeyed += filter(self._other.keeps, polled)
        for tp, batch in polled.items():
            self.leaked += len(batch) * self._program.says_stop(tp)
            self._newest[tp] = int(batch[-1].value)  # values are turns
            self._guarded(partial(self._program.on_record, tp))

    def _guarded(self, call):
        try:
            call()
        except KeyError as error:  # kafka-python's error for an unassigned partition
            self.raised.append(str(error))


def play(stage, situation, programs, *, other=None, every=map):
    """
    Run programs in a situation, turn by turn; return a ``Game`` for each program.

    Args:
        stage: a stage without topics.
        situation: the situation's name.
        programs: pairs of a program's name and an assignor's name.
        other: another owner's hold, or a gate; only for a single program.
        every: runs one turn of each ``Game``: ``map``, or the ``map`` of a thread pool.
    """
    stage.topic("a", 4)
    stage.topic("b", 1)
    games = [Game(stage, SITUATIONS[situation], *one, other) for one in programs]
    for turn in range(END):
        stage.append(1, *stage.partitions())
        for game in games:
            game.change(turn)
        list(every(partial(Game.turn, number=turn), games))
    for game in games:
        game.end()
    return games


# ------------------------------------------------------------ the table

TABLE = """
Flag                        L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
ResumePaused                L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
Saved                       L/.    LE/.   L/.    LE/.   LE/.   L/.    L/.    LE/.
SavedByValue                L/L    LE/L   L/L    LE/.   LE/.   L/.    L/L    LE/.
SavedGuarded                L/.    L/S    L/.    ./.    ./S    L/.    L/.    ./S
OneByOne                    L/.    L/.    L/.    ./.    ./S    L/.    L/.    ./S
TheRest                     L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
UnlessPaused                L/.    L/.    L/.    ./.    ./.    L/.    L/.    ./.
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
The verdicts on kafka-python / on our class, by program and situation. Both kinds of
assignor have the same verdicts unless a row names one. L: leak, S: stall, E: an error of
kafka-python, ?: L or none, because either the gain or the next pause may come first.
"""

_FORGETTING = [
    f"{program}Forgets-{assignor}"
    for program in ("Work", "Backoff")
    for assignor in ("eager", "cooperative")
]
# By P3 a pause survives a lost membership if the next join returns its partition. A program
# that forgets its pauses in that case also forgets them in every eager rebalance, in which
# kafka-python keeps them.
_LOST = ("lost, back", "lost, more", "lost at go")
EXCEPTED = (
    # The program resumes partitions one by one while none of them is assigned.
    *product(("SavedGuarded", "OneByOne"), ("idle at go", "lost at go")),
    # The program's guard skips the resume, or its listener forgets the pause, when the
    # membership is lost.
    *product(("Work", "Backoff"), ("lost at go",)),
    *product(_FORGETTING, _LOST),
)
"""The programs and situations that work with kafka-python and stall with our class."""


def rows():
    """Return the table's cells, by program (or program and assignor) and situation."""
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


def expected(program, assignor, situation):
    table = rows()
    row = table.get(f"{program}-{assignor}") or table[program]
    return row[situation]


# ------------------------------------------------------------ cases


class Holder(NothingElse):
    """
    Another owner, which holds one partition or the topic.

    Args:
        what: ``one`` partition, or the ``topic``.
        until: the turn in which the owner lifts its hold.
    """

    def __init__(self, what, until):
        self._what, self._until = what, until
        self._is_holding = True

    def meet(self, consumer, program):
        self._consumer = consumer
        self._target = program.first if self._what == "one" else program.a
        consumer.pause(self._target, owner="somebody else")

    def on_turn(self, turn):
        if turn == self._until:
            self._is_holding = False
            self._consumer.resume_all("somebody else")

    def keeps(self, tp):
        return self._is_holding and self._target in {tp, tp.topic}


class Gate(NothingElse):
    """
    Gates gained partitions as if a group's holds had not been read yet.

    Args:
        until: the turn in which the holds are read.
    """

    def __init__(self, until):
        self._until = until
        self._gated = {}

    def meet(self, consumer, program):
        del program
        self._ledger = consumer._safe_ledger
        self._ledger.watch(self._gated.update)

    def on_turn(self, turn):
        if turn >= self._until:
            self._ledger.open_gates(self._gated)
            self._gated.clear()

    def keeps(self, tp):
        return tp in self._gated


COLUMNS = {
    "alone": lambda _: NothingElse(),
    "one partition held": lambda until: Holder("one", until),
    "topic held": lambda until: Holder("topic", until),
    "gated": Gate,
}
"""Functions that create another owner's hold, or a gate, that lasts until a given turn."""


LIFTED = {"while it is busy": BUSY + 3, "later": LATER + 1}


@frozen
class Case:
    """
    The names of a program, its situation, and another owner's hold, or a gate.

    Attributes:
        until: when the hold or gate ends; unused if there is none.
    """

    program: str
    assignor: str
    situation: str
    column: str = "alone"
    until: str = "later"

    def played(self, lab, kind):
        """Run the case with a class of consumers, and return its ``Game``."""
        other = COLUMNS[self.column](LIFTED[self.until])
        with BareStage(lab, kind) as stage:
            (game,) = play(
                stage, self.situation, [(self.program, self.assignor)], other=other
            )
        return game

    def known(self):
        """Return the table's verdicts on kafka-python's consumer and on ours."""
        return expected(self.program, self.assignor, self.situation).split("/")


def params(cases, common):
    """Return the cases as parameters; those outside ``common`` are for the nightly run."""
    return of_this_run(
        [
            pytest.param(
                case,
                id="-".join(astuple(case)),
                marks=[] if case in common else pytest.mark.nightly,
            )
            for case in cases
        ]
    )


ALONE = [Case(*one) for one in product(PROGRAMS, ASSIGNORS, SITUATIONS)]
BESIDE = [
    Case(*one)
    for one in product(PROGRAMS, ASSIGNORS, SITUATIONS, [*COLUMNS][1:], LIFTED)
]
STOCK = [case for case in ALONE if not PROGRAMS[case.program].is_ours_only]
"""The cases that kafka-python's consumer can run."""
