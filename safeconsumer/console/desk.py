"""
What every page and every call of the console works with.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field
from kafka import TopicPartition

from safeconsumer.console.guard import Door
from safeconsumer.console.problems import Problem
from safeconsumer.console.views import PartitionRow, View, view_of
from safeconsumer.group.follower import Follower, Snapshot
from safeconsumer.group.operator import Operator


@define(eq=False)
class Desk:
    """
    What every page and every call works with.

    Attributes:
        follower: knows what is.
        owner: whose holds are placed here.
        cluster: what the cluster is called on the pages.
        door: who may come in.
        connect: opens a connection for one command.
        is_read_only: whether there is no way to place and lift.
        is_closing: whether open connections are to end.

    Thread rules: any.
    """

    follower: Follower
    owner: str
    cluster: str
    door: Door
    connect: Callable[[], Operator]
    is_read_only: bool = False
    is_closing: bool = False
    _operator: Operator | None = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _views: dict[str, tuple[object, View]] = field(factory=dict, init=False)

    def snapshot(self) -> Snapshot:
        """
        Return what is known now.
        """
        return self.follower.snapshot()

    def views(self, snapshot: Snapshot) -> list[View]:
        """
        Say everything of all groups; what did not change is not judged again.
        """
        return [self._view(snapshot, group) for group in snapshot.pictures]

    def view(self, snapshot: Snapshot, group: str) -> View:
        """
        Say everything of one group.

        Raises:
            Problem: there is none of that name, and no hold for it.
        """
        if group not in snapshot.pictures:
            unless = "" if snapshot.is_complete else ", as far as is known yet"
            raise Problem(
                404,
                f"no group {group!r} here, and no hold for it{unless}",
                "look for a typing error",
            )
        self.follower.view(group)
        return self._view(snapshot, group)

    def partition(self, snapshot: Snapshot, group: str, wanted: str) -> PartitionRow:
        """
        Say everything of one partition, which is written as ``orders:3``.

        Raises:
            Problem: the group has none of that name.
        """
        for one in self.view(snapshot, group).partitions:
            if one.name == wanted:
                return one
        raise Problem(
            404,
            f"{group} has no partition {wanted!r}",
            "it owns none such and has committed nothing for it: write orders:3",
        )

    def _view(self, snapshot: Snapshot, group: str) -> View:
        picture = snapshot.pictures[group]
        known = self._views.get(group)
        if known is not None and known[0] is picture:
            return known[1]
        now = time.monotonic()

        def stands_for(tp: TopicPartition) -> float | None:
            moved = snapshot.moved.get((group, tp))
            return None if moved is None else now - moved

        view = view_of(picture, stands_for)
        self._views[group] = picture, view
        return view

    @contextmanager
    def operator(self) -> Iterator[Operator]:
        """
        Lend the connection for commands to one thread at a time.
        """
        with self._lock:
            if self._operator is None:
                self._operator = self.connect()
            yield self._operator

    def close(self) -> None:
        """
        Close the connection for commands.
        """
        self.is_closing = True
        with self._lock:
            operator, self._operator = self._operator, None
            if operator is not None:
                operator.__exit__(None, None, None)
