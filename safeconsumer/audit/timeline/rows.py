"""
The rows above the partitions: what was done to the fleet, and what its members saw.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from safeconsumer.audit.timeline.member import Fault, Point
from safeconsumer.audit.timeline.scale import LEFT, PLOT, Scale
from safeconsumer.audit.timeline.shapes import (
    Path,
    Rect,
    Shape,
    Text,
    cross,
    shortened,
    triangle,
    united,
)
from safeconsumer.audit.timeline.told import MemberLane

FAULT_HEIGHT = 13
MEMBER_HEIGHT = 15

_MOST_ROWS = 4
_CHARACTER = 5.2
_LABEL = 15

# More bands than that would shade everything.
_MOST_STRUCK = 40

_Rows = list[list[tuple[Fault, float, float]]]


def fault_rows(faults: Sequence[Fault], scale: Scale) -> _Rows:
    """
    Return faults in as few rows as show each with its name, or in four.

    Each comes with where it begins and where its name ends.
    """
    rows: _Rows = []
    for fault in sorted(faults, key=lambda one: one.start):
        start = scale.x(fault.start)
        end = max(scale.x(fault.end), start + 3) + 4 + _CHARACTER * len(fault.kind)
        free = [row for row in rows if row[-1][2] <= start]
        if free:
            free[0].append((fault, start, end))
        elif len(rows) < _MOST_ROWS:
            rows.append([(fault, start, end)])
        else:
            min(rows, key=lambda row: row[-1][2]).append((fault, start, end))
    return rows


def faults_drawn(rows: _Rows, y: float, scale: Scale) -> Iterator[Shape]:
    """
    Yield the faults; ``y`` is the top of the first row.
    """
    count = sum(map(len, rows))
    said = f"{count} fault{'' if count == 1 else 's'}"
    middle = y + FAULT_HEIGHT - 4
    yield Text(kind="topic", x=LEFT - 8, y=middle, text="faults", anchor="end")
    yield Text(kind="soft", x=LEFT + PLOT + 8, y=middle, text=said)
    for row in rows:
        for number, (fault, start, _) in enumerate(row):
            end = max(scale.x(fault.end), start + 3)
            title = _said_of(fault, scale)
            yield Rect(
                kind="fault", x=start, y=y + 2, width=end - start, height=9, title=title
            )
            room = row[number + 1][1] if number + 1 < len(row) else LEFT + PLOT
            if end + _CHARACTER * len(fault.kind) <= room:
                text = shortened(fault.kind, 40)
                yield Text(kind="small", x=end + 3, y=y + 10, text=text, title=title)
        y += FAULT_HEIGHT


def struck(
    faults: Sequence[Fault], top: float, bottom: float, scale: Scale
) -> Iterator[Shape]:
    """
    Yield bands through all lanes where faults last, unless there are too many.
    """
    if len(faults) > _MOST_STRUCK:
        return
    for start, end in united((one.start, one.end) for one in faults):
        x = scale.x(start)
        width = max(scale.x(end) - x, 1)
        yield Rect(kind="struck", x=x, y=top, width=width, height=bottom - top)


def _said_of(fault: Fault, scale: Scale) -> str:
    whom = f" of {', '.join(fault.targets)}" if fault.targets else ""
    lasts = fault.end - fault.start
    how_long = f", {lasts:.1f} s" if lasts else ""
    return f"{fault.kind}{whom} at {scale.said(fault.start)}{how_long}"


def member_drawn(
    member: MemberLane, y: float, scale: Scale, letters: Mapping[str, str]
) -> Iterator[Shape]:
    """
    Yield a member's row; ``y`` is its top.
    """
    middle = y + MEMBER_HEIGHT / 2
    letter = letters[member.name]
    name = shortened(member.name, _LABEL)
    yield Text(
        kind="",
        x=LEFT - 8,
        y=middle + 4,
        text=f"{name}  {letter}",
        anchor="end",
        title=member.name,
    )
    number = list(letters).index(member.name) % 8
    for start, end in member.lives:
        x = scale.x(start)
        width = max(1.0, scale.x(end) - x)
        title = f"{member.name}: {scale.said(start)} to {scale.said(end)}"
        yield Rect(kind=f"o{number}", x=x, y=y + 3, width=width, height=9, title=title)
    for points in _by_place(member.points, scale):
        yield from _marks(points, middle, scale)
    counts = Counter(point.kind for point in member.points)
    said = ", ".join(
        f"{counts[kind]} {kind}" for kind in ("assigned", "lost") if counts[kind]
    )
    yield Text(kind="soft", x=LEFT + PLOT + 8, y=middle + 4, text=said)


def _by_place(points: Sequence[Point], scale: Scale) -> list[list[Point]]:
    places: dict[tuple[int, str], list[Point]] = {}
    for point in points:
        place = int(scale.x(point.at) / 3), point.kind
        places.setdefault(place, []).append(point)
    return list(places.values())


def _marks(points: Sequence[Point], middle: float, scale: Scale) -> Iterator[Shape]:
    first = points[0]
    x = scale.x(first.at)
    more = f" ({len(points)} times here)" if len(points) > 1 else ""
    title = (
        f"{first.count} {first.kind} at {scale.said(first.at)}{more}: "
        f"{shortened(first.said, 400)}"
    )
    match first.kind:
        case "lost":
            yield Path(kind="lost", d=cross(x, middle, 3.5), title=title)
        case "assigned":
            yield Path(kind="assigned", d=triangle(x, middle + 3, 2.5), title=title)
        case _:
            yield Path(kind="revoked", d=triangle(x, middle - 3, -2.5), title=title)
