"""Lines up the partitions that have lanes to hand out: they take turns."""

from collections import OrderedDict

from safeconsumer.worker.partition import Epoch, Lane


class Turns:
    """
    The partitions in line, each with its ready lanes in their order.

    A partition that is set aside keeps its lanes, and is not in line.

    Thread rules: under the lock of ``KeptRecords``.
    """

    __slots__ = ("_line",)

    def __init__(self) -> None:
        self._line: OrderedDict[Epoch, None] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._line)

    @property
    def first(self) -> Epoch:
        """The partition whose turn it is; there must be one."""
        return next(iter(self._line))

    def append(self, lane: Lane) -> None:
        """Put a lane behind the others of its partition."""
        lane.epoch.ready.append(lane)
        self._line.setdefault(lane.epoch)

    def go_first(self, epoch: Epoch) -> None:
        """Put a partition in front; it must have lanes that are ready."""
        self._line[epoch] = None
        self._line.move_to_end(epoch, last=False)

    def set_aside(self, epoch: Epoch) -> None:
        """Take a partition out of the line, until it is brought back or gets a lane."""
        self._line.pop(epoch, None)

    def bring_back(self, epoch: Epoch) -> bool:
        """Put a partition that was set aside in front; False if there is none."""
        if not epoch.ready or epoch in self._line:
            return False
        self.go_first(epoch)
        return True

    def take(self) -> Lane:
        """Remove and return the next lane; another partition is next then."""
        epoch, _ = self._line.popitem(last=False)
        lane = epoch.ready.popleft()
        if epoch.ready:
            self._line[epoch] = None
        return lane

    def drop_closed(self) -> None:
        """Forget the ownerships that have ended."""
        for epoch in [one for one in self._line if one.is_closed]:
            del self._line[epoch]
