"""Programs that pause as people write them, in the simulation: see ``idioms.py``."""

import pytest
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
    DictatedEagerly,
    Game,
    expected,
    rows,
)
from tests.sim.playing import of_this_run, simulated

REBALANCE, LOADING = 27, 14  # Kafka's codes


class Other:
    """
    Somebody else, who holds something from before the program stops until a turn.

    A gate, as the group control has, is closed on whatever is gained until that turn,
    and for one turn after it.

    Args:
        what: ``one`` partition, the ``topic``, or a ``gate``.
        until: the turn that lifts it.
    """

    def __init__(self, what, until):
        self._what, self._until = what, until
        self._gained = {}

    def meet(self, consumer, program):
        """Begin, before the program has subscribed."""
        self._consumer = consumer
        if self._what == "gate":
            consumer._safe_ledger.watch(self._gained.update)
            return
        target = program.first if self._what == "one" else program.a
        consumer.pause(target, owner="somebody else")

    def on_turn(self, turn):
        """Lift it, in its turn; or open the gates of what was gained."""
        if turn < self._until:
            return
        if self._what == "gate":
            self._consumer._safe_ledger.open_gates(self._gained)
        elif turn == self._until:
            self._consumer.resume_all("somebody else")


class Stage:
    """One program, one client, one situation, and perhaps somebody else's hold."""

    def __init__(self, lab, program, kind, assignor, other=None):
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
        if other is not None:
            other.meet(self.consumer, self.game.program)
        self.game.program.subscribe()
        self.refusal = None

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
            if self.other is not None:
                self.other.on_turn(turn)
            self.game.begin(turn)
            self._poll(until=began + turn + 0.7)
            self.lab.sleep(max(0.0, began + turn + 1 - self.lab.now))
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
        self.game.take(self.consumer.poll(300, max_records=500))

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


def played(lab, program, kind, name, assignor):
    """Play one program with one client in one situation; return the verdict's letters."""
    if program.is_ours_only and kind is KafkaConsumer:
        return "-"
    for topic, count in (("a", 4), ("b", 1)):
        if lab.cluster.topics.get(topic) is not None:
            lab.cluster.delete_topic(topic)
        lab.topic(topic, count)
    return Stage(lab, program, kind, assignor()).play(SITUATIONS[name])


def games(share):
    """Return every game; by day one of so many, of each program and each situation."""
    found = [
        pytest.param(
            program,
            assignor,
            situation,
            id=f"{program}-{situation}-{assignor}",
            marks=[] if (row + 2 * column + kind) % share == 0 else pytest.mark.nightly,
        )
        for row, program in enumerate(PROGRAMS)
        for column, situation in enumerate(SITUATIONS)
        for kind, assignor in enumerate(ASSIGNORS)
    ]
    return of_this_run(found)


@pytest.mark.contract("P3", "P6", "P7")
@pytest.mark.parametrize(("program", "assignor", "situation"), games(share=6))
@simulated(seeds=1, nightly=10)
def test_a_program_as_people_write_it(lab, program, assignor, situation):
    name, kind = PROGRAMS[program], ASSIGNORS[assignor]
    _, known = expected(program, assignor, situation).split("/")
    assert played(lab, name, SafeConsumer, situation, kind) == known


@pytest.mark.parametrize(("program", "assignor", "situation"), games(share=15))
@simulated(seeds=1, nightly=10)
def test_a_program_as_people_write_it_with_kafka_python(
    lab, program, assignor, situation
):
    name, kind = PROGRAMS[program], ASSIGNORS[assignor]
    known, _ = expected(program, assignor, situation).split("/")
    wanted = {"L", "."} if known == "?" else {known}
    assert played(lab, name, KafkaConsumer, situation, kind) in wanted


# They look at what is paused before they pause: by day they meet every hold.
LOOKING = ("TheRest", "UnlessPaused")
LIFTED = {"while it is busy": BUSY + 3, "later": LATER + 1}
MEETINGS = [
    pytest.param(
        program,
        what,
        when,
        "gained" if is_daily else [*SITUATIONS][(row + column + number) % 8],
        id=f"{program}-{what}-{when}",
        marks=[] if is_daily else pytest.mark.nightly,
    )
    for row, program in enumerate(PROGRAMS)
    for column, what in enumerate(("one", "topic", "gate"))
    for number, when in enumerate(LIFTED)
    for is_daily in (program in LOOKING or row % 18 == 3 * column + number,)
]


@pytest.mark.contract("P3", "P7")
@pytest.mark.parametrize(
    ("program", "what", "when", "situation"), of_this_run(MEETINGS)
)
def test_a_program_fares_no_worse_by_the_hold_of_somebody_else(
    lab, program, what, when, situation
):
    """Nothing goes wrong that does not without it, until it is lifted and after that."""
    lab.topic("a", 4)
    lab.topic("b", 1)
    other = Other(what, LIFTED[when])
    stage = Stage(lab, PROGRAMS[program], SafeConsumer, DictatedEagerly(), other)
    _, alone = expected(program, "eager", situation).split("/")
    assert set(stage.play(SITUATIONS[situation])) <= {*alone, "."}


def test_what_is_right_on_kafka_python_is_right_here():
    """By the table, but for what is excepted by name; the exceptions are all needed."""
    worse = {
        f"{name}, {situation}"
        for name, cells in rows().items()
        for situation, cell in cells.items()
        if cell.startswith("./") and cell != "./."
    }
    assert worse == set().union(*EXCEPTED.values())


def test_it_leaks_only_where_kafka_python_leaks():
    cells = [cell for row in rows().values() for cell in row.values()]
    ours = [cell.split("/") for cell in cells]
    assert [one for one in ours if "L" in one[1] and "L" not in one[0]] == []
