"""
Models a Kafka cluster as a plain object, without sockets, threads or clocks.

A front end passes bytes from connections to the cluster, and passes answers back. It
is either the sockets of :class:`~safeconsumer.testing.EmbeddedBroker` or a
simulated network. The cluster keeps everything in memory, and answers immediately or
when one of the front end's timers fires. The answers depend only on the cluster's
arguments and on the requests: the same requests in the same order get the same answers.

Only one thread may use a cluster.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import Any

from safeconsumer.testing import _batches, _codes, _protocol
from safeconsumer.testing._batches import NewRecord
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._connections import Connection, Request
from safeconsumer.testing._coordinator import Coordinator
from safeconsumer.testing._faults import Fault, Faults
from safeconsumer.testing._fetching import Fetches
from safeconsumer.testing._log import Log
from safeconsumer.testing._members import Schedule
from safeconsumer.testing._metadata import Metadata
from safeconsumer.testing._nodes import GROUP, Nodes
from safeconsumer.testing._offsets import Offset, Offsets
from safeconsumer.testing._protocol import Exchange
from safeconsumer.testing._records import Records
from safeconsumer.testing._topics import Topic, Topics
from safeconsumer.testing._transactions import Transactions

LOG_LENGTH = 100_000


class Cluster:
    """
    One or more brokers, numbered from 1, with their topics, groups and transactions.

    Args:
        addresses: the brokers' addresses as metadata gives them, in the order of the
            brokers.
        call_later: schedules a call after some seconds; returns a timer with
            ``cancel()``.
        wall: returns the time for records, in seconds since 1970.
        random: the generator of topic ids.
        clock: returns the time for ``requests``, in seconds; None to use ``wall``.

    Attributes:
        id: the unique id of the cluster.
        requests: the last 100,000 requests that brokers have started to process, oldest
            first.
        on_request: called for each request, with its entry in ``requests`` and the
            message.
        creates_topics: whether a metadata request may create a topic.
        create_topic: creates a topic; see :class:`Topics` for this and the next two.
        delete_topic: deletes a topic with its records.
        add_partitions: adds partitions to a topic.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        *,
        call_later: Schedule,
        wall: Callable[[], float],
        random: Random | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.call_later = call_later
        self.wall = wall
        self.random = random or Random()  # noqa: S311  nothing is secret
        self.clock = clock or wall
        self.id = f"embedded-{self.random.getrandbits(64):016x}"
        self.creates_topics = True
        self.requests: deque[Request] = deque(maxlen=LOG_LENGTH)
        self.on_request: Callable[[Request, _protocol.Message], None] = _ignore_request
        self._connections: dict[int, Connection] = {}
        self._frozen: set[int] = set()
        self.nodes = Nodes(addresses)
        self.faults = Faults(call_later)
        self.topics = Topics(self.nodes, self.random, self._topic_deleted)
        self.create_topic = self.topics.create
        self.delete_topic = self.topics.delete
        self.add_partitions = self.topics.grow
        self.fetches = Fetches(self.topics, call_later)
        self.groups = Coordinator(self.nodes, call_later, self._group_deleted)
        self.offsets = Offsets(self.groups, self.topics)
        self.transactions = Transactions(
            nodes=self.nodes,
            topics=self.topics,
            fetches=self.fetches,
            offsets=self.offsets,
            call_later=call_later,
            now_ms=self.now_ms,
        )
        self.records = Records(
            self.topics, self.fetches, self.transactions, self.now_ms
        )
        self._handlers: dict[str, Callable[[Exchange], None]] = {
            **Metadata(self).handlers,
            **self.topics.handlers,
            **self.records.handlers,
            **self.fetches.handlers,
            **self.groups.handlers,
            **self.offsets.handlers,
            **self.transactions.handlers,
        }

    # Connections

    def connect(
        self,
        node: int,
        send: Callable[[bytes], None],
        close: Callable[[], None],
        origin: object = None,
    ) -> Connection:
        """
        Accept a client's connection to a broker.

        Args:
            node: the number of the broker.
            send: sends bytes to the client.
            close: called when the broker closes the connection.
            origin: identifies the client in faults and in ``requests``.

        Raises:
            ConnectionRefusedError: the broker is down.
        """
        if not self.nodes.is_up(node):
            raise ConnectionRefusedError
        connection = Connection(self, node, send, close, origin)
        connection.is_frozen = node in self._frozen
        self._connections[id(connection)] = connection
        return connection

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        del self._connections[id(connection)]

    @property
    def known_apis(self) -> list[str]:
        """The names of the requests that the brokers support, in order of their API keys."""
        return sorted(self._handlers, key=_protocol.api_key)

    def serve(self, connection: Connection, exchange: Exchange) -> None:
        """Process a request, and send the answer now or later."""
        message = exchange.message
        self._note(exchange)
        fault = self.faults.of_request(connection, message)
        if message.api not in self._handlers or (fault and fault.is_cut):
            connection.cut()
            return
        exchange.error = fault.error if fault else 0
        try:
            if _protocol.has_own_error(message.api, message.version):
                _codes.check(exchange.error)
            self._handlers[message.api](exchange)
        except RefusedError as error:
            exchange.reply(error_code=error.code)

    def _note(self, exchange: Exchange) -> None:
        message = exchange.message
        is_fetch = message.api == "Fetch"
        request = Request(
            at=self.clock(),
            api=message.api,
            version=message.version,
            broker_id=exchange.node,
            client_id=message.client_id,
            partitions=self.fetches.asked(exchange) if is_fetch else (),
            origin=exchange.origin,
        )
        self.requests.append(request)
        self.on_request(request, message)

    def now_ms(self) -> int:
        """Return the current time for records, in milliseconds."""
        return int(self.wall() * 1000)

    # Topics and records

    def _topic_deleted(self, name: str) -> None:
        self.offsets.forget_topic(name)
        self.fetches.answer_waiting()

    def _group_deleted(self, name: str) -> None:
        self.offsets.forget_group(name)

    def append(
        self, topic: str, partition: int, values: int | Iterable[bytes | NewRecord] = 1
    ) -> int:
        """
        Append records to a partition as one batch; return the first record's offset.

        Args:
            topic: the name of the topic.
            partition: the number of the partition.
            values: values, records, or a number of records to write with the value
                ``b"value"``.
        """
        given = [b"value"] * values if isinstance(values, int) else values
        records = [NewRecord(value=v) if isinstance(v, bytes) else v for v in given]
        batch = _batches.of_records(records, self.now_ms())
        base = self.records.append(self.topics.known(topic), partition, batch)
        self.fetches.answer_waiting()
        return base

    def log(self, topic: str, partition: int) -> Log:
        """Return the log of a partition."""
        return self.topics.known(topic).logs[partition]

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete the records of a partition below an offset."""
        self.log(topic, partition).delete_before(offset)
        self.fetches.answer_waiting()

    def compact(self, topic: str) -> None:
        """Keep only the last record with each key, however recent the records are."""
        self._compact(self.topics.known(topic), inf)

    def clean(self) -> None:
        """
        Delete and compact records according to the topics' settings.

        Records are compacted only if they are older than ``min.compaction.lag.ms`` and
        than ``segment.ms``, and therefore not in the active segment. Kafka's default
        retention of a week does not apply, because a test may write records with old
        timestamps.
        """
        for topic in self.topics:
            policy, now_ms = topic.setting("cleanup.policy"), self.now_ms()
            if "retention.ms" in topic.settings and "delete" in policy:
                self._retain(topic, now_ms - topic.number("retention.ms"))
            if "compact" in policy:
                kept = ("segment.ms", "min.compaction.lag.ms")
                self._compact(topic, now_ms - max(map(topic.number, kept)))

    def _retain(self, topic: Topic, oldest: int) -> None:
        if topic.number("retention.ms") >= 0:
            for log in topic.logs:
                log.expire(oldest)

    def _compact(self, topic: Topic, oldest_active: float) -> None:
        for log in topic.logs:
            log.compact(
                oldest_active, self.now_ms(), topic.number("delete.retention.ms")
            )

    # Brokers

    def lead(self, topic: str, partition: int, node: int) -> None:
        """Make another broker the leader of a partition."""
        self.log(topic, partition).lead(node)
        self.fetches.answer_waiting()

    def truncate(
        self, topic: str, partition: int, offset: int, node: int | None = None
    ) -> None:
        """Drop the records from an offset on; ``node``, if given, becomes the leader."""
        log = self.log(topic, partition)
        log.truncate(offset, log.leader if node is None else node)
        self.fetches.answer_waiting()

    def move_coordinator(self, group: str, node: int) -> None:
        """Make another broker a group's coordinator; the group keeps its last assignment."""
        self.nodes.move_coordinator(GROUP, group, node)
        self.groups.find(group).unload()
        self.groups.load()

    def down(self, node: int, failover: float | None = 9.0) -> None:
        """
        Stop a broker, so that its connections are closed and new ones are refused.

        After ``failover`` seconds the other brokers take over the partitions and groups
        of the broker, unless it is up again. With None, no broker ever takes over.
        """
        self.nodes.down(node)
        for connection in self._of(node):
            connection.cut()
        self.fetches.forget_sessions(node)
        self.groups.unload(node)
        if failover is not None:
            self.call_later(failover, lambda: self._fail_over(node))

    def up(self, node: int) -> None:
        """Let a broker accept connections again."""
        self.nodes.up(node)
        self.groups.load()

    def freeze(self, *nodes: int) -> None:
        """Let brokers accept connections but not answer, until :meth:`unfreeze`."""
        self._frozen.update(nodes)
        for connection in self._of(*nodes):
            connection.freeze()

    def unfreeze(self, *nodes: int) -> None:
        """Let brokers answer again, beginning with requests that arrived while frozen."""
        self._frozen.difference_update(nodes)
        for connection in self._of(*nodes):
            connection.thaw()

    def _of(self, *nodes: int) -> list[Connection]:
        return [one for one in self._connections.values() if one.node in nodes]

    def _fail_over(self, node: int) -> None:
        successor = self.nodes.fence(node)
        if successor is None:
            return
        for topic in self.topics:
            for number, log in enumerate(topic.logs):
                if log.leader == node:
                    log.lead(successor(number))
        self.groups.load()
        self.fetches.answer_waiting()

    # Commits and faults

    def committed(self, group: str) -> Mapping[tuple[str, int], Offset]:
        """Return the committed offsets of a group, by topic and partition."""
        return dict(self.offsets.of_group(group))

    def fail(self, api: str, **how: Any) -> Fault:  # noqa: ANN401  fields of a fault
        """
        Start and return a fault for one kind of request; the caller may end the fault.

        Args:
            api: Kafka's name for the request, such as ``"Fetch"``, or ``"*"`` for all
                requests.
            how: other fields of :class:`~safeconsumer.testing._faults.Fault`.
        """
        fault = Fault(api=api, **how)
        fault.begin(self.faults)
        return fault


def _ignore_request(request: Request, message: _protocol.Message) -> None:
    """Ignore a request."""
