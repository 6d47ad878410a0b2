"""The workers: who there are, who goes now, and who comes next."""

import random
import time
from typing import Self

from safeconsumer.audit.writer import JournalWriter
from tests.system.churn.settings import WORKERS, Settings
from tests.system.soak.processes import Crowd, Program

_FEWEST, _MOST = WORKERS - 1, WORKERS + 1
_EVERY = (2.0, 5.0)  # seconds


class Crew:
    """
    Worker processes that come, leave and are killed. A context manager: it ends them.

    Thread rules: one thread.

    Args:
        settings: of the run.
        bootstrap: where the brokers are.

    Attributes:
        departures: how many were killed, and how many left.
        crowd: the workers.
    """

    def __init__(self, settings: Settings, bootstrap: str) -> None:
        self._settings = settings
        self._bootstrap = bootstrap
        self._chance = random.Random(f"crew {settings.seed}")  # noqa: S311 - no secret
        self._journal = JournalWriter(settings.journals, member="nemesis")
        self.crowd = Crowd()
        self._number = 0
        self._next = 0.0
        self.departures = {"kill": 0, "leave": 0}

    def __enter__(self) -> Self:
        for _ in range(WORKERS):
            self._join()
        return self

    def __exit__(self, *_: object) -> None:
        self.crowd.kill_all()

    def begin(self) -> None:
        """Have the first change come only now."""
        self._next = time.monotonic() + self._chance.uniform(*_EVERY)

    def turn(self) -> None:
        """Kill one, let one leave or have one join, if it is time."""
        self.tend()
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._chance.uniform(*_EVERY)
        if len(self.crowd.there) <= _FEWEST:
            self._join()
        elif len(self.crowd.there) >= _MOST or self._chance.random() < 2 / 3:
            self._depart(self._chance.choice(["kill", "leave"]))
        else:
            self._join()

    def tend(self) -> None:
        """Replace who ended without being told to, and end who does not leave."""
        self.crowd.tend(lambda _: self._join())

    def fill(self) -> None:
        """Have as many as there should be."""
        while len(self.crowd.there) < WORKERS:
            self._join()

    def end(self) -> None:
        """Let everybody leave."""
        self.crowd.end(lambda _: self._join())

    # ------------------------------------------------------------ inside

    def _depart(self, kind: str) -> None:
        name = self._chance.choice(sorted(self.crowd.there))
        self.departures[kind] += 1
        said = {"id": sum(self.departures.values()), "kind": kind, "targets": [name]}
        self._journal.write("fault", {**said, "seconds": 0})
        if kind == "kill":
            self.crowd.kill(name)
        else:
            self.crowd.leave(name)

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
        module = "tests.system.churn.member"
        self.crowd.there[name] = Program(module, name, options, logs)
