"""Answers requests about topics, leaders, coordinators and API versions."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from safeconsumer.testing import _codes, _protocol
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._members import Schedule
from safeconsumer.testing._nodes import Nodes
from safeconsumer.testing._protocol import Exchange, Fields
from safeconsumer.testing._topics import Topic, Topics

# The bits for the operations that a principal may perform on a topic. Without an
# authorizer these are all operations: read, write, create, delete, alter, describe, and
# describe or alter configs.
_EVERYTHING = (3, 4, 5, 6, 7, 8, 10, 11)
_SEVERAL_KEYS = 4  # from this version on, FindCoordinator has several keys


class Described(Protocol):
    """The parts of a cluster that metadata describes."""

    id: str
    creates_topics: bool
    call_later: Schedule
    nodes: Nodes
    topics: Topics

    @property
    def known_apis(self) -> list[str]:
        """The names of the requests that the brokers support."""


class Metadata:
    """Answers requests about the cluster itself."""

    def __init__(self, cluster: Described) -> None:
        self._cluster = cluster
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "ApiVersions": self._api_versions,
            "Metadata": self._metadata,
            "FindCoordinator": self._find_coordinator,
            "DescribeCluster": self._describe_cluster,
            "DescribeAcls": self._describe_acls,
        }

    def _api_versions(self, exchange: Exchange) -> None:
        known, error = self._cluster.known_apis, _codes.NONE
        # If the request's version is too new, the answer names the version to use
        # (KIP-511).
        if exchange.body is None:
            known, error = ["ApiVersions"], _codes.UNSUPPORTED_VERSION
        keys = [(_protocol.API_KEYS[api], *_protocol.versions(api)) for api in known]
        exchange.reply(error_code=error, api_keys=tuple(keys))

    def _metadata(self, exchange: Exchange) -> None:
        body, topics = exchange.body, self._cluster.topics
        is_all = body.topics is None or (exchange.version == 0 and not body.topics)
        if is_all:
            answers = [self._topic(exchange, topic) for topic in topics]
        else:
            answers = [self._asked_topic(exchange, one) for one in body.topics]
        exchange.reply(
            brokers=self._brokers("node_id"),
            cluster_id=self._cluster.id,
            controller_id=self._cluster.nodes.named()[0],
            topics=answers,
        )

    def _asked_topic(self, exchange: Exchange, asked: Any) -> dict[str, Any]:  # noqa: ANN401
        topic = self._cluster.topics.get(asked.name, asked.topic_id)
        if topic is not None:
            return self._topic(exchange, topic)
        names = {"name": asked.name, "topic_id": asked.topic_id}
        if exchange.error:
            return {**names, "error_code": exchange.error}
        if asked.name is None:
            return {**names, "error_code": _codes.UNKNOWN_TOPIC_ID}
        error = _codes.UNKNOWN_TOPIC_OR_PARTITION
        try:
            self._cluster.topics.check(asked.name, 1, {})
        except RefusedError as refused:
            error = refused.code
        else:
            if exchange.body.allow_auto_topic_creation:
                self._create_soon(asked.name)
        return {**names, "error_code": error}

    def _create_soon(self, name: str) -> None:
        """Create a topic after this answer; as in Kafka, only the next answer contains it."""
        cluster = self._cluster

        def create() -> None:
            if cluster.topics.get(name) is None:
                cluster.topics.create(name)

        if cluster.creates_topics:
            cluster.call_later(0.0, create)

    def _topic(self, exchange: Exchange, topic: Topic) -> dict[str, Any]:
        nodes = list(self._cluster.nodes.addresses)
        is_asked = exchange.body.include_topic_authorized_operations
        answer = {
            "error_code": exchange.error,
            "name": topic.name,
            "topic_id": topic.id,
            "authorized_operations": _EVERYTHING if is_asked else None,
        }
        if exchange.error:
            return answer
        partitions = [
            {
                "partition_index": number,
                "leader_id": log.leader,
                "leader_epoch": log.epoch,
                "replica_nodes": nodes,
                "isr_nodes": self._cluster.nodes.named(),
            }
            for number, log in enumerate(topic.logs)
        ]
        return answer | {"partitions": partitions}

    def _brokers(self, id_name: str) -> list[dict[str, Any]]:
        nodes = self._cluster.nodes
        named = [(node, *nodes.addresses[node]) for node in nodes.named()]
        return [{id_name: n, "host": host, "port": port} for n, host, port in named]

    def _find_coordinator(self, exchange: Exchange) -> None:
        body, nodes = exchange.body, self._cluster.nodes

        def where(key: str) -> Fields:
            node = nodes.coordinator_of(body.key_type, key)
            host, port = nodes.addresses[node]
            return {"node_id": node, "host": host, "port": port}

        if exchange.version < _SEVERAL_KEYS:
            exchange.reply(**where(body.key))
            return
        found = [
            {"key": key, **exchange.outcome(partial(where, key))}
            for key in body.coordinator_keys
        ]
        exchange.reply(coordinators=found)

    def _describe_cluster(self, exchange: Exchange) -> None:
        exchange.reply(
            cluster_id=self._cluster.id,
            controller_id=self._cluster.nodes.named()[0],
            brokers=self._brokers("broker_id"),
        )

    def _describe_acls(self, _exchange: Exchange) -> None:
        raise RefusedError(_codes.SECURITY_DISABLED)
