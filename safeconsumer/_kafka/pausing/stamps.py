"""Stamps what a broker is asked with the ownership that it is asked for."""

from collections.abc import Collection, Mapping

from kafka.structs import TopicPartition

from safeconsumer._kafka.pausing.undelivered import Fetch, OwnedPartitionState


class Stamped(int):
    """
    A number that remembers for which ownership, and reset, a broker was asked.

    It is a plain int to upstream, which carries it from the request to the answer: the
    offset of a fetch, through the answer into the parsed records, or the strategy of a
    reset. Upstream makes a new state for every ownership; so what was asked in an
    earlier one is recognized, also if both were at the same offset.

    Attributes:
        state: upstream's state of the partition; None if it was not assigned any more.
        reset: the number of its last reset.
        leader_epoch: of the offset that a broker has answered; -1 if it named none.
    """

    state: OwnedPartitionState | None
    reset: int
    leader_epoch: int = -1

    @classmethod
    def of(cls, number: int, state: OwnedPartitionState | None) -> "Stamped":
        """Stamp a number with a state as it is now."""
        stamped = cls(number)
        stamped.state = state
        stamped.reset = 0 if state is None else state.reset_number
        return stamped


def belongs_to(number: int, state: OwnedPartitionState | None) -> bool:
    """Tell whether it was asked in this ownership; one without a stamp was."""
    return getattr(number, "state", state) is state


class StampedOffsets(dict[TopicPartition, int]):
    """
    The offsets of one request, stamped when the answer is matched with them.

    Most partitions of a request are not in its answer; they cost little here.

    Attributes:
        moves: how often partitions had become quiet, or begun to flow, before it.
        doubtful: the partitions of which it is not known whether their topics were
            recreated: what is answered of them proves nothing.
        fetch: when it was answered; until then it sees the topics of the others.
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
        # Not this object: a held partition would keep all that it was fetched with.
        self.fetch = Fetch()
        for tp, state in self._states.items():
            state.waited_since = None
            if tp not in doubtful:
                state.last_fetch = self.fetch

    def state(self, tp: TopicPartition) -> OwnedPartitionState:
        """Return the state that a partition had when it was asked for."""
        return self._states[tp]

    def __getitem__(self, tp: TopicPartition) -> Stamped:
        return Stamped.of(super().__getitem__(tp), self._states[tp])
