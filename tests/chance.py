"""
What Hypothesis draws: the same in every run, unless ``--hypothesis-profile=random``.
"""

from hypothesis import settings
from hypothesis.internal.conjecture import providers

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
# What fails prints how to play it again.
settings.register_profile("random", derandomize=False, deadline=None, print_blob=True)


def make_repeatable() -> None:
    """
    Draw the same from now on, whichever tests share the process.

    Hypothesis mixes in constants that it reads in the modules loaded so far: with
    several workers that is another set in each run, so a "derandomized" test differs.
    """
    settings.load_profile("repeatable")
    # Hypothesis has no setting for it. A name that moves is an AttributeError here.
    providers.HypothesisProvider._local_constants  # noqa: B018
    providers.HypothesisProvider._local_constants = providers.Constants()  # type: ignore[assignment]


def is_repeatable() -> bool:
    """
    Whether the same is drawn in every run: only then it says something what was not.
    """
    return settings.get_current_profile_name() == "repeatable"
