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

DARK = {
    GROUND: "#0d1117",
    INK: "#e6edf3",
    SOFT: "#9198a1",
    GRID: "#30363d",
    BLUE: "#58a6ff",
    RED: "#ff7b72",
    GREEN: "#3fb950",
    QUIET: "#3a3118",
    FAULTS: "#bc8cff",
    STRUCK: "#171426",
    OWNERS[0]: "#3d444d",
    OWNERS[1]: "#1f4b72",
    OWNERS[2]: "#6b4423",
    OWNERS[3]: "#2b5a34",
    OWNERS[4]: "#513a70",
    OWNERS[5]: "#6b3550",
    OWNERS[6]: "#5a5720",
    OWNERS[7]: "#1f5854",
    LEVELS[Level.PARTITION][0]: "#56b4e9",
    LEVELS[Level.TOPIC][0]: "#2fc79a",
    LEVELS[Level.PATTERN][0]: "#e0a3c6",
    LEVELS[Level.CONSUMER][0]: "#f0b429",
    LEVELS[Level.GROUP][0]: "#c39a78",
}
"""
The replacement of each colour on a dark background.
"""

# Characters that XML 1.0 cannot have, and lone surrogates, which UTF-8 cannot have.
_ILLEGAL = re.compile("[^\t -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def legal(text: str) -> str:
    """Return a text without the characters that XML or UTF-8 cannot have."""
    return _ILLEGAL.sub("\ufffd", text)
