"""Keeps a cluster's topics, and answers admin requests about topics."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

from attrs import define, field

from safeconsumer.testing import _codes, _settings
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._log import Log
from safeconsumer.testing._nodes import Nodes
from safeconsumer.testing._protocol import Exchange, Fields

_SET = 0  # the only operation of IncrementalAlterConfigs that is supported
_LEGAL_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


@define(kw_only=True, eq=False)
class Topic:
    """A topic with the logs of its partitions."""

    name: str
    id: UUID
    settings: dict[str, str]
    logs: list[Log] = field(factory=list)

    def setting(self, name: str) -> str:
        """Return the value of a topic setting, or Kafka's default."""
        return self.settings.get(name, _settings.TOPIC_DEFAULTS[name])

    def number(self, name: str) -> int:
        """Return the value of a numeric topic setting."""
        return int(self.setting(name))


class Topics:
    """The topics of a cluster; ``on_delete`` is called with each deleted topic's name."""

    def __init__(
        self, nodes: Nodes, random: Random, on_delete: Callable[[str], None]
    ) -> None:
        self._nodes, self._random, self._on_delete = nodes, random, on_delete
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "CreateTopics": self._create_topics,
            "DeleteTopics": self._delete_topics,
            "CreatePartitions": self._create_partitions,
            "DescribeConfigs": self._describe_configs,
            "IncrementalAlterConfigs": self._alter_configs,
        }

    def __iter__(self) -> Iterator[Topic]:
        return iter(tuple(self._by_name.values()))

    def get(self, name: str | None, id_: UUID | None = None) -> Topic | None:
        """Return the topic with a name or an id; None if it does not exist."""
        if name:
            return self._by_name.get(name)
        return None if id_ is None else self._by_id.get(id_)

    def log(self, name: str, partition: int) -> Log | None:
        """Return the log of a partition; None if the partition does not exist."""
        topic = self._by_name.get(name)
        if topic is None or not 0 <= partition < len(topic.logs):
            return None
        return topic.logs[partition]

    def led(self, node: int, topic: str, partition: int, epoch: int = -1) -> Log:
        """
        Return the log of a partition that a broker leads.

        Args:
            node: the broker that received the request.
            topic: the name of the topic.
            partition: the number of the partition.
            epoch: the leader epoch that the client knows, or -1 for none.

        Raises:
            RefusedError: the partition does not exist, or has a different leader or
                epoch.
        """
        log = self.log(topic, partition)
        if log is None:
            raise RefusedError(_codes.UNKNOWN_TOPIC_OR_PARTITION)
        if log.leader != node:
            raise RefusedError(_codes.NOT_LEADER_OR_FOLLOWER)
        if epoch > log.epoch:
            raise RefusedError(_codes.UNKNOWN_LEADER_EPOCH)
        if 0 <= epoch < log.epoch:
            raise RefusedError(_codes.FENCED_LEADER_EPOCH)
        return log

    def check(
        self, name: str, partitions: int, settings: Mapping[str, str | None]
    ) -> None:
        """
        Check that a topic can be created.

        Raises:
            RefusedError: the topic cannot be created; the error's code and text give
                the reason.
        """
        if not _LEGAL_NAME.fullmatch(name):
            raise RefusedError(_codes.INVALID_TOPIC, f"illegal topic name {name!r}")
        if name in self._by_name:
            raise RefusedError(
                _codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
            )
        if partitions < 1:
            raise RefusedError(
                _codes.INVALID_PARTITIONS, f"{name}: partitions: {partitions}"
            )
        wrong = _settings.problem(settings)
        if wrong:
            raise RefusedError(_codes.INVALID_CONFIG, wrong)

    def create(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> Topic:
        """
        Create a topic, and return it.

        Raises:
            RefusedError: the topic exists, or its name or a setting is illegal.
        """
        self.check(name, partitions, settings or {})
        id_ = UUID(int=self._random.getrandbits(128), version=4)
        topic = Topic(name=name, id=id_, settings=dict(settings or {}))
        self._by_name[name] = self._by_id[id_] = topic
        self.grow(name, partitions)
        return topic

    def grow(self, name: str, total: int) -> None:
        """
        Increase the number of a topic's partitions to ``total``.

        Raises:
            RefusedError: the topic does not exist, or already has that many partitions.
        """
        topic = self.known(name)
        if total <= len(topic.logs):
            why = (
                f"Topic currently has {len(topic.logs)} partitions, {total} asked for."
            )
            raise RefusedError(_codes.INVALID_PARTITIONS, why)
        for number in range(len(topic.logs), total):
            topic.logs.append(Log(self._nodes.leader_of(number)))

    def delete(self, name: str) -> None:
        """
        Delete a topic with its records and its committed offsets.

        Raises:
            RefusedError: the topic does not exist.
        """
        topic = self.known(name)
        del self._by_name[name], self._by_id[topic.id]
        self._on_delete(name)

    def known(self, name: str) -> Topic:
        """
        Return the topic with this name.

        Raises:
            RefusedError: the topic does not exist.
        """
        topic = self._by_name.get(name)
        if topic is None:
            raise RefusedError(
                _codes.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"
            )
        return topic

    # Requests of admins

    def _create_topics(self, exchange: Exchange) -> None:
        replicas = len(self._nodes.addresses)

        def create(asked: Any) -> Fields:  # noqa: ANN401  not typed
            settings = {one.name: one.value for one in asked.configs}
            count = len(asked.assignments) or asked.num_partitions
            count = 1 if count == -1 else count
            self.check(asked.name, count, settings)
            if asked.replication_factor > replicas:
                why = (
                    f"{asked.replication_factor} replicas of {asked.name} are too many"
                )
                raise RefusedError(_codes.INVALID_REPLICATION_FACTOR, why)
            made = {"num_partitions": count, "replication_factor": replicas}
            if exchange.body.validate_only:
                return made
            return {**made, "topic_id": self.create(asked.name, count, settings).id}

        topics = [
            {"name": asked.name, **exchange.outcome(partial(create, asked))}
            for asked in exchange.body.topics
        ]
        exchange.reply(topics=topics)

    def _delete_topics(self, exchange: Exchange) -> None:
        def delete(name: str | None, id_: UUID | None) -> Fields:
            topic = self.get(name, id_)
            if topic is None and id_ is not None:
                raise RefusedError(_codes.UNKNOWN_TOPIC_ID)
            self.delete(topic.name if topic else str(name))
            return {} if topic is None else {"name": topic.name}

        asked = [(name, None) for name in exchange.body.topic_names]
        asked += [(one.name, one.topic_id) for one in exchange.body.topics]
        responses = [
            {
                "name": name,
                "topic_id": id_,
                **exchange.outcome(partial(delete, name, id_)),
            }
            for name, id_ in asked
        ]
        exchange.reply(responses=responses)

    def _create_partitions(self, exchange: Exchange) -> None:
        def grow(asked: Any) -> None:  # noqa: ANN401  not typed
            if not exchange.body.validate_only:
                self.grow(asked.name, asked.count)

        results = [
            {"name": asked.name, **exchange.outcome(partial(grow, asked))}
            for asked in exchange.body.topics
        ]
        exchange.reply(results=results)

    def _describe_configs(self, exchange: Exchange) -> None:
        def describe(asked: Any) -> Fields:  # noqa: ANN401  not typed
            kind, wanted = asked.resource_type, asked.configuration_keys
            is_topic = kind == _settings.TOPIC
            topic = self.known(asked.resource_name) if is_topic else None
            configs = _described(kind, topic)
            found = [one for one in configs if not wanted or one["name"] in wanted]
            return {"configs": found}

        exchange.reply(results=_by_resource(exchange, describe))

    def _alter_configs(self, exchange: Exchange) -> None:
        def alter(asked: Any) -> None:  # noqa: ANN401  not typed
            if asked.resource_type != _settings.TOPIC:
                why = "only topics have settings that can be changed"
                raise RefusedError(_codes.INVALID_CONFIG, why)
            topic = self.known(asked.resource_name)
            changed = dict(topic.settings)
            for one in asked.configs:
                if one.config_operation != _SET:
                    raise RefusedError(
                        _codes.INVALID_CONFIG, "settings can only be set"
                    )
                changed[one.name] = one.value
            wrong = _settings.problem(changed)
            if wrong:
                raise RefusedError(_codes.INVALID_CONFIG, wrong)
            if not exchange.body.validate_only:
                topic.settings = changed

        exchange.reply(responses=_by_resource(exchange, alter))


def _by_resource(
    exchange: Exchange, answer: Callable[[Any], Fields | None]
) -> list[dict[str, Any]]:
    return [
        {
            "resource_type": asked.resource_type,
            "resource_name": asked.resource_name,
            **exchange.outcome(partial(answer, asked)),
        }
        for asked in exchange.body.resources
    ]


def _described(kind: int, topic: Topic | None) -> list[dict[str, Any]]:
    if kind == _settings.BROKER:
        every, given, default = _settings.BROKER_SETTINGS, {}, _settings.STATIC
    elif topic is not None:
        every = {**_settings.TOPIC_DEFAULTS, **topic.settings}
        given, default = topic.settings, _settings.DEFAULT
    else:
        return []
    return [
        {
            "name": name,
            "value": value,
            "config_source": _settings.GIVEN if name in given else default,
            "is_default": name not in given,
            "config_type": 2,
            "documentation": None,
        }
        for name, value in every.items()
    ]
