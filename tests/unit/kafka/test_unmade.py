"""A client that cannot be made leaves nothing behind, however often it is tried."""

import socket
import threading

import pytest
from kafka.errors import KafkaError

from safeconsumer import SafeConsumer
from safeconsumer.group import clients

MADE = {
    "SafeConsumer": lambda base: SafeConsumer("orders", group_id="g", **base),
    "reader": clients.reader,
    "producer": lambda base: clients.producer(base, 1.0),
    "admin": clients.admin,
}


@pytest.mark.parametrize("name", MADE)
def test_no_thread_is_left(name):
    before = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(KafkaError):
            MADE[name]({"bootstrap_servers": address, "bootstrap_timeout_ms": 100})
    assert set(threading.enumerate()) <= before
