"""Starts and ends the member processes, and restarts those that crashed."""

import json
import time

from tests.harness.processes import Process, module

MEMBERS, FEWEST, MOST = 6, 4, 8
_LEAVING = 40.0
"""Seconds to leave in: a worker waits up to 25 for its handlers, on a busy machine."""


class Fleet:
    """
    Member processes of one group. A context manager: it ends them all.

    Thread rules: one thread.

    Attributes:
        members: by name, the processes that have not been asked to leave.
        crashed: the names of members that ended by themselves.
        stuck: the names of members that were killed, as they did not leave in time.
    """

    def __init__(self, settings, bootstrap):
        self.members = {}
        self.crashed, self.stuck = [], []
        self._settings = settings
        self._bootstrap = bootstrap
        self._leaving = []
        self._names = (f"m{number}" for number in range(1, 10**6))
        self._starts = 0
        self._is_draining = False

    def __enter__(self):
        for _ in range(MEMBERS):
            self.start(self.new_name())
        return self

    def __exit__(self, *_):
        for one in (*self.members.values(), *(left for _, _, left in self._leaving)):
            one.kill()

    def new_name(self):
        return next(self._names)

    def start(self, name):
        """Start a member, a new one or a former one."""
        self._starts += 1
        settings = self._settings
        number, workers = int(name[1:]), settings.workers
        options = {
            "name": name,
            "seed": f"{settings.seed} {name} {self._starts}",
            "consumer": settings.consumer,
            "is_worker": settings.is_ours and workers > 0 and number % workers == 0,
            "assignor": settings.assignor,
            "bootstrap": self._bootstrap,
            "journals": str(settings.journals),
        }
        command = module("tests.system.soak.member", json.dumps(options))
        process = Process(command, log=settings.logs / f"{name}.log")
        self.members[name] = process
        if self._is_draining:
            process.tell("drain")

    def kill(self, name):
        self.members.pop(name).kill()

    def leave(self, name):
        """Ask a member to leave; :meth:`tend` kills it if it does not."""
        process = self.members.pop(name)
        process.begin_to_end()
        self._leaving.append((time.monotonic() + _LEAVING, name, process))

    def tend(self):
        """Start crashed members again, and end those that should have left."""
        for one in list(self._leaving):
            deadline, name, process = one
            if process.is_over or time.monotonic() > deadline:
                self._leaving.remove(one)
                if not process.end(0.0):
                    self.stuck.append(name)
        for name in [name for name, one in self.members.items() if one.is_over]:
            self.crashed.append(name)
            self.kill(name)
            self.start(name)

    def drain(self):
        """Have all members lift their holds and place no more."""
        self._is_draining = True
        for one in self.members.values():
            one.tell("drain")

    def end(self):
        """Let all members leave, and wait until they have."""
        for name in list(self.members):
            self.leave(name)
        while self._leaving:
            self.tend()
            time.sleep(0.1)
