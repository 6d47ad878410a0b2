"""
Where everything of a timeline stands: time to the right, one lane below the other.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby

from safeconsumer.audit.timeline import lane, rows
from safeconsumer.audit.timeline.legend import legend
from safeconsumer.audit.timeline.member import Level
from safeconsumer.audit.timeline.scale import (
    LEFT,
    PLOT,
    WIDTH,
    Scale,
    clock,
    letters,
)
from safeconsumer.audit.timeline.shapes import (
    Path,
    Picture,
    Shape,
    Text,
    shortened,
    upright,
)
from safeconsumer.audit.timeline.told import Timeline

_MARGIN = 16
_TOPIC = 20
_TITLE = 110
_NAME = 100


def laid_out(
    timeline: Timeline, title: str | None = None, trouble: str = ""
) -> Picture:
    """
    Lay out a timeline.

    Args:
        timeline: what is shown.
        title: instead of one that says what it is.
        trouble: why it is not complete, if it is not.
    """
    scale = Scale.of(timeline)
    title = shortened(title or _title(timeline), _TITLE)
    levels = _levels(timeline)
    above, y = legend(timeline, levels, 68)
    shapes: list[Shape] = [*_head(timeline, title, trouble), *above]
    names = {one.name: letters(n) for n, one in enumerate(timeline.members)}
    top = y + 26
    marks, y = _rows(timeline, scale, names, top + 6)
    first = y
    rules = lane.Rules(
        scale=scale,
        levels=levels,
        most=_most(timeline),
        members=names,
        gutter=lane.GUTTER if timeline.violations else 0,
    )
    lanes, y = _lanes(timeline, rules, y)
    shapes += _axis(scale, top, y)
    shapes += rows.struck(timeline.faults, first, y, scale)
    shapes += [*marks, *lanes]
    return Picture(title=title, width=WIDTH, height=round(y + 14), shapes=shapes)


def _title(timeline: Timeline) -> str:
    whose = f" of {', '.join(timeline.groups)}" if timeline.groups else ""
    return f"Deliveries and holds{whose}"


def _head(timeline: Timeline, title: str, trouble: str) -> Iterator[Shape]:
    yield Text(kind="title", x=_MARGIN, y=26, text=title)
    began = datetime.fromtimestamp(timeline.start, UTC)
    records = sum(one.records for one in timeline.lanes)
    said = (
        f"{len(timeline.lanes)} partitions, {len(timeline.members)} members, "
        f"{clock(timeline.end - timeline.start)} from {began:%Y-%m-%d %H:%M:%S} UTC, "
        f"{records:,} records delivered"
    )
    yield Text(kind="soft", x=_MARGIN, y=45, text=said)
    broken = sum(timeline.violations.values())
    if trouble:
        verdict, kind = f"not complete: {trouble}", "bad"
    elif broken:
        verdict, kind = f"\u2717 {broken:,} broken promises", "bad"
    else:
        verdict, kind = "\u2713 no promise broken", "good"
    yield Text(kind=kind, x=WIDTH - _MARGIN, y=45, text=verdict, anchor="end")


def _levels(timeline: Timeline) -> list[Level]:
    found = {held.level for one in timeline.lanes for held in one.held}
    return [level for level in Level if level in found]


def _most(timeline: Timeline) -> int:
    counts = (bar.count for one in timeline.lanes for bar in one.bars.values())
    return max(counts, default=1)


def _rows(
    timeline: Timeline, scale: Scale, names: dict[str, str], y: float
) -> tuple[list[Shape], float]:
    shapes: list[Shape] = []
    if timeline.faults:
        faults = rows.fault_rows(timeline.faults, scale)
        shapes += rows.faults_drawn(faults, y, scale)
        y += rows.FAULT_HEIGHT * len(faults) + 4
    for member in timeline.members:
        shapes += rows.member_drawn(member, y, scale, names)
        y += rows.MEMBER_HEIGHT
    return shapes, y + 4


def _lanes(
    timeline: Timeline, rules: lane.Rules, y: float
) -> tuple[list[Shape], float]:
    shapes: list[Shape] = []
    for topic, own in groupby(timeline.lanes, key=lambda one: one.tp[0]):
        y += _TOPIC
        name = shortened(topic, _NAME)
        shapes.append(Text(kind="topic", x=_MARGIN, y=y - 6, text=name, title=topic))
        for one in own:
            shapes += lane.drawn(one, y, rules)
            y += rules.height
    return shapes, y


def _axis(scale: Scale, top: float, bottom: float) -> Iterator[Shape]:
    for tick in scale.ticks():
        x = scale.x(tick)
        yield Path(kind="grid", d=upright(x, top, bottom))
        yield Text(kind="soft", x=x, y=top - 4, text=scale.said(tick), anchor="middle")
    yield Path(kind="rule", d=f"M{LEFT} {top:.0f}H{LEFT + PLOT}")
