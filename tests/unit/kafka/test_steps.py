"""Tests the results and the positions of iteration steps in C and in Python."""

import gc
import tracemalloc
import weakref
from collections import namedtuple
from types import SimpleNamespace

import pytest
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.decoding import _batches
from safeconsumer._kafka.pausing.steps import Steps
from safeconsumer._kafka.structs import ConsumerRecord
from tests.unit.kafka.decoding.compiled import TP, Ledger, State, record, steps_of

both = pytest.mark.parametrize("kind", [Steps, _batches.Steps], ids=["Python", "C"])


class Moved(State):
    """A state in which a seek changes the position after a step has read it."""

    @property
    def _awaiting_validation(self):
        self.moves += 1
        return False

    @_awaiting_validation.setter
    def _awaiting_validation(self, value):
        del value


@both
def test_position_is_after_each_returned_record(kind):
    """The position is a new object of the same class, and stored in the state."""
    state = State()
    steps = steps_of(kind, Ledger(), state)
    for number in range(3):
        assert next(steps).offset == number
        assert steps.position is state._position
        assert steps.position == OffsetAndMetadata(number + 1, "", 7)
        assert (type(steps.position), steps.at) == (OffsetAndMetadata, number + 1)
    assert (steps.tp, steps.state, steps.moves) == (TP, state, 0)
    assert [*steps] == []


def _queued(ledger, _state, _assignment):
    ledger.settled, ledger.asked = frozenset(), frozenset({TP})
    ledger.queue.append("a change")


ENDS = {
    "a hold": lambda ledger, *_: setattr(ledger, "asked", {TP}),
    "a hold that is settled": lambda ledger, *_: setattr(ledger, "settled", {TP}),
    "a hold that is queued": _queued,
    "a pause": lambda _, state, __: setattr(state, "paused", True),
    "a revocation": lambda _, state, __: setattr(state, "_pending_revocation", True),
    "a validation": lambda _, state, __: setattr(state, "_awaiting_validation", True),
    "a seek": lambda _, state, __: setattr(
        state, "_position", OffsetAndMetadata(1, "", 7)
    ),
    "no ownership": lambda *given: given[2].clear(),
    "another ownership": lambda *given: given[2].update({TP: State()}),
}


@both
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_iteration_ends_when_the_partition_must_not_be_read(kind, end):
    """The partition's position stays unchanged."""
    ledger, state = Ledger(), State()
    assignment, records = {TP: state}, [record(offset) for offset in range(3)]
    steps = kind(ledger, assignment, TP, state, state._position, records)
    next(steps)
    end(ledger, state, assignment)
    before = state._position
    assert next(steps, None) is None
    assert (steps.at, state._position) == (1, before)


@both
def test_cached_quiet_set_is_used_while_the_ledgers_queue_is_empty(kind):
    ledger = Ledger()
    steps = steps_of(kind, ledger, State())
    ledger.settled, ledger.asked = frozenset(), frozenset({TP})
    assert next(steps).offset == 0


@both
def test_seek_during_a_step_ends_the_iteration_and_takes_effect(kind):
    state = Moved()
    steps = steps_of(kind, Ledger(), state)
    assert next(steps, None) is None
    assert (steps.at, state.was_restored) == (0, True)


@both
def test_exception_in_the_ledger_is_raised_by_the_step(kind):
    """If a signal handler raises, no position moves, and the next step continues."""
    state, errors = State(), [ZeroDivisionError]

    class Raising(Ledger):
        def quiet(self):
            if errors:
                raise errors.pop()
            return super().quiet()

    steps = steps_of(kind, Raising(), state)
    with pytest.raises(ZeroDivisionError):
        next(steps)
    assert (steps.at, state._position.offset) == (0, 0)
    assert [one.offset for one in steps] == [0, 1, 2]


Backwards = namedtuple("Backwards", reversed(ConsumerRecord._fields))  # noqa: PYI024 - its names are computed


@both
@pytest.mark.parametrize(
    "own",
    [
        SimpleNamespace(offset=4, leader_epoch=7),
        Backwards(**record(4)._asdict()),
    ],
    ids=["object", "another-order"],
)
def test_records_may_be_of_the_programs_own_class(kind, own):
    """The program's ``poll()`` makes such records, and a step reads the fields by name."""
    state = State()
    steps = kind(Ledger(), {TP: state}, TP, state, state._position, [own])
    assert [*steps] == [own]
    assert state._position == OffsetAndMetadata(5, "", 7)


def test_wrong_arguments_to_the_c_version_of_steps_raise_python_errors():
    ledger, state = Ledger(), State()
    usual = [ledger, {TP: state}, TP, state, state._position, []]
    for at, wrong in ((1, []), (3, object()), (4, (0, "", -1)), (4, None), (5, ())):
        with pytest.raises((TypeError, AttributeError)):
            _batches.Steps(*[*usual[:at], wrong, *usual[at + 1 :]])
    with pytest.raises(TypeError):
        _batches.Steps()
    for wrong in (None, (1, 2), (None,) * 13):
        usual[5] = [wrong]
        with pytest.raises((TypeError, AttributeError)):
            next(_batches.Steps(*usual))


def test_steps_in_c_leak_neither_memory_nor_reference_cycles():
    ledger = Ledger()
    ledger.steps = steps_of(_batches.Steps, ledger, State())
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
    # A thread of an earlier test may allocate memory, but a leak would occur in each run.
    assert min(growth() for _ in range(3)) < 2_000
