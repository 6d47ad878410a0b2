"""A consumer that was made before a fork says so in the child when it is polled (P12)."""

import os
import signal

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.errors import ForkedConsumerError
from tests.harness.kafka.fetches import answer, assigned, batch
from tests.harness.kafka.offline import offline
from tests.harness.listing import short

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

A = TopicPartition("orders", 0)


class Slotted(SafeConsumer):
    __slots__ = ("extra",)


class Listening(SafeConsumer):
    """Needs something in its subscribe() that its constructor makes last."""

    def __init__(self, *topics, **configs):
        super().__init__(*topics, **configs)
        self.mine = object()

    def subscribe(self, *args, **kwargs):
        assert self.mine
        super().subscribe(*args, **kwargs)


CALLS = {
    "poll": lambda consumer: consumer.poll(0),
    "iterate": next,
    "close": lambda consumer: consumer.close(autocommit=False),
}


def error_in_child(consumer, call):
    """Call something in a forked child; return the name of the error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _report(consumer, call, write)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def _report(consumer, call, write):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)  # a child that waits for threads it has not got dies here
    answer = "nothing raised"
    try:
        CALLS[call](consumer)
    except BaseException as error:  # noqa: BLE001 - the child only reports
        answer = type(error).__name__
    os.write(write, answer.encode())
    os._exit(0)


@pytest.mark.contract("P12")
@pytest.mark.parametrize("call", CALLS, ids=short)
def test_a_forked_consumer_says_so(call):
    """Its threads stayed behind; without the check the child would wait for ever."""
    with offline(SafeConsumer, group_id="g") as consumer:
        consumer.assign([A])
        assert error_in_child(consumer, call) == ForkedConsumerError.__name__


@pytest.mark.parametrize("kind", [Slotted, Listening], ids=short)
def test_a_subclass_says_so_too(kind):
    """One that is odd does not leave the others unguarded; it is what it was."""
    with offline(kind, log=False) as consumer:
        assert error_in_child(consumer, "poll") == ForkedConsumerError.__name__
        assert isinstance(consumer, kind)


def test_a_consumer_forked_in_the_middle_of_an_iteration_says_so():
    """What the parent had taken is the parent's to deliver; the parent goes on."""
    with offline(SafeConsumer) as consumer:
        assigned(consumer, A)
        answer(consumer, A, 0, batch(0, 3))
        assert next(consumer).offset == 0
        assert error_in_child(consumer, "iterate") == ForkedConsumerError.__name__
        assert next(consumer).offset == 1
