"""Runs a Kafka cluster inside the test's process: no Java, no Docker, up in 0.1 s."""

from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Self, cast

from safeconsumer.errors import ScopeSyntaxError
from safeconsumer.holds import scope as scopes
from safeconsumer.testing import _apis
from safeconsumer.testing._front import Front
from safeconsumer.testing._mock_cluster import Cluster
from safeconsumer.testing._old_faults import Hold
from safeconsumer.testing._requests import Request
from safeconsumer.testing.errors import BrokerCommandError, UnsupportedByBrokerError


class EmbeddedBroker:
    """
    Run a cluster of one or more brokers in this process until it is stopped.

    librdkafka's mock cluster keeps topics, records and offsets; the group protocol is
    answered by this kit, because the mock's is not reliable with several members.
    It does not delete or compact topics, keeps no offsets that a transaction commits,
    has no authorization, and does not serve the commands of ``safeconsumer`` for
    groups, which end with an error that says so: those need Apache Kafka.
    Nothing outlives the process, and only 127.0.0.1 is listened on. Every method may
    be called by any thread. A context manager: starts on entry, stops on exit.

    Args:
        brokers: how many, numbered from 1.

    """

    kind = "embedded"
    is_real = False
    #: Quick timeouts that fit this broker, for any consumer of a group.
    group_config: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"session_timeout_ms": 2000, "heartbeat_interval_ms": 200}
    )

    def __init__(self, brokers: int = 1) -> None:
        if brokers < 1:
            msg = f"a cluster has at least one broker, not {brokers}"
            raise ValueError(msg)
        self._count = brokers
        self._cluster: Cluster | None = None

    def start(self) -> Self:
        """
        Start the brokers and return this object once they accept connections.

        Raises:
            EmbeddedBrokerUnavailableError: confluent-kafka is missing or unfit; the
                message says what to install.

        """
        if self._cluster is None:
            self._cluster = Cluster(self._count)
        return self

    def stop(self) -> None:
        """Cut all connections and drop everything; a second call does nothing."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # Where it is

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, for ``bootstrap_servers``."""
        addresses = self._running().addresses
        return ",".join(f"{host}:{port}" for host, port in addresses)

    @property
    def client_config(self) -> dict[str, Any]:
        """The settings by which any kafka-python client reaches this broker."""
        return {"bootstrap_servers": self.bootstrap.split(","), "api_version": (2, 3)}

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The numbers of the brokers."""
        return tuple(range(1, self._count + 1))

    # Topics and leaders

    def create_topic(
        self, name: str, partitions: int = 4, settings: Mapping[str, str] | None = None
    ) -> None:
        """
        Create a topic, replicated to every broker.

        Args:
            name: of the topic.
            partitions: how many.
            settings: returned to clients that ask for them. They have no effect:
                nothing is deleted by age or compacted.

        Raises:
            BrokerCommandError: it exists, its name is illegal, or it would have no
                partition.

        """
        _check_topic(name, partitions)
        cluster, given = self._running(), dict(settings or {})
        cluster.mock.create_topic(name, partitions, self._count)
        cluster.call(lambda: cluster.shared.settings.given.update({name: given}))

    def delete_topic(self, name: str) -> None:
        """Raise UnsupportedByBrokerError, always: use a real broker."""
        command = "delete_topic"
        raise _unsupported(command, name)

    def add_partitions(self, name: str, total: int) -> None:
        """Raise UnsupportedByBrokerError, always: use a real broker."""
        command = "add_partitions"
        raise _unsupported(command, f"{name} to {total}")

    def move_leader(self, topic: str, partition: int, broker_id: int) -> None:
        """Make another broker the leader of one partition."""
        self._running().mock.set_leader(topic, partition, self._known(broker_id))

    def move_coordinator(self, group: str, broker_id: int) -> None:
        """Make another broker the coordinator of one group; its members stay in it."""
        cluster = self._running()
        cluster.mock.set_coordinator(group, self._known(broker_id))
        cluster.call(lambda: cluster.shared.coordinators.update({group: broker_id}))

    # Faults

    def fail(self, api: str, error: object, times: int = 1) -> None:
        """
        Answer the next requests of one kind with an error, on whichever broker.

        Args:
            api: Kafka's name, such as ``"Fetch"`` or ``"JoinGroup"``.
            error: Kafka's name, its code, kafka-python's class, or ``"DISCONNECT"``
                to close the connection instead of answering.
            times: how many requests.

        """
        key, cluster = _apis.api_key(api), self._running()
        faults = cluster.shared.faults
        if error == "DISCONNECT":
            cluster.call(lambda: faults.cut(key, times))
            return
        codes = [_apis.error_code(error)] * times
        if key in _apis.ANSWERED_HERE:
            cluster.call(lambda: faults.push(key, codes))
        else:
            cluster.mock.push_errors(key, codes)

    def hold(self, api: str, client_id: str | None = None) -> Hold:
        """
        Keep back the answers to requests of one kind until the hold is released.

        Args:
            api: Kafka's name, such as ``"Fetch"``.
            client_id: only this client's requests; None means every client's.

        """
        hold, cluster = Hold(api, client_id), self._running()
        cluster.call(lambda: cluster.shared.faults.holds.append(hold))
        return hold

    def clear_faults(self) -> None:
        """Forget errors that have not been used yet, and release every hold."""
        cluster = self._running()
        for key in _apis.API_NAMES:
            cluster.mock.clear_errors(key)
        cluster.call(cluster.shared.faults.clear)

    def down(self, broker_id: int | None = None) -> None:
        """Cut one broker's connections and refuse new ones; None means every broker."""
        for front in self._chosen(broker_id):
            self._running().run(front.down())

    def up(self, broker_id: int | None = None) -> None:
        """Accept connections again, at the same address; records are still there."""
        for front in self._chosen(broker_id):
            self._running().run(front.up())

    def freeze(self, broker_id: int | None = None) -> None:
        """Stop answering: connections are accepted, and requests are not answered."""
        for front in self._chosen(broker_id):
            self._running().run(front.fall_silent())

    def unfreeze(self, broker_id: int | None = None) -> None:
        """Answer again, beginning with the requests that came meanwhile."""
        for front in self._chosen(broker_id):
            self._running().run(front.speak())

    def set_rtt(self, seconds: float, broker_id: int | None = None) -> None:
        """Let every answer of librdkafka's half take this long (group requests do not)."""
        for front in self._chosen(broker_id):
            self._running().mock.set_rtt(front.broker_id, round(seconds * 1000))

    def heal(self) -> None:
        """
        End every fault: brokers are up and answer, at once, and no error is left.

        After it the broker can be lent to another test, whatever the last one left.
        """
        self.unfreeze()
        self.up()
        self.set_rtt(0)
        self.clear_faults()

    # What it saw

    def requests(self, api: str | None = None) -> tuple[Request, ...]:
        """
        Return the requests taken up so far, oldest first; with ``api`` only those.

        The last 100,000 are kept.
        """
        if api is not None:
            _apis.api_key(api)
        cluster = self._running()
        taken = cluster.call(lambda: tuple(cluster.shared.log))
        return tuple(r for r in taken if api is None or r.api == api)

    def clear_requests(self) -> None:
        """Forget the requests seen so far."""
        cluster = self._running()
        cluster.call(cluster.shared.log.clear)

    def members(self, group: str) -> tuple[str, ...]:
        """Return the ids of a group's present members."""
        cluster = self._running()
        return cluster.call(lambda: cluster.shared.coordinator.groups[group].members)

    def generation(self, group: str) -> int:
        """How many rebalances of a group have got past their joining."""
        cluster = self._running()
        return cluster.call(lambda: cluster.shared.coordinator.groups[group].generation)

    # Inside

    def _running(self) -> Cluster:
        if self._cluster is None:
            msg = "the embedded broker is not running; start() it first"
            raise BrokerCommandError(msg)
        return self._cluster

    def _known(self, broker_id: int) -> int:
        if broker_id not in self.broker_ids:
            msg = f"no broker {broker_id}; there are {self.broker_ids}"
            raise ValueError(msg)
        return broker_id

    def _chosen(self, broker_id: int | None) -> list[Front]:
        fronts = self._running().fronts
        ids = self.broker_ids if broker_id is None else (self._known(broker_id),)
        return [fronts[i] for i in ids]


def _check_topic(name: object, partitions: object) -> None:
    try:
        scopes.topic(name)
    except ScopeSyntaxError as error:
        raise BrokerCommandError(str(error)) from error
    is_number = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not is_number or cast("int", partitions) < 1:
        message = f"{name} cannot have {partitions!r} partitions: 1 or more"
        raise BrokerCommandError(message)


def _unsupported(command: str, what: str) -> UnsupportedByBrokerError:
    msg = f"{command} {what}: the embedded broker cannot, a real one can"
    return UnsupportedByBrokerError(msg)
