"""The test kit's own clients and polls: what fails or hangs there leaves nothing behind."""

import threading
from types import SimpleNamespace

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaTimeoutError

from safeconsumer.testing import Clients, PollTimeoutError, poll_until
from tests.sim.world import World


def test_a_client_that_finds_no_broker_leaves_no_thread(lab):
    """Each test that failed so left one, for the whole session."""
    nowhere = {**lab.connection, "bootstrap_servers": "nowhere:9092"}
    clients = Clients(SimpleNamespace(client_config=nowhere, group_config={}))
    with pytest.raises(KafkaTimeoutError):
        clients.consumer(KafkaConsumer, "orders")
    assert lab.running() == []


def test_a_poll_that_hangs_does_not_keep_the_test():
    """A listener that waits for ever kept it until pytest was killed."""
    begun = []

    def poll(_):
        begun.append(True)
        threading.Event().wait()

    with pytest.raises(
        PollTimeoutError, match="of 1 of the consumers has not returned"
    ):
        World().run(lambda: poll_until(SimpleNamespace(poll=poll), lambda: begun))
