"""The timeline of a soak: one topic, ten minutes."""

from safeconsumer.cli.commands import safeconsumer
from tests.system.soak.settings import TOPICS

# More does not fit on a page.
_MINUTES = 10


def draw(settings, output, patience):
    """Draw the first minutes of one topic."""
    told = ["timeline", str(settings.journals), "-o", str(output)]
    told += ["--partition", TOPICS[0]]
    told += ["--to", f"{_MINUTES}m", "--patience", str(patience)]
    if settings.history.exists():
        told += ["--history", str(settings.history)]
    safeconsumer.main(told, standalone_mode=False)
