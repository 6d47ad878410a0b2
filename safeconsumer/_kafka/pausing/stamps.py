"""Stamps requests with the ownerships for which they were made."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kafka.structs import TopicPartition

from safeconsumer._kafka.pausing.undelivered import Fetch, OwnedPartitionState


class Stamped(int):
    """
    A number in a request, with the ownership and the reset that the request belongs to.

    Upstream treats the number as a plain int, and passes it on from the request to the
    response. The number is the offset of a fetch, which upstream also keeps with the
    parsed records, or the strategy of a reset. Upstream creates a new state for each
    ownership, so a request of an earlier ownership is recognized even if both
    ownerships were at the same offset.

    Attributes:
        state: upstream's state of the partition; None if it was no longer assigned.
        reset: the number of the partition's last reset.
        leader_epoch: the epoch of the offset in a broker's response, or -1.
    """

    state: OwnedPartitionState | None
    reset: int
    leader_epoch: int = -1

    @classmethod
    def of(cls, number: int, state: OwnedPartitionState | None) -> "Stamped":
        """Stamp a number with a partition's state and that state's current reset number."""
        stamped = cls(number)
        stamped.state = state
        stamped.reset = 0 if state is None else state.reset_number
        return stamped


def belongs_to(number: int, state: OwnedPartitionState | None) -> bool:
    """Return whether a number was stamped in this ownership, or is a plain number."""
    return getattr(number, "state", state) is state


class StampedOffsets(dict[TopicPartition, int]):
    """
    The offsets of one request; each is stamped when it is read.

    Most partitions of a request are not in the response, so their offsets are never
    read.

    Attributes:
        moves: how many times partitions had become quiet, or ceased to be quiet, before
            the request.
        doubtful: the partitions whose topics may have been recreated, so that the
            response does not prove that their positions are valid.
        fetch: the fetch; while it is in flight, the topics of all other partitions are
            known to exist.
    """

    def __init__(
        self,
        offsets: Mapping[TopicPartition, int],
        states: Mapping[TopicPartition, OwnedPartitionState],
        moves: int,
        doubtful: Collection[TopicPartition] = (),
    ) -> None:
        super().__init__(offsets)
        self._states = {tp: states[tp] for tp in offsets}
        self.moves, self.doubtful = moves, doubtful
        # The fetch is a separate object. A held partition keeps a reference to it, and
        # would otherwise keep this dict, with all its states, alive.
        self.fetch = Fetch()
        for tp, state in self._states.items():
            state.waited_since = None
            if tp not in doubtful:
                state.last_fetch = self.fetch

    def state(self, tp: TopicPartition) -> OwnedPartitionState:
        """Return the state object that a partition had when the request was made."""
        return self._states[tp]

    def __getitem__(self, tp: TopicPartition) -> Stamped:
        return Stamped.of(super().__getitem__(tp), self._states[tp])


class StampedPositions(dict[TopicPartition, Any]):
    """
    The positions of a request for the ends of leader epochs, stamped when it is sent.

    Upstream compares only the position, which is the same in a later ownership or under
    a later leader, whose log may be shorter.
    """

    def __init__(
        self,
        positions: Mapping[TopicPartition, Any],
        states: Mapping[TopicPartition, OwnedPartitionState],
        leader_epoch: Callable[[TopicPartition], int | None],
    ) -> None:
        super().__init__(positions)
        self._asked = {tp: (states.get(tp), leader_epoch(tp)) for tp in positions}

    def current(
        self,
        states: Mapping[TopicPartition, OwnedPartitionState],
        leader_epoch: Callable[[TopicPartition], int | None],
    ) -> dict[TopicPartition, Any]:
        """Return the positions that the response can judge; let the others be asked again."""
        current = {}
        for tp, position in self.items():
            state = states.get(tp)
            if self._asked[tp] == (state, leader_epoch(tp)):
                current[tp] = position
            elif state is not None and state.awaiting_validation:
                state.next_allowed_retry_time = None
        return current
