"""Stores the first offset of each leader epoch, as Kafka's checkpoint does."""

from bisect import bisect_right

from attrs import frozen

_UNKNOWN = -1, -1


@frozen
class LeaderEpoch:
    """A leader epoch, and the offset of the first record that its leader can write."""

    number: int
    start: int


class LeaderEpochs:
    """The leader epochs of a log, oldest first; a new log has epoch 0."""

    def __init__(self) -> None:
        self._epochs = [LeaderEpoch(0, 0)]

    @property
    def latest(self) -> int:
        """The epoch of the current leader."""
        return self._epochs[-1].number

    @property
    def oldest(self) -> int:
        """The epoch of the first record in the log."""
        return self._epochs[0].number

    def begin(self, offset: int) -> None:
        """Start the next epoch at ``offset``; drop epochs that started there or later."""
        number = self.latest + 1
        self._epochs = [one for one in self._epochs if one.start < offset]
        self._epochs.append(LeaderEpoch(number, offset))

    def delete_before(self, offset: int) -> None:
        """Drop the epochs that have no records at or after ``offset``."""
        first = bisect_right(self._epochs, offset, key=lambda one: one.start) - 1
        if first >= 0:
            kept = LeaderEpoch(self._epochs[first].number, offset)
            self._epochs[: first + 1] = [kept]

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """
        Return the latest known epoch that is not after ``epoch``, and its end offset.

        As in Kafka, an epoch older than all known epochs ends where the oldest starts.
        For an epoch newer than all known epochs, the result is -1, -1.
        """
        if epoch < 0 or epoch > self.latest:
            return _UNKNOWN
        if epoch == self.latest:
            return epoch, log_end
        later = bisect_right(self._epochs, epoch, key=lambda one: one.number)
        found = self._epochs[later - 1].number if later else epoch
        return found, self._epochs[later].start
