"""Programs that pause as people write them, in the simulation: see ``idioms.py``."""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from safeconsumer import SafeConsumer
from tests.sim.idioms import (
    ASSIGNORS,
    END,
    EXCEPTED,
    PROGRAMS,
    SITUATIONS,
    A,
    B,
    Program,
    Situation,
    Verdict,
    expected,
    listener_of,
    played_by_day,
    rows,
)
from tests.sim.lab import Lab
from tests.sim.playing import simulated

REBALANCE, LOADING = 27, 14  # Kafka's codes


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
