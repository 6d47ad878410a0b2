"""Lays out a picture from top to bottom, and names its parts."""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby

from attrs import frozen

from safeconsumer.audit.timeline.story import (
    Bar,
    Fault,
    Held,
    Lane,
    Level,
    MemberLane,
    Timeline,
    letter,
)
from safeconsumer.holds.explain import counted

# Pixels. A hold has a line, and its owner's name above it.
HEADING, MEMBER, FAULT = 24, 15, 13
HOLD, BARS, FOOT = 11, 18, 11
_GUTTER, _GAP = 9, 7

# More simultaneous holds in one lane, or more faults, lie over each other.
_MOST_ROWS = 5

# The width of a character in small letters, as a share of their size.
CHARACTER = 0.6

MEANINGS = {
    "A1": "delivered while held",
    "A2": "lost",
    "A3": "a gap",
    "A4": "a step back, or begun too late",
    "A5": "committed without delivering",
    "A6": "twice, though committed",
    "A7": "paused() is wrong",
    "A8": "too much parked",
    "L1": "silent after the resume",
    "G2": "delivered against a group's hold",
    "W4": "committed without being complete",
    "W5": "not handled, or twice in one ownership",
    "W7": "handled out of order",
    "W10": "begun while held",
}


@frozen(kw_only=True)
class Row:
    """
    One lane and its place; all numbers are pixels from the top.

    Attributes:
        lane: the lane.
        top: the place above its holds where violations are marked.
        held: each hold with the middle of its line.
        base: the line on which deliveries stand; owners are below it.
        bottom: the end of the lane.
        buried: how many holds lie over others because there is no free line.
    """

    lane: Lane
    top: float
    held: Sequence[tuple[Held, float]]
    base: float
    bottom: float
    buried: int


@frozen(kw_only=True)
class Plan:
    """
    The whole picture from top to bottom.

    Attributes:
        headings: the headings of groups of lanes and of members, with their places.
        faults: the faults, with the middle of their rows.
        rows: the lanes with their places.
        members: the members, with the middle of their rows and their letters.
        height: the height of the picture.
    """

    headings: Sequence[tuple[str, float]]
    faults: Sequence[tuple[Fault, float]]
    rows: Sequence[Row]
    members: Sequence[tuple[MemberLane, float, str]]
    height: float

    @property
    def buried(self) -> int:
        """Return how many holds cannot be seen separately."""
        return sum(row.buried for row in self.rows)


def planned(timeline: Timeline) -> Plan:
    """Lay out a timeline."""
    headings: list[tuple[str, float]] = []
    faults, y = _faults(timeline, headings)
    rows: list[Row] = []
    gutter = _GUTTER if timeline.violations else 2
    for (group, topic), own in groupby(timeline.lanes, lambda one: one.place[:2]):
        name = f"{topic}, group {group}" if group else topic
        headings.append((name, y + HEADING - 8))
        y += HEADING
        for lane in own:
            row = _row(lane, y, gutter)
            rows.append(row)
            y = row.bottom
    members = []
    if timeline.members:
        headings.append(("members", y + HEADING - 8))
        y += HEADING
    for number, one in enumerate(timeline.members):
        members.append((one, y + MEMBER / 2, letter(number)))
        y += MEMBER
    return Plan(headings=headings, faults=faults, rows=rows, members=members, height=y)


def _faults(
    timeline: Timeline, headings: list[tuple[str, float]]
) -> tuple[list[tuple[Fault, float]], float]:
    if not timeline.faults:
        return [], 0.0
    headings.append(("faults", FAULT - 3))
    # Wide enough for the name beside it.
    second = (timeline.end - timeline.start) / 760
    spans = [
        (one.start, max(one.end, one.start) + second * (9 + 5.4 * len(one.kind)))
        for one in sorted(timeline.faults, key=lambda one: one.start)
    ]
    places, rows, _ = _packed(spans)
    ordered = sorted(timeline.faults, key=lambda one: one.start)
    found = [
        (one, FAULT * (place + 0.5)) for one, place in zip(ordered, places, strict=True)
    ]
    return found, FAULT * rows + 4


def _row(lane: Lane, top: float, gutter: float) -> Row:
    places, rows, buried = _packed([(one.start, one.end) for one in lane.held])
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
        buried=buried,
    )


def _packed(spans: Sequence[tuple[float, float]]) -> tuple[list[int], int, int]:
    # Each goes into the first free row; spans come in the order of their starts.
    ends: list[float] = []
    places: list[int] = []
    buried = 0
    for start, end in spans:
        free = next((n for n, last in enumerate(ends) if last <= start), len(ends))
        if free == _MOST_ROWS:
            free, buried = _MOST_ROWS - 1, buried + 1
        if free == len(ends):
            ends.append(end)
        ends[free] = max(ends[free], end)
        places.append(free)
    return places, len(ends), buried


# ------------------------------------------------------------ words


def titled(timeline: Timeline) -> str:
    """Return the default title of a timeline."""
    groups = [group for group in timeline.groups if group]
    whose = f" of {', '.join(groups[:3])}" if groups else ""
    more = f" and {len(groups) - 3} more groups" if len(groups) > 3 else ""  # noqa: PLR2004 - named above
    return f"Deliveries and holds{whose}{more}"


def letters_of(timeline: Timeline, plan: Plan) -> dict[str, str]:
    """Return the letter of each process."""
    names = [name for _, _, name in plan.members]
    return {one: names[number] for one, number in timeline.letters.items()}


def bars_of(
    timeline: Timeline, rows: Sequence[Row], columns: int
) -> Iterator[list[tuple[Bar, float, float]]]:
    """Yield the bars of deliveries, and of deliveries while held, with foot and top."""
    width = (timeline.end - timeline.start) / columns
    bars = [
        (bar, row.base)
        for row in rows
        for bar in row.lane.bars(timeline.start, width, columns)
    ]
    most = math.log1p(max((bar.count for bar, _ in bars), default=1))
    for kind in ("count", "wrong"):
        yield [
            (bar, base, base - 3 - (BARS - 4) * math.log1p(count) / most)
            for bar, base in bars
            if (count := getattr(bar, kind))
        ]


def broken_text(lane: Lane) -> str:
    """Return the promises that were broken in a lane, and how often."""
    return ", ".join(f"{check} \u00d7{n:,}" for check, n in lane.violations.items())


def verdict(timeline: Timeline, trouble: str = "") -> tuple[str, str]:
    """Return the verdict in one line, and its look: good, bad or open."""
    if trouble:
        return f"not complete: {trouble}", "bad"
    total, where = sum(timeline.violations.values()), timeline.elsewhere
    limits = []
    if where:
        limits.append(f"{where:,} elsewhere")
    if timeline.unjudged:
        limits.append(f"not judged: {', '.join(timeline.unjudged)}")
    more = "".join(f", {one}" for one in limits)
    if total:
        return f"\u2717 {counted(total, 'broken promise')}{more}", "bad"
    said = "no promise broken" + " in this part" * (not timeline.is_whole)
    return (f"{said}{more}", "open") if more else (f"\u2713 {said}", "good")


def summary(timeline: Timeline) -> str:
    """Return the size of the timeline, in one line."""
    began = datetime.fromtimestamp(timeline.start, UTC)
    records = sum(lane.records for lane in timeline.lanes)
    return (
        f"{counted(len(timeline.lanes), 'partition')}, "
        f"{counted(len(timeline.members), 'member')}, "
        f"{lasting(timeline.end - timeline.start)} from {began:%Y-%m-%d %H:%M:%S} UTC, "
        f"{records:,} records delivered"
    )


def spoken(timeline: Timeline, trouble: str = "") -> str:
    """Describe the picture for people who cannot see it."""
    said, _ = verdict(timeline, trouble)
    checks = "; ".join(
        f"{check} {MEANINGS[check]}: {count}"
        for check, count in timeline.violations.items()
    )
    held = sum(len(lane.held) for lane in timeline.lanes)
    more = f" {checks}." if checks else ""
    return (
        f"{summary(timeline)}; {held:,} holds. {said}.{more} One lane for each "
        "partition: holds above, deliveries as bars, owners at the foot."
    )


def not_drawn(timeline: Timeline, plan: Plan, columns: int) -> Iterator[str]:
    """Yield notes on what the picture leaves out, or cannot show separately."""
    column = (timeline.end - timeline.start) / columns
    yield (
        f"Deliveries are counted by {lasting(column)}, tall bars logarithmically. Not "
        "drawn: commits, producers, handlers; they are judged."
    )
    for check, whys in timeline.unjudged.items():
        where = counted(len(whys), "partition")
        yield f"Not judged: {check} on {where}, for {whys[0]}."
    if plan.buried:
        yield f"{plan.buried:,} holds lie over others, since no line is free."
    undated = sum(one.at is None for lane in timeline.lanes for one in lane.findings)
    if undated:
        yield f"{undated:,} violations have no moment: they are counted at the right."
    if timeline.left_out:
        yield f"{timeline.left_out:,} more partitions were not asked for."
    before, after = timeline.start - timeline.origin, timeline.until - timeline.end
    if before > 0 or after > 0:
        yield (
            f"Left out: {lasting(max(0.0, before))} before and "
            f"{lasting(max(0.0, after))} after, and what was found there."
        )


def lasting(seconds: float) -> str:
    """Return a duration in words: 20 ms, 4.5 s, 2 min 5 s, 3 h 20 min, 2 days 4 h."""
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:  # noqa: PLR2004 - of a minute
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:  # noqa: PLR2004 - of an hour
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    if hours < 48:  # noqa: PLR2004 - two days
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days} days {hours} h" if hours else f"{days} days"


def said_of_hold(held: Held) -> str:
    """Return a hold in one line."""
    owner = held.owner or "nobody named"
    lasts = lasting(held.end - held.start)
    return (
        f"{held.level.value} hold {held.scope} of {owner}, {lasts}, for {held.member}"
    )


def said_of_bar(bar: Bar) -> str:
    """Return what stands for records in one column, in one line."""
    held = f", {bar.wrong:,} of them while held" if bar.wrong else ""
    return f"{bar.count:,} records{held}, offsets {bar.first:,} to {bar.last:,}"


def levels_of(timeline: Timeline) -> list[Level]:
    """Return the levels of the holds that occur."""
    found = {held.level for lane in timeline.lanes for held in lane.held}
    return [level for level in Level if level in found]


def shortened(text: str, most: int) -> str:
    """Return a text with its middle left out if it is longer than so many characters."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[: most - 1 - half]}\u2026{text[len(text) - half :]}"
