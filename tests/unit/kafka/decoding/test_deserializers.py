"""Deserializers of all three forms, and what they raise, count alike (P15)."""

import warnings
from itertools import product

import pytest
from attrs import evolve
from hypothesis import strategies as st
from kafka import KafkaConsumer
from kafka.consumer.fetcher import Fetcher
from kafka.serializer import Deserializer

from safeconsumer._kafka.decoding.decoders import choose
from safeconsumer._kafka.decoding.deserializing import deserialized
from tests.harness.drawing import draw, examples
from tests.harness.kafka.offline import offline
from tests.harness.listing import short
from tests.unit.kafka.decoding.batches import Frame, Row, written
from tests.unit.kafka.decoding.compare import (
    Case,
    compared,
    errors_of,
    records_of,
    story,
)
from tests.unit.kafka.decoding.strategies import answers

# They only compute, and take long on a machine that does much else.
pytestmark = pytest.mark.timeout(600)

ERRORS = [ValueError, StopIteration, TypeError]


class Picky(Deserializer):
    """Raises for data of some first letters, and notes what it was asked for."""

    def __init__(self, error, letters):
        self.error = error
        self.letters = letters

    def deserialize(self, topic, headers, data):
        if self.error and data and data[0] in self.letters:
            raise self.error(data)
        return topic, len(headers), data


class Two(Deserializer):
    """The older form, without headers."""

    def __init__(self, picky):
        self.picky = picky

    def deserialize(self, topic, data):
        return self.picky.deserialize(topic, [], data)


class Meddling(Deserializer):
    """Changes the headers it is shown."""

    def deserialize(self, topic, headers, data):
        headers.append((topic, data))
        return None if data is None else data.decode("latin-1")


def wrapped(deserializer):
    """Return what a consumer makes of a plain callable."""
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
    | st.builds(Two, pickies)
    | st.builds(Meddling)
    | st.just(WRAPPED)
)


@examples(8, 1_000)
def test_whatever_they_do(most):
    """The same results, or the same error at the same record, whatever was taken before."""

    def alike(case, key, value):
        compared(evolve(case, key_deserializer=key, value_deserializer=value))

    draw(most, alike, case=answers(), key=deserializers, value=deserializers)


FORMS = [lambda picky: picky, Two, lambda picky: wrapped(_calling(picky))]


def _calling(picky):
    return lambda data: picky.deserialize("", [], data)


@pytest.mark.parametrize(
    ("form", "error", "start"), [*product(FORMS, ERRORS, [0, 4, 5])], ids=short
)
def test_the_error_comes_behind_what_stands_before_it(form, error, start):
    """``StopIteration`` as ``RuntimeError``; also if nothing stands before it."""
    rows = [Row(value=b"%d" % number, headers=(("h", b"v"),)) for number in range(9)]
    data, _ = written(0, rows, Frame(codec=1))
    case = Case(
        data=data,
        fetch_offset=start,
        takes=(2, None),
        value_deserializer=form(Picky(error, b"5")),
    )
    steps = compared(case)
    if form is Two and error is TypeError:
        assert errors_of(steps) == [TypeError]
    expected = RuntimeError if error is StopIteration else error
    assert errors_of(steps) == [expected]
    assert [record[3] for record in records_of(steps)] == [*range(start, 5)]


@pytest.mark.parametrize(
    ("decoder", "form"), [*product(["python", "compiled"], FORMS)], ids=short
)
def test_a_type_error_of_a_deserializer_comes_as_it_was_raised(decoder, form):
    """kafka-python tries a second time, without headers, and raises what that raises."""
    data, _ = written(0, [Row(value=b"5")], Frame())
    reader = form(Picky(TypeError, b"5"))
    case = Case(data=data, value_deserializer=reader)
    raised = [one for one in story(choose(decoder).records, case) if one[0] == "raised"]
    assert raised == [("raised", TypeError, "b'5'")]
    stock = [one for one in story(Fetcher.PartitionRecords, case) if one[0] == "raised"]
    assert (stock == raised) == (form is Two)


class Doubtful(Deserializer):
    """Hands on whatever it is given, as decorated methods do."""

    def __init__(self, reader):
        self.reader = reader

    def deserialize(self, *given):
        return self.reader.deserialize(*given)


@pytest.mark.parametrize(
    ("form", "data"), [*product([lambda picky: picky, Two], [b"5", b"6"])], ids=short
)
def test_what_hands_on_its_arguments_is_understood(form, data):
    """The error that comes from further inside is the deserializer's own."""
    reader = Doubtful(form(Picky(TypeError, b"5")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if data == b"6":
            assert deserialized(reader, "t", [], data) == ("t", 0, b"6")
            return
        with pytest.raises(TypeError, match="b'5'"):
            deserialized(reader, "t", [], data)


@pytest.mark.parametrize(
    ("decoder", "codec", "magic"),
    [*product(["python", "compiled"], [0, 1], [1, 2])],
    ids=short,
)
def test_what_a_seek_went_past_is_not_deserialized(decoder, codec, magic):
    """
    A record that cannot be is passed by a seek to the next one; upstream raises again.

    Also in the old format, which has no compiled reader. It counts as read.
    """
    rows = [Row(value=b"%d" % number) for number in range(9)]
    data, _ = written(0, rows, Frame(codec=codec, magic=magic))
    case = Case(
        data=data,
        fetch_offset=6,
        takes=(1, None),
        value_deserializer=Picky(ValueError, b"5"),
    )
    steps = story(choose(decoder).records, case)
    assert errors_of(steps) == []
    assert [record[3] for record in records_of(steps)] == [6, 7, 8]
    assert steps == compared(case)
    asked = evolve(case, value_deserializer=Picky(None, b""))
    assert steps[-2] == story(Fetcher.PartitionRecords, asked)[-2]  # metrics
