"""Lanes that wait in line, while their partitions take turns."""

from collections import deque
from collections.abc import Iterator, Sequence

from safeconsumer.worker.partition import Epoch, Lane


class Turns:
    """
    A line of lanes: those of one partition in their order, the partitions in turns.

    Thread rules: under the lock of ``Held``.
    """

    __slots__ = ("_lanes", "_order")

    def __init__(self) -> None:
        self._lanes: dict[Epoch, deque[Lane]] = {}
        self._order: deque[Epoch] = deque()

    def __bool__(self) -> bool:
        return bool(self._order)

    def __iter__(self) -> Iterator[Lane]:
        for epoch in self._order:
            yield from self._lanes[epoch]

    @property
    def first(self) -> Lane:
        """The next one; there must be one."""
        return self._lanes[self._order[0]][0]

    def append(self, lane: Lane) -> None:
        """Put a lane behind the others of its partition."""
        lanes = self._lanes.get(lane.epoch)
        if lanes is None:
            self._lanes[lane.epoch] = deque((lane,))
            self._order.append(lane.epoch)
        else:
            lanes.append(lane)

    def extend(self, epoch: Epoch, lanes: Sequence[Lane]) -> None:
        """Put lanes behind the others of their partition."""
        if epoch in self._lanes:
            self._lanes[epoch].extend(lanes)
        elif lanes:
            self._lanes[epoch] = deque(lanes)
            self._order.append(epoch)

    def put_first(self, lane: Lane) -> None:
        """Put a lane before all others."""
        epoch = lane.epoch
        if epoch not in self._lanes:
            self._lanes[epoch] = deque()
            self._order.appendleft(epoch)
        elif self._order[0] is not epoch:
            self._order.remove(epoch)
            self._order.appendleft(epoch)
        self._lanes[epoch].appendleft(lane)

    def take(self) -> Lane:
        """Remove and return the next one; then it is another partition's turn."""
        epoch = self._order.popleft()
        lanes = self._lanes[epoch]
        lane = lanes.popleft()
        if lanes:
            self._order.append(epoch)
        else:
            del self._lanes[epoch]
        return lane

    def of(self, epoch: Epoch) -> deque[Lane]:
        """Return the lanes of a partition, to take from; call :meth:`taken` afterwards."""
        return self._lanes.get(epoch) or deque()

    def taken(self, epoch: Epoch) -> None:
        """Note that lanes of a partition were taken."""
        if epoch in self._lanes and not self._lanes[epoch]:
            del self._lanes[epoch]
            self._order.remove(epoch)

    def drop_closed(self) -> None:
        """Forget the lanes of ownerships that have ended."""
        for epoch in [one for one in self._order if one.is_closed]:
            self._order.remove(epoch)
            del self._lanes[epoch]
