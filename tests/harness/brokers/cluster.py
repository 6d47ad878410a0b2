"""Starts a cluster of three Java brokers."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.harness.brokers.java import JavaBroker, OwnBroker
from tests.harness.brokers.ports import reserved_port
from tests.harness.brokers.settings import TEST_SETTINGS

BROKERS = 3
_OFFSETS = "__consumer_offsets"
_MORE = {
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "auto.create.topics.enable": "false",
    # Use fewer threads and less memory, because the three brokers share a small
    # machine.
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 8_388_608,
    "group.coordinator.threads": 1,
}


class Node(JavaBroker):
    """One broker of the cluster; the brokers are numbered from 1."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.name = f"broker-{number}"
        self.controller = f"127.0.0.1:{reserved_port()}"
        self.quorum = ()

    def restart(self):
        """Restart the broker at its address; retry once if it does not start in time."""
        try:
            super().restart()
        except RuntimeError:
            self.kill()
            self._starts -= 1  # the failed start logged no line
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


class Cluster(OwnBroker):
    """
    Three brokers that start together; leaving the context manager stops them.

    Only one thread may use a cluster. Slow work runs on the cluster's own threads.
    These threads live as long as the brokers, because a broker's process is killed when
    the thread that started it ends.
    """

    def __init__(self):
        self.nodes = tuple(Node(number) for number in range(1, BROKERS + 1))
        super().__init__(",".join(node.bootstrap for node in self.nodes))
        for node in self.nodes:
            node.quorum = self.nodes
        self._threads = ThreadPoolExecutor(BROKERS)
        self._closing = ExitStack()
        self._closing.callback(self._threads.shutdown)

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

    def coordinator_of(self, group):
        """Return the node that coordinates a group; None if the group has no coordinator."""
        # Compute the coordinator here, because librdkafka 2.16 crashes if a broker
        # answers a request about a group with an error.
        partitions = self._partitions(_OFFSETS)
        if not partitions:
            return None
        leader = partitions[_java_hash(group) % len(partitions)].leader
        return next((node for node in self.nodes if node.number == leader), None)

    def are_in_sync(self):
        """Return whether all replicas are in sync, so that one broker may be stopped."""
        partitions = self._partitions()
        return bool(partitions) and all(
            len(one.isrs) == len(one.replicas) for one in partitions
        )

    def _partitions(self, topic=None):
        """Return the partitions of one or all topics; an empty list if no broker answers."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            topics = admin.list_topics(topic, timeout=5).topics.values()
        except KafkaException:
            return []
        return [one for found in topics for _, one in sorted(found.partitions.items())]

    def later(self, work):
        """Start slow work on one of the cluster's threads; return its future."""
        return self._threads.submit(work)


def _java_hash(text):
    """Return Java's hash of a text, without the sign; it selects a group's coordinator."""
    number = 0
    for letter in text:
        number = (31 * number + ord(letter)) % 2**32
    return number % 2**31
