"""
Coordinates transactions, with producer ids, epochs, participants and ends.

As in Kafka, the end of a transaction is acknowledged before it has been written to all
logs. Until then, the records are not readable, the offsets are not committed, and the
producer's next transaction has to wait.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from attrs import define, field

from safeconsumer.testing import _codes
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._fetching import Fetches
from safeconsumer.testing._members import Schedule, Timer
from safeconsumer.testing._nodes import TRANSACTION, Nodes
from safeconsumer.testing._offsets import Offsets
from safeconsumer.testing._protocol import Exchange
from safeconsumer.testing._topics import Topics

_FIRST_PRODUCER = 1000
_END_TAKES = 0.005  # seconds; Kafka's brokers take about as long to write markers
# The first versions in which PRODUCER_FENCED replaces INVALID_PRODUCER_EPOCH.
_KNOW_FENCED = {
    "InitProducerId": 4,
    "AddPartitionsToTxn": 2,
    "AddOffsetsToTxn": 2,
    "EndTxn": 2,
}

_Part = tuple[str, int] | str  # a partition, or a group whose offsets are committed


@define(eq=False)
class _Transactional:
    """A transactional id, with its producer and its open transaction, if any."""

    producer_id: int
    epoch: int
    timeout: float = 0.0
    # The producer's epoch before it requested the current one.
    former_epoch: int = -1
    parts: dict[_Part, None] = field(factory=dict)
    timer: Timer | None = None
    is_ending: bool = False  # the end is decided but not yet written to all logs
    # Whether the last transaction was committed, for the answer to a retry.
    last_end: bool | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction with at least one part is open."""
        return bool(self.parts)


class Transactions:
    """
    The transactional ids in a cluster.

    Attributes:
        end_takes: the seconds from the end of a transaction until the end is written to
            all logs.
    """

    def __init__(  # noqa: PLR0913 - one part each
        self,
        *,
        nodes: Nodes,
        topics: Topics,
        fetches: Fetches,
        offsets: Offsets,
        call_later: Schedule,
        now_ms: Callable[[], int],
    ) -> None:
        self._nodes, self._topics = nodes, topics
        self._fetches, self._offsets = fetches, offsets
        self._call_later, self._now_ms = call_later, now_ms
        self._known: dict[str, _Transactional] = {}
        self._next_producer = _FIRST_PRODUCER
        self.end_takes = _END_TAKES
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "InitProducerId": self._init_producer_id,
            "AddPartitionsToTxn": self._add_partitions,
            "AddOffsetsToTxn": self._add_offsets,
            "TxnOffsetCommit": self._commit_offsets,
            "EndTxn": self._end_txn,
        }

    def check_part(self, id_: str, producer_id: int, epoch: int, part: _Part) -> None:
        """
        Check that a partition or a group is part of a producer's transaction.

        Raises:
            RefusedError: the transaction does not have that part, or the producer is
                wrong.
        """
        if part not in self._checked_producer(id_, producer_id, epoch).parts:
            raise RefusedError(_codes.INVALID_TXN_STATE)

    def _checked_producer(
        self, id_: str, producer_id: int, epoch: int
    ) -> _Transactional:
        """Return a transactional id's state; refuse all producers but the current one."""
        known = self._known.get(id_)
        if known is None or known.producer_id != producer_id:
            raise RefusedError(_codes.INVALID_PRODUCER_ID_MAPPING)
        if known.epoch != epoch:
            raise RefusedError(_codes.INVALID_PRODUCER_EPOCH)
        return known

    def _checked_request(
        self, exchange: Exchange, id_: str, *producer: int
    ) -> _Transactional:
        """Return the state of a transactional id; refuse a wrong producer or coordinator."""
        self._check_here(exchange, id_)
        try:
            return self._checked_producer(id_, *producer)
        except RefusedError as error:
            if error.code == _codes.INVALID_PRODUCER_EPOCH:
                raise _fenced(exchange) from error
            raise

    def _check_here(self, exchange: Exchange, id_: str) -> None:
        if self._nodes.coordinator_of(TRANSACTION, id_) != exchange.node:
            raise RefusedError(_codes.NOT_COORDINATOR)

    # Requests

    def _init_producer_id(self, exchange: Exchange) -> None:
        body, id_ = exchange.body, exchange.body.transactional_id
        if id_ is None:
            exchange.reply(producer_id=self._new_producer(), producer_epoch=0)
            return
        self._check_here(exchange, id_)
        known, asking = self._known.get(id_), (body.producer_id, body.producer_epoch)
        if known is None:
            known = self._known[id_] = _Transactional(self._new_producer(), -1)
        elif body.producer_id >= 0 and asking != (known.producer_id, known.epoch):
            if asking != (known.producer_id, known.former_epoch):
                raise _fenced(exchange)
            # The producer did not receive the first answer, so send the same answer
            # again.
            exchange.reply(producer_id=known.producer_id, producer_epoch=known.epoch)
            return
        self._abort_open_transaction(known)
        known.timeout = body.transaction_timeout_ms / 1000
        known.former_epoch = body.producer_epoch
        known.epoch += 1
        known.last_end = None
        exchange.reply(producer_id=known.producer_id, producer_epoch=known.epoch)

    def _abort_open_transaction(self, known: _Transactional) -> None:
        """Abort an open transaction, fence its producer; raise until its end is written."""
        if known.is_open:
            known.epoch += 1
            self._end(known, is_committed=False)
        _check_has_ended(known)

    def _new_producer(self) -> int:
        self._next_producer += 1
        return self._next_producer - 1

    def _add_partitions(self, exchange: Exchange) -> None:
        body, topics = exchange.body, self._topics
        is_complete = all(
            topics.log(topic.name, number)
            for topic in body.v3_and_below_topics
            for number in topic.partitions
        )

        def add(topic: str, number: int) -> None:
            known = self._checked_request(
                exchange,
                body.v3_and_below_transactional_id,
                body.v3_and_below_producer_id,
                body.v3_and_below_producer_epoch,
            )
            if topics.log(topic, number) is None:
                raise RefusedError(_codes.UNKNOWN_TOPIC_OR_PARTITION)
            if not is_complete:
                raise RefusedError(_codes.OPERATION_NOT_ATTEMPTED)
            self._begin(known).parts[topic, number] = None

        exchange.reply_by_partition(add)

    def _add_offsets(self, exchange: Exchange) -> None:
        body = exchange.body
        known = self._checked_request(
            exchange, body.transactional_id, body.producer_id, body.producer_epoch
        )
        self._begin(known).parts[body.group_id] = None
        exchange.reply()

    def _commit_offsets(self, exchange: Exchange) -> None:
        body = exchange.body
        producer = body.transactional_id, body.producer_id, body.producer_epoch
        check = partial(self.check_part, *producer, body.group_id)
        self._offsets.commit_in_transaction(exchange, check)

    def _begin(self, known: _Transactional) -> _Transactional:
        """Start a transaction, with a timer that aborts it, unless a transaction is open."""
        _check_has_ended(known)
        if not known.is_open:
            known.timer = self._call_later(
                known.timeout, lambda: self._abort_expired(known)
            )
        return known

    def _abort_expired(self, known: _Transactional) -> None:
        known.epoch += 1  # this fences the producer
        self._end(known, is_committed=False)

    def _end_txn(self, exchange: Exchange) -> None:
        body = exchange.body
        known = self._checked_request(
            exchange, body.transactional_id, body.producer_id, body.producer_epoch
        )
        if known.is_open:
            self._end(known, is_committed=body.committed)
        elif known.last_end != body.committed:
            raise RefusedError(_codes.INVALID_TXN_STATE)
        else:
            _check_has_ended(known)
        exchange.reply()

    def _end(self, known: _Transactional, *, is_committed: bool) -> None:
        """Decide how a transaction ends, and write the end to all logs a little later."""
        if known.timer is not None:
            known.timer.cancel()
        known.last_end, known.is_ending = is_committed, True
        parts, known.parts, known.timer = known.parts, {}, None
        written = partial(self._write_end, known, parts, is_committed=is_committed)
        self._call_later(self.end_takes, written)

    def _write_end(
        self, known: _Transactional, parts: Iterable[_Part], *, is_committed: bool
    ) -> None:
        """Write the end to every log, and commit or drop the offsets."""
        known.is_ending = False
        for part in parts:
            if isinstance(part, str):
                self._offsets.end_transaction(
                    part, known.producer_id, is_committed=is_committed
                )
            elif log := self._topics.log(*part):  # None if the topic was deleted
                log.end_transaction(
                    known.producer_id,
                    known.epoch,
                    self._now_ms(),
                    is_committed=is_committed,
                )
        self._fetches.answer_waiting()


def _fenced(exchange: Exchange) -> RefusedError:
    is_known = exchange.version >= _KNOW_FENCED[exchange.message.api]
    return RefusedError(
        _codes.PRODUCER_FENCED if is_known else _codes.INVALID_PRODUCER_EPOCH
    )


def _check_has_ended(known: _Transactional) -> None:
    if known.is_ending:
        raise RefusedError(_codes.CONCURRENT_TRANSACTIONS)
