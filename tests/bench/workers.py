"""
Runs each arm of a measurement in its own process, step by step.

The processes run at the same time and take turns, so a slow phase of the machine
affects all arms. The memory of one arm does not affect another.
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
    """One process of ``python -m tests.bench.arms``, which performs steps."""

    def __init__(self, kind, env=None, **settings):
        self._name = f"{kind} of {settings.get('client', 'no client')}"
        self._process = Process(module("tests.bench.arms"), read=json.loads, env=env)
        self._say({"arm": kind, "with": settings})

    def wait_started(self):
        """Wait until the arm is ready; return its first answer."""
        return self.answer(_START_TIMEOUT)

    def call(self, step, timeout=240.0, **args):
        """Let the arm perform one step; return the measurement."""
        self.begin(step, **args)
        return self.answer(timeout)

    def begin(self, step, **args):
        """Let the arm start one step; :meth:`answer` waits for the result."""
        self._say({"step": step, "with": args})

    def answer(self, timeout):
        """Return the result of the started step; raise if it fails or takes too long."""
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
    """Start several arms at the same time; the block runs once all are ready."""
    with contextlib.ExitStack() as stack:
        started = {}
        for name, settings in kinds.items():
            started[name] = Arm(**settings)
            stack.callback(started[name].close)
        for arm in started.values():
            arm.wait_started()
        yield started


def in_turns(names, lap):
    """Return the names in an order in which another one is first in each lap."""
    at = lap % len(names)
    return [*names[at:], *names[:at]]


def lapped(kinds, step, *, rounds, laps, warm_up={}, **args):  # noqa: B006 - only read
    """
    Let arms perform a step in turns, lap by lap; each round starts fresh processes.

    Each arm first performs one uncounted step, whose arguments ``warm_up`` overrides.
    If ``warm_up`` is None, the arms skip that step.
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
