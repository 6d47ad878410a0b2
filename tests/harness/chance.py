"""
Profiles of Hypothesis: the same draws in every run, or ``--hypothesis-profile=random``.

A random run has other draws each time, prints for a failure how to repeat it, and keeps
the failure in ``.hypothesis``, so that the next run tries it first.
"""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers

# Hypothesis's folder; named, because with CI set Hypothesis would keep nothing.
_KEPT = Path(
    os.environ.get("HYPOTHESIS_STORAGE_DIRECTORY")
    or Path(__file__).parents[2] / ".hypothesis"
)

# A busy machine must not fail a test.
_PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, database=None, **_PATIENT)
settings.register_profile(
    "random",
    derandomize=False,
    database=DirectoryBasedExampleDatabase(_KEPT / "examples"),
    print_blob=True,
    **_PATIENT,
)


def by_day(count):
    """Let a test draw this many examples, or the usual number if draws are random."""
    is_random = settings.get_current_profile_name() == "random"
    return settings() if is_random else settings(max_examples=count)


def make_repeatable():
    """
    Make the draws of each test the same, whichever tests share the process.

    Hypothesis draws constants of the modules that are loaded so far: with several
    workers these differ from run to run, and so do the draws of a "derandomized" test.
    """
    settings.load_profile("repeatable")
    # Hypothesis has no setting for it. If the name moves, this is an AttributeError.
    providers.HypothesisProvider._local_constants  # noqa: B018
    providers.HypothesisProvider._local_constants = providers.Constants()
    # Its plugin would parse every module to find them: four seconds of CPU in a new
    # clone.
    providers._get_local_constants  # noqa: B018
    providers._get_local_constants = providers.Constants
