"""The steps of an iteration, in C and in Python: where they end, and what they leave."""

import gc
import tracemalloc
import weakref
from collections import deque, namedtuple
from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.decoding import _batches
from safeconsumer._kafka.pausing.steps import Steps
from safeconsumer._kafka.structs import ConsumerRecord

TP = TopicPartition("orders", 3)
both = pytest.mark.parametrize("kind", [Steps, _batches.Steps], ids=["Python", "C"])


class Ledger:
    """What a step asks; nothing is settled, so that it asks for all of it."""

    def __init__(self):
        self.queue = deque()
        self.settled = None
        self.asked = frozenset[TopicPartition]()

    def quiet(self):
        """As the ledger's."""
        if not self.queue and self.settled is not None:
            return self.settled
        return self.asked


class State:
    """What a step looks at, of a partition."""

    def __init__(self):
        self._position = OffsetAndMetadata(0, "", -1)
        self.moves = 0
        self.paused = self._pending_revocation = self._awaiting_validation = False
        self.was_settled = False

    def is_fetchable(self):
        """As upstream's."""
        held = self.paused or self._pending_revocation
        return not held and not self._awaiting_validation

    def settle(self):
        """Note it."""
        self.was_settled = True


class Moved(State):
    """One that is sought while a step looks at it: once it has seen the position."""

    @property
    def _awaiting_validation(self):
        self.moves += 1
        return False

    @_awaiting_validation.setter
    def _awaiting_validation(self, value):
        del value


def steps_of(kind, ledger, state, count=3):
    """Make steps over some records."""
    records = [
        ConsumerRecord("orders", 3, 7, n, 1, 0, None, b"v", [], None, -1, 1, -1)
        for n in range(count)
    ]
    return kind(ledger, {TP: state}, TP, state, state._position, records)


@both
def test_the_position_is_behind_each_record(kind):
    """It is a new object of the same class, and the state's."""
    ledger, state = Ledger(), State()
    steps = steps_of(kind, ledger, state)
    for number in range(3):
        assert next(steps).offset == number
        assert steps.position is state._position
        assert steps.position == OffsetAndMetadata(number + 1, "", 7)
        assert (type(steps.position), steps.at) == (OffsetAndMetadata, number + 1)
    assert (steps.tp, steps.state, steps.moves) == (TP, state, 0)
    assert [*steps] == []


ENDS = {
    "a hold": lambda ledger, *_: setattr(ledger, "asked", {TP}),
    "a hold that is settled": lambda ledger, *_: setattr(ledger, "settled", {TP}),
    "a pause": lambda _, state, __: setattr(state, "paused", True),
    "a revocation": lambda _, state, __: setattr(state, "_pending_revocation", True),
    "a validation": lambda _, state, __: setattr(state, "_awaiting_validation", True),
    "a seek": lambda _, state, __: setattr(
        state, "_position", OffsetAndMetadata(1, "", 7)
    ),
}


@both
@pytest.mark.parametrize("name", ENDS)
def test_a_step_ends_where_the_partition_may_not_be_read(kind, name):
    """It has moved nothing then, and goes on once that is over."""
    ledger, state = Ledger(), State()
    steps = steps_of(kind, ledger, state)
    next(steps)
    ENDS[name](ledger, state, steps)
    before = state._position
    assert next(steps, None) is None
    assert (steps.at, state._position) == (1, before)


@both
def test_what_waits_in_the_queue_counts_over_what_is_settled(kind):
    """A change is not applied yet: the ledger is asked, and applies it."""
    ledger, state = Ledger(), State()
    steps = steps_of(kind, ledger, state)
    ledger.settled = frozenset()
    next(steps)
    ledger.asked = frozenset({TP})
    assert next(steps).offset == 1
    ledger.queue.append("a change")
    assert next(steps, None) is None


@both
def test_a_step_of_another_ownership_ends(kind):
    """The assignment has another state for the partition, or none."""
    for other in ({}, {TP: State()}):
        ledger, state = Ledger(), State()
        assignment = {TP: state}
        record = ConsumerRecord("o", 3, 7, 0, 1, 0, None, b"v", [], None, -1, 1, -1)
        steps = kind(ledger, assignment, TP, state, state._position, [record])
        assignment.clear()
        assignment.update(other)
        assert next(steps, None) is None
        assert steps.at == 0


@both
def test_a_seek_in_the_middle_of_a_step(kind):
    """The record is not yielded, and the state is told to have the seek's position."""
    state = Moved()
    steps = steps_of(kind, Ledger(), state)
    assert next(steps, None) is None
    assert (steps.at, state.was_settled) == (0, True)


@both
def test_what_a_look_raises_comes_out(kind):
    """A signal handler's, say. Nothing has moved."""
    ledger, state = Ledger(), State()
    steps = steps_of(kind, ledger, state)
    usual, ledger.quiet = ledger.quiet, lambda: 1 / 0
    if kind is Steps:
        steps._quiet = ledger.quiet
    with pytest.raises(ZeroDivisionError):
        next(steps)
    assert (steps.at, state._position.offset) == (0, 0)
    del ledger.quiet
    if kind is Steps:
        steps._quiet = usual
    assert [one.offset for one in steps] == [0, 1, 2]


def test_arguments_of_another_kind_are_refused():
    """Records and positions are taken apart in C."""
    ledger, state = Ledger(), State()
    usual = [ledger, {TP: state}, TP, state, state._position, []]
    for at, wrong in ((1, []), (3, object()), (4, (0, "", -1)), (4, None), (5, ())):
        with pytest.raises((TypeError, AttributeError)):
            _batches.Steps(*[*usual[:at], wrong, *usual[at + 1 :]])
    with pytest.raises(TypeError):
        _batches.Steps()
    for record in (None, (1, 2), (None,) * 13):
        usual[5] = [record]
        with pytest.raises((TypeError, AttributeError)):
            next(_batches.Steps(*usual))


@both
def test_records_may_be_of_another_class(kind):
    """An application's own ``poll()`` has made them; they have an offset and an epoch."""
    ledger, state = Ledger(), State()
    record = SimpleNamespace(offset=4, leader_epoch=2)
    steps = kind(ledger, {TP: state}, TP, state, state._position, [record])
    assert [*steps] == [record]
    assert state._position == OffsetAndMetadata(5, "", 2)


Backwards = namedtuple("Backwards", reversed(ConsumerRecord._fields))  # noqa: PYI024 - its names are computed


@both
def test_fields_in_another_order_are_read_by_name(kind):
    """An application's own ``poll()`` may return named tuples of its own."""
    ledger, state = Ledger(), State()
    record = ConsumerRecord("orders", 3, 7, 4, 1, 0, None, b"v", [], None, -1, 1, -1)
    rebuilt = Backwards(**record._asdict())
    steps = kind(ledger, {TP: state}, TP, state, state._position, [rebuilt])
    assert [*steps] == [rebuilt]
    assert state._position == OffsetAndMetadata(5, "", 7)


def test_steps_keep_no_object_alive():
    """Neither in a cycle, nor bit by bit."""
    ledger, state = Ledger(), State()
    ledger.steps = steps_of(_batches.Steps, ledger, state)
    gone = weakref.ref(ledger)
    del ledger
    gc.collect()
    assert gone() is None

    def work():
        ledger = Ledger()
        assert len([*steps_of(_batches.Steps, ledger, State(), 50)]) == 50
        ledger.asked = frozenset({TP})
        assert [*steps_of(_batches.Steps, ledger, Moved(), 50)] == []

    def growth():
        tracemalloc.start()
        try:
            work()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(200):
                work()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return after - before

    work()
    # A thread of an earlier test may allocate meanwhile; a leak shows each time.
    assert min(growth() for _ in range(3)) < 2_000
