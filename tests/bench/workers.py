"""
Runs each variant of a benchmark in its own process, step by step.

A variant is, for example, one of the clients that the benchmark compares. The processes
exist at the same time and take turns, so a phase in which the machine is slow affects
all variants. The memory that one variant uses does not affect another variant.
"""

import contextlib
import json
from collections import defaultdict

from tests.harness.processes import Process, module
from tests.harness.waiting import NotReachedError

_START_TIMEOUT = 60.0
_ENDED = {"error": "it ended"}


class VariantError(Exception):
    """A variant's process failed or did not answer in time."""


class Variant:
    """A process that runs one variant with ``python -m tests.bench.variants``."""

    def __init__(self, kind, env=None, **settings):
        self._name = f"{kind} of {settings.get('client', 'no client')}"
        program = module("tests.bench.variants")
        self._process = Process(program, read=json.loads, env=env)
        self._say({"variant": kind, "with": settings})

    def wait_started(self):
        """Wait until the variant's process is ready; return its first answer."""
        return self.answer(_START_TIMEOUT)

    def call(self, step, timeout=240.0, **args):
        """Let the variant's process perform one step; return the measured values."""
        self.begin(step, **args)
        return self.answer(timeout)

    def begin(self, step, **args):
        """Start a step without waiting for its result; see :meth:`answer`."""
        self._say({"step": step, "with": args})

    def answer(self, timeout):
        """Return the started step's result; raise if the step fails or takes too long."""
        try:
            line = self._process.take(timeout)
        except NotReachedError:
            message = f"variant {self._name} did not answer in {timeout:g} s"
            raise VariantError(message) from None
        answer = _ENDED if line is None else line
        if "error" in answer:
            message = f"variant {self._name}: {answer['error']}"
            raise VariantError(message)
        return answer

    def close(self):
        self._process.end()

    def _say(self, request):
        self._process.tell(json.dumps(request))


@contextlib.contextmanager
def variants(kinds):
    """Start several variants at the same time; begin the block once all are ready."""
    with contextlib.ExitStack() as stack:
        started = {}
        for name, settings in kinds.items():
            started[name] = Variant(**settings)
            stack.callback(started[name].close)
        for variant in started.values():
            variant.wait_started()
        yield started


def in_turns(names, lap):
    """Return the names in the order for this lap; each lap begins with another name."""
    at = lap % len(names)
    return [*names[at:], *names[:at]]


def lapped(kinds, step, *, rounds, laps, warm_up={}, **args):  # noqa: B006 - only read
    """
    Let variants take turns: in each lap each variant performs the step once.

    Each round starts new processes, and has ``laps`` laps.
    Each process first performs one step that does not count; ``warm_up`` overrides
    arguments of that step. If ``warm_up`` is None, the processes skip it.
    """
    taken = defaultdict(lambda: defaultdict(list))
    for number in range(rounds):
        with variants(kinds) as started:
            names = list(started)
            for name in names if warm_up is not None else ():
                started[name].call(step, **args | warm_up)
            for lap in range(laps):
                for name in in_turns(names, number * laps + lap):
                    for what, value in started[name].call(step, **args).items():
                        values = value if isinstance(value, list) else [value]
                        taken[what][name] += values
    return taken
