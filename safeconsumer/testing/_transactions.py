"""Coordinates transactions: producer ids, epochs, what is part of one, how it ends."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from safeconsumer.testing import _codes
from safeconsumer.testing._members import Timer
from safeconsumer.testing._nodes import TRANSACTION
from safeconsumer.testing._protocol import Exchange

if TYPE_CHECKING:
    from safeconsumer.testing._cluster import Cluster

_FIRST_PRODUCER = 1000
# The first versions that know PRODUCER_FENCED; older ones hear INVALID_PRODUCER_EPOCH.
_KNOW_FENCED = {
    "InitProducerId": 4,
    "AddPartitionsToTxn": 2,
    "AddOffsetsToTxn": 2,
    "EndTxn": 2,
}


@define(eq=False)
class _Transactional:
    """A transactional id: its producer, and the transaction that is open, if any."""

    producer_id: int
    epoch: int
    timeout: float
    partitions: dict[tuple[str, int], None] = field(factory=dict)
    groups: dict[str, None] = field(factory=dict)
    timer: Timer | None = None
    last_end: bool | None = None  # how the last one ended, for who asks again

    @property
    def is_open(self) -> bool:
        """Whether something is part of a transaction that has not ended."""
        return bool(self.partitions or self.groups)


class Transactions:
    """The transactional ids of one cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._known: dict[str, _Transactional] = {}
        self._next_producer = _FIRST_PRODUCER
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "InitProducerId": self._init_producer_id,
            "AddPartitionsToTxn": self._add_partitions,
            "AddOffsetsToTxn": self._add_offsets,
            "EndTxn": self._end_txn,
        }

    def has(
        self, id_: str | None, producer_id: int, partition: tuple[str, int]
    ) -> bool:
        """Whether a partition has been made part of a producer's open transaction."""
        known = self._known.get(id_ or "")
        return (
            known is not None
            and known.producer_id == producer_id
            and partition in known.partitions
        )

    def refusal(self, id_: str, producer_id: int, epoch: int) -> int:
        """Return the error for who is not an id's present producer."""
        known = self._known.get(id_)
        if known is None or known.producer_id != producer_id:
            return _codes.INVALID_PRODUCER_ID_MAPPING
        return _codes.NONE if known.epoch == epoch else _codes.INVALID_PRODUCER_EPOCH

    def _refusal(self, exchange: Exchange, id_: str, producer: tuple[int, int]) -> int:
        error = self._misdirected(exchange, id_) or self.refusal(id_, *producer)
        if error != _codes.INVALID_PRODUCER_EPOCH or exchange.error:
            return error
        is_known = exchange.version >= _KNOW_FENCED[exchange.message.api]
        return _codes.PRODUCER_FENCED if is_known else error

    def _misdirected(self, exchange: Exchange, id_: str) -> int:
        if exchange.error:
            return exchange.error
        node = self._cluster.nodes.coordinator_of(TRANSACTION, id_)
        return _codes.NONE if node == exchange.node else _codes.NOT_COORDINATOR

    # Requests

    def _init_producer_id(self, exchange: Exchange) -> None:
        body, id_ = exchange.body, exchange.body.transactional_id
        error = exchange.error
        if id_ is not None:
            error = self._misdirected(exchange, id_)
        if not error and body.producer_id >= 0 and id_ is not None:
            error = self._refusal(
                exchange, id_, (body.producer_id, body.producer_epoch)
            )
        if error:
            exchange.reply(error_code=error, producer_id=-1, producer_epoch=-1)
        elif id_ is None:
            exchange.reply(producer_id=self._new_producer(), producer_epoch=0)
        else:
            known = self._begun_anew(id_, body.transaction_timeout_ms / 1000)
            exchange.reply(producer_id=known.producer_id, producer_epoch=known.epoch)

    def _begun_anew(self, id_: str, timeout: float) -> _Transactional:
        """Fence an id's former producer, and abort what it has left open."""
        known = self._known.get(id_)
        if known is None:
            known = _Transactional(self._new_producer(), -1, timeout)
            self._known[id_] = known
        known.timeout = timeout
        known.epoch += 1
        if known.is_open:
            self._end(known, is_committed=False)
        known.last_end = None
        return known

    def _new_producer(self) -> int:
        self._next_producer += 1
        return self._next_producer - 1

    def _add_partitions(self, exchange: Exchange) -> None:
        body = exchange.body
        id_ = body.v3_and_below_transactional_id
        producer = (body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
        asked = [
            (topic.name, number)
            for topic in body.v3_and_below_topics
            for number in topic.partitions
        ]
        unknown = [one for one in asked if self._cluster.topics.log(*one) is None]
        error = self._refusal(exchange, id_, producer)
        if not error and not unknown:
            self._begin(id_).partitions.update(dict.fromkeys(asked))

        def error_of(one: tuple[str, int]) -> int:
            if error or not unknown:
                return error
            is_unknown = one in unknown
            named = _codes.UNKNOWN_TOPIC_OR_PARTITION
            return named if is_unknown else _codes.OPERATION_NOT_ATTEMPTED

        told = [_added(topic, error_of) for topic in body.v3_and_below_topics]
        exchange.reply(results_by_topic_v3_and_below=told)

    def _add_offsets(self, exchange: Exchange) -> None:
        body, id_ = exchange.body, exchange.body.transactional_id
        producer = (body.producer_id, body.producer_epoch)
        error = self._refusal(exchange, id_, producer)
        if not error:
            self._begin(id_).groups[body.group_id] = None
        exchange.reply(error_code=error)

    def _begin(self, id_: str) -> _Transactional:
        """Return an id's transaction; a new one is aborted when its time is over."""
        known = self._known[id_]
        if not known.is_open:
            known.timer = self._cluster.call_later(
                known.timeout, lambda: self._time_is_over(known)
            )
        return known

    def _time_is_over(self, known: _Transactional) -> None:
        known.epoch += 1  # so that its producer cannot go on as if nothing had happened
        self._end(known, is_committed=False)

    def _end_txn(self, exchange: Exchange) -> None:
        body, id_ = exchange.body, exchange.body.transactional_id
        producer = (body.producer_id, body.producer_epoch)
        error = self._refusal(exchange, id_, producer)
        if not error:
            known = self._known[id_]
            if known.is_open:
                self._end(known, is_committed=body.committed)
            elif known.last_end != body.committed:
                error = _codes.INVALID_TXN_STATE
        exchange.reply(error_code=error)

    def _end(self, known: _Transactional, *, is_committed: bool) -> None:
        """Write the end into every log, and let the offsets count or forget them."""
        if known.timer is not None:
            known.timer.cancel()
        partitions, groups = known.partitions, known.groups
        known.partitions, known.groups, known.timer = {}, {}, None
        known.last_end = is_committed
        for topic, number in partitions:
            log = self._cluster.topics.log(topic, number)
            if log is not None:  # else the topic was deleted
                log.end_transaction(
                    known.producer_id,
                    known.epoch,
                    self._cluster.now_ms(),
                    is_committed=is_committed,
                )
        for group in groups:
            self._cluster.offsets.end_transaction(
                group, known.producer_id, is_committed=is_committed
            )
        self._cluster.fetches.look_again()


def _added(topic: Any, error_of: Callable[[tuple[str, int]], int]) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": topic.name,
        "results_by_partition": [
            {
                "partition_index": number,
                "partition_error_code": error_of((topic.name, number)),
            }
            for number in topic.partitions
        ],
    }
