"""Raises exceptions at chosen points in a call, as a signal handler does."""

import itertools
from pathlib import Path

import kafka

import safeconsumer
from tests.harness.signals import Interrupts, TimeLimitError
from tests.sim.playing import simulated
from tests.sim.world import World

OURS = str(Path(safeconsumer.__file__).parent)
THEIRS = str(Path(kafka.__file__).parent)

STEP = 21
"""
Each seed covers every 21st point, and 21 seeds together cover all points.
"""

everywhere = simulated(seeds=1, nightly=STEP)


def is_mine():
    """Return a function that checks whether the test's own thread runs."""
    world = World.current
    mine = world.task
    return lambda: world.task is mine


def interrupting(*inside, kind=TimeLimitError):
    """Return ``Interrupts`` of the test's thread in these files, by default our package."""
    return Interrupts(inside or (OURS,), is_mine(), kind)


def each_place(lab, least, *inside, kind=TimeLimitError):
    """
    Yield interrupts at later and later points of a call, until two come after its end.

    Args:
        lab: the lab, whose seed chooses the points.
        least: the call must have more points than this.
        inside: prefixes of the names of the interrupted files; our package by default.
        kind: the class of exceptions that are raised.
    """
    interrupts, missed = interrupting(*inside, kind=kind), 0
    for number in itertools.count(lab.world.seed, STEP):
        interrupts.number = number
        interrupts.interrupt = lambda call, number=number: interrupts.at(number, call)
        yield interrupts
        # An earlier interrupted call may have left more or less work for this call.
        missed = 0 if interrupts.place else missed + 1
        if missed == 2:
            break
    assert number > least
