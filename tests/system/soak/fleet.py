"""The members: who there are, who may be hurt now, and who comes next."""

import json
import time

from safeconsumer import SafeConsumer
from tests.harness.processes import Process, module
from tests.system.soak.settings import MEMBER, MEMBERS, client

_FEWEST, _MOST = 4, 8


class Program(Process):
    """A module of this suite that says JSON lines."""

    def __init__(self, program, name, options, logs):
        self.name = name
        command = module(program, json.dumps(options))
        super().__init__(command, read=json.loads, log=logs / f"{name}.log")


_LEAVING = 40.0
"""Seconds to leave in: a worker waits up to 25 for its handlers, on a busy machine."""


class Crowd:
    """
    Programs by name, with those that are on their way out.

    Thread rules: one thread.
    """

    def __init__(self):
        self.there = {}  # who has not been asked to leave
        self._leaving = []
        self.crashed = []  # who ended without being told to
        self.stuck = []  # who had to be killed when they should have left

    def kill(self, name):
        self.there.pop(name).kill()

    def kill_all(self):
        """End everybody at once, also who is leaving."""
        for one in (*self.there.values(), *(left for _, left in self._leaving)):
            one.kill()

    def leave(self, name):
        """Let a program leave; :meth:`tend` sees to it that it does."""
        one = self.there.pop(name)
        one.begin_to_end()
        self._leaving.append((time.monotonic() + _LEAVING, one))

    def tend(self, replace):
        """Have whoever ended without being told to replaced, and end who does not leave."""
        for one in list(self._leaving):
            deadline, process = one
            if process.is_over or time.monotonic() > deadline:
                self._leaving.remove(one)
                if not process.end(0.0):
                    self.stuck.append(process.name)
        for name in [name for name, one in self.there.items() if one.is_over]:
            self.crashed.append(name)
            self.kill(name)
            replace(name)

    def end(self, replace):
        """Let everybody leave, and tend until they have."""
        for name in list(self.there):
            self.leave(name)
        while self._leaving:
            self.tend(replace)
            time.sleep(0.1)


class Fleet:
    """
    Member processes of one group. A context manager: it ends them all.

    Thread rules: one thread.
    """

    def __init__(self, settings, bootstrap, kind):
        self._settings = settings
        self._bootstrap = bootstrap
        self._is_ours = issubclass(kind, SafeConsumer)
        self.crowd = Crowd()
        self._number = 0
        self._starts = 0
        self._is_draining = False

    def __enter__(self):
        for _ in range(MEMBERS):
            self.join()
        return self

    def __exit__(self, *_):
        self.crowd.kill_all()

    def names(self):
        return sorted(self.crowd.there)

    def join(self, name=None):
        """Start a member, a new one or one that was there before."""
        if name is None:
            self._number += 1
            name = f"m{self._number}"
        self._starts += 1
        number, workers = int(name[1:]), self._settings.workers
        options = {
            "name": name,
            "seed": f"{self._settings.seed} {name} {self._starts}",
            "consumer": self._settings.consumer,
            "is_worker": self._is_ours and workers > 0 and number % workers == 0,
            "assignor": self._settings.assignor,
            "client": {**MEMBER, **client(self._bootstrap, name)},
            "control": {"clock_skew": 0.5, "status_topic": None, "start_timeout": 2.0},
            "journals": str(self._settings.journals),
        }
        made = Program("tests.system.soak.member", name, options, self._settings.logs)
        self.crowd.there[name] = made
        if self._is_draining:
            made.tell("drain")
        return name

    def has_room(self):
        """Tell whether one more may join."""
        return len(self.crowd.there) < _MOST

    def can_lose_one(self):
        """Tell whether one fewer are still enough."""
        return len(self.crowd.there) > _FEWEST

    def tend(self):
        """Start again who ended without being told to, and end who does not leave."""
        self.crowd.tend(self.join)

    def drain(self):
        """Have everybody lift their holds and place no more."""
        self._is_draining = True
        for one in self.crowd.there.values():
            one.tell("drain")

    def end(self):
        self.crowd.end(self.join)
