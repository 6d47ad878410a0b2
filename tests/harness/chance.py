"""
What Hypothesis draws: the same in every run, unless ``--hypothesis-profile=random``.

A random run draws anew, and says of what failed how to draw it again. What it found stays
in ``.hypothesis`` and is tried first in the next one.
"""

import os
from pathlib import Path

from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal.conjecture import providers

# Where Hypothesis keeps things; said, because where CI is set it would keep nothing.
_KEPT = Path(
    os.environ.get("HYPOTHESIS_STORAGE_DIRECTORY")
    or Path(__file__).parents[2] / ".hypothesis"
)

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.register_profile(
    "random",
    derandomize=False,
    database=DirectoryBasedExampleDatabase(_KEPT / "examples"),
    deadline=None,
    print_blob=True,
)


def by_day(count):
    """Have a test draw so many examples by day, and as many as usual if draws are random."""
    is_random = settings.get_current_profile_name() == "random"
    return settings() if is_random else settings(max_examples=count)


def make_repeatable():
    """
    Draw the same from now on, whichever tests share the process.

    Hypothesis mixes in constants that it reads in the modules loaded so far: with
    several workers that is another set in each run, so a "derandomized" test differs.
    """
    settings.load_profile("repeatable")
    # Hypothesis has no setting for it. A name that moves is an AttributeError here.
    providers.HypothesisProvider._local_constants  # noqa: B018
    providers.HypothesisProvider._local_constants = providers.Constants()
