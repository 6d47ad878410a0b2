"""Keeps a cluster's topics, and answers what admins ask to make and change of them."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from attrs import define, field

from safeconsumer.testing import _codes, _settings
from safeconsumer.testing._log import Log
from safeconsumer.testing._protocol import Exchange

if TYPE_CHECKING:
    from safeconsumer.testing._cluster import Cluster

_LEGAL_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)  # what IncrementalAlterConfigs can do


class RefusedError(Exception):
    """What was asked cannot be done; ``code`` is Kafka's."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


@define(kw_only=True, eq=False)
class Topic:
    """One topic with its partitions' logs."""

    name: str
    id: UUID
    settings: dict[str, str]
    logs: list[Log] = field(factory=list)

    def setting(self, name: str) -> str:
        """Return a setting's value, Kafka's default if it was not given."""
        return self.settings.get(name, _settings.TOPIC_DEFAULTS[name])

    def number(self, name: str) -> int:
        """Return a setting that is a whole number."""
        return int(self.setting(name))


class Topics:
    """The topics of one cluster, by their names."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "CreateTopics": self._create_topics,
            "DeleteTopics": self._delete_topics,
            "CreatePartitions": self._create_partitions,
            "DescribeConfigs": self._describe_configs,
            "AlterConfigs": self._alter_configs,
            "IncrementalAlterConfigs": self._alter_configs,
        }

    def __iter__(self) -> Iterator[Topic]:
        return iter(tuple(self._by_name.values()))

    def get(self, name: str | None, id_: UUID | None = None) -> Topic | None:
        """Return the topic of this name, or of this id; None if there is none."""
        if name:
            return self._by_name.get(name)
        return None if id_ is None else self._by_id.get(id_)

    def log(self, name: str, partition: int) -> Log | None:
        """Return a partition's log, None if there is no such partition."""
        topic = self._by_name.get(name)
        if topic is None or not 0 <= partition < len(topic.logs):
            return None
        return topic.logs[partition]

    def check(
        self, name: str, partitions: int, settings: Mapping[str, str | None]
    ) -> None:
        """
        Check that a topic can be made.

        Raises:
            RefusedError: it cannot.

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
        self, name: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> Topic:
        """
        Make a topic.

        Raises:
            RefusedError: it exists, or cannot be as asked.

        """
        self.check(name, partitions, settings or {})
        id_ = UUID(int=self._cluster.random.getrandbits(128), version=4)
        topic = Topic(name=name, id=id_, settings=dict(settings or {}))
        self._by_name[name] = self._by_id[id_] = topic
        self.grow(name, partitions)
        return topic

    def grow(self, name: str, total: int) -> None:
        """
        Let a topic have more partitions.

        Raises:
            RefusedError: there is none, or it has as many.

        """
        topic = self._known(name)
        if total <= len(topic.logs):
            why = (
                f"Topic currently has {len(topic.logs)} partitions, {total} asked for."
            )
            raise RefusedError(_codes.INVALID_PARTITIONS, why)
        nodes = self._cluster.nodes
        for number in range(len(topic.logs), total):
            topic.logs.append(Log(nodes.leader_of(number)))

    def delete(self, name: str) -> None:
        """
        Delete a topic with its records, and what groups committed of it.

        Raises:
            RefusedError: there is none.

        """
        topic = self._known(name)
        del self._by_name[name], self._by_id[topic.id]
        self._cluster.offsets.forget_topic(name)
        self._cluster.fetches.look_again()

    def _known(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise RefusedError(
                _codes.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}"
            )
        return topic

    # What admins ask

    def _create_topics(self, exchange: Exchange) -> None:
        def one(asked: Any) -> dict[str, Any]:  # noqa: ANN401  not typed
            settings = {c.name: c.value for c in asked.configs}
            count = len(asked.assignments) or asked.num_partitions
            count = self._cluster.default_partitions if count == -1 else count
            copies = self._copies(asked)

            def work() -> None:
                self.check(asked.name, count, settings)
                if copies > len(self._cluster.nodes.addresses):
                    why = f"Unable to replicate the partition {copies} time(s)"
                    raise RefusedError(_codes.INVALID_REPLICATION_FACTOR, why)
                if not exchange.body.validate_only:
                    self.create(asked.name, count, settings)

            topic_told = {"name": asked.name, **_done(exchange, work)}
            topic = self.get(asked.name)
            return topic_told | {
                "topic_id": None if topic is None else topic.id,
                "num_partitions": count,
                "replication_factor": copies,
                "configs": [
                    {"name": key, "value": value, "config_source": _settings.GIVEN}
                    for key, value in settings.items()
                ],
            }

        exchange.reply(topics=[one(asked) for asked in exchange.body.topics])

    def _copies(self, asked: Any) -> int:  # noqa: ANN401  not typed
        every = len(self._cluster.nodes.addresses)
        if asked.assignments:
            return max(len(one.broker_ids) for one in asked.assignments)
        return every if asked.replication_factor == -1 else asked.replication_factor

    def _delete_topics(self, exchange: Exchange) -> None:
        body = exchange.body
        asked = [(name, None) for name in body.topic_names]
        asked += [(one.name, one.topic_id) for one in body.topics]
        told = []
        for name, id_ in asked:
            topic = self.get(name, id_)
            names = {"name": topic.name if topic else name, "topic_id": id_}
            if topic is None and id_ is not None:
                told.append({**names, "error_code": _codes.UNKNOWN_TOPIC_ID})
            else:
                found = names["name"] or ""
                work = lambda found=found: self.delete(found)  # noqa: E731  of the loop
                told.append(names | _done(exchange, work))
        exchange.reply(responses=told)

    def _create_partitions(self, exchange: Exchange) -> None:
        def one(asked: Any) -> dict[str, Any]:  # noqa: ANN401  not typed
            def work() -> None:
                if not exchange.body.validate_only:
                    self.grow(asked.name, asked.count)

            return {"name": asked.name, **_done(exchange, work)}

        exchange.reply(results=[one(asked) for asked in exchange.body.topics])

    def _describe_configs(self, exchange: Exchange) -> None:
        def one(asked: Any) -> dict[str, Any]:  # noqa: ANN401  not typed
            kind, name = asked.resource_type, asked.resource_name
            topic = self.get(name) if kind == _settings.TOPIC else None
            wanted = asked.configuration_keys
            error = exchange.error
            if kind == _settings.TOPIC and topic is None:
                error = error or _codes.UNKNOWN_TOPIC_OR_PARTITION
            configs = [] if error else _described(kind, topic)
            return {
                "error_code": error,
                "error_message": None,
                "resource_type": kind,
                "resource_name": name,
                "configs": [c for c in configs if not wanted or c["name"] in wanted],
            }

        exchange.reply(results=[one(asked) for asked in exchange.body.resources])

    def _alter_configs(self, exchange: Exchange) -> None:
        def one(asked: Any) -> dict[str, Any]:  # noqa: ANN401  not typed
            def work() -> None:
                if asked.resource_type != _settings.TOPIC:
                    why = "only topics have settings that can be changed"
                    raise RefusedError(_codes.INVALID_CONFIG, why)
                topic = self._known(asked.resource_name)
                changed = _altered(exchange.message.api, topic.settings, asked.configs)
                wrong = _settings.problem(changed)
                if wrong:
                    raise RefusedError(_codes.INVALID_CONFIG, wrong)
                if not exchange.body.validate_only:
                    topic.settings = changed

            return {
                "resource_type": asked.resource_type,
                "resource_name": asked.resource_name,
                **_done(exchange, work),
            }

        exchange.reply(responses=[one(asked) for asked in exchange.body.resources])


def _done(exchange: Exchange, work: Callable[[], None]) -> dict[str, Any]:
    """Do one part of a request, and return the fields that say how that went."""
    if exchange.error:
        return {"error_code": exchange.error, "error_message": None}
    try:
        work()
    except RefusedError as error:
        return {"error_code": error.code, "error_message": str(error)}
    return {"error_code": _codes.NONE, "error_message": None}


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


def _altered(api: str, before: Mapping[str, str], configs: Any) -> dict[str, str]:  # noqa: ANN401  not typed
    if api == "AlterConfigs":  # what is not named goes back to its default
        return {one.name: one.value for one in configs}
    after = dict(before)
    for one in configs:
        listed = [part for part in after.get(one.name, "").split(",") if part]
        if one.config_operation == _DELETE:
            after.pop(one.name, None)
        elif one.config_operation == _APPEND:
            after[one.name] = ",".join([*listed, one.value])
        elif one.config_operation == _SUBTRACT:
            after[one.name] = ",".join(p for p in listed if p != one.value)
        else:
            after[one.name] = one.value
    return after
