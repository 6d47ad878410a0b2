"""
What a pump needs of a consumer: one class over the real one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.facade import Facade
from safeconsumer.holds.hold import Lifetime
from safeconsumer.holds.scope import ALL, Everything, Partition
from safeconsumer.worker.others import Others
from safeconsumer.worker.progress import Record, Watermark

Polled: TypeAlias = Mapping[TopicPartition, list[Record]]
Committed: TypeAlias = Callable[[Exception | None], None]


class Group(Protocol):
    """
    A membership as a pump sees it: :class:`~safeconsumer._kafka.facade.Facade`.
    """

    @property
    def losses(self) -> int:
        """
        How often this member lost its generation.
        """

    @property
    def is_cooperative(self) -> bool:
        """
        Whether partitions are revoked by one join and given away by the next.
        """

    def is_lost(self) -> bool:
        """
        Tell whether the membership is lost, or never was.
        """

    def is_joining(self) -> bool:
        """
        Tell whether a join is under way and not applied yet.
        """

    def revokes_on_join(self) -> frozenset[TopicPartition]:
        """
        Return the owned partitions that are given up as soon as a join begins.
        """

    def ask_before_join(self, ask: Callable[[], None] | None) -> None:
        """
        Have ``ask`` called where a join would begin.
        """


class Client(Protocol):
    """
    A consumer as a pump sees it.
    """

    @property
    def membership(self) -> Group:
        """
        Who owns what.
        """

    @property
    def most(self) -> int:
        """
        Records of one poll, at most.
        """

    def poll(self, timeout: float, records: int) -> Polled:
        """
        Return records; raises what was asked before a join raises.
        """

    def epochs(self) -> Mapping[TopicPartition, int]:
        """
        Return the owned partitions with their epochs; a new object when it changes.
        """

    def position(self, tp: TopicPartition) -> int | None:
        """
        Return the offset of the next record that a poll may return; None: not known.
        """

    def go_back(self, tp: TopicPartition, offset: int) -> None:
        """
        Have records from this offset on come again.
        """

    def lacks_commit(self, tp: TopicPartition) -> bool:
        """
        Tell whether the group has no committed offset of an owned partition for sure.
        """

    def hold(
        self,
        owners: Sequence[str],
        wanted: Mapping[tuple[str, TopicPartition | None], str],
    ) -> None:
        """
        Make these owners' holds exactly those wanted.
        """

    def lift_all(self, owner: str) -> None:
        """
        Lift the owner's hold of the whole consumer. Any thread.
        """

    @property
    def others(self) -> Others:
        """
        What others hold.
        """

    def commit(self, marks: Mapping[TopicPartition, Watermark], timeout: float) -> None:
        """
        Commit and wait for it.
        """

    def commit_soon(
        self, marks: Mapping[TopicPartition, Watermark], then: Committed
    ) -> None:
        """
        Commit without waiting; ``then`` is called by a later poll or commit.
        """


class ConsumerClient:
    """
    A :class:`~safeconsumer.SafeConsumer` as a pump needs it.

    Attributes:
        membership: who owns what.
        most: records of one poll, at most.
        others: what others hold.
    """

    def __init__(self, consumer: Any) -> None:  # noqa: ANN401 - upstream has no types
        self._consumer = consumer
        self.membership = Facade(consumer)
        self.most: int = consumer.config["max_poll_records"]
        self.others = Others(self.membership.ledger)

    def poll(self, timeout: float, records: int) -> Polled:
        """
        Poll for at most so many records, and so many seconds.
        """
        polled: Polled = self._consumer.poll(
            timeout_ms=timeout * 1000, max_records=records
        )
        return polled

    def epochs(self) -> Mapping[TopicPartition, int]:
        """
        Return the owned partitions with their epochs.
        """
        return self.membership.epochs()

    def position(self, tp: TopicPartition) -> int | None:
        """
        Return the offset of the next record that a poll may return; None: not known.
        """
        return self.membership.position(tp)

    def go_back(self, tp: TopicPartition, offset: int) -> None:
        """
        Have records from this offset on come again.
        """
        self._consumer.seek(tp, offset)

    def lacks_commit(self, tp: TopicPartition) -> bool:
        """
        Tell whether the group has no committed offset of an owned partition for sure.
        """
        return self.membership.lacks_commit(tp)

    def hold(
        self,
        owners: Sequence[str],
        wanted: Mapping[tuple[str, TopicPartition | None], str],
    ) -> None:
        """
        Make these owners' holds exactly those wanted: owner and partition to reason.

        None for the partition means the whole consumer. What is held is asked, never
        remembered.
        """
        there = {
            (hold.owner, _target(hold.scope))
            for hold in self._consumer.holds()
            if hold.owner in owners
        }
        for owner, target in there - wanted.keys():
            if target is None:
                self._consumer.resume(ALL, owner=owner)
            else:
                self._consumer.resume(target, owner=owner)
        for owner, target in wanted.keys() - there:
            self._place(target, owner, wanted[owner, target])

    def lift_all(self, owner: str) -> None:
        """
        Lift the owner's hold of the whole consumer, which wakes a waiting poll.
        """
        self._consumer.resume(ALL, owner=owner)

    def _place(self, target: TopicPartition | None, owner: str, reason: str) -> None:
        if target is None:
            self._consumer.pause_all(
                owner=owner, reason=reason, lifetime=Lifetime.UNTIL_RESUMED
            )
        else:
            self._consumer.pause(
                target, owner=owner, reason=reason, lifetime=Lifetime.WHILE_ASSIGNED
            )

    def commit(self, marks: Mapping[TopicPartition, Watermark], timeout: float) -> None:
        """
        Commit and wait for it.

        Raises:
            KafkaError: it was refused, or took longer than ``timeout`` seconds.
        """
        self._consumer.commit(_offsets(marks), timeout_ms=timeout * 1000)

    def commit_soon(
        self, marks: Mapping[TopicPartition, Watermark], then: Committed
    ) -> None:
        """
        Commit without waiting; ``then`` is called by a later poll or commit.
        """

        def told(_offsets: object, result: object) -> None:
            then(result if isinstance(result, Exception) else None)

        self._consumer.commit_async(_offsets(marks), callback=told)

    def leave(self, timeout: float) -> None:
        """
        Leave the group and close the consumer.
        """
        self._consumer.close(autocommit=False, timeout_ms=timeout * 1000)


def _offsets(
    marks: Mapping[TopicPartition, Watermark],
) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(*tp): OffsetAndMetadata(mark.offset, "", mark.leader_epoch)
        for tp, mark in marks.items()
    }


def _target(scope: object) -> TopicPartition | None:
    if isinstance(scope, Partition):
        return TopicPartition(scope.topic, scope.partition)
    assert isinstance(scope, Everything)  # noqa: S101 - a worker's owner places no other
    return None


REFUSED: tuple[type[Exception], ...] = (KafkaError,)


def sorted_tps(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """
    Return partitions in the order people expect.
    """
    return tuple(sorted(partitions))
