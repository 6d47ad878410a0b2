"""One real broker for all worker processes of pytest-xdist."""

from contextlib import ExitStack

import pytest

from tests.harness.brokers import choice
from tests.harness.brokers.java import OwnBroker

_ADDRESS = "kafka_bootstrap"


class BrokerForWorkers:
    """
    A plugin for the process that starts xdist's workers: it starts a broker for them.

    Each worker receives the address. Embedded brokers are not shared: tests inject
    errors into them, so every worker has one of its own.
    """

    def __init__(self, kind):
        self._kind = kind
        self._running = ExitStack()
        self._address = None

    @pytest.hookimpl(optionalhook=True)  # pytest-xdist's
    def pytest_configure_node(self, node):
        """Give a worker, before it starts, the address of its broker."""
        if self._address is None:
            broker = self._running.enter_context(choice.start(self._kind))
            self._address = broker.bootstrap
        node.workerinput[_ADDRESS] = self._address

    def pytest_unconfigure(self):
        self._running.close()


class LentBroker(OwnBroker):
    """The broker that was started for all workers, as one of them sees it."""

    def __init__(self, kind, bootstrap):
        super().__init__(bootstrap)
        self.kind = kind


def is_worker(config):
    """Return whether this process is a worker of xdist."""
    return hasattr(config, "workerinput")


def lent_to(config, kind):
    """Return the broker lent to this worker; None if it has none."""
    address = getattr(config, "workerinput", {}).get(_ADDRESS)
    return None if address is None else LentBroker(kind, address)
