"""Gives workers and journals access to a consumer's group membership."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from kafka import KafkaConsumer
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._interrupts import is_from_handler
from safeconsumer._kafka.consumed import Consumed
from safeconsumer._kafka.pausing.subscription import Journal, id_text
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Owned
from safeconsumer.holds.view import covers

Place: TypeAlias = tuple[object, int, int, OffsetAndMetadata | None]


class Membership:
    """
    The group membership and the positions of an adopted consumer.

    Thread rules: only the polling thread calls the methods, except ``losses``,
    ``owned`` and the methods for a journal, which any thread may call.

    Attributes:
        consumed: the subscription or manual assignment.
        is_logged: whether the consumer's events become log lines.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        # The consumer itself is not kept, because it refers to a journal, which refers
        # to this object.
        self.is_logged = bool(getattr(consumer, "_safe_is_logged", True))
        self._subscription = consumer._subscription
        self._coordinator = consumer._coordinator
        self._fetcher = consumer._fetcher
        self.consumed = Consumed(consumer)

    def owned(self) -> Owned:
        """Return the current ownerships; each change creates a new object."""
        return self.ledger.owned()

    def was_moved(self, tp: TopicPartition, ownership: object) -> bool:
        """Return whether only resets have replaced this ownership of a partition."""
        tenure = getattr(ownership, "tenure", None)
        return tenure is not None and tenure is getattr(
            self.owned().get(tp), "tenure", None
        )

    @property
    def ledger(self) -> PauseLedger:
        ledger: PauseLedger = self._subscription.ledger
        return ledger

    @property
    def losses(self) -> int:
        return int(self._coordinator.losses)

    def is_lost(self) -> bool:
        """
        Return whether the membership is lost, or has never started.

        Manually assigned partitions need no membership.
        """
        needs_one = self._subscription.partitions_auto_assigned()
        return bool(needs_one and self._coordinator._generation.is_lost())

    def is_joining(self) -> bool:
        return bool(self._coordinator.rejoining)

    def revokes_on_join(self) -> frozenset[TopicPartition]:
        """Return the owned partitions that are revoked when a join starts."""
        owned = frozenset(self._subscription.assigned_partitions())
        if self._coordinator._rebalance_protocol == RebalanceProtocol.EAGER:
            return owned
        topics = self._subscription.subscription or ()
        return frozenset(tp for tp in owned if tp.topic not in topics)

    @property
    def is_cooperative(self) -> bool:
        """Whether one join revokes partitions, and the next one assigns them to others."""
        protocol = self._coordinator._rebalance_protocol
        return bool(protocol == RebalanceProtocol.COOPERATIVE)

    def deserializers(self) -> tuple[Any, Any]:
        """Return kafka-python's deserializers of keys and values; None for plain bytes."""
        config = self._fetcher.config
        return config["key_deserializer"], config["value_deserializer"]

    def set_deserializers(self, key: object, value: object) -> None:
        """
        Make polls use these deserializers from now on; None for plain bytes.

        Do not call this during a poll. Records that were deserialized but not returned
        are fetched again.
        """
        config = self._fetcher.config
        if self.deserializers() != (key, value):
            config["key_deserializer"], config["value_deserializer"] = key, value
            self._fetcher.drop_decoded()

    @property
    def is_taken(self) -> bool:
        """Whether another object, such as a worker, polls the consumer and commits."""
        return self._subscription.taken_by is not None

    def take(self, owner: object) -> None:
        """
        Refuse other code's commits and polls, and calls that end the assignment.

        This lasts until :meth:`release`. The owner commits with :meth:`own_commit`, and
        makes its other calls in :meth:`own_call`.
        """
        self._subscription.taken_by = owner

    def release(self, owner: object) -> None:
        """Allow all calls again if this owner still has the consumer. On any thread."""
        if self._subscription.taken_by is owner:
            self._subscription.taken_by = None

    def own_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Mark offsets as a commit of the worker or pump; return the marked offsets."""
        marked: Mapping[TopicPartition, OffsetAndMetadata]
        marked = self._coordinator.mark_as_worker_commit(dict(offsets))
        return marked

    @property
    def busy(self) -> Callable[[], Collection[TopicPartition]]:
        """
        A function that returns the partitions whose records are still in use.

        A worker's handlers use them or, without a worker, the program.
        """
        found: Callable[[], Collection[TopicPartition]] | None
        found = self._subscription.worker_busy
        return found or self._subscription.in_hand

    @busy.setter
    def busy(self, ask: Callable[[], Collection[TopicPartition]]) -> None:
        self._subscription.worker_busy = ask

    @contextmanager
    def own_call(self, name: str) -> Iterator[None]:
        """Let this thread call the named method of the consumer in the ``with`` block."""
        self._subscription.own_call = threading.get_ident(), name
        try:
            yield
        finally:
            self._subscription.own_call = None

    def skip_no_record(self) -> None:
        """
        From now on do not skip any unread record, even under ``latest``.

        Added partitions are read from their start. If unread records are deleted, reading
        continues at the first record that still exists.
        """
        self._coordinator.skip_no_record()

    @property
    def gone(self) -> int:
        """The number of offsets whose records were deleted before they were read."""
        return self.ledger.counts.deleted_unread

    def reason_for_no_records(self) -> str | None:
        """
        Return why this member cannot get any records; None if it can.

        After the first join, one possible reason is that no topic exists.
        """
        if self.is_lost():
            return None
        return self.consumed.reason_for_no_records()

    def position(self, tp: TopicPartition) -> int | None:
        """Return the application's position in a partition; None for an unknown position."""
        position: int | None = self._subscription.delivered_position(tp)
        return position

    def moved_to(self, tp: TopicPartition) -> int | None:
        """
        Return the offset to which a position was last moved.

        A move is a seek by the program or by this package, a reset, or the start of the
        ownership. The result is None if the offset is unknown, for example during a
        reset.
        """
        state = self._subscription.assignment.get(tp)
        moved_to: OffsetAndMetadata | None = getattr(state, "moved_to", None)
        return None if moved_to is None else int(moved_to.offset)

    def moves(self, tp: TopicPartition) -> int:
        """Return how many times an owned partition's position was moved."""
        return getattr(self._subscription.assignment.get(tp), "moves", 0)

    def takes(self, tp: TopicPartition) -> int:
        """Return how many times polls have taken records of an owned partition."""
        return getattr(self._subscription.assignment.get(tp), "takes", 0)

    def places(self) -> Mapping[TopicPartition, Place]:
        """Return each partition's ownership, ``moves``, ``takes`` and position."""
        found: Mapping[TopicPartition, Place] = self._subscription.places()
        return found

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the leader epoch of a partition's position; -1 if the epoch is unknown."""
        position = self._position(tp)
        return -1 if position is None else int(position.leader_epoch)

    def _position(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        state = self._subscription.assignment.get(tp)
        return None if state is None else state.position

    def has_commit(self, tp: TopicPartition) -> bool | None:
        """Return whether the group has committed an owned partition; None if unknown."""
        known: bool | None
        known = self._coordinator.has_commit(self._subscription.assignment.get(tp))
        return known

    def committed(self, tp: TopicPartition) -> int | None:
        """Return the known committed offset of an owned partition; None if unknown."""
        state = self._subscription.assignment.get(tp)
        committed: int | None = getattr(state, "committed", None)
        return committed

    def ask_for_commits(self, tps: Iterable[TopicPartition], seconds: float) -> None:
        """
        Request committed offsets of the partitions whose :meth:`has_commit` is unknown.

        If the program has set a partition's first position itself, the committed offset
        has not been requested yet.

        Args:
            tps: owned partitions.
            seconds: the longest wait for the response.
        """
        unknown = [tp for tp in tps if self.has_commit(tp) is None]
        try:
            self._coordinator.fetch_committed_offsets(unknown, seconds * 1000)
        except KafkaError as error:
            if is_from_handler(error):
                raise

    def reset_number(self, tp: TopicPartition) -> int:
        """Return the number of an owned partition's last reset; 0 before the first."""
        state = self._subscription.assignment.get(tp)
        return getattr(state, "reset_number", 0)

    def lag(self) -> int | None:
        """
        Return how many offsets no poll has returned yet, as of the last fetches.

        The result is None if a partition was never fetched, or is held, because the end
        of its log is not known then. If only a worker holds the partition, to limit its
        load, the end at the last fetch is used, because such a hold is short. A pause
        by a handler or a breaker may be long.
        """
        lag, view = 0, self.ledger.peek()
        for tp, state in tuple(self._subscription.assignment.items()):
            position, end = state.position, state.highwater
            if position is None or end is None or covers(view, tp):
                return None
            lag += max(0, end - position.offset)
        return lag

    def lagging(self) -> list[TopicPartition]:
        """Return the partitions that may have records that no poll has returned yet."""
        return [
            tp
            for tp, state in tuple(self._subscription.assignment.items())
            if state.position is None
            or state.highwater is None
            or state.highwater > state.position.offset
        ]

    def ask_before_join(self, ask: Callable[[], None] | None) -> None:
        """
        Call ``ask`` on the polling thread before each join.

        If ``ask`` raises, the ``poll`` ends with that error, and the next ``poll``
        calls ``ask`` again.
        """
        self._coordinator.before_join = ask

    # ------------------------------------------------------------ a journal

    def keep_journal(self, journal: Journal) -> None:
        """Make all parts of the consumer report to a journal from now on."""
        self._subscription.ledger.on_reassigned = journal.reassigned
        self._subscription.journal = journal

    def generation(self) -> int:
        """Return the group's generation; -1 outside a group or after losing membership."""
        return int(self._coordinator._generation.generation_id)

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None if the id is unknown."""
        found: str | None = self._coordinator._cluster.cluster_id
        return found

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the known ids of topics, in Kafka's text form."""
        cluster = self._coordinator._cluster
        found = {name: cluster.topic_id(name) for name in sorted(set(topics))}
        return {name: id_text(one) for name, one in found.items() if one is not None}

    def next_position(self, tp: TopicPartition) -> int | None:
        """
        Return the next offset that a poll would read from a partition; None if unknown.

        Unlike the result of :meth:`position`, this offset is past the records that an
        unfinished poll has taken.
        """
        position = self._position(tp)
        return None if position is None else int(position.offset)
