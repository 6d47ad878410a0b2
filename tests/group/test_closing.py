"""
Closing a consumer with ``control=`` takes no longer than it was given.
"""

import threading
import time
from typing import Any

from safeconsumer import Control, SafeConsumer
from tests.kafka.offline import silent_broker

# A machine with other things to do.
SLACK = 0.7


def control_threads() -> list[str]:
    """
    Return the names of our threads that run.
    """
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("safeconsumer-control", "safeconsumer-status"))
    ]


def test_closing_is_bounded_without_a_broker() -> None:
    """
    W8: its threads, its clients and leaving the group share one deadline.
    """
    with silent_broker() as address:
        consumer = SafeConsumer(
            "orders",
            bootstrap_servers=address,
            api_version=(2, 3),
            group_id="g",
            control=Control(start_timeout=0.0, status_interval=0.2),
        )
        limit = time.monotonic() + 30
        assert {"safeconsumer-control", "safeconsumer-status"} <= {*control_threads()}
        control: Any = consumer._safe_control
        while not control._producer._lock.locked():  # in the middle of connecting
            assert time.monotonic() < limit
            time.sleep(0.01)
        began = time.monotonic()
        consumer.close(autocommit=False, timeout_ms=500)
        seconds = time.monotonic() - began
    assert seconds < 0.5 + SLACK, seconds
