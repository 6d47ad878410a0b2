"""Runs a Kafka cluster in the test's process without Java or Docker; it starts in 0.1 s."""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar, cast

from safeconsumer.errors.base import ScopeSyntaxError
from safeconsumer.holds import scope as scopes
from safeconsumer.testing import _codes, _ports, _protocol
from safeconsumer.testing._cluster import Cluster
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._connections import Request
from safeconsumer.testing._faults import Fault
from safeconsumer.testing._sockets import Sockets
from safeconsumer.testing.errors import BrokerCommandError

_T = TypeVar("_T")


class HeldAnswers:
    """
    Withholds the answers to some requests until :meth:`release`.

    HeldAnswers is a context manager that releases the answers on exit. While an answer
    is withheld, the broker does not process further requests from its connection, like
    a slow broker.
    """

    def __init__(
        self, broker: "EmbeddedBroker", api: str, client_id: str | None
    ) -> None:
        _protocol.api_key(api)
        self._broker = broker
        self._changed = threading.Condition()
        self._fault = Fault(
            api=api, client_id=client_id, is_held=True, on_keep=self._kept
        )

    @property
    def count(self) -> int:
        """The number of answers that are currently withheld."""
        return len(self._fault.kept)

    def wait(self, count: int = 1, timeout: float = 10.0) -> None:
        """
        Wait until ``count`` answers are withheld.

        Raises:
            TimeoutError: there were fewer answers within ``timeout`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.count >= count, timeout):
                api = self._fault.api
                msg = f"{self.count} of {count} answers to {api} in {timeout} s"
                raise TimeoutError(msg)

    def begin(self) -> None:
        """Start to withhold answers."""
        self._broker.command(lambda cluster: self._fault.begin(cluster.faults))

    def release(self) -> None:
        """Send the withheld answers in order, and stop withholding answers."""

        def end(cluster: Cluster) -> None:
            # If the cluster was restarted since, the new cluster has neither the fault
            # nor its answers.
            if self._fault in cluster.faults.active:
                self._fault.end()

        if self._broker.is_running:
            self._broker.command(end)

    def _kept(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class EmbeddedBroker:
    """
    A Kafka cluster of one or more brokers that runs in this process until stopped.

    The cluster is written in Python, for tests. To kafka-python, aiokafka and
    librdkafka it behaves like Apache Kafka. The cluster supports groups with the
    classic protocol, idempotent and transactional producers, ``read_committed``
    consumers, fetch sessions, compaction and retention, and changes of leaders and
    coordinators. The cluster also answers admin requests about topics, groups and
    configs.

    The cluster does not support TLS, authentication, authorization, quotas, lagging
    replicas or groups with the newer protocol (KIP-848). Records are kept in memory and
    lost when the process exits; the brokers listen only on 127.0.0.1. Records are
    deleted by age only if their topic sets ``retention.ms``.

    Every method may be called on any thread. As a context manager, the object starts
    the cluster on entry and stops it on exit.

    Args:
        brokers: the number of brokers, which are numbered from 1.
        port: the port of the first broker; the other brokers use the ports after it.
            None for free ports.
    """

    kind = "embedded"
    is_real = False
    #: Short timeouts that this broker accepts for any consumer in a group.
    group_config: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"session_timeout_ms": 2000, "heartbeat_interval_ms": 200}
    )

    def __init__(self, brokers: int = 1, port: int | None = None) -> None:
        if brokers < 1:
            msg = f"a cluster has at least one broker, not {brokers}"
            raise ValueError(msg)
        self._count = brokers
        self._port = port
        self._sockets: Sockets | None = None

    def start(self) -> Self:
        """
        Start the brokers and return this object once they accept connections.

        Raises:
            OSError: another program is listening on a requested port.
        """
        if self._sockets is None:
            ports = range(self._port, self._port + self._count) if self._port else ()
            free = (_ports.free_port() for _ in self.broker_ids)
            self._sockets = Sockets(tuple(ports or free))
        return self

    def stop(self) -> None:
        """Close all connections and drop all data; a second call has no effect."""
        sockets, self._sockets = self._sockets, None
        if sockets is not None:
            sockets.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Addresses

    @property
    def is_running(self) -> bool:
        """Whether the cluster has been started and not stopped."""
        return self._sockets is not None

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, for ``bootstrap_servers``."""
        return ",".join(f"{host}:{port}" for host, port in self._running().addresses)

    @property
    def client_config(self) -> dict[str, Any]:
        """The settings with which any kafka-python client can connect to this cluster."""
        return {"bootstrap_servers": self.bootstrap.split(",")}

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The numbers of the brokers."""
        return tuple(range(1, self._count + 1))

    # Topics and leaders

    def create_topic(
        self, name: str, partitions: int = 4, settings: Mapping[str, str] | None = None
    ) -> None:
        """
        Create a topic that is replicated to every broker.

        Args:
            name: the topic's name.
            partitions: the number of partitions.
            settings: the topic's configs, such as ``cleanup.policy``.

        Raises:
            BrokerCommandError: the topic exists, its name or a config is illegal, or it
                would have no partitions.
        """
        _check_topic(name, partitions)
        self.command(lambda cluster: cluster.create_topic(name, partitions, settings))

    def delete_topic(self, name: str) -> None:
        """
        Delete a topic with its records and its committed offsets.

        Raises:
            BrokerCommandError: the topic does not exist.
        """
        self.command(lambda cluster: cluster.delete_topic(name))

    def add_partitions(self, name: str, total: int) -> None:
        """
        Increase the number of a topic's partitions to ``total``.

        Raises:
            BrokerCommandError: the topic does not exist, or already has that many
                partitions.
        """
        self.command(lambda cluster: cluster.add_partitions(name, total))

    def compact(self, name: str) -> None:
        """
        Compact a topic immediately, so that only the last record with each key remains.

        A topic with ``cleanup.policy=compact`` is also compacted every second, except
        for records that are younger than its ``segment.ms``.

        Raises:
            BrokerCommandError: the topic does not exist.
        """
        self.command(lambda cluster: cluster.compact(name))

    def truncate(
        self, name: str, partition: int, offset: int, broker_id: int | None = None
    ) -> None:
        """
        Drop a partition's records from ``offset`` on, as in an unclean leader election.

        The leader epoch is incremented, so that clients that have read further can
        notice the truncation. New records may be written at the same offsets. Committed
        offsets stay.

        Args:
            name: the topic's name.
            partition: the partition's number.
            offset: the offset of the first dropped record.
            broker_id: the new leader; None to keep the leader, as if it had been
                restarted with an older copy of its disk.

        Raises:
            BrokerCommandError: the partition does not exist.
        """
        node = None if broker_id is None else self._known(broker_id)
        self.command(lambda cluster: cluster.truncate(name, partition, offset, node))

    def move_coordinator(self, group: str, broker_id: int) -> None:
        """Make another broker the coordinator of a group, which keeps its members."""
        node = self._known(broker_id)
        self.command(lambda cluster: cluster.move_coordinator(group, node))

    # Faults

    def fail(self, api: str, error: object, times: int = 1) -> None:
        """
        Answer the next requests of one kind with an error, on any broker.

        Args:
            api: Kafka's name for the request, such as ``"Fetch"`` or ``"JoinGroup"``.
            error: Kafka's name for the error, its code, kafka-python's class, or
                ``"DISCONNECT"`` to close the connection instead of answering.
            times: the number of requests to fail.
        """
        _protocol.api_key(api)
        if error == "DISCONNECT":
            self.command(lambda cluster: cluster.fail(api, is_cut=True, count=times))
        else:
            code = _codes.error_code(error)
            self.command(lambda cluster: cluster.fail(api, error=code, count=times))

    def hold(self, api: str, client_id: str | None = None) -> HeldAnswers:
        """
        Withhold the answers to requests of one kind until they are released.

        Args:
            api: Kafka's name for the request, such as ``"Fetch"``.
            client_id: the client whose answers are withheld; None for every client.
        """
        held = HeldAnswers(self, api, client_id)
        held.begin()
        return held

    def clear_faults(self) -> None:
        """Drop errors that no request has received yet, and release all withheld answers."""
        self.command(lambda cluster: cluster.faults.clear())

    def down(self, broker_id: int | None = None) -> None:
        """Close a broker's connections and refuse new ones; None stands for every broker."""
        for node in self._chosen(broker_id):
            self._running().down(node)

    def up(self, broker_id: int | None = None) -> None:
        """Let a broker accept connections again, with the same address and records."""
        for node in self._chosen(broker_id):
            self._running().up(node)

    def freeze(self, broker_id: int | None = None) -> None:
        """Stop answering requests; connections are still accepted."""
        nodes = self._chosen(broker_id)
        self.command(lambda cluster: cluster.freeze(*nodes))

    def unfreeze(self, broker_id: int | None = None) -> None:
        """Answer requests again, starting with those that arrived while frozen."""
        nodes = self._chosen(broker_id)
        self.command(lambda cluster: cluster.unfreeze(*nodes))

    def heal(self) -> None:
        """
        End every fault: all brokers are up and answer without delays or errors.

        A fixture calls this method so that one test's faults never affect the next
        test.
        """
        self.unfreeze()
        self.up()
        self.clear_faults()

    # Requests and groups

    def requests(self, api: str | None = None) -> tuple[Request, ...]:
        """
        Return all requests so far, oldest first, or only those of one kind (``api``).

        Only the last 100,000 requests are kept.
        """
        if api is not None:
            _protocol.api_key(api)
        taken = self.command(lambda cluster: tuple(cluster.requests))
        return tuple(r for r in taken if api is None or r.api == api)

    def clear_requests(self) -> None:
        """Forget all requests so far."""
        self.command(lambda cluster: cluster.requests.clear())

    def members(self, group: str) -> tuple[str, ...]:
        """Return the ids of a group's current members."""
        return self.command(lambda cluster: cluster.groups.find(group).members)

    def generation(self, group: str) -> int:
        """Return the generation of a group."""
        return self.command(lambda cluster: cluster.groups.find(group).generation)

    # Inside

    def command(self, what: Callable[[Cluster], _T]) -> _T:
        """
        Call a function with the cluster on the cluster's thread.

        Raises:
            BrokerCommandError: the cluster refuses the command, or is not running.
        """
        try:
            return self._running().call(what)
        except (RefusedError, IndexError) as error:
            raise BrokerCommandError(str(error)) from error

    def _running(self) -> Sockets:
        if self._sockets is None:
            msg = "the embedded broker is not running; start() it first"
            raise BrokerCommandError(msg)
        return self._sockets

    def _known(self, broker_id: int) -> int:
        if broker_id not in self.broker_ids:
            msg = f"no broker {broker_id}; there are {self.broker_ids}"
            raise ValueError(msg)
        return broker_id

    def _chosen(self, broker_id: int | None) -> tuple[int, ...]:
        return self.broker_ids if broker_id is None else (self._known(broker_id),)


def _check_topic(name: object, partitions: object) -> None:
    try:
        scopes.topic(name)
    except ScopeSyntaxError as error:
        raise BrokerCommandError(str(error)) from error
    is_number = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not is_number or cast("int", partitions) < 1:
        message = f"{name} cannot have {partitions!r} partitions: 1 or more"
        raise BrokerCommandError(message)
