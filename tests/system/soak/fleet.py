"""
The members: who there are, who may be hurt now, and who comes next.
"""

import time
from types import TracebackType
from typing import Any, Self

from safeconsumer import SafeConsumer
from tests.soak.processes import Process
from tests.soak.settings import MEMBER, MEMBERS, Settings, client

# Every third is a Worker, if the client has any.
_WORKERS = 3
_FEWEST, _MOST = 4, 8
_LEAVING = 40.0  # seconds: a worker waits up to 25 for its handlers


class Fleet:
    """
    Member processes of one group. A context manager: it ends them all.

    Thread rules: one thread.

    Args:
        settings: of the soak.
        bootstrap: where members find the brokers.
        kind: the client under test.

    Attributes:
        crashed: members that ended by themselves.
        stuck: members that had to be killed when they should have left.
    """

    def __init__(self, settings: Settings, bootstrap: str, kind: type) -> None:
        self._settings = settings
        self._bootstrap = bootstrap
        self._is_ours = issubclass(kind, SafeConsumer)
        self._members: dict[str, Process] = {}
        self._leaving: list[tuple[float, Process]] = []
        self._number = 0
        self._starts = 0
        self._is_draining = False
        self.crashed: list[str] = []
        self.stuck: list[str] = []

    def __enter__(self) -> Self:
        for _ in range(MEMBERS):
            self.join()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in (*self._members.values(), *(left for _, left in self._leaving)):
            one.kill()

    def names(self) -> list[str]:
        """
        Return the members there are.
        """
        return sorted(self._members)

    def join(self, name: str | None = None) -> str:
        """
        Start a member, a new one or one that was there before.
        """
        if name is None:
            self._number += 1
            name = f"m{self._number}"
        self._starts += 1
        number = int(name[1:])
        options: dict[str, Any] = {
            "name": name,
            "seed": f"{self._settings.seed} {name} {self._starts}",
            "consumer": self._settings.consumer,
            "is_worker": self._is_ours and number % _WORKERS == 0,
            "client": {**MEMBER, **client(self._bootstrap, name)},
            "control": {"clock_skew": 0.5, "status_topic": None, "start_timeout": 2.0},
            "journals": str(self._settings.journals),
        }
        made = Process("tests.soak.member", name, options, self._settings.logs)
        self._members[name] = made
        if self._is_draining:
            made.tell("drain")
        return name

    def kill(self, name: str) -> None:
        """
        End a member at once.
        """
        self._members.pop(name).kill()

    def leave(self, name: str) -> None:
        """
        Let a member leave its group; :meth:`tend` sees to it that it does.
        """
        one = self._members.pop(name)
        one.begin_to_end()
        self._leaving.append((time.monotonic() + _LEAVING, one))

    def freeze(self, name: str) -> None:
        self._members[name].freeze()

    def thaw(self, name: str) -> None:
        self._members[name].thaw()

    def has_room(self) -> bool:
        """
        Tell whether one more may join.
        """
        return len(self._members) < _MOST

    def can_lose_one(self) -> bool:
        """
        Tell whether one fewer are still enough.
        """
        return len(self._members) > _FEWEST

    def tend(self) -> None:
        """
        Start again who ended without being told to, and end who does not leave.
        """
        for one in list(self._leaving):
            deadline, process = one
            if process.is_over or time.monotonic() > deadline:
                self._leaving.remove(one)
                if not process.end(0.0):
                    self.stuck.append(process.name)
        for name in [name for name, one in self._members.items() if one.is_over]:
            self.crashed.append(name)
            self.kill(name)
            self.join(name)

    def drain(self) -> None:
        """
        Have everybody lift their holds and place no more.
        """
        self._is_draining = True
        for one in self._members.values():
            one.tell("drain")

    def end(self) -> None:
        """
        Let everybody leave.
        """
        for name in self.names():
            self.leave(name)
        while self._leaving:
            self.tend()
            time.sleep(0.1)
