"""
Makes Hypothesis draw the same examples in every run, or random ones on request.

With ``--hypothesis-profile=random`` each run draws other examples, prints how to repeat
a failure, and stores the failure in ``.hypothesis``, so that the next run tries it
first.
"""

import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers

# Hypothesis's folder. Without an explicit folder Hypothesis stores nothing if CI is
# set.
_KEPT = Path(
    os.environ.get("HYPOTHESIS_STORAGE_DIRECTORY")
    or Path(__file__).parents[2] / ".hypothesis"
)

# A busy machine must not make a test fail.
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
    """Let a test draw this many examples, or Hypothesis's default in a random run."""
    is_random = settings.get_current_profile_name() == "random"
    return settings() if is_random else settings(max_examples=count)


def make_repeatable():
    """
    Make each test draw the same examples, whichever tests share its process.

    Hypothesis also draws constants that occur in the loaded modules. With several
    workers the loaded modules differ from run to run, even for a "derandomized" test.
    """
    settings.load_profile("repeatable")
    # Hypothesis has no setting for this. If the attribute is renamed, this line raises
    # AttributeError.
    providers.HypothesisProvider._local_constants  # noqa: B018
    providers.HypothesisProvider._local_constants = providers.Constants()
    # Hypothesis's plugin would parse every module to find the constants, which takes
    # four seconds of CPU in a new clone.
    providers._get_local_constants  # noqa: B018
    providers._get_local_constants = providers.Constants
