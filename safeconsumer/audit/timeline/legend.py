"""
What the signs of a picture mean, in a row each as long as it fits.
"""

from collections.abc import Callable, Iterator, Sequence

from safeconsumer.audit.timeline.lane import KINDS
from safeconsumer.audit.timeline.member import Level
from safeconsumer.audit.timeline.scale import WIDTH
from safeconsumer.audit.timeline.shapes import (
    Path,
    Rect,
    Shape,
    Text,
    cross,
    level,
    triangle,
    upright,
)
from safeconsumer.audit.timeline.told import Timeline

ROW = 18
_MARGIN, _SIGN, _BETWEEN, _CHARACTER = 16, 28, 16, 5.9

_MEANINGS = {
    "S1": "delivered while held",
    "S2": "lost",
    "S3": "a gap",
    "S4": "a step back, or begun too late",
    "S5": "committed without delivering",
    "S6": "twice, though committed",
    "S7": "paused() is wrong",
    "S8": "too much parked",
    "L1": "silent after the resume",
    "G2": "delivered against a group's hold",
    "W4": "committed without being complete",
    "W5": "not handled, or twice in one ownership",
    "W7": "handled out of order",
    "W10": "begun while held",
}

_Sign = Callable[[float, float], Sequence[Shape]]


def legend(
    timeline: Timeline, levels: Sequence[Level], y: float
) -> tuple[list[Shape], float]:
    """
    Return the legend's shapes, and where it ends; ``y`` is its first line.
    """
    shapes: list[Shape] = []
    x: float = _MARGIN
    for text, sign in _entries(timeline, levels):
        width = _SIGN + _CHARACTER * len(text)
        if x + width > WIDTH - _MARGIN:
            x, y = _MARGIN, y + ROW
        shapes += sign(x, y - 4)
        shapes.append(Text(kind="", x=x + _SIGN - 4, y=y, text=text))
        x += width + _BETWEEN
    return shapes, y


def _entries(
    timeline: Timeline, levels: Sequence[Level]
) -> Iterator[tuple[str, _Sign]]:
    broken = timeline.violations
    yield "records delivered", _bars
    for one in levels:
        yield f"held: {one.value}", _line(f"held {KINDS[one]}")
    if levels:
        yield "held: no record may come", _quiet
    if "S1" in broken:
        yield "delivered all the same", _wrong
    for check in broken:
        yield f"{check}: {_MEANINGS[check]}", _mark("violation", -3.5)
    yield "owned by member A", _owned
    yield "assigned", _mark("assigned", 2.5)
    yield "revoked", _mark("revoked", -2.5)
    yield "lost", lambda x, y: [Path(kind="lost", d=cross(x + 10, y, 3.5))]
    if timeline.faults:
        yield "fault", _fault
    if any(lane.parked for lane in timeline.lanes):
        yield "parked in memory", _line("parked")
    if any(lane.purged for lane in timeline.lanes):
        yield "purged", _mark("purged", -3)


def _bars(x: float, y: float) -> list[Shape]:
    heights = (5, 9, 7, 4, 8)
    d = "".join(upright(x + 5 + 3 * n, y + 5, y + 5 - h) for n, h in enumerate(heights))
    return [Path(kind="bars", d=d)]


def _quiet(x: float, y: float) -> list[Shape]:
    return [Rect(kind="quiet", x=x, y=y - 5, width=20, height=11)]


def _wrong(x: float, y: float) -> list[Shape]:
    ground = Rect(kind="quiet", x=x, y=y - 5, width=20, height=11)
    return [ground, Path(kind="wrong", d=upright(x + 10, y + 6, y - 4))]


def _owned(x: float, y: float) -> list[Shape]:
    letter = Text(kind="letter", x=x + 2, y=y + 3.5, text="A")
    return [Rect(kind="o0", x=x, y=y - 4, width=20, height=9), letter]


def _fault(x: float, y: float) -> list[Shape]:
    return [Rect(kind="fault", x=x + 2, y=y - 4, width=16, height=9)]


def _line(kind: str) -> _Sign:
    return lambda x, y: [Path(kind=kind, d=level(x, y, x + 20))]


def _mark(kind: str, size: float) -> _Sign:
    return lambda x, y: [Path(kind=kind, d=triangle(x + 10, y, size))]
