"""
Where a moment stands in a picture, and how it is written.
"""

from attrs import frozen

from safeconsumer.audit.timeline.told import COLUMNS, Timeline

# Names stand left of the plot, counts right of it; in pixels.
LEFT = 134
COLUMN = 2
PLOT = COLUMNS * COLUMN
RIGHT = 118
WIDTH = LEFT + PLOT + RIGHT

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200)
_MOST_TICKS = 11


@frozen(kw_only=True)
class Scale:
    """
    From seconds to pixels.
    """

    start: float
    end: float
    origin: float

    @classmethod
    def of(cls, timeline: Timeline) -> "Scale":
        """
        Return the scale of a timeline.
        """
        return cls(start=timeline.start, end=timeline.end, origin=timeline.origin)

    def x(self, at: float) -> float:
        """
        Return where a moment stands; what is outside stands at the edge.
        """
        share = (at - self.start) / (self.end - self.start)
        return LEFT + PLOT * min(1.0, max(0.0, share))

    def said(self, at: float) -> str:
        """
        Return a moment as the axis counts: since the first entry.
        """
        return clock(at - self.origin)

    def ticks(self) -> list[float]:
        """
        Return the moments that the axis names.
        """
        length = self.end - self.start
        fits = (step for step in _STEPS if length / step <= _MOST_TICKS)
        step = next(fits, -(-length // (_MOST_TICKS * 86400)) * 86400)
        first = -(-(self.start - self.origin) // step) * step
        count = int((self.end - self.origin - first) // step) + 1
        return [self.origin + first + step * number for number in range(count)]


def clock(seconds: float) -> str:
    """
    Return a duration as 1:05, 1:05.3 or 2:01:05.
    """
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    whole, part = divmod(rest, 10)
    head = f"{hours}:{minutes:02}" if hours else f"{minutes}"
    return f"{head}:{whole:02}" + (f".{part}" if part else "")


def letters(number: int) -> str:
    """
    Return A to Z, then AA and so on.
    """
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
