"""Lays out a timeline from top to bottom; all numbers are pixels from the top."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from attrs import frozen

from safeconsumer.audit.timeline.data import Fault, Held, Lane, Process, Timeline

# A hold has a line, and its owner's name above it.
HEADING, MEMBER, FAULT = 24, 15, 13
HOLD, BARS, FOOT = 11, 18, 11
_GUTTER, _GAP = 9, 7


@frozen(kw_only=True)
class Row:
    """
    One lane and its place.

    Attributes:
        lane: the lane.
        top: the place above its holds where violations are marked.
        held: each hold with the middle of its line.
        base: the line on which deliveries stand; owners are below it.
        bottom: the end of the lane.
    """

    lane: Lane
    top: float
    held: Sequence[tuple[Held, float]]
    base: float
    bottom: float


@frozen(kw_only=True)
class Layout:
    """
    The places of everything.

    Attributes:
        headings: the headings of groups of lanes and of members, with their places.
        faults: the faults, with the middle of their rows.
        rows: the lanes with their places.
        members: the members, with the middle of their rows.
        height: the height of it all.
    """

    headings: Sequence[tuple[str, float]]
    faults: Sequence[tuple[Fault, float]]
    rows: Sequence[Row]
    members: Sequence[tuple[Process, float]]
    height: float


def layout_of(timeline: Timeline) -> Layout:
    """Lay out a timeline."""
    headings: list[tuple[str, float]] = []
    faults, y = _faults(timeline)
    if faults:
        headings.append(("faults", FAULT - 3))
    rows: list[Row] = []
    gutter = _GUTTER if timeline.violations else 2
    for (group, topic), own in groupby(
        timeline.lanes, lambda one: (one.case.group, one.case.topic)
    ):
        name = f"{topic}, group {group}" if group else topic
        headings.append((name, y + HEADING - 8))
        y += HEADING
        for lane in own:
            rows.append(_row(lane, y, gutter))
            y = rows[-1].bottom
    if timeline.members:
        headings.append(("members", y + HEADING - 8))
        y += HEADING
    members = [
        (one, y + MEMBER * (number + 0.5))
        for number, one in enumerate(timeline.members)
    ]
    return Layout(
        headings=headings,
        faults=faults,
        rows=rows,
        members=members,
        height=y + MEMBER * len(members),
    )


def _faults(timeline: Timeline) -> tuple[list[tuple[Fault, float]], float]:
    ordered = sorted(timeline.faults, key=lambda one: one.start)
    places, rows = _packed((one.start, one.end) for one in ordered)
    found = [
        (one, FAULT * (place + 0.5)) for one, place in zip(ordered, places, strict=True)
    ]
    return found, FAULT * rows + 4 * bool(rows)


def _row(lane: Lane, top: float, gutter: float) -> Row:
    places, rows = _packed((one.start, one.end) for one in lane.held)
    first = top + gutter
    base = first + HOLD * rows + BARS
    return Row(
        lane=lane,
        top=top,
        held=[
            (one, first + HOLD * (place + 1) - 3)
            for one, place in zip(lane.held, places, strict=True)
        ],
        base=base,
        bottom=base + FOOT + _GAP,
    )


def _packed(spans: Iterable[tuple[float, float]]) -> tuple[list[int], int]:
    # Each goes into the first free row; spans come in the order of their starts.
    ends: list[float] = []
    places: list[int] = []
    for start, end in spans:
        free = next((n for n, last in enumerate(ends) if last <= start), len(ends))
        ends[free : free + 1] = [end]
        places.append(free)
    return places, len(ends)
