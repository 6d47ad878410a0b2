"""
Runs tests with a lab, once for each seed.

    @simulated(seeds=3)
    def test_hold_expires_after_its_time(lab): ...

Under ``tests/sim`` a test with a ``lab`` but no decorator runs with the first seed.
"""

import inspect
import os
import sys

import pytest

is_day = False  # True if the run excludes nightly tests, so that pytest need not collect them


def of_this_run(params):
    """Drop nightly parameters unless the run has them; collecting thousands takes seconds."""
    marked = ({mark.name for mark in one.marks} for one in params)
    pairs = zip(params, marked, strict=True)
    return [one for one, names in pairs if not (is_day and "nightly" in names)]


def simulated(seeds=2, *, nightly=0, **world):
    """
    Run a test in virtual time, once for each seed, with the lab as its first argument.

    Args:
        seeds: the number of seeds that every run has.
        nightly: the total number of seeds; only the nightly run has those beyond ``seeds``.
        world: further arguments of ``lab.play``, such as the number of brokers.
    """
    all_of_them = [
        pytest.param(n, id=f"seed={n}", marks=pytest.mark.nightly if n >= seeds else ())
        for n in range(max(seeds, nightly))
    ]

    def decorate(scenario):
        def test(seed, **given):
            __tracebackhide__ = True
            _play(scenario, seed, {**world, **given})

        test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
        test.__module__ = scenario.__module__
        test.__dict__.update(scenario.__dict__)  # marks
        test.__signature__ = _signature(scenario)
        return pytest.mark.parametrize("seed", of_this_run(all_of_them))(test)

    return decorate


def _signature(scenario):
    """Return the scenario's signature, with the seed in place of the lab."""
    _, *others = inspect.signature(scenario).parameters.values()
    seed = inspect.Parameter("seed", inspect.Parameter.KEYWORD_ONLY)
    kept = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in others]
    return inspect.Signature([seed, *kept])


def _play(scenario, seed, given):
    __tracebackhide__ = True
    from tests.sim.lab import play  # noqa: PLC0415 - it imports kafka

    try:
        play(scenario, seed, **given)
    except BaseException as error:
        error.add_note(_replay_line())
        raise


def _replay_line():
    """Return the command that repeats the failed test exactly, to the microsecond."""
    test = os.environ["PYTEST_CURRENT_TEST"].rsplit(" (", 1)[0]
    also = " -m 'nightly or not nightly'"  # a parameter may mark the test as nightly
    if sys.flags.hash_randomization:
        also += "  # if it fails so; this run had an order of hashes of its own"
    return f"PYTHONHASHSEED=0 pytest -n 0 '{test}'{also}"
