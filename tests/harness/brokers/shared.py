"""Shares one real broker between all worker processes of pytest-xdist."""

from contextlib import ExitStack

import pytest

from tests.harness.brokers import choice
from tests.harness.brokers.java import OwnBroker

_ADDRESS = "kafka_bootstrap"


class BrokerForWorkers:
    """
    A plugin in xdist's main process that starts a broker for all workers.

    Each worker receives the broker's address. Embedded brokers are not shared, because
    tests inject errors into them; every worker starts its own.
    """

    def __init__(self, kind):
        self._kind = kind
        self._running = ExitStack()
        self._address = None

    @pytest.hookimpl(optionalhook=True)  # pytest-xdist's
    def pytest_configure_node(self, node):
        """Pass the broker's address to an xdist worker before the worker starts."""
        if self._address is None:
            broker = self._running.enter_context(choice.start(self._kind))
            self._address = broker.bootstrap
        node.workerinput[_ADDRESS] = self._address

    def pytest_unconfigure(self):
        self._running.close()


class LentBroker(OwnBroker):
    """The shared broker, as an xdist worker sees it."""

    def __init__(self, kind, bootstrap):
        super().__init__(bootstrap)
        self.kind = kind


def is_worker(config):
    """Return whether this process is an xdist worker."""
    return hasattr(config, "workerinput")


def lent_to(config, kind):
    """Return the broker that this xdist worker shares with the others, or None."""
    address = getattr(config, "workerinput", {}).get(_ADDRESS)
    return None if address is None else LentBroker(kind, address)
