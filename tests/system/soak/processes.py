"""
Programs of a soak: each has a name, a log, and options that it is told as JSON.

Those of one kind are a crowd: they come, leave and are killed.
"""

import json
import time

from tests.harness.processes import Process, module


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
