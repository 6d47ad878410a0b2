"""
The timeline of a soak: one topic, ten minutes.
"""

from pathlib import Path

from safeconsumer.cli.commands import safeconsumer
from tests.soak.settings import TOPICS

# More does not fit on a page.
_MINUTES = 10


def draw(journals: Path, output: Path, patience: float) -> None:
    """
    Draw the first minutes of one topic.

    Args:
        journals: a folder of them.
        output: where the picture goes.
        patience: seconds, as the checker has them.
    """
    told = ["timeline", str(journals), "-o", str(output), "--topic", TOPICS[0]]
    told += ["--to", f"{_MINUTES}m", "--patience", str(patience)]
    safeconsumer.main(told, standalone_mode=False)
