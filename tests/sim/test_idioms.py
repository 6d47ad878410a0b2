"""Programs that pause as users write them, in the simulation: see ``idioms.py``."""

from itertools import product

import pytest
from attrs import astuple, frozen
from kafka import KafkaConsumer

from safeconsumer import SafeConsumer
from tests.sim.idioms import (
    ASSIGNORS,
    BUSY,
    END,
    EXCEPTED,
    LATER,
    PROGRAMS,
    SITUATIONS,
    A,
    B,
    Game,
    expected,
    rows,
)
from tests.sim.playing import of_this_run, simulated

REBALANCE, LOADING = 27, 14  # Kafka's codes


class NothingElse:
    """The column ``alone``: only the program keeps partitions quiet."""

    def meet(self, consumer, program):
        """Begin, before the program has subscribed."""

    def on_turn(self, turn):
        """Do what is due in a turn, before the program does."""

    def keeps(self, tp):  # noqa: ARG002 - for children
        """Return whether a hold or a gate keeps a partition quiet now."""
        return False


class Holder(NothingElse):
    """
    Another owner, who holds one partition or the topic.

    Args:
        what: ``one`` partition, or the ``topic``.
        until: the turn in which it lifts its hold.
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
    A group's holds are not read yet: gained partitions wait behind a gate.

    Args:
        until: the turn in which they are read.
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
"""By name, a function that makes what else keeps partitions quiet, until a given turn."""


class Stage:
    """
    One program, one client, one situation, and the hold or gate beside the program.

    Attributes:
        disobeyed: records that came although another hold or a gate kept them.
    """

    def __init__(self, lab, program, kind, assignor, other):
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
        self.game = Game(program(self.consumer))
        self.other = other
        other.meet(self.consumer, self.game.program)
        self.game.program.subscribe()
        self.refusal = None
        self.disobeyed = []

    def play(self, situation):
        """Play it to the end; return the verdict's letters."""
        self._assign(situation.first)
        began = self.lab.now
        for turn in range(END):
            if turn == situation.lost_at:
                self._lose(is_refused=min(situation.changes) > turn)
            if turn in situation.changes:
                self._assign(situation.changes[turn])
            for tp in (*A, B):
                self.lab.append(tp, 1, first=turn)
            self.other.on_turn(turn)
            self.game.begin(turn)
            self._poll(until=began + turn + 0.7)
            self.lab.sleep(max(0.0, began + turn + 1 - self.lab.now))
        self._take()  # what was resumed in the last turn
        verdict = self.game.end()
        self.consumer.close(autocommit=False)
        return verdict

    def _poll(self, until):
        self._take()
        while self._is_joining() and self.lab.now < until:
            self._take()

    def _is_joining(self):
        is_told = set(self.consumer.assignment()) == set(self.assignor.wanted)
        return not is_told and self.refusal is None

    def _take(self):
        polled = self.consumer.poll(300, max_records=500)
        self.disobeyed += filter(self.other.keeps, polled)
        self.game.take(polled)

    def _assign(self, tps):
        self.assignor.wanted = [*tps, *([B] if self.game.program.reads_b else [])]
        if self.refusal is not None:
            self.refusal.end()
            self.refusal = None
        elif self.lab.members(self.group):
            self.lab.cluster.fail("Heartbeat", error=REBALANCE, count=1)

    def _lose(self, *, is_refused):
        group = self.lab.cluster.groups.find(self.group)
        for member in list(group.members):
            group.leave(member)
        if is_refused:
            self.refusal = self.lab.cluster.fail("JoinGroup", error=LOADING)


LIFTED = {"while it is busy": BUSY + 3, "later": LATER + 1}


@frozen
class Case:
    """
    A program, its situation, and the hold or gate beside it; each by its name.

    Attributes:
        until: the turn in which the other hold is lifted; unused alone.
    """

    program: str
    assignor: str
    situation: str
    column: str = "alone"
    until: str = "later"

    def played(self, lab, kind):
        """Play it with a class of consumers; return the verdict, and the disobedience."""
        lab.topic("a", 4)
        lab.topic("b", 1)
        other = COLUMNS[self.column](LIFTED[self.until])
        assignor = ASSIGNORS[self.assignor]()
        stage = Stage(lab, PROGRAMS[self.program], kind, assignor, other)
        return stage.play(SITUATIONS[self.situation]), stage.disobeyed

    def known(self):
        """Return the table's verdicts on kafka-python's consumer and on ours."""
        return expected(self.program, self.assignor, self.situation).split("/")


def params(cases, by_day):
    """Return the cases as parameters; the night plays those that the day does not."""
    return of_this_run(
        [
            pytest.param(
                case,
                id="-".join(astuple(case)),
                marks=[] if case in by_day else pytest.mark.nightly,
            )
            for case in cases
        ]
    )


ALONE = [Case(*one) for one in product(PROGRAMS, ASSIGNORS, SITUATIONS)]
BESIDE = [
    Case(*one)
    for one in product(PROGRAMS, ASSIGNORS, SITUATIONS, [*COLUMNS][1:], LIFTED)
]


def of_the_day():
    """Yield a case of each program, protocol and column."""
    for row, program in enumerate(PROGRAMS):
        for kind, assignor in enumerate(ASSIGNORS):
            for column in COLUMNS:
                # A gain is where programs and others meet most.
                is_gain = column != "alone" and assignor == "eager"
                situation = [*SITUATIONS][0 if is_gain else (row + kind) % 8]
                until = "later" if column == "alone" else [*LIFTED][(row + kind) % 2]
                yield Case(program, assignor, situation, column, until)


@pytest.mark.contract("P2", "P3", "P6", "P7")
@pytest.mark.parametrize("case", params(ALONE + BESIDE, {*of_the_day()}))
@simulated(seeds=1, nightly=2)
def test_program_fares_as_the_table_says(lab, case):
    """Another owner's hold or a gate is obeyed, and changes nothing else."""
    verdict, disobeyed = case.played(lab, SafeConsumer)
    _, alone = case.known()
    assert disobeyed == []
    if case.column == "alone":
        assert verdict == alone
    else:
        assert {*verdict} <= {*alone, "."}


STOCK = [case for case in ALONE if not PROGRAMS[case.program].is_ours_only]


@pytest.mark.parametrize("case", params(STOCK, STOCK[::15]))
@simulated(seeds=1, nightly=10)
def test_program_fares_with_kafka_python_as_the_table_says(lab, case):
    known, _ = case.known()
    verdict, _ = case.played(lab, KafkaConsumer)
    assert verdict in ({"L", "."} if known == "?" else {known})


def test_program_that_works_on_kafka_python_works_here_unless_excepted():
    """All exceptions are needed."""
    worse = {
        (name, situation)
        for name, cells in rows().items()
        for situation, cell in cells.items()
        if cell.startswith("./") and cell != "./."
    }
    assert worse == {*EXCEPTED}


def test_program_leaks_only_where_kafka_python_leaks():
    cells = [cell for row in rows().values() for cell in row.values()]
    ours = [cell.split("/") for cell in cells]
    assert [one for one in ours if "L" in one[1] and "L" not in one[0]] == []
