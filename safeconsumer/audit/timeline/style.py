"""
Defines the colours of pictures, and the characters that they may contain.

Everybody can distinguish blue and vermilion, and nothing is shown by colour alone.
"""

import re

from safeconsumer.audit.timeline.story import Level

GROUND, INK, SOFT, GRID = "#ffffff", "#24292f", "#57606a", "#d0d7de"
BLUE, RED, GREEN = "#0969da", "#c9251b", "#1a7f37"
QUIET, FAULTS, STRUCK = "#f6ecd4", "#8250df", "#f6f2fd"

# The colours of members, by turns; their letters distinguish them.
OWNERS = (
    *("#d8dee4", "#b6e3ff", "#ffd8b5", "#c9e9c3"),
    *("#e6d3fb", "#f7d6e6", "#e4e2a8", "#c2e6e2"),
)

# Each level also has dashes of its own, in widths of the line: drawn, left out, ...
LEVELS: dict[Level, tuple[str, tuple[float, ...]]] = {
    Level.PARTITION: ("#0072b2", ()),
    Level.TOPIC: ("#008060", (2.75, 0.5)),
    Level.PATTERN: ("#b5508c", (0.5, 0.5)),
    Level.CONSUMER: ("#c77700", (2.25, 0.5, 0.5, 0.5)),
    Level.GROUP: ("#5c3d26", (1.25, 0.75)),
}

# Characters that XML 1.0 cannot have, and lone surrogates, which UTF-8 cannot have.
_ILLEGAL = re.compile("[^\t -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def legal(text: str) -> str:
    """Return a text without the characters that XML or UTF-8 cannot have."""
    return _ILLEGAL.sub("\ufffd", text)
