"""A held partition is not quiet while a program works on records that it has got of it."""

from collections.abc import Callable
from typing import Any

import pytest

from safeconsumer import SafeConsumer
from tests.sim.group.operating import CONTROL, Operator
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated

NAP = 0.5  # seconds for which a program works on a record


class Program:
    """A program with a loop of its own, which works for a while on each record."""

    def __init__(
        self, lab: Lab, loop: Callable[[Any, Callable[[Any], None]], None]
    ) -> None:
        self.lab, self._loop = lab, loop
        self.written: list[tuple[str, int, int]] = []
        self.consumer: Any = None
        self.is_over = False
        self.process, self._thread = lab.start("a", self._live)
        lab.until(lambda: self.consumer is not None)

    def _live(self) -> None:
        self.consumer = SafeConsumer(
            "t",
            **self.lab.settings(
                group_id=GROUP, client_id="a", control=CONTROL, max_poll_records=20
            ),
            consumer_timeout_ms=200,
        )
        while not self.is_over:
            self._loop(self.consumer, self._work)
        self.consumer.close(autocommit=False)

    def _work(self, record: Any) -> None:
        self.lab.sleep(NAP)
        self.written.append((record.topic, record.partition, record.offset))

    def stop(self) -> None:
        self.is_over = True
        self._thread.join()


def poll(consumer: Any, work: Callable[[Any], None]) -> None:
    for records in consumer.poll(200).values():
        for record in records:
            work(record)


def peek(consumer: Any, work: Callable[[Any], None]) -> None:
    for tp, records in consumer.poll(200, update_offsets=False).items():
        for record in records:
            work(record)
        consumer.seek(tp, records[-1].offset + 1)


def iterate(consumer: Any, work: Callable[[Any], None]) -> None:
    for record in consumer:
        work(record)


def step_and_leave(consumer: Any, work: Callable[[Any], None]) -> None:
    for record in consumer:
        work(record)
        break


LOOPS = pytest.mark.parametrize(
    "loop", [poll, peek, iterate, step_and_leave], ids=lambda one: one.__name__
)


def at_work(lab: Lab, loop: Callable[..., None], partitions: int = 1) -> Program:
    lab.topic("t", partitions, records=40)
    program = Program(lab, loop)
    lab.until(lambda: len(program.written) >= 3)
    return program


@pytest.mark.xfail(strict=True, reason="only a Worker's handlers count as busy")
@LOOPS
@simulated(seeds=3)
def test_nothing_is_written_after_the_group_is_said_to_be_quiet(
    lab: Lab, loop: Callable[..., None]
) -> None:
    """Whatever kind of loop a program has."""
    operator = Operator(lab)
    program = at_work(lab, loop)
    operator.hold()
    lab.until(lambda: operator.quietness().is_reached)
    written = len(program.written)
    lab.sleep(20)
    assert len(program.written) == written
    operator.lift()
    lab.until(lambda: len(program.written) == 40)
    assert len({*program.written}) == 40
    program.stop()
