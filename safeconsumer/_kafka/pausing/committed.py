"""
What a coordinator knows of commits: answers about them, and who has one.
"""

from collections import Counter
from collections.abc import Collection
from typing import Any

from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer import OffsetResetStrategy
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import events
from safeconsumer._kafka.pausing.subscription import LedgerSubscription


class CommittedOffsets(ConsumerCoordinator):
    """
    Takes no old answer about committed offsets for a new one.

    An answer that nobody waited for is used only while nothing has changed since it
    was asked for; upstream 3.0.12 keeps it, and may start from it hours and
    generations later.

    Thread rules: the coroutines on the IO thread.
    """

    def prepare(self) -> None:
        """
        Make what this class needs beyond upstream's attributes.
        """
        ours = isinstance(self._subscription, LedgerSubscription)
        self._ours: LedgerSubscription | None = self._subscription if ours else None
        self._committed: set[TopicPartition] = set()
        self._commits: Counter[TopicPartition] = Counter()
        self._asked: dict[frozenset[TopicPartition], tuple[object, ...]] = {}

    def _handle_offset_commit_response(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        send_time: float,
        response: object,
    ) -> None:
        self._commits.update(offsets.keys())
        super()._handle_offset_commit_response(offsets, send_time, response)
        self._committed.update(offsets)

    async def fetch_committed_offsets_async(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """
        Fetch committed offsets, and remember who has one.
        """
        asked = frozenset(partitions)
        self._forget_outdated_answer(asked)
        offsets: dict[TopicPartition, OffsetAndMetadata]
        offsets = await super().fetch_committed_offsets_async(partitions, timeout_ms)
        self._asked.pop(asked, None)
        self._committed.update(offsets)
        return offsets

    def _forget_outdated_answer(self, partitions: frozenset[TopicPartition]) -> None:
        # Upstream files a question under its partitions alone. One that outlasted
        # its poll must be found by the next, and must not be found after that.
        assigned = self._subscription.assignment
        states = {tp: (assigned.get(tp), self._commits[tp]) for tp in partitions}
        now = (self._generation, states)
        asked, futures = self._asked, self._offset_fetch_futures
        self._asked = {key: asked[key] for key in asked.keys() & futures.keys()}
        if self._asked.get(partitions) != now:
            self._offset_fetch_futures.pop(partitions, None)
            self._asked[partitions] = now

    def tell_departed(self, quiet_before: frozenset[TopicPartition]) -> None:
        """
        Warn of quiet partitions that departed where no join was involved.
        """
        # Not upstream's assignment: after close() it stands as it was.
        if self._ours is not None:
            owned = self._ours.ledger.ownership().epochs
            self._warn_uncommitted(quiet_before.difference(owned))

    def _warn_uncommitted(self, departed: frozenset[TopicPartition]) -> None:
        strategy = self._subscription._default_offset_reset_strategy
        skipped = departed - self._committed
        self._committed -= departed
        if skipped and strategy == OffsetResetStrategy.LATEST and self.group_id:
            self._emit(
                events.HeldPartitionUncommitted,
                partitions=events.sorted_partitions(skipped),
            )

    # ------------------------------------------------------------ events

    def _emit(self, kind: type[events.Event], **fields: Any) -> None:  # noqa: ANN401 - the event's own
        if self._ours is not None:
            self._ours.ledger.emit(kind, **fields)

    def _deliver(self) -> None:
        if self._ours is not None:
            self._ours.ledger.deliver()
