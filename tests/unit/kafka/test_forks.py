"""A consumer that was created before a fork raises an error in the child (P12)."""

import os

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer.errors import ForkedConsumerError
from tests.harness.kafka.fetches import answer, assigned, batch
from tests.harness.kafka.offline import offline
from tests.harness.listing import short
from tests.harness.processes import status_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

A = TopicPartition("orders", 0)


class Slotted(SafeConsumer):
    __slots__ = ("extra",)


CALLS = {
    "poll": lambda consumer: consumer.poll(0),
    "iterate": next,
    "close": lambda consumer: consumer.close(autocommit=False),
    "commit": lambda consumer: consumer.commit({A: OffsetAndMetadata(1, "", -1)}),
    "committed": lambda consumer: consumer.committed(A),
    "position": lambda consumer: consumer.position(A),
    "end_offsets": lambda consumer: consumer.end_offsets([A]),
    "topics": lambda consumer: consumer.topics(),
}


def error_in_child(consumer, call):
    """Make a call in a forked child, and return the name of its error."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _report(consumer, call, write)
    os.close(write)
    status_of(child)  # a child that waits for missing threads is killed
    with os.fdopen(read) as pipe:
        return pipe.read()


def _report(consumer, call, write):
    answer = "nothing raised"
    try:
        CALLS[call](consumer)
    except BaseException as error:  # noqa: BLE001 - the child only reports
        answer = type(error).__name__
    os.write(write, answer.encode())
    os._exit(0)


@pytest.mark.contract("P12")
@pytest.mark.parametrize("call", CALLS, ids=short)
def test_call_in_a_forked_child_raises_an_error(call):
    """The child lacks the consumer's threads, so an unchecked call would wait forever."""
    with offline(SafeConsumer, group_id="g") as consumer:
        consumer.assign([A])
        assert error_in_child(consumer, call) == ForkedConsumerError.__name__


def test_subclass_with_slots_raises_an_error_in_a_forked_child():
    with offline(Slotted, log=False) as consumer:
        assert error_in_child(consumer, "poll") == ForkedConsumerError.__name__


def test_iteration_after_a_fork_raises_in_the_child_and_continues_in_the_parent():
    with offline(SafeConsumer) as consumer:
        assigned(consumer, A)
        answer(consumer, A, 0, batch(0, 3))
        assert next(consumer).offset == 0
        assert error_in_child(consumer, "iterate") == ForkedConsumerError.__name__
        assert next(consumer).offset == 1
