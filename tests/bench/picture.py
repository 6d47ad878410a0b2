"""
The speeds as a picture for the README: horizontal bars, one panel per way of reading.

Hand-written SVG. The colours are readable on light and on dark ground, since nobody
can tell which one the picture stands on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from tests.bench.cases import MODES, Case
from tests.bench.results import Reading

_WIDTH, _LEFT, _RIGHT = 720, 170, 190
_BAR, _STEP, _HEAD, _GAP = 16, 22, 30, 14
_TEXT, _OTHERS, _OURS = "#808890", "#8a94a0", "#2f9e62"
_NAMES = {
    "kafka-python": "kafka-python",
    "safe-python": "… decoder=python",
    "safe-compiled": "safeconsumer",
}


def note(result: Mapping[str, Any]) -> str:
    """Return the line below the bars: what was measured with, and when."""
    versions = result["versions"]
    clients = ", ".join(
        f"{name} {versions[name]}"
        for name in ("kafka-python", "aiokafka", "confluent-kafka")
    )
    return (
        f"{result['machine']['cores']} cores, Python {versions['python']}, {clients}; "
        f"{result['date'][:10]}"
    )


def drawn(readings: Iterable[Reading], case: Case, note: str) -> str:
    """
    Return the picture of one kind of records.

    Args:
        readings: those of other kinds are left out.
        case: the kind of records.
        note: the last line: machine, versions, date.
    """
    panels = [
        (mode.name, chosen)
        for mode in MODES
        if (chosen := [one for one in readings if (one.case, one.mode) == (case, mode)])
    ]
    longest = max(one.speed for _, chosen in panels for one in chosen)
    lines, y = [], _HEAD + 8
    for title, chosen in panels:
        lines.append(_text(0, y, title, weight="600"))
        y += 10
        lines += _bars(chosen, y, longest)
        y += _STEP * len(chosen) + _GAP + 14
    lines.append(_text(0, y, note, size=11))
    title = (
        f"Records per second and CPU per record: {case.size}-byte values, "
        f"{case.partitions} partitions, compression {case.codec}"
    )
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {_WIDTH + 16} '
                f'{y + 10}" width="{_WIDTH + 16}" role="img" '
                'font-family="system-ui, sans-serif">'
            ),
            f"<title>{escape(title)}</title>",
            _text(0, 16, title, weight="600", size=14),
            *lines,
            "</svg>\n",
        ]
    )


def _bars(readings: Sequence[Reading], y: int, longest: float) -> Iterator[str]:
    room = _WIDTH - _LEFT - _RIGHT
    for one in sorted(readings, key=lambda one: one.speed):
        ours = one.client.startswith("safe")
        width = max(2.0, room * one.speed / longest)
        middle = y + _BAR - 4
        yield _text(_LEFT - 8, middle, _label(one), anchor="end")
        yield (
            f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="{_BAR}" rx="3" '
            f'fill="{_OURS if ours else _OTHERS}"/>'
        )
        figures = f"{one.speed / 1000:,.0f} k/s · {one.cpu:.1f} µs CPU"
        yield _text(_LEFT + round(width) + 8, middle, figures)
        y += _STEP


def _label(reading: Reading) -> str:
    call = "" if reading.mode.max_records is None else " getmany"
    names = {**_NAMES, "aiokafka": f"aiokafka{call}"}
    return names.get(reading.client, reading.client)


def _text(  # noqa: PLR0913 - as many as SVG's own
    x: int,
    y: int,
    text: str,
    *,
    anchor: str = "start",
    weight: str = "400",
    size: int = 12,
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}" fill="{_TEXT}">{escape(text)}</text>'
    )
