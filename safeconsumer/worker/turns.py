"""Lines up the partitions that have ready lanes, so that they take turns."""

from collections import OrderedDict

from safeconsumer.worker.partition import Epoch, Lane


class Turns:
    """
    The line of partitions that wait for their turn, each with its ready lanes in order.

    A partition that is set aside keeps its lanes but is no longer in the line.

    Thread rules: the caller must hold the lock of ``KeptRecords``.
    """

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: OrderedDict[Epoch, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._line)

    @property
    def first(self) -> Epoch:
        """The partition at the front; the line must not be empty."""
        return next(iter(self._line))

    def append(self, lane: Lane) -> None:
        """Put a lane at the end of its partition's lanes."""
        lane.epoch.ready.append(lane)
        self._line.setdefault(lane.epoch)

    def go_first(self, epoch: Epoch) -> None:
        """Put a partition, which must have ready lanes, at the front of the line."""
        self._line[epoch] = None
        self._line.move_to_end(epoch, last=False)

    def set_aside(self, epoch: Epoch) -> None:
        """Remove a partition from the line until it is brought back or gets another lane."""
        self._line.pop(epoch, None)

    def bring_back(self, epoch: Epoch) -> bool:
        """Put a partition at the front; False if it is in the line or has no ready lane."""
        if not epoch.ready or epoch in self._line:
            return False
        self.go_first(epoch)
        return True

    def take(self) -> Lane:
        """Remove and return the next lane, and move its partition to the end of the line."""
        epoch, _ = self._line.popitem(last=False)
        lane = epoch.ready.popleft()
        if epoch.ready:
            self._line[epoch] = None
        return lane

    def drop_closed(self) -> None:
        """Remove the ownerships that have ended."""
        for epoch in [one for one in self._line if one.is_closed]:
            del self._line[epoch]
