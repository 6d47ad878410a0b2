"""
The workers: who there are, who goes now, and who comes next.
"""

import random
import time
from types import TracebackType
from typing import Self

from safeconsumer.audit.writer import JournalWriter
from tests.soak.processes import Process
from tests.worker.churn.settings import WORKERS, Settings

_FEWEST, _MOST = WORKERS - 1, WORKERS + 1
_EVERY = (2.0, 5.0)  # seconds
_LEAVING = 40.0  # seconds: a drain, and a machine that has other things to do


class Crew:
    """
    Worker processes that come, leave and are killed. A context manager: it ends them.

    Thread rules: one thread.

    Args:
        settings: of the run.
        bootstrap: where the brokers are.

    Attributes:
        departures: how many were killed, and how many left.
        crashed: who ended without being told to.
        stuck: who had to be killed when they should have left.
    """

    def __init__(self, settings: Settings, bootstrap: str) -> None:
        self._settings = settings
        self._bootstrap = bootstrap
        self._chance = random.Random(f"crew {settings.seed}")  # noqa: S311 - no secret
        self._journal = JournalWriter(settings.journals, member="nemesis")
        self._there: dict[str, Process] = {}
        self._leaving: list[tuple[float, Process]] = []
        self._number = 0
        self._next = 0.0
        self.departures = {"kill": 0, "leave": 0}
        self.crashed: list[str] = []
        self.stuck: list[str] = []

    def __enter__(self) -> Self:
        for _ in range(WORKERS):
            self._join()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for one in (*self._there.values(), *(left for _, left in self._leaving)):
            one.kill()

    def begin(self) -> None:
        """
        Have the first change come only now.
        """
        self._next = time.monotonic() + self._chance.uniform(*_EVERY)

    def turn(self) -> None:
        """
        Kill one, let one leave or have one join, if it is time.
        """
        self.tend()
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._chance.uniform(*_EVERY)
        if len(self._there) <= _FEWEST:
            self._join()
        elif len(self._there) >= _MOST or self._chance.random() < 2 / 3:
            self._depart(self._chance.choice(["kill", "leave"]))
        else:
            self._join()

    def tend(self) -> None:
        """
        Replace who ended without being told to, and end who does not leave.
        """
        for one in list(self._leaving):
            deadline, process = one
            if process.is_over or time.monotonic() > deadline:
                self._leaving.remove(one)
                if not process.end(0.0):
                    self.stuck.append(process.name)
        for name in [name for name, one in self._there.items() if one.is_over]:
            self.crashed.append(name)
            self._there.pop(name).kill()
            self._join()

    def fill(self) -> None:
        """
        Have as many as there should be.
        """
        while len(self._there) < WORKERS:
            self._join()

    def end(self) -> None:
        """
        Let everybody leave.
        """
        for name in list(self._there):
            self._leave(name)
        while self._leaving:
            self.tend()
            time.sleep(0.1)

    # ------------------------------------------------------------ inside

    def _depart(self, kind: str) -> None:
        name = self._chance.choice(sorted(self._there))
        self.departures[kind] += 1
        said = {"id": sum(self.departures.values()), "kind": kind, "targets": [name]}
        self._journal.write("fault", {**said, "seconds": 0})
        if kind == "kill":
            self._there.pop(name).kill()
        else:
            self._leave(name)

    def _leave(self, name: str) -> None:
        process = self._there.pop(name)
        process.begin_to_end()
        self._leaving.append((time.monotonic() + _LEAVING, process))

    def _join(self) -> None:
        self._number += 1
        name = f"w{self._number}"
        client = {
            "bootstrap_servers": self._bootstrap.split(","),
            "client_id": name,
        }
        options = {
            "name": name,
            "seed": f"{self._settings.seed} {name}",
            "client": client,
            "journals": str(self._settings.journals),
            "is_cooperative": self._settings.is_cooperative,
        }
        logs = self._settings.logs
        module = "tests.worker.churn.member"
        self._there[name] = Process(module, name, options, logs)
