"""
Programs that pause as users write them have the same results on Kafka and simulated.

A turn ends when all flowing records have been read, so no test waits for time to pass.
Only the simulation can have a broker refuse joins for some turns, as in "lost at go".
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import product

import pytest
from kafka import TopicPartition

from tests.sim.idioms import (
    ASSIGNORS,
    END,
    PROGRAMS,
    SITUATIONS,
    Game,
    expected,
)
from tests.sim.parity.stages import CLIENTS, RealStage, has_read_all

_BESIDE = 8  # games at a time, most of which wait
# One of so many games is played by day; the simulation plays a sixth of them.
_DAYS_SHARE = 4
PLAYED = [name for name in SITUATIONS if name != "lost at go"]


class Play:
    """One game, as the only member of a group."""

    def __init__(self, stage, program, assignor):
        self._stage = stage
        self._assignor = ASSIGNORS[assignor]()
        self._reader = stage.consumer(
            group_id=f"{stage.group}-{stage.client}-{program}-{assignor}",
            partition_assignment_strategy=[self._assignor],
        )
        self.game = Game(PROGRAMS[program](self._reader.consumer, stage.name("")))
        self.game.program.subscribe()
        self._forgotten = ""

    def lose(self):
        """End its membership without notice."""
        self._forgotten = self._reader.member_id()
        self._reader.forget()

    def turn(self, number, situation):
        """Play one turn, until all that may flow has been read."""
        generation = self._reader.generation()
        is_lost = number == situation.lost_at
        has_changed = number in situation.changes
        if number == 0:
            self._assign(situation.first)
        if has_changed:
            self._assign(situation.changes[number])
        if has_changed and not is_lost:
            self._reader.consumer._coordinator.request_rejoin()
        self.game.begin(number)

        def has_ended():
            self.game.take(self._reader.consumer.poll(100, max_records=500))
            is_new = self._reader.generation() > generation
            if is_lost:
                is_new = self._reader.member_id() != self._forgotten
            return (
                (is_new or not (is_lost or has_changed))
                and not self.game.program.is_at_it()
                and self._has_read_all()
            )

        self._stage.until(has_ended, f"the end of turn {number}")

    def _has_read_all(self):
        assigned = self._reader.consumer.assignment()
        if assigned != set(self._assignor.wanted) or not self._reader.is_settled():
            return False
        return not assigned or has_read_all(self._reader)

    def _assign(self, tps):
        program = self.game.program
        b = [TopicPartition(program.b, 0)] if program.reads_b else []
        a = [TopicPartition(program.a, tp.partition) for tp in tps]
        self._assignor.wanted = [*a, *b]


def games(name, *, by_day):
    """Yield programs of a situation with assignors: a quarter of them, or the others."""
    column = [*SITUATIONS].index(name)
    pairs = product(PROGRAMS, ASSIGNORS)
    for number, (program, assignor) in enumerate(pairs, start=column):
        if (number % _DAYS_SHARE == 0) == by_day:
            yield program, assignor


def played(broker, name, wanted):
    """Play programs with both clients side by side; return cells of the table."""
    situation = SITUATIONS[name]
    with ExitStack() as open_, ThreadPoolExecutor(_BESIDE) as pool:
        stages = [
            open_.enter_context(RealStage(broker, one, "eager")) for one in CLIENTS
        ]
        plays = {}
        for stage in stages:
            stage.topic("a", 4)
            stage.topic("b", 1)
            for program, assignor in wanted:
                is_here = stage.client == "ours" or not PROGRAMS[program].is_ours_only
                if is_here:
                    game = stage.client, program, assignor
                    plays[game] = Play(stage, program, assignor)
        for number in range(END):
            for stage in stages:
                stage.append(1, *stage.partitions())
            if number == situation.lost_at:
                for one in plays.values():
                    one.lose()
            turn = partial(Play.turn, number=number, situation=situation)
            list(pool.map(turn, plays.values()))
        letters = {key: one.game.end() for key, one in plays.items()}
    return [
        f"{letters.get(('stock', *one), '-')}/{letters['ours', *one]}" for one in wanted
    ]


@pytest.mark.contract("P3", "P6", "P7")
@pytest.mark.real_broker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.parametrize(
    "by_day", [True, pytest.param(False, marks=pytest.mark.nightly)]
)
def test_programs_have_the_same_results_on_kafka(kafka_broker, name, by_day):
    """The failure names all programs that differ."""
    wanted = [*games(name, by_day=by_day)]
    different = {
        f"{program}-{assignor}": (cell, known)
        for (program, assignor), cell in zip(
            wanted, played(kafka_broker, name, wanted), strict=True
        )
        if cell != (known := expected(program, assignor, name)).replace("?", cell[0])
    }
    assert different == {}
