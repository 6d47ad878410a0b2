"""
The lane of one partition: holds above, deliveries below them, whose it is at the foot.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen

from safeconsumer.audit.findings import Finding
from safeconsumer.audit.timeline.member import Held, Level
from safeconsumer.audit.timeline.scale import COLUMN, LEFT, PLOT, Scale
from safeconsumer.audit.timeline.shapes import (
    Path,
    Rect,
    Shape,
    Text,
    cross,
    level,
    triangle,
    united,
    upright,
)
from safeconsumer.audit.timeline.told import Bar, Lane

GUTTER, _HOLD, _BARS, _FOOT, _GAP = 8, 5, 16, 10, 6

# Bars that stand together share one title; more would say too little of each.
_TOGETHER = 24
_APART = 2

# From here on a letter fits into an ownership, the next violation beside a number.
_ROOM = 9
_NUMBER = 22

KINDS = {
    Level.PARTITION: "partition",
    Level.TOPIC: "topic-hold",
    Level.PATTERN: "pattern",
    Level.CONSUMER: "consumer",
    Level.GROUP: "group",
}


@frozen(kw_only=True)
class Rules:
    """
    What all lanes of a picture have in common.

    Attributes:
        scale: of time.
        levels: of the holds that occur; each has a row, in every lane the same.
        most: the largest number of records in a column.
        members: their letters.
        gutter: the pixels above each lane's holds, for violations.
    """

    scale: Scale
    levels: Sequence[Level]
    most: int
    members: Mapping[str, str]
    gutter: int

    @property
    def height(self) -> int:
        """
        The pixels of one lane, with the gap below it.
        """
        return self.gutter + _HOLD * len(self.levels) + _BARS + _FOOT + _GAP


def drawn(lane: Lane, y: float, rules: Rules) -> Iterator[Shape]:
    """
    Yield a lane's shapes; ``y`` is its top.
    """
    y += rules.gutter
    base = y + _HOLD * len(rules.levels) + _BARS
    yield from _labels(lane, base)
    yield from _quiet(lane, y, base, rules.scale)
    yield Path(kind="rule", d=level(LEFT, base, LEFT + PLOT))
    yield from _owned(lane, base, rules)
    yield from _held(lane, y, rules)
    yield from _delivered(lane, base, rules)
    yield from _points(lane, base, rules.scale)
    yield from _violations(lane.findings, y, rules.scale)


def _labels(lane: Lane, base: float) -> Iterator[Shape]:
    name = f"{lane.tp[0]}:{lane.tp[1]}"
    label, right = f"partition {lane.tp[1]}", LEFT + PLOT + 8
    yield Text(kind="", x=LEFT - 8, y=base, text=label, anchor="end", title=name)
    broken = ", ".join(f"{check} \u00d7{n}" for check, n in lane.violations.items())
    middle = base if not broken else base - 4
    yield Text(kind="soft", x=right, y=middle, text=f"{lane.records:,} records")
    if broken:
        yield Text(kind="bad", x=right, y=base + 9, text=broken)


def _quiet(lane: Lane, y: float, base: float, scale: Scale) -> Iterator[Shape]:
    # Where anything holds, whatever it is: no bar may stand here.
    for start, end in united((one.start, one.end) for one in lane.held):
        x = scale.x(start)
        width = max(0.5, scale.x(end) - x)
        yield Rect(kind="quiet", x=x, y=y, width=width, height=base - y)


def _held(lane: Lane, y: float, rules: Rules) -> Iterator[Shape]:
    for one in lane.held:
        middle = y + _HOLD * rules.levels.index(one.level) + _HOLD / 2
        start, end = rules.scale.x(one.start), rules.scale.x(one.end)
        yield Path(
            kind=f"held {KINDS[one.level]}",
            d=level(start, middle, max(end, start + 1)),
            title=_said_of(one, rules.scale),
        )


def _said_of(held: Held, scale: Scale) -> str:
    until = "" if math.isinf(held.end) else f" to {scale.said(held.end)}"
    return (
        f"{held.level.value} hold {held.scope} of {held.owner or 'nobody named'}, "
        f"{scale.said(held.start)}{until}"
    )


def _owned(lane: Lane, base: float, rules: Rules) -> Iterator[Shape]:
    for one in lane.owned:
        start, end = rules.scale.x(one.start), rules.scale.x(one.end)
        letter = rules.members.get(one.member, "?")
        how = "lost" if one.is_lost else "revoked"
        yield Rect(
            kind=f"o{_colour(one.member, rules)}",
            x=start,
            y=base + 1,
            width=max(0.5, end - start - 0.5),
            height=_FOOT - 1,
            title=f"owned by {letter}, {one.member}, {rules.scale.said(one.start)} to "
            f"{rules.scale.said(one.end)} ({how} or ended then)",
        )
        if end - start >= _ROOM * len(letter):
            yield Text(kind="letter", x=start + 2, y=base + 8.5, text=letter)
        if one.is_lost:
            yield Path(kind="lost", d=cross(end, base + 5, 3), title="ownership lost")


def _colour(member: str, rules: Rules) -> int:
    return list(rules.members).index(member) % 8 if member in rules.members else 0


def _delivered(lane: Lane, base: float, rules: Rules) -> Iterator[Shape]:
    right = {n: bar for n, bar in lane.bars.items() if not bar.wrong}
    wrong = {n: bar for n, bar in lane.bars.items() if bar.wrong}
    for kind, bars in (("bars", right), ("wrong", wrong)):
        for columns in _stretches(bars):
            own = [bars[column] for column in columns]
            places = zip(columns, own, strict=True)
            yield Path(
                kind=kind,
                d="".join(_bar(n, bar, base, rules.most) for n, bar in places),
                title=_counted(own, columns, rules.scale),
            )


def _stretches(bars: Mapping[int, Bar]) -> Iterator[list[int]]:
    stretch: list[int] = []
    for column in sorted(bars):
        if stretch and (column - stretch[-1] > _APART or len(stretch) == _TOGETHER):
            yield stretch
            stretch = []
        stretch.append(column)
    if stretch:
        yield stretch


def _bar(column: int, bar: Bar, base: float, most: int) -> str:
    # Logarithmic: one record is seen beside thousands that come at once.
    height = 3 + (_BARS - 4) * math.log1p(bar.count) / math.log1p(max(1, most))
    return upright(LEFT + COLUMN * column + COLUMN / 2, base, base - height)


def _counted(bars: Sequence[Bar], columns: Sequence[int], scale: Scale) -> str:
    first, last = min(one.first for one in bars), max(one.last for one in bars)
    count, wrong = sum(one.count for one in bars), sum(one.wrong for one in bars)
    held = f", {wrong} of them while held" if wrong else ""
    return f"{count} records{held}, offsets {first} to {last}, {_span(columns, scale)}"


def _span(columns: Sequence[int], scale: Scale) -> str:
    width = (scale.end - scale.start) * COLUMN / PLOT
    start = scale.start + columns[0] * width
    end = scale.start + (columns[-1] + 1) * width
    return f"{scale.said(start)} to {scale.said(end)}"


def _points(lane: Lane, base: float, scale: Scale) -> Iterator[Shape]:
    parked = sorted(lane.parked, key=lambda one: one.at)
    for number, one in enumerate(parked):
        if one.count:
            after = parked[number + 1].at if number + 1 < len(parked) else one.at
            start, end = scale.x(one.at), scale.x(after)
            yield Path(
                kind="parked",
                d=level(start, base - 2, max(end, start + 2)),
                title=f"{one.count} bytes parked at {scale.said(one.at)}",
            )
    for one in lane.purged:
        why = f": {one.said}" if one.said else ""
        yield Path(
            kind="purged",
            d=triangle(scale.x(one.at), base - 3, -3),
            title=f"{one.count} purged at {scale.said(one.at)}{why}",
        )


def _violations(findings: Sequence[Finding], y: float, scale: Scale) -> Iterator[Shape]:
    y -= GUTTER / 2
    for own in _clusters(findings, scale):
        (at, first), (last, _) = own[0], own[-1]
        x, end = scale.x(at), scale.x(last)
        checks = sorted({one.check for _, one in own})
        more = f", the first of {len(own)} here" if len(own) > 1 else ""
        title = f"{first.check} by {first.member}: {first.evidence}{more}"
        yield Path(kind="violation", d=triangle(x, y, -3.5), title=title)
        text = " ".join(checks)
        yield Text(kind="bad small", x=x + 5, y=y + 3.5, text=text, title=title)
        beside = x + _NUMBER * len(checks) - 3
        if end > beside:
            yield Path(kind="wrong-line", d=level(beside, y, end), title=title)


def _clusters(
    findings: Sequence[Finding], scale: Scale
) -> Iterator[list[tuple[float, Finding]]]:
    # Those that are too near for a number each stand together.
    dated = [(one.at, one) for one in findings if one.at is not None]
    own: list[tuple[float, Finding]] = []
    for at, one in sorted(dated, key=lambda each: each[0]):
        if own and scale.x(at) - scale.x(own[-1][0]) > _NUMBER:
            yield own
            own = []
        own.append((at, one))
    if own:
        yield own
