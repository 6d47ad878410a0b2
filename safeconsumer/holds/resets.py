"""
Keeps the offsets to which a member must move partitions of its group.

A reset is a field of a hold's record, and lasts exactly as long as the hold. While the
hold lasts, no records of the partition are delivered, so moving it a second time has no
effect. Once the hold is lifted, no member moves the partition any more. No record shows
whether a partition was moved; only the group's committed offset shows it.

As soon as this member has read the record, it also holds the partitions itself, under
the owner ``RESET``, until it has moved them:

=======================  ==================================================================
State of the hold        The member's action for a partition that it owns
=======================  ==================================================================
in force                 moves it, commits the target, and lifts its own hold
lifted before the move   fetches the committed offset, and lifts its own hold; an owner
                         that the group has expelled without the owner's knowledge must
                         not continue at its old position, because another owner has
                         moved the partition
=======================  ==================================================================
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from attrs import field, frozen

from safeconsumer.holds.hold import RESET, Hold
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Partition, TopicPartition

_WHY = "an operator moves it to another offset, and this member has not done so yet"


@frozen(kw_only=True)
class Target:
    """
    The offset to which a hold moves a partition.

    Attributes:
        offset: the offset of the next record to be read.
        topic_id: the id of the topic when the hold was placed, in Kafka's text form;
            None matches any id.
        owner: the owner of the hold, for example ``operator:alice``.
        hold_id: the id of the hold.
        record: the offset of the hold's record on the holds topic. It changes if the
            record is written again, so it is not compared.
    """

    offset: int
    topic_id: str | None
    owner: str
    hold_id: str
    record: int = field(default=-1, eq=False)


Targets = Mapping[TopicPartition, Target]


class Resets:
    """
    The group's resets in force, and the partitions that this member must still move.

    Thread rules: any thread may call the methods, but only one :meth:`end` or
    :meth:`begin` may run at a time.

    Args:
        ledger: the ledger that gets this member's own holds.
        unread: returns the partitions whose required control records have not all been
            read. The unread records may hold and move these partitions.

    Attributes:
        targets: maps partitions to their targets; the mapping is replaced as a whole.
        troubles: maps partitions to the reasons why they were not moved yet, as text
            for people. The client that moves partitions replaces the mapping as a
            whole.
        on_change: a function that is called when a partition must be moved.
    """

    def __init__(
        self,
        ledger: PauseLedger,
        unread: Callable[[], Collection[TopicPartition]] = tuple,
    ) -> None:
        self._ledger = ledger
        self.unread = unread
        self.targets: Targets = {}
        self.troubles: Mapping[TopicPartition, str] = {}
        self.on_change: Callable[[], object] = tuple

    def end(self, wanted: Targets) -> None:
        """Forget the targets that no longer apply, before their holds are lifted."""
        known = self.targets
        self.targets = {tp: one for tp, one in known.items() if wanted.get(tp) == one}

    def begin(self, wanted: Targets) -> None:
        """Hold new targets' partitions. Call this once operators' holds cover them."""
        new = [tp for tp, one in wanted.items() if self.targets.get(tp) != one]
        self.hold(new)
        self.targets = wanted
        if wanted or self.pending():
            self.on_change()

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep partitions quiet until :meth:`release`, even if other holds are lifted."""
        at = self._ledger.now()[1]
        self._ledger.follow(
            [
                Hold(scope=Partition(*tp), owner=RESET, reason=_WHY, placed_at=at)
                for tp in partitions
            ],
            (),
        )

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Lift this member's own holds on partitions."""
        pending = self.pending()
        keys = [(Partition(*tp), RESET) for tp in partitions if tuple(tp) in pending]
        if keys:
            self._ledger.follow((), keys)

    def pending(self) -> frozenset[TopicPartition]:
        """Return the partitions that this member holds until it has moved them."""
        return frozenset(
            (one.scope.topic, one.scope.partition)
            for one in self._ledger.view().holds
            if one.owner == RESET and isinstance(one.scope, Partition)
        )
