"""A poll ends with the error by which the network's loop has ended."""

import math
import threading

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.testing import EmbeddedBroker
from tests.harness.waiting import LIMIT, wait_for


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "call",
    [lambda it: it.poll(math.inf), lambda it: it.poll(20_000), next],
    ids=["poll-inf", "poll-20s", "iteration"],
)
def test_a_poll_raises_the_error_that_ended_the_loop(call):
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        consumer = SafeConsumer(**broker.client_config, group_id=None)
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(500)
        raised = list[BaseException]()

        def poll():
            try:
                call(consumer)
            except BaseException as error:  # noqa: BLE001 - it is looked at
                raised.append(error)

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        wait_for(lambda: consumer._net._pending_waiters, "a poll that waits")

        def fails(*_):  # as when somebody has closed its descriptor
            raise OSError(9, "Bad file descriptor")

        loop = consumer._net._io_thread
        consumer._net._selector.select = fails
        consumer._net.wakeup()
        thread.join(LIMIT)
        loop.join(LIMIT)  # its error is this test's, not that of the next one
        assert [type(one) for one in raised] == [OSError]
