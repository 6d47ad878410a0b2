"""
Calls that cannot work in a rebalance listener say so, with what works instead.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer

from safeconsumer._kafka.errors import BlockingCallInListenerError

# Public methods that wait for the IO thread, on which listeners run. Some of them
# change something before they notice; refused here, they change nothing.
BLOCKING_CALLS = (
    "beginning_offsets",
    "bootstrap",
    "close",
    "commit",
    "committed",
    "end_offsets",
    "offsets_for_times",
    "partitions_for_topic",
    "poll",
    "position",
    "topics",
    "unsubscribe",
)


class ListenerGuard(KafkaConsumer):
    """
    A consumer whose blocking calls raise a typed error on the IO thread.
    """

    def _refuse_in_listener(self, call: str) -> None:
        if threading.current_thread() is self._net._io_thread:
            message = (
                f"{call}() waits for the thread that rebalance listeners run on. To "
                "commit in a ConsumerRebalanceListener use commit_async(); in an "
                "AsyncConsumerRebalanceListener await commit_async(...), which "
                "finishes before the member rejoins. Do the rest after poll() returns"
            )
            raise BlockingCallInListenerError(message)


def _guarded(name: str) -> Callable[..., Any]:
    upstream = getattr(KafkaConsumer, name)

    @functools.wraps(upstream)
    def call(self: ListenerGuard, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - upstream's
        self._refuse_in_listener(name)
        return upstream(self, *args, **kwargs)

    return call


for _name in BLOCKING_CALLS:
    setattr(ListenerGuard, _name, _guarded(_name))
