"""
Arms of a measurement, each in its own process, controlled step by step.

The processes run side by side and work in turns, so that a slow moment of the machine affects
all arms, and the memory of one arm none of the others.
"""

import contextlib
import json
from collections import defaultdict

from tests.harness.processes import Process, module
from tests.harness.waiting import NotReachedError

_START_TIMEOUT = 60.0
_ENDED = {"error": "it ended"}


class ArmError(Exception):
    """An arm failed or did not answer in time."""


class Arm:
    """One process of ``python -m tests.bench.arms``; ends with the block."""

    def __init__(self, kind, env=None, **settings):
        self._name = f"{kind} of {settings.get('client', 'no client')}"
        self._process = Process(module("tests.bench.arms"), read=json.loads, env=env)
        self._say({"arm": kind, "with": settings})

    def wait_started(self):
        """Return the arm's answer about its start, once it is ready."""
        return self.answer(_START_TIMEOUT)

    def call(self, step, timeout=240.0, **args):
        """Let the arm do one step, and return its measurement."""
        self.begin(step, **args)
        return self.answer(timeout)

    def begin(self, step, **args):
        """Let the arm begin one step; :meth:`answer` waits for it."""
        self._say({"step": step, "with": args})

    def answer(self, timeout):
        """Wait this many seconds for the step that was begun; it must not have failed."""
        try:
            line = self._process.take(timeout)
        except NotReachedError:
            message = f"arm {self._name} did not answer in {timeout:g} s"
            raise ArmError(message) from None
        answer = _ENDED if line is None else line
        if "error" in answer:
            message = f"arm {self._name}: {answer['error']}"
            raise ArmError(message)
        return answer

    def close(self):
        self._process.end()

    def _say(self, request):
        self._process.tell(json.dumps(request))


@contextlib.contextmanager
def arms(kinds):
    """Start several arms at the same time; they are ready when the block begins."""
    with contextlib.ExitStack() as stack:
        started = {}
        for name, settings in kinds.items():
            started[name] = Arm(**settings)
            stack.callback(started[name].close)
        for arm in started.values():
            arm.wait_started()
        yield started


def in_turns(names, lap):
    """Return the names in another order each lap, so that none is always the first."""
    at = lap % len(names)
    return [*names[at:], *names[:at]]


def lapped(kinds, step, *, rounds, laps, warm_up={}, **args):  # noqa: B006 - it is read
    """
    Let arms do a step in turns, lap by lap, in fresh processes each round.

    Each arm first does one step that does not count, with the arguments of ``warm_up`` in
    place of the usual ones; if ``warm_up`` is None, without that step.
    """
    taken = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        with arms(kinds) as started:
            names = list(started)
            for name in names if warm_up is not None else ():
                started[name].call(step, **args | warm_up)
            for lap in range(laps):
                for name in in_turns(names, number * laps + lap):
                    for what, value in started[name].call(step, **args).items():
                        values = value if isinstance(value, list) else [value]
                        taken[what][name] += values
    return taken
