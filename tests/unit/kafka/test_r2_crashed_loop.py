"""
The network's loop ends by an error while a poll waits for an answer to a fetch.

On main poll raised that error at once (``net.run`` was failed by ``_fail_pending_waiters``).
Now ``FetchWait.for_any`` waits for its own event, which nobody sets when the loop has ended:
the poll sits out its whole timeout, and with ``poll(math.inf)``, or an iteration of assigned
partitions without a group, it waits for ever.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.testing import EmbeddedBroker


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "call",
    [lambda it: it.poll(math.inf), lambda it: it.poll(20_000), next],
    ids=["poll-inf", "poll-20s", "iteration"],
)
def test_a_poll_hears_that_the_loop_has_crashed(call: Callable[[Any], Any]) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("t")
        consumer = SafeConsumer(**broker.client_config, group_id=None)
        consumer.assign([TopicPartition("t", 0)])
        consumer.poll(500)
        raised = list[BaseException]()

        def poll() -> None:
            try:
                call(consumer)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        time.sleep(1)

        def fails(*_: object) -> None:  # as when somebody has closed its descriptor
            raise OSError(9, "Bad file descriptor")

        consumer._net._selector.select = fails
        consumer._net.wakeup()
        thread.join(5)
        is_waiting = thread.is_alive()
        consumer._fetcher.wake()
        assert not is_waiting
        assert raised
