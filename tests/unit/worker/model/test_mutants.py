"""Planted faults are found, or the model would prove nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from safeconsumer.worker import loop, queue, watermarks
from safeconsumer.worker.leaving import Commits, Departures
from safeconsumer.worker.outages import Outages
from safeconsumer.worker.partition import Held, Lane
from safeconsumer.worker.progress import Progress, Watermark
from safeconsumer.worker.queue import KEYLESS, Groups, Lanes, Order, Queue
from safeconsumer.worker.results import Schedule
from tests.harness.worker.model.client import EVERY
from tests.unit.worker.model.machine import Violated, WorkerMachine

pytestmark = pytest.mark.nightly

HUNT = settings(
    max_examples=600,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)

Patch = Callable[[pytest.MonkeyPatch], None]


def commits_what_was_polled(patch: pytest.MonkeyPatch) -> None:
    def watermark(self: Progress) -> Watermark:
        return Watermark(self.next_offset)

    patch.setattr(Progress, "watermark", watermark)


def takes_lost_for_revoked(patch: pytest.MonkeyPatch) -> None:
    drop = Departures.drop

    def dropping(self: Any, epochs: Any, reason: str) -> Any:  # noqa: ANN401
        return drop(self, epochs if reason != "lost" else (), reason)

    patch.setattr(Departures, "drop", dropping)


def counts_stale_results(patch: pytest.MonkeyPatch) -> None:
    complete = Schedule._complete

    def completing(self: Any, outcome: Any) -> None:  # noqa: ANN401
        epoch = outcome.task.epoch
        was, epoch.is_closed = epoch.is_closed, False
        complete(self, outcome)
        epoch.is_closed = was

    patch.setattr(Schedule, "_complete", completing)


def runs_lanes_twice(patch: pytest.MonkeyPatch) -> None:
    def group(_self: Lanes, chunk: Any, first: int = 0) -> Groups:  # noqa: ANN401
        indexes = range(first, len(chunk.records))
        return Groups([(object(), [index]) for index in indexes])

    patch.setattr(Lanes, "group", group)


def polls_without_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loop.Brakes, "room", lambda self: self._client.most)


def never_goes_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Schedule, "go_on", lambda _self: None)


def forgets_to_lift(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(watermarks.Marks, "is_throttled", lambda *_a, **_k: True)


def retries_at_once(patch: pytest.MonkeyPatch) -> None:
    sleep = queue.Queue.sleep
    patch.setattr(
        queue.Queue, "sleep", lambda self, lane, delay: sleep(self, lane, delay / 4)
    )


def drops_what_stays(patch: pytest.MonkeyPatch) -> None:
    settle = Departures.settle

    def settling(self: Any) -> None:  # noqa: ANN401
        if self._was_joining:
            self.drop(tuple(self._held.epochs.values()), "revoked")
        settle(self)

    patch.setattr(Departures, "settle", settling)


def lifts_the_operators_hold(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loop, "OWNERS", (*loop.OWNERS, "ops"))


def passes_over_failures(patch: pytest.MonkeyPatch) -> None:
    fail = Schedule._fail

    def failing(self: Any, lane: Lane, task: Any, *what: Any, **more: Any) -> None:  # noqa: ANN401
        fail(self, lane, task, *what, **more)
        index, *_ = what
        task.chunk.done[index] = 1

    patch.setattr(Schedule, "_fail", failing)


def sorts_past_what_has_no_key(patch: pytest.MonkeyPatch) -> None:
    fail = Schedule._fail_keyless

    def failing(self: Any, epoch: Any, *what: Any) -> None:  # noqa: ANN401
        fail(self, epoch, *what)
        lane = epoch.lanes.pop(KEYLESS, None)
        if lane is not None:
            lane.key = object()
            epoch.lanes[lane.key] = lane

    patch.setattr(Schedule, "_fail_keyless", failing)


def begins_what_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "covers", lambda *_: False)


def holds_nothing_for_a_pause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Outages, "_pause", lambda _self, _task, _index, error: error)


def lets_all_try(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queue, "_is_tripped", lambda _self, _epoch: False)


def joins_undrained(patch: pytest.MonkeyPatch) -> None:
    def note(self: Any) -> None:  # noqa: ANN401
        self._epochs = self._client.epochs()

    patch.setattr(Departures, "_note_departed", note)


def hands_out_without_a_floor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Commits, "has_floor", lambda _self, _epoch: True)


def forgets_what_still_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Held, "_keep_running", lambda _self, _epoch: None)


def puts_back_behind(patch: pytest.MonkeyPatch) -> None:
    def put_back(self: Lane, chunk: Any, indexes: Any) -> None:  # noqa: ANN401
        if indexes:
            self.runs.append((chunk, indexes))

    patch.setattr(Lane, "put_back", put_back)


MUTANTS: tuple[Patch, ...] = (
    commits_what_was_polled,
    takes_lost_for_revoked,
    counts_stale_results,
    runs_lanes_twice,
    polls_without_room,
    never_goes_on,
    forgets_to_lift,
    retries_at_once,
    drops_what_stays,
    lifts_the_operators_hold,
    passes_over_failures,
    joins_undrained,
    begins_what_is_held,
    puts_back_behind,
    holds_nothing_for_a_pause,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.__name__)
def test_a_planted_fault_is_found(
    mutant: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a bounded number of random lives."""
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(WorkerMachine, settings=HUNT)


def skipping(owned: int, logs: list[int]) -> tuple[str, frozenset[Any], list[int]]:
    return "skip", frozenset(EVERY[:owned]), logs


def live_through_a_join_that_takes_nothing() -> None:
    """Hold records, work on one, and join again."""
    life = WorkerMachine()
    life.begin(Order.KEY, False, False, None, *skipping(2, [8, 8, 0, 0]))  # noqa: FBT003 - as drawn
    life.claim()
    life.rebalance(frozenset(EVERY[:2]), 1)
    for _ in range(60):
        life.turn()
        life.nothing_is_passed_over()
    assert life.engine.held.records
    life.teardown()


def live_with_a_record_without_a_key() -> None:
    """Tell the key of one late, while another one of it stands behind."""
    life = WorkerMachine()
    life.begin(Order.KEY, False, False, None, *skipping(1, [0, 0, 0, 0]))  # noqa: FBT003 - as drawn
    life.produce_one_without_a_key(EVERY[0], 8, 2)
    life.works(4)
    life.keys_are_mended()
    life.works(8)
    life.teardown()


def live_through_a_loss_before_a_commit() -> None:
    """Work on a partition of which nothing is committed, and lose it."""
    life = WorkerMachine()
    life.begin(Order.KEY, False, True, None, *skipping(1, [2, 0, 0, 0]))  # noqa: FBT003 - as drawn
    life.produce(EVERY[0], 4)
    life.turns(2)
    life.claim()
    assert life.tasks
    life.lose()
    life.turns(4)
    life.teardown()


def live_through_an_outage() -> None:
    """Fail until a breaker opens, and claim what may try."""
    life = WorkerMachine()
    life.begin(Order.KEY, False, False, None, *skipping(2, [8, 8, 0, 0]))  # noqa: FBT003 - as drawn
    life.claims(2)
    life.finish(0, 0, "down")
    life.finish(0, 0, "down")
    life.advance(0.6)
    life.turn()
    life.claims(3)
    assert len(life.tasks) == 1
    life.teardown()


def live_through_a_loss_while_a_handler_runs() -> None:
    """Lose a partition and get it back, while one of its records is worked on."""
    life = WorkerMachine()
    life.begin(Order.KEY, False, False, None, *skipping(1, [4, 0, 0, 0]))  # noqa: FBT003 - as drawn
    life.claim()
    assert life.tasks
    life.lose()
    life.turns(4)
    life.claims(3)
    life.teardown()


LIVES: dict[Patch, Callable[[], None]] = {
    drops_what_stays: live_through_a_join_that_takes_nothing,
    sorts_past_what_has_no_key: live_with_a_record_without_a_key,
    hands_out_without_a_floor: live_through_a_loss_before_a_commit,
    forgets_what_still_runs: live_through_a_loss_while_a_handler_runs,
    lets_all_try: live_through_an_outage,
}


@pytest.mark.parametrize("mutant", LIVES, ids=lambda one: one.__name__)
def test_a_fault_that_chance_meets_rarely_is_found(
    mutant: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a life that leads there; and what is right keeps every invariant in it."""
    LIVES[mutant]()
    mutant(monkeypatch)
    with pytest.raises(Violated):
        LIVES[mutant]()
