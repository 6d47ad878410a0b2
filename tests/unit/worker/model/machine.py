"""
Random lives of a pump with its schedule, judged after each step.

The numbers in the names are those of the invariants in the design of the worker.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from kafka.structs import TopicPartition

from safeconsumer.holds.hold import OUTAGE
from safeconsumer.holds.scope import Everything, partition, pattern, topic
from safeconsumer.worker import (
    BatchFailure,
    Breaker,
    Commit,
    Pause,
    Reject,
    RetryLater,
)
from safeconsumer.worker.handlers import all_done, batch_failed
from safeconsumer.worker.loop import OWNERS, Engine
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import OVERHEAD_BYTES
from safeconsumer.worker.queue import Lanes, Letter, Order, Outcome, Policy, Queue, Task
from safeconsumer.worker.results import Schedule
from tests.harness.worker.model.client import BYTES, EVERY, TOPIC, Clock, FakeClient
from tests.harness.worker.model.standing import DRAIN, LIMITS, RETRY, StandingEngine

OPS = "ops"
BREAKER = Breaker(on=(ConnectionError,), failures=2, first=0.6, most=1.2)
FAILURES: dict[str, Callable[[], Exception]] = {
    "fail": lambda: ValueError("planted"),
    "later": lambda: RetryLater(0.7),
    "reject": lambda: Reject("planted"),
    "down": lambda: ConnectionError("planted"),
    "pause its key": lambda: Pause(0.7, "key"),
    "pause its partition": lambda: Pause(0.7, "partition"),
    "pause its topic": lambda: Pause(0.7, "topic"),
    "pause all": lambda: Pause(0.7, "all"),
}
MOST = 4
SCOPES = (
    partition(TOPIC, 0),
    partition(TOPIC, 2),
    topic(TOPIC),
    pattern(re.compile("ord.*")),
    Everything(),
)

partitions = st.sampled_from(EVERY)
assignments = st.frozensets(partitions)


class Violated(AssertionError):
    """An invariant does not hold."""


class WorkerMachine(RuleBasedStateMachine):
    """Produce, poll, complete, rebalance, lose, pause, commit and stop, in any order."""

    engine_class: type[Engine] = StandingEngine
    schedule_class: type[Schedule] = Schedule

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.tasks: list[Task] = []
        self.trying: list[Task] = []
        self.letters: list[Letter] = []
        self.complete: dict[TopicPartition, set[int]] = {tp: set() for tp in EVERY}
        self.starts: Counter[tuple[Any, int]] = Counter()
        self.not_before: dict[tuple[Any, int], float] = {}
        self.keyless: set[tuple[TopicPartition, int]] = set()
        self.ops: set[Any] = set()
        self.deferred_at: float | None = None
        self.events: list[tuple[Any, dict[str, Any]]] = []
        self.concluded = False
        self.stopping = False
        self.sought = 0
        self.handed_out: set[TopicPartition] = set()

    @initialize(
        order=st.sampled_from(Order),
        cooperative=st.booleans(),
        latest=st.booleans(),
        batch=st.sampled_from((None, None, 0.0, 0.5)),
        on_exhausted=st.sampled_from(("skip", "block", "dead_letter")),
        owned=assignments,
        logs=st.lists(st.integers(0, 12), min_size=4, max_size=4),
    )
    def begin(  # noqa: PLR0913, PLR0917 - one drawn value each
        self,
        order: Order,
        cooperative: bool,  # noqa: FBT001 - drawn
        latest: bool,  # noqa: FBT001 - drawn
        batch: float | None,
        on_exhausted: Any,  # noqa: ANN401 - drawn
        owned: frozenset[TopicPartition],
        logs: list[int],
    ) -> None:
        self.order = order
        self.is_batch = batch is not None
        self.client = FakeClient(
            self.clock, cooperative=cooperative, most=MOST, latest=latest
        )
        self.client.begun_at_end = self.judge_beginning
        self.client.judge = self.judge_commit
        self.client.moved = lambda tp, offset: self.complete[tp].add(offset)
        self.engine = self.engine_class(
            self.client,
            limits=LIMITS,
            drain=DRAIN,
            commit=Commit(every=1.0, timeout=0.5),
            emit=self.emit,
            clock=self.clock,
        )
        has_letters = on_exhausted == "dead_letter"
        policy = Policy(
            retry=RETRY,
            on_exhausted="block" if has_letters else on_exhausted,
            post=self.letters.append if has_letters else None,
            span=LIMITS.span,
            quantum=3,
            is_batch=self.is_batch,
            within=batch or 0.0,
            draw=lambda: 0.5,
        )
        self.schedule = self.schedule_class(
            Queue(
                self.engine.held,
                Lanes(order, self.key_of),
                policy,
                self.clock,
                self.client.others,
            ),
            self.emit,
            self.client.pause,
            BREAKER,
        )
        self.engine.begin(self.schedule)
        self.client.log.update(zip(EVERY, logs, strict=True))
        self.client.rebalance(owned, 0)
        self.turns(2)

    def emit(self, kind: Any, **fields: Any) -> None:  # noqa: ANN401 - any event
        self.events.append((kind, fields))
        kind(**fields)

    # ------------------------------------------------------------ steps

    @rule(tp=partitions, count=st.integers(1, 8))
    def produce(self, tp: TopicPartition, count: int) -> None:
        self.client.log[tp] += count

    @precondition(lambda self: not self.concluded)
    @rule()
    def turn(self) -> None:
        self.engine.soon = self.schedule.turn()
        began = self.clock.now
        self.engine.turn()
        waits = self.engine.departures.deadline is not None
        if waits and self.deferred_at is None:
            self.deferred_at = began
        if not waits:
            self.deferred_at = None
        if self.stopping and self.engine.is_drained():
            self.conclude()

    @rule(count=st.integers(2, 6))
    def turns(self, count: int) -> None:
        for _ in range(count):
            if not self.concluded:
                self.turn()

    @rule(count=st.integers(1, 5))
    def works(self, count: int) -> None:
        for _ in range(count):
            self.turns(1)
            self.claim()
            if self.tasks:
                task = self.tasks.pop(0)
                self.end(task, len(task.indexes), None)

    @rule(error=st.sampled_from(tuple(FAILURES)), count=st.integers(0, 1))
    def fails(self, error: str, count: int) -> None:
        self.claim()
        if self.tasks:
            self.finish(0, min(count, len(self.tasks[0].indexes) - 1), error)

    @rule(count=st.integers(1, 4))
    def claims(self, count: int) -> None:
        for _ in range(count):
            self.claim()

    @precondition(lambda self: len(self.tasks) < 4)
    @rule()
    def claim(self) -> None:
        for task in self.schedule.queue.claim():
            self.check_start(task)
            self.tasks.append(task)

    @precondition(lambda self: self.tasks)
    @rule(
        which=st.integers(0, 9),
        count=st.integers(0, 3),
        error=st.sampled_from(("none", *FAILURES)),
    )
    def finish(self, which: int, count: int, error: str) -> None:
        task = self.tasks.pop(which % len(self.tasks))
        count = min(count, len(task.indexes))
        raised: Exception | None = None
        if count < len(task.indexes) and error != "none":
            raised = FAILURES[error]()
        self.end(task, count, raised)

    @rule(tp=partitions, count=st.integers(1, 8), which=st.integers(0, 7))
    def produce_one_without_a_key(
        self, tp: TopicPartition, count: int, which: int
    ) -> None:
        self.keyless.add((tp, self.client.log[tp] + which % count))
        self.produce(tp, count)

    @precondition(lambda self: self.keyless)
    @rule()
    def keys_are_mended(self) -> None:
        self.keyless.clear()

    @rule(seconds=st.sampled_from((0.05, 0.3, 1.0, 2.5)))
    def advance(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(wanted=assignments, takes=st.integers(0, 2))
    def rebalance(self, wanted: frozenset[TopicPartition], takes: int) -> None:
        if not self.client.is_joining():
            self.client.rebalance(wanted, takes)

    @precondition(lambda self: self.engine.held.records)
    @rule(more=assignments, takes=st.integers(0, 2), count=st.integers(0, 6))
    def rebalance_keeps_what_is_held(
        self, more: frozenset[TopicPartition], takes: int, count: int
    ) -> None:
        self.rebalance(frozenset(self.client.positions) | more, takes)
        self.turns(count)

    @rule()
    def lose(self) -> None:
        self.client.lose()

    @rule(tp=partitions, count=st.integers(1, 3))
    def other_works(self, tp: TopicPartition, count: int) -> None:
        self.client.other_works(tp, count)

    @rule(scope=st.sampled_from(SCOPES))
    def operator_pauses(self, scope: Any) -> None:  # noqa: ANN401 - any scope
        self.client.ledger.place([scope], owner=OPS)
        self.ops.add(scope)

    @rule(scope=st.sampled_from(SCOPES))
    def operator_resumes(self, scope: Any) -> None:  # noqa: ANN401 - any scope
        self.client.ledger.remove([(scope, OPS)])
        self.ops.discard(scope)

    @rule(owner=st.sampled_from((OUTAGE, "worker:breaker")))
    def operator_ends_an_outage(self, owner: str) -> None:
        self.client.ledger.remove_owner(owner)

    @rule()
    def commits_are_answered(self) -> None:
        self.client.answer_all()

    @rule(refuses=st.booleans())
    def broker_refuses(self, refuses: bool) -> None:  # noqa: FBT001 - drawn
        self.client.refuses = refuses

    @precondition(lambda self: self.letters)
    @rule(which=st.integers(0, 9))
    def letter_arrives(self, which: int) -> None:
        letter = self.letters.pop(which % len(self.letters))
        if not letter.lane.epoch.is_closed:
            self.complete[letter.lane.epoch.tp].add(letter.record.offset)
        self.schedule.letter_acknowledged(letter)

    @precondition(lambda self: not self.concluded)
    @rule(is_meant=st.sampled_from((False, False, True)))
    def stop(self, is_meant: bool) -> None:  # noqa: FBT001 - drawn
        if is_meant and not self.stopping:
            self.stopping = True
            self.engine.stop(DRAIN.shutdown)

    # ------------------------------------------------------------ doing

    def end(self, task: Task, count: int, error: Exception | None) -> None:
        if self.is_batch:
            self.end_batch(task, count, error)
            return
        chunk, epoch = task.chunk, task.epoch
        finished = task.indexes[:count]
        offsets = [chunk.records[index].offset for index in finished]  # type: ignore[union-attr]  # not finished
        closed = epoch.is_closed
        failed = []
        if error is not None:
            failed = [(task.indexes[count], error)]
            self.note_failure(task, count, error)
        for index in finished:
            chunk.finish(index)
        if not closed:
            self.complete[epoch.tp].update(offsets)
        left = task.indexes[count + len(failed) :]
        for index in left:  # handed out, and given back: nobody began it
            self.starts[epoch, chunk.records[index].offset] -= 1  # type: ignore[union-attr]  # as above
        outcome = Outcome(
            task=task,
            finished=finished,
            failed=failed,
            left=left,
            seconds=0.001 * count,
        )
        record = chunk.records[task.indexes[count]] if failed else None
        times = 0 if record is None else epoch.failures.get(record.offset, 0)
        self.complete_with(outcome)
        if isinstance(error, ConnectionError) and record is not None and not closed:
            self.note_outage(epoch, record.offset, times)
        self.check_pause(task, error)

    def end_batch(self, task: Task, count: int, error: Exception | None) -> None:
        """Finish a batch, give it back, refuse it, or let one of its records fail."""
        if isinstance(error, (ConnectionError, Pause)):  # those are for single ones
            error = RetryLater(0.7)
        epoch, records = task.epoch, [task.chunk.records[at] for at in task.indexes]
        if error is None and count < len(records):
            outcome = Outcome(task=task, left=task.indexes)
        elif error is None:
            outcome = all_done(task, 0.001)
        else:
            raised = BatchFailure({count: error}) if count else error
            outcome = batch_failed(task, raised, 0.001)
        if not epoch.is_closed:
            done = [records[task.indexes.index(at)] for at in outcome.finished]
            self.complete[epoch.tp].update(one.offset for one in done)  # type: ignore[union-attr]  # it was there
        for index in outcome.left:
            self.starts[epoch, task.chunk.records[index].offset] -= 1  # type: ignore[union-attr]  # it is there
        for index, wrong in outcome.failed:
            at = (epoch, task.chunk.records[index].offset)  # type: ignore[union-attr]  # it is there
            if outcome.is_suspect:
                self.starts[at] -= 1
            else:
                self.note_failure(task, task.indexes.index(index), wrong)  # type: ignore[arg-type]  # planted
        self.complete_with(outcome)

    def complete_with(self, outcome: Outcome) -> None:
        closed, before = outcome.task.epoch.is_closed, self.counters()
        self.schedule.complete([outcome])
        if closed and self.counters() != before:
            raise Violated("9: a stale result changed something")

    def key_of(self, record: Any) -> object:  # noqa: ANN401 - a record
        tp = TopicPartition(record.topic, record.partition)
        if (tp, record.offset) not in self.keyless:
            return record.key
        at = (self.engine.held.epochs[tp], record.offset)
        if self.clock.now < self.not_before.get(at, 0.0):
            raise Violated("10: a key was asked for early")
        self.starts[at] += 1
        if self.starts[at] > RETRY.attempts:
            raise Violated("10: a key was asked for too often")
        self.not_before[at] = self.clock.now + RETRY.delay(self.starts[at], 0.5)
        is_final = self.starts[at] >= RETRY.attempts
        if is_final and self.schedule._policy.on_exhausted == "skip":
            self.complete[tp].add(record.offset)
        message = "planted"
        raise ValueError(message)

    def note_failure(self, task: Task, count: int, error: Exception) -> None:
        record = task.chunk.records[task.indexes[count]]
        assert record is not None
        at = (task.epoch, record.offset)
        if isinstance(error, RetryLater):
            self.not_before[at] = self.clock.now + error.after
            self.starts[at] -= 1
        elif isinstance(error, Pause):
            self.starts[at] -= 1
            if error.scope == "key":  # else there is a hold
                self.not_before[at] = self.clock.now + error.for_
        elif isinstance(error, ConnectionError):
            return  # it depends, see below
        elif isinstance(error, ValueError):
            delay = RETRY.delay(self.starts[at], 0.5)
            self.not_before[at] = self.clock.now + delay
        final = isinstance(error, Reject) or self.starts[at] >= RETRY.attempts
        is_skipped = final and self.schedule._policy.on_exhausted == "skip"
        if is_skipped and not task.epoch.revoked.is_set():
            self.complete[task.epoch.tp].add(record.offset)

    def note_outage(self, epoch: Epoch, offset: int, before: int) -> None:
        if epoch.revoked.is_set():
            return
        at = (epoch, offset)
        counted = self.starts[at]
        is_over = offset not in self.held_offsets(epoch)
        if is_over and self.schedule._policy.on_exhausted == "skip":
            if counted < RETRY.attempts:
                raise Violated("10: a record was passed over early")
            self.complete[epoch.tp].add(offset)
            return
        if epoch.failures.get(offset, 0) > before:
            self.not_before[at] = self.clock.now + RETRY.delay(counted, 0.5)
            return
        if TOPIC not in self.schedule.queue.tripped:
            raise Violated("16: a failure was not counted, and no breaker has opened")
        self.starts[at] -= 1

    def held_offsets(self, epoch: Epoch) -> set[int]:
        return {
            record.offset
            for chunk, index in epoch.progress.incomplete()
            if (record := chunk.records[index]) is not None
        }

    def counters(self) -> tuple[int, int, int, int]:
        held = self.engine.held
        return held.records, held.bytes, held.running, held.done

    def conclude(self) -> None:
        self.concluded = True
        self.schedule.queue.end()
        self.engine.conclude()

    # ------------------------------------------------------------ judging

    def judge_beginning(self, tp: TopicPartition, offset: int) -> None:
        if tp in self.handed_out:
            raise Violated(f"15: {tp} begins at its end, and was worked on before")
        self.complete[tp].update(range(offset))

    def judge_commit(self, tp: TopicPartition, offset: int) -> None:
        missing = set(range(offset)) - self.complete[tp]
        if missing:
            raise Violated(f"1: {tp} committed {offset}, incomplete: {sorted(missing)}")
        if offset < self.client.committed.get(tp, 0):
            raise Violated(f"2: {tp} went back to {offset}")

    def check_start(self, task: Task) -> None:
        chunk, epoch = task.chunk, task.epoch
        covering = self.client.ledger.view().holds.covering(epoch.tp)
        if any(not hold.is_routine for hold in covering):
            raise Violated("15: a record of a held partition was begun")
        self.check_try(task)
        self.handed_out.add(epoch.tp)
        records = [chunk.records[index] for index in task.indexes]
        for record in records:
            if record is None:
                raise Violated("3: a finished record was handed out again")
            at = (epoch, record.offset)
            if record is records[0]:
                self.starts[at] += 1
                if self.clock.now < self.not_before.get(at, 0.0):
                    raise Violated("10: a retry came early")
            else:
                self.starts[at] = 1
            if self.starts[at] > RETRY.attempts:
                raise Violated("10: more attempts than allowed")
        if self.order is not Order.UNORDERED:
            self.check_order(task, records)

    def check_pause(self, task: Task, error: Exception | None) -> None:
        if not isinstance(error, Pause) or error.scope == "key":
            return
        covering = self.client.ledger.view().holds.covering(task.epoch.tp)
        is_held = any(hold.owner == OUTAGE for hold in covering)
        if not is_held and not task.epoch.revoked.is_set():
            raise Violated("17: a pause holds nothing")

    def check_try(self, task: Task) -> None:
        trip = self.schedule.queue.tripped.get(TOPIC)
        if trip is None or trip.is_lifted:
            return
        if trip.task is not task or len(task.indexes) != 1:
            raise Violated("16: a record began that does not try for its topic")
        if self.clock.now < trip.until:
            raise Violated("16: a record tried too early")
        out = [one for one in self.tasks if not one.epoch.is_closed]
        if any(one is trying for one in out for trying in self.trying):
            raise Violated("16: two records try for their topic")
        self.trying = [task]

    def check_order(self, task: Task, records: list[Any]) -> None:
        lane_of = self.lane_of
        lanes = {lane_of(record) for record in records}
        for other in self.tasks:
            if other.epoch.tp == task.epoch.tp:  # of whichever ownership
                theirs = {lane_of(other.chunk.records[i]) for i in other.indexes}
                if lanes & theirs:
                    raise Violated("4: records of one lane overlap")
        ours: dict[object, list[int]] = {}
        for record in records:
            ours.setdefault(lane_of(record), []).append(record.offset)
        for chunk, index in task.epoch.progress.incomplete():
            record = chunk.records[index]
            offsets = ours.get(lane_of(record)) if record is not None else None
            if record is None or offsets is None or record.offset in offsets:
                continue
            if record.offset < offsets[-1]:
                raise Violated(f"4: {offsets} were begun before {record.offset}")
        if any(offsets != sorted(offsets) for offsets in ours.values()):
            raise Violated(f"4: {ours} are out of order")

    def lane_of(self, record: Any) -> object:  # noqa: ANN401 - a record
        return record.key if self.order is Order.KEY else None

    @invariant()
    def is_bounded(self) -> None:
        if not hasattr(self, "engine"):
            return
        held = self.engine.held
        if held.records > LIMITS.records:
            raise Violated(f"5: {held.records} records held")
        one_poll = MOST * (BYTES + 1 + OVERHEAD_BYTES)
        if held.bytes > LIMITS.bytes + one_poll:
            raise Violated(f"5: {held.bytes} bytes held")

    @invariant()
    def is_counted(self) -> None:
        if not hasattr(self, "engine"):
            return
        held = self.engine.held
        open_ = [epoch.progress.incomplete() for epoch in held.epochs.values()]
        if held.records != sum(map(len, open_)):
            raise Violated("5: the counter differs from a recount")
        running = sum(
            len(task.indexes) for task in self.tasks if not task.epoch.is_closed
        )
        if held.running != running:
            raise Violated(f"5: {held.running} are said to run, {running} do")
        gone = Counter(
            task.epoch.tp
            for task in self.tasks
            if task.epoch.is_closed
            for _ in task.indexes
        )
        if held.outlived != gone:
            raise Violated(f"5: {held.outlived} are said to outlive, {gone} do")
        ends = held.records + held.done + self.engine.departures.dropped
        if len(self.client.delivered) != ends:
            raise Violated("3: a record ended twice, or not at all")

    @invariant()
    def nothing_is_passed_over(self) -> None:
        if not hasattr(self, "engine") or self.concluded or self.client.is_lost():
            return
        for tp, (first, position) in self.client.ran().items():
            epoch = self.engine.held.epochs.get(tp)
            held = set() if epoch is None else self.held_offsets(epoch)
            gone = set(range(first, position)) - held - self.complete[tp]
            if gone:
                raise Violated(f"3: {tp} is owned, and gave up {sorted(gone)}")

    @invariant()
    def holds_are_their_owners(self) -> None:
        if not hasattr(self, "engine"):
            return
        there = {one.scope for one in self.client.holds() if one.owner == OPS}
        if there != self.ops:
            raise Violated("7: an operator's hold was touched")
        if self.engine.leaked:
            raise Violated("6: a record came in spite of a hold")

    @invariant()
    def drains_end(self) -> None:
        limit = max(DRAIN.revoke, DRAIN.shutdown) + 6.0  # a turn's steps of the clock
        if self.deferred_at is not None and not self.stopping:
            polls = [at for at in self.client.polls if at > self.deferred_at + limit]
            if len(polls) > 2:
                raise Violated("11: a drain outlived its deadline")

    # ------------------------------------------------------------ in the end

    def teardown(self) -> None:
        if hasattr(self, "engine"):
            self.settle()

    def settle(self) -> None:
        """With nobody in the way everything owned is finished, and then committed."""
        self.client.refuses = False
        self.keyless.clear()
        for scope in tuple(self.ops):
            self.operator_resumes(scope)
        for _ in range(400):
            if not self.concluded:
                self.serve()
        blocked = any(e.stuck for e in self.engine.held.epochs.values())
        if not self.concluded and not blocked:
            raise Violated(f"8: not finished: {self.engine.held.epochs}")
        if not self.concluded:
            self.conclude()
        if self.engine.held.load.records or self.engine.held.running:
            raise Violated("5: something is held after the end")
        if any(hold.owner in OWNERS for hold in self.client.holds()):
            raise Violated("7: a hold of ours outlived us")

    def serve(self) -> None:
        """Finish what there is, and turn once."""
        while self.letters:
            self.letter_arrives(0)
        self.claim()
        while self.tasks:
            self.finish(0, len(self.tasks[0].indexes), "none")
        self.client.answer_all()
        self.clock.now += 0.2
        self.turn()
        self.is_counted()
        if not self.stopping and self.is_settled():
            self.stop(is_meant=True)

    def is_settled(self) -> bool:
        client = self.client
        if client.needs_join or client.is_lost():
            return False
        return not self.engine.held.records and all(
            client.positions[tp] == client.log[tp] for tp in client.positions
        )
