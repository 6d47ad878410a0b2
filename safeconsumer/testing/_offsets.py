"""Keeps the committed offsets of groups, and the offsets of open transactions."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from typing import Any

from attrs import field, frozen

from safeconsumer.testing import _codes
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._coordinator import Coordinator
from safeconsumer.testing._protocol import Exchange, Fields
from safeconsumer.testing._topics import Topics

_KNOWS_NOT_FOUND = 9  # since this version OffsetCommit has an error for unknown groups
_SEVERAL_GROUPS = 8  # from this version on OffsetFetch has several groups
_TopicPartition = tuple[str, int]


@frozen
class Offset:
    """The committed offset of a partition; ``number`` is a counter of all commits."""

    offset: int
    metadata: str
    leader_epoch: int
    number: int = field(default=0, eq=False)


_NOTHING = Offset(-1, "", -1)
_Kept = dict[_TopicPartition, Offset]


class Offsets:
    """The offsets of all groups of a cluster."""

    def __init__(self, groups: Coordinator, topics: Topics) -> None:
        self._groups, self._topics = groups, topics
        self._numbers = count(1)
        self._committed: dict[str, _Kept] = {}
        # The offsets by group and producer, which take effect when the producer's
        # transaction is committed.
        self._pending: dict[tuple[str, int], _Kept] = {}
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "OffsetCommit": self._commit,
            "OffsetFetch": self._fetch,
        }

    def of_group(self, group: str) -> Mapping[_TopicPartition, Offset]:
        """Return all committed offsets of a group."""
        return self._committed.get(group, {})

    def end_transaction(
        self, group: str, producer_id: int, *, is_committed: bool
    ) -> None:
        """Commit a producer's pending offsets, unless later commits exist, or drop them."""
        pending = self._pending.pop((group, producer_id), {})
        if is_committed:
            committed = self._committed.setdefault(group, {})
            for key, offset in pending.items():
                committed[key] = max(
                    offset, committed.get(key, _NOTHING), key=lambda one: one.number
                )

    def forget_group(self, group: str) -> None:
        """Drop a group's committed and pending offsets."""
        for kept in self._kept_of(group):
            kept.clear()

    def forget_topic(self, topic: str) -> None:
        """Drop all groups' committed and pending offsets of a deleted topic."""
        for kept in (*self._committed.values(), *self._pending.values()):
            for key in tuple(kept):
                if key[0] == topic:
                    del kept[key]

    def _kept_of(self, group: str) -> Iterator[_Kept]:
        yield self._committed.get(group, {})
        yield from self._pending_of(group)

    def _pending_of(self, group: str) -> Iterator[_Kept]:
        return (kept for (its, _), kept in self._pending.items() if its == group)

    # Requests

    def _commit(self, exchange: Exchange) -> None:
        body = exchange.body

        def keep() -> _Kept:
            self._check_member(exchange, body.generation_id_or_member_epoch)
            return self._committed.setdefault(body.group_id, {})

        self._keep(exchange, keep)

    def commit_in_transaction(
        self, exchange: Exchange, check_producer: Callable[[], None]
    ) -> None:
        """Answer TxnOffsetCommit; ``check_producer`` raises if the producer is wrong."""
        body = exchange.body

        def keep() -> _Kept:
            check_producer()
            self._check_member(exchange, body.generation_id, is_transactional=True)
            return self._pending.setdefault((body.group_id, body.producer_id), {})

        self._keep(exchange, keep)

    def _check_member(
        self, exchange: Exchange, generation: int, *, is_transactional: bool = False
    ) -> None:
        body, groups = exchange.body, self._groups
        if not groups.is_known(body.group_id) and generation >= 0:
            is_old = is_transactional or exchange.version < _KNOWS_NOT_FOUND
            raise RefusedError(
                _codes.ILLEGAL_GENERATION if is_old else _codes.GROUP_ID_NOT_FOUND
            )
        error = groups.group(body.group_id).commit(
            body.member_id,
            generation,
            body.group_instance_id,
            is_transactional=is_transactional,
        )
        _codes.check(error)

    def _keep(self, exchange: Exchange, place: Callable[[], _Kept]) -> None:
        """Store committed offsets in the mapping from ``place()``, which may raise."""

        def keep(topic: str, asked: Any) -> None:  # noqa: ANN401  not typed
            self._groups.check_here(exchange, exchange.body.group_id)
            into = place()
            if self._topics.log(topic, asked.partition_index) is None:
                raise RefusedError(_codes.UNKNOWN_TOPIC_OR_PARTITION)
            into[topic, asked.partition_index] = Offset(
                asked.committed_offset,
                asked.committed_metadata or "",
                asked.committed_leader_epoch,
                next(self._numbers),
            )

        exchange.reply_by_partition(keep)

    def _fetch(self, exchange: Exchange) -> None:
        body = exchange.body
        if exchange.version < _SEVERAL_GROUPS:
            exchange.reply(**self._of_one_group(exchange, body))
            return
        groups = [
            {
                "group_id": one.group_id,
                **exchange.outcome(partial(self._of_one_group, exchange, one)),
            }
            for one in body.groups
        ]
        exchange.reply(groups=groups)

    def _of_one_group(self, exchange: Exchange, asked: Any) -> Fields:  # noqa: ANN401
        self._groups.check_here(exchange, asked.group_id)
        partitions: Iterable[_TopicPartition] = self.of_group(asked.group_id)
        if asked.topics is not None:
            partitions = [
                (topic.name, number)
                for topic in asked.topics
                for number in topic.partition_indexes
            ]
        is_stable = exchange.body.require_stable
        topics: dict[str, list[Fields]] = {}
        for one in partitions:
            answer = self._of_partition(asked.group_id, one, is_stable=is_stable)
            topics.setdefault(one[0], []).append(answer)
        return {
            "topics": [{"name": t, "partitions": some} for t, some in topics.items()]
        }

    def _of_partition(
        self, group: str, partition: _TopicPartition, *, is_stable: bool
    ) -> Fields:
        found, error = self.of_group(group).get(partition, _NOTHING), _codes.NONE
        if is_stable and any(partition in one for one in self._pending_of(group)):
            found, error = _NOTHING, _codes.UNSTABLE_OFFSET_COMMIT
        return {
            "partition_index": partition[1],
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
            "error_code": error,
        }
