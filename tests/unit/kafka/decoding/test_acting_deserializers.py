"""A deserializer that polls the consumer it belongs to: no record is lost, or comes twice."""

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
