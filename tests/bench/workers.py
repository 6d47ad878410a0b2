"""
Runs each arm (compared program) of a measurement in its own process, step by step.

The processes exist at the same time and take turns, so a phase in which the machine is
slow affects all arms. The memory that one arm uses does not affect another arm.
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
    """A process that runs ``python -m tests.bench.arms`` and performs steps."""

    def __init__(self, kind, env=None, **settings):
        self._name = f"{kind} of {settings.get('client', 'no client')}"
        self._process = Process(module("tests.bench.arms"), read=json.loads, env=env)
        self._say({"arm": kind, "with": settings})

    def wait_started(self):
        """Wait until the arm is ready; return its first answer."""
        return self.answer(_START_TIMEOUT)

    def call(self, step, timeout=240.0, **args):
        """Let the arm perform one step; return what the arm has measured."""
        self.begin(step, **args)
        return self.answer(timeout)

    def begin(self, step, **args):
        """Start a step of the arm, without waiting for the result; see :meth:`answer`."""
        self._say({"step": step, "with": args})

    def answer(self, timeout):
        """Return the started step's result; raise if the step fails or takes too long."""
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
    """Start several arms at the same time; the block begins once all arms are ready."""
    with contextlib.ExitStack() as stack:
        started = {}
        for name, settings in kinds.items():
            started[name] = Arm(**settings)
            stack.callback(started[name].close)
        for arm in started.values():
            arm.wait_started()
        yield started


def in_turns(names, lap):
    """Return the names in the order for this lap; each lap begins with another name."""
    at = lap % len(names)
    return [*names[at:], *names[:at]]


def lapped(kinds, step, *, rounds, laps, warm_up={}, **args):  # noqa: B006 - only read
    """
    Let arms take turns to perform a step, lap by lap; each round starts new processes.

    Each arm first performs one step that does not count; ``warm_up`` overrides
    arguments of that step. If ``warm_up`` is None, the arms skip it.
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
