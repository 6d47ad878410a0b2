"""
Makes Hypothesis draw the same examples in every run, or random examples on request.

With ``--hypothesis-profile=random`` each run draws other examples, prints how to repeat
a failure, and stores the failure in ``.hypothesis``, so that the next run tries the
failing example first.
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

# These settings keep a slow example from failing a test on a busy machine.
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
    """Return settings for this many examples; a random run uses Hypothesis's default."""
    is_random = settings.get_current_profile_name() == "random"
    return settings() if is_random else settings(max_examples=count)


def make_repeatable():
    """
    Make each test draw the same examples, no matter which tests share its process.

    Hypothesis also draws constants that occur in the loaded modules. With several
    workers the loaded modules, and thus the examples, differ from run to run, even for
    a "derandomized" test.
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
