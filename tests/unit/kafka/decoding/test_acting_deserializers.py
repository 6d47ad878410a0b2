"""Deserializers that use the consumer they belong to: no record is lost, or comes twice."""

import pytest
from kafka.serializer import Deserializer

from safeconsumer.errors import ConcurrentPollError
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.unit.kafka.decoding.compare import TP


class Acting(Deserializer):
    """Calls something once, at its third record."""

    def __init__(self):
        self.asked = 0
        self.act = None

    def deserialize(self, topic, headers, data):
        del topic, headers
        self.asked += 1
        if self.asked == 3:
            self.act()
        return data


@pytest.fixture(params=["python", "compiled"])
def made(request, safe):
    """Make a consumer with two answers of five records each, and its deserializer."""
    acting = Acting()
    consumer = safe(decoder=request.param, value_deserializer=acting)
    assigned(consumer, TP)
    answer(consumer, TP, 0, batch(0, 5))
    answer(consumer, TP, 5, batch(5, 5))
    return consumer, acting


def test_one_that_polls_is_refused(made):
    """The records before it come; what is behind them is fetched again."""
    consumer, acting = made
    acting.act = lambda: consumer.poll(0)
    got = consumer.poll(0)
    assert offsets(got) == {TP.partition: [0, 1]}
    with pytest.raises(ConcurrentPollError):
        consumer.poll(0)
    assert consumer.position(TP) == 2


def test_one_that_survives_its_own_poll_loses_nothing(made):
    """The poll under way goes on."""
    consumer, acting = made

    def act():
        with pytest.raises(ConcurrentPollError):
            consumer.poll(0)

    acting.act = act
    assert offsets(consumer.poll(0)) == {TP.partition: [*range(10)]}
    assert consumer.position(TP) == 10


def test_one_that_seeks_gets_what_it_asked_for(made):
    """What was taken before the seek is not returned."""
    consumer, acting = made
    acting.act = lambda: consumer.seek(TP, 7)
    assert consumer.poll(0) == {}
    assert consumer.position(TP) == 7
    answer(consumer, TP, 7, batch(5, 5))
    assert offsets(consumer.poll(0)) == {TP.partition: [7, 8, 9]}


def test_one_that_pauses_has_its_records_kept(made):
    """They come when the hold is lifted, each once."""
    consumer, acting = made
    acting.act = lambda: consumer.pause(TP)
    assert consumer.poll(0) == {}
    assert consumer.position(TP) == 0
    consumer.resume(TP)
    assert offsets(consumer.poll(0)) == {TP.partition: [*range(10)]}


def test_ctrl_c_in_one_brings_its_records_again(made):
    """The position has not moved."""
    consumer, acting = made

    def act():
        raise KeyboardInterrupt

    acting.act = act
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(0)
    assert consumer.position(TP) == 0
    answer(consumer, TP, 0, batch(0, 5))
    assert offsets(consumer.poll(0))[TP.partition][:5] == [*range(5)]
