"""Three Java brokers of one cluster."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from safeconsumer.testing._ports import free_port
from tests.harness.brokers.java import JavaBroker
from tests.harness.brokers.settings import TEST_SETTINGS

BROKERS = 3
_MORE = {
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "auto.create.topics.enable": "false",
    # Three brokers on a small machine.
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 8_388_608,
    "group.coordinator.threads": 1,
}


class Node(JavaBroker):
    """One broker of the cluster; its number counts from 1."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.name = f"broker-{number}"
        self.controller = f"127.0.0.1:{free_port()}"
        self.quorum = ()

    def restart(self):
        """Start it again at the same address; once more if it does not come up in time."""
        try:
            super().restart()
        except RuntimeError:
            self.kill()
            self._starts -= 1  # that one will never say that it is up
            super().restart()

    def _write_properties(self):
        voters = ",".join(f"{one.number}@{one.controller}" for one in self.quorum)
        settings = {
            **TEST_SETTINGS,
            **_MORE,
            "process.roles": "broker,controller",
            "node.id": self.number,
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self.controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self._folder / "data",
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._properties.write_text(text)


class Cluster:
    """
    Brokers that start together. A context manager: it ends them.

    Thread rules: one thread; what takes long is done by threads of the cluster's own,
    which live as long as the brokers they started, because these are tied to them.
    """

    def __init__(self):
        self.nodes = tuple(Node(number) for number in range(1, BROKERS + 1))
        for node in self.nodes:
            node.quorum = self.nodes
        self._threads = ThreadPoolExecutor(BROKERS)
        self._closing = ExitStack()
        self._closing.callback(self._threads.shutdown)

    @property
    def bootstrap(self):
        return ",".join(node.bootstrap for node in self.nodes)

    def __enter__(self):
        try:
            for node in self.nodes:
                self._closing.callback(node.close)
            for started in [self.later(node.__enter__) for node in self.nodes]:
                started.result()
        except BaseException:
            self._closing.close()
            raise
        return self

    def __exit__(self, *_):
        self._closing.close()

    def named(self, name):
        return next(node for node in self.nodes if node.name == name)

    def later(self, work):
        """Do something slow on a thread of the cluster's."""
        return self._threads.submit(work)
