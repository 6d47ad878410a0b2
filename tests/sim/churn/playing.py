"""Runs a churn test from its seed; an error shows the command that repeats the test."""

import gc
import logging
import sys

import pytest
from kafka import KafkaProducer

from tests.sim.churn.nemesis import NODES, churn
from tests.sim.lab import play


def played(what, seed, *, preempt=0.0):
    """
    Run one churn test; return the judge.

    Raises:
        ViolationError: a promise was broken; a note has the command that repeats it.
    """
    logged = logging.root.manager.disable
    # Each log line reads the clock, and each reading advances the clock.
    logging.disable(logging.CRITICAL)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(KafkaProducer, "__del__", lambda _: None)
            return play(churn, seed, nodes=NODES, preempt=preempt, what=what)
    except BaseException as error:
        line = f"python -m tests.sim.churn --seeds {seed} --minutes {what.minutes:g}"
        line += " --workers" * what.are_workers
        line += " --operators" * bool(what.is_controlled)
        line += f" --preempt {preempt:g}" * bool(preempt)
        if sys.flags.hash_randomization:
            line += "  # if it fails so; this run had an order of hashes of its own"
        error.add_note(line)
        raise
    finally:
        logging.disable(logged)
        _forget_producers()


def _forget_producers():
    """Keep producers of an ended world from closing when they are garbage-collected."""
    for one in gc.get_objects():
        if type(one) is KafkaProducer and not getattr(one, "_closed", True):
            one._closed = True
            one.close()  # only unregisters the producer's atexit hook
