"""Keeps what groups have committed, and what transactions are about to commit."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from safeconsumer.testing import _codes
from safeconsumer.testing._protocol import Exchange

if TYPE_CHECKING:
    from safeconsumer.testing._cluster import Cluster

_SEVERAL_GROUPS = 8  # from this version on OffsetFetch asks for several
_TopicPartition = tuple[str, int]


@frozen
class Offset:
    """What a group has committed of a partition."""

    offset: int
    metadata: str
    leader_epoch: int


_NOTHING = Offset(-1, "", -1)


class Offsets:
    """The offsets of all groups of one cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._committed: dict[str, dict[_TopicPartition, Offset]] = {}
        # By group and producer: they count when the producer's transaction has ended.
        self._pending: dict[tuple[str, int], dict[_TopicPartition, Offset]] = {}
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "OffsetCommit": self._commit,
            "OffsetFetch": self._fetch,
            "OffsetDelete": self._delete,
            "TxnOffsetCommit": self._commit_in_transaction,
        }

    def of_group(self, group: str) -> Mapping[_TopicPartition, Offset]:
        """Return all that a group has committed."""
        return self._committed.get(group, {})

    def end_transaction(
        self, group: str, producer_id: int, *, is_committed: bool
    ) -> None:
        """Let a producer's pending offsets count, or forget them."""
        pending = self._pending.pop((group, producer_id), {})
        if is_committed:
            self._committed.setdefault(group, {}).update(pending)

    def forget_group(self, group: str) -> None:
        """Forget what a group has committed."""
        self._committed.pop(group, None)

    def forget_topic(self, topic: str) -> None:
        """Forget what groups have committed of a topic that is deleted."""
        for offsets in self._committed.values():
            for key in tuple(offsets):
                if key[0] == topic:
                    del offsets[key]

    # Requests

    def _commit(self, exchange: Exchange) -> None:
        body = exchange.body
        generation = body.generation_id_or_member_epoch
        error = self._refusal(exchange, body.group_id, body.member_id, generation)
        into = self._committed.setdefault(body.group_id, {}) if not error else {}
        self._keep(exchange, into, error)

    def _commit_in_transaction(self, exchange: Exchange) -> None:
        body, transactions = exchange.body, self._cluster.transactions
        error = self._cluster.groups.misdirected(exchange, body.group_id)
        error = error or transactions.refusal(
            body.transactional_id, body.producer_id, body.producer_epoch
        )
        if not error and (body.member_id or body.generation_id >= 0):
            error = self._refusal(
                exchange, body.group_id, body.member_id, body.generation_id
            )
        key = body.group_id, body.producer_id
        self._keep(
            exchange, self._pending.setdefault(key, {}) if not error else {}, error
        )

    def _refusal(
        self, exchange: Exchange, name: str, member_id: str, generation: int
    ) -> int:
        groups = self._cluster.groups
        error = groups.misdirected(exchange, name)
        if error:
            return error
        if not groups.is_there(name) and generation >= 0:
            return _codes.ILLEGAL_GENERATION
        instance_id = exchange.body.group_instance_id
        return groups.group(name).commit(member_id, generation, instance_id)

    def _keep(
        self, exchange: Exchange, into: dict[_TopicPartition, Offset], error: int
    ) -> None:
        def one(topic: str, asked: Any) -> int:  # noqa: ANN401  not typed
            if error:
                return error
            if self._cluster.topics.log(topic, asked.partition_index) is None:
                return _codes.UNKNOWN_TOPIC_OR_PARTITION
            into[topic, asked.partition_index] = Offset(
                asked.committed_offset,
                asked.committed_metadata or "",
                asked.committed_leader_epoch,
            )
            return _codes.NONE

        exchange.reply(topics=_by_topic(exchange.body.topics, one))

    def _fetch(self, exchange: Exchange) -> None:
        body = exchange.body
        if exchange.version >= _SEVERAL_GROUPS:
            told = [
                {"group_id": one.group_id, **self._fetched(exchange, one)}
                for one in body.groups
            ]
            exchange.reply(groups=told)
        else:
            exchange.reply(**self._fetched(exchange, body))

    def _fetched(self, exchange: Exchange, asked: Any) -> dict[str, Any]:  # noqa: ANN401
        group, is_stable = asked.group_id, exchange.body.require_stable
        error = self._cluster.groups.misdirected(exchange, group)
        if error:
            # Before version 2 there is only the error of each partition.
            return {"error_code": error, "topics": self._none(asked.topics, error)}
        topics: dict[str, list[dict[str, Any]]] = {}
        for topic, number in self._asked(group, asked.topics):
            told = self._one(group, (topic, number), is_stable=is_stable)
            topics.setdefault(topic, []).append(told)
        listed = [{"name": t, "partitions": told} for t, told in topics.items()]
        return {"error_code": error, "topics": listed}

    def _none(self, topics: Any, error: int) -> list[dict[str, Any]]:  # noqa: ANN401
        return [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": -1,
                        "error_code": error,
                    }
                    for number in topic.partition_indexes
                ],
            }
            for topic in topics or ()
        ]

    def _asked(self, group: str, topics: Any) -> Iterator[_TopicPartition]:  # noqa: ANN401
        if topics is None:
            yield from self.of_group(group)
            return
        for topic in topics:
            for number in topic.partition_indexes:
                yield topic.name, number

    def _one(
        self, group: str, partition: _TopicPartition, *, is_stable: bool
    ) -> dict[str, Any]:
        found, error = self.of_group(group).get(partition, _NOTHING), _codes.NONE
        if is_stable and any(
            partition in pending
            for (its, _), pending in self._pending.items()
            if its == group
        ):
            found, error = _NOTHING, _codes.UNSTABLE_OFFSET_COMMIT
        return {
            "partition_index": partition[1],
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
            "error_code": error,
        }

    def _delete(self, exchange: Exchange) -> None:
        name, groups = exchange.body.group_id, self._cluster.groups
        error = groups.misdirected(exchange, name)
        if not error and not groups.is_there(name):
            error = _codes.GROUP_ID_NOT_FOUND
        if error:
            exchange.reply(error_code=error)
            return

        def one(topic: str, asked: Any) -> int:  # noqa: ANN401  not typed
            if groups.is_subscribed(name, topic):
                return _codes.GROUP_SUBSCRIBED_TO_TOPIC
            self._committed.get(name, {}).pop((topic, asked.partition_index), None)
            return _codes.NONE

        exchange.reply(topics=_by_topic(exchange.body.topics, one))


def _by_topic(
    topics: Iterable[Any], error_of: Callable[[str, Any], int]
) -> list[dict[str, Any]]:
    """Return each partition's error, as many answers list them."""
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": one.partition_index,
                    "error_code": error_of(topic.name, one),
                }
                for one in topic.partitions
            ],
        }
        for topic in topics
    ]
