"""Deserializers of each form have the same results and errors in both decoders (P15)."""

import sys
import warnings
from itertools import product

import pytest
from attrs import evolve
from hypothesis import strategies as st
from kafka import KafkaConsumer
from kafka.consumer.fetcher import Fetcher
from kafka.record import MemoryRecords
from kafka.serializer import Deserializer

from safeconsumer._kafka.decoding.decoders import choose
from safeconsumer._kafka.decoding.deserializing import deserialized
from safeconsumer.errors import ConcurrentPollError
from tests.harness.drawing import draw, examples
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.offline import offline
from tests.harness.listing import short
from tests.unit.kafka.decoding.batches import COMMIT, Frame, Row, marker, written
from tests.unit.kafka.decoding.compare import (
    TP,
    Case,
    compared,
    errors_of,
    records_of,
    story,
)
from tests.unit.kafka.decoding.compiled import Calling
from tests.unit.kafka.decoding.strategies import answers

# These tests are CPU-bound and slow on a busy machine.
pytestmark = pytest.mark.timeout(600)

ERRORS = [ValueError, StopIteration, TypeError]
both_decoders = pytest.mark.parametrize("decoder", ["python", "compiled"])


class Picky(Deserializer):
    """A deserializer that raises an error for data with certain first bytes."""

    def __init__(self, error, letters):
        self.error = error
        self.letters = letters

    def deserialize(self, topic, headers, data):
        if self.error and data and data[0] in self.letters:
            raise self.error(data)
        return topic, len(headers), data


class WithoutHeaders(Deserializer):
    """A deserializer with the older signature, which has no parameter for headers."""

    def __init__(self, picky):
        self.picky = picky

    def deserialize(self, topic, data):
        return self.picky.deserialize(topic, [], data)


class Meddling(Deserializer):
    """A deserializer that changes the headers that it receives."""

    def __init__(self, change):
        self.change = change

    def deserialize(self, _topic, headers, data):
        self.change(headers)
        return None if data is None else data.decode("latin-1")


CHANGES = [
    list.reverse,
    list.clear,
    lambda headers: headers.append(("é", b"12")),
    lambda headers: headers.append(("none", None)),
    lambda headers: headers.append((1, 2)),  # a header whose size is undefined
]


def wrapped(deserializer):
    """Return the deserializer object in which a consumer wraps a plain callable."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with offline(KafkaConsumer, value_deserializer=deserializer) as consumer:
            return consumer._fetcher.config["value_deserializer"]


def _plain(data):
    return None if data is None else data.decode("utf-8")


WRAPPED = wrapped(_plain)  # raises UnicodeDecodeError for many bytes

pickies = st.builds(
    Picky, st.sampled_from([None, *ERRORS]), st.binary(min_size=1, max_size=9)
)
deserializers = (
    st.none()
    | pickies
    | st.builds(WithoutHeaders, pickies)
    | st.builds(Meddling, st.sampled_from(CHANGES))
    | st.just(WRAPPED)
)


@examples(8, 1_000)
def test_deserializers_have_the_same_results_in_both_decoders(most):
    """Both decoders return the same records, or the same error at the same record."""

    def alike(case, key, value):
        compared(evolve(case, key_deserializer=key, value_deserializer=value))

    draw(most, alike, case=answers(), key=deserializers, value=deserializers)


def same(picky):
    return picky


def function(picky):
    return wrapped(lambda data: picky.deserialize("", [], data))


FORMS = [same, WithoutHeaders, function]


@pytest.mark.parametrize(
    ("form", "error", "start"), [*product(FORMS, ERRORS, [0, 4, 5])], ids=short
)
def test_deserializer_error_is_raised_after_the_preceding_records(form, error, start):
    """A ``StopIteration`` is raised as a ``RuntimeError``."""
    rows = [Row(value=b"%d" % number, headers=(("h", b"v"),)) for number in range(9)]
    case = Case(
        data=written(0, rows, Frame(codec=1))[0],
        fetch_offset=start,
        takes=(2, None),
        value_deserializer=form(Picky(error, b"5")),
    )
    steps = compared(case)
    assert errors_of(steps) == [RuntimeError if error is StopIteration else error]
    assert [record[3] for record in records_of(steps)] == [*range(start, 5)]


@pytest.mark.parametrize("form", FORMS, ids=short)
@both_decoders
def test_type_error_is_raised_unchanged(decoder, form):
    """kafka-python retries without headers, and raises the error of that call."""
    data, _ = written(0, [Row(value=b"5")], Frame())
    case = Case(data=data, value_deserializer=form(Picky(TypeError, b"5")))
    raised = [one for one in story(choose(decoder).records, case) if one[0] == "raised"]
    assert raised == [("raised", TypeError, "b'5'")]
    stock = [one for one in story(Fetcher.PartitionRecords, case) if one[0] == "raised"]
    assert (stock == raised) == (form is WithoutHeaders)


class Delegating(Deserializer):
    """A deserializer that passes its arguments on, as decorated methods do."""

    def __init__(self, reader):
        self.reader = reader

    def deserialize(self, *given):
        return self.reader.deserialize(*given)


@pytest.mark.parametrize("form", [same, WithoutHeaders], ids=short)
def test_type_error_from_deeper_inside_the_deserializer_is_raised(form):
    reader = Delegating(form(Picky(TypeError, b"5")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert deserialized(reader, "t", [], b"6") == ("t", 0, b"6")
        with pytest.raises(TypeError, match="b'5'"):
            deserialized(reader, "t", [], b"5")


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [1, 2])
@both_decoders
def test_records_before_the_fetch_offset_are_not_deserialized(decoder, codec, magic):
    """A seek can therefore skip an unreadable record; upstream would raise again."""
    rows = [Row(value=b"%d" % number) for number in range(9)]
    data, _ = written(0, rows, Frame(codec=codec, magic=magic))
    refusing = Picky(ValueError, b"5")
    case = Case(data=data, fetch_offset=6, takes=(1, None), value_deserializer=refusing)
    steps = story(choose(decoder).records, case)
    assert errors_of(steps) == []
    assert [record[3] for record in records_of(steps)] == [6, 7, 8]
    assert steps == compared(case)
    asked = evolve(case, value_deserializer=Picky(None, b""))
    assert steps[-2] == story(Fetcher.PartitionRecords, asked)[-2]  # metrics


# ------------------------------------------------------------ interrupted calls of take


def part_of(deserializer, decoder="compiled"):
    data, _ = written(0, [Row(value=b"v")] * 3, Frame())
    return choose(decoder).records(
        0, TP, MemoryRecords(data), value_deserializer=deserializer
    )


def raising(error):
    def call(_topic, _headers, data):
        if error:
            raise error[0]
        return data

    return Calling(call)


def test_interrupted_reader_does_not_return_further_records():
    """As with upstream's generator, the remaining records must be fetched again."""
    error = []
    part = part_of(raising(error))
    assert len(part.take(1)) == 1
    error.append(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        part.take()
    error.clear()
    assert part.take() == []
    assert part.next_fetch_offset == 1


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
def test_drained_reader_frees_its_response(codec):
    data = bytes(written(0, [Row(value=b"v")] * 3, Frame(codec=codec))[0])
    before = sys.getrefcount(data)
    part = choose("compiled").records(0, TP, MemoryRecords(data))
    part.take(1)
    part.drain()
    assert sys.getrefcount(data) == before
    assert part.take() == []


def test_stop_iteration_is_logged_and_is_the_context_of_the_error(caplog):
    stop = StopIteration("next() of mine")
    with pytest.raises(RuntimeError) as caught:
        part_of(raising([stop])).take()
    assert caught.value.__context__ is stop
    (logged,) = caplog.records
    assert (logged.name, logged.exc_info[1]) == ("kafka.consumer.fetcher", stop)


@pytest.mark.parametrize("is_transactional", [False, True])
@both_decoders
def test_records_report_whether_a_transactional_batch_was_read(
    decoder, *, is_transactional
):
    """The journal records this; a transaction marker alone counts as transactional, too."""
    first, at = written(0, [Row(value=b"v")] * 3, Frame())
    frame = Frame(producer=7, transactional=is_transactional)
    data = first + written(at, [Row(value=b"v")] * 3, frame)[0]
    for deserializer in (None, raising([])):
        part = choose(decoder).records(
            0, TP, MemoryRecords(data), value_deserializer=deserializer
        )
        part.take(3)
        assert not part.is_transactional
        part.take(3)
        assert part.is_transactional is is_transactional
    part = choose(decoder).records(0, TP, MemoryRecords(marker(0, COMMIT, 7)[0]))
    part.take(1)
    assert part.is_transactional


# ------------------------------------------------------------ a poll in a deserializer


@pytest.mark.parametrize("is_caught", [False, True])
@both_decoders
def test_poll_in_a_deserializer_is_refused_and_no_record_is_lost(
    safe, decoder, *, is_caught
):
    """The running poll continues if the deserializer catches the error."""
    asked = []

    def third(_topic, _headers, data):
        asked.append(data)
        if len(asked) == 3:
            try:
                consumer.poll(0)
            except ConcurrentPollError:
                if not is_caught:
                    raise
        return data

    class Acting(Calling, Deserializer):
        pass

    consumer = safe(decoder=decoder, value_deserializer=Acting(third))
    assigned(consumer, TP)
    answer(consumer, TP, 0, batch(0, 5))
    answer(consumer, TP, 5, batch(5, 5))
    got = offsets(consumer.poll(0))
    assert got == {TP.partition: [*range(10)] if is_caught else [0, 1]}
    if not is_caught:
        with pytest.raises(ConcurrentPollError):
            consumer.poll(0)
    assert consumer.position(TP) == (10 if is_caught else 2)
