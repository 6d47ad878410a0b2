"""
The speeds as a picture: horizontal bars, one panel per way of reading.

Hand-written SVG. The colours are readable on light and on dark ground, since nobody
can tell which one the picture stands on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from tests.bench.throughput import CPU, MODES, SMALL, SPEED

_WIDTH, _LEFT, _RIGHT = 720, 170, 190
_BAR, _STEP, _HEAD, _GAP = 16, 22, 30, 14
_TEXT, _OTHERS, _OURS = "#808890", "#8a94a0", "#2f9e62"
_NAMES = {"safe-python": "… decoder=python", "safe-compiled": "safeconsumer"}


def drawn(result: Mapping[str, Any]) -> str:
    """Return the picture of small records; its last line says what was measured, when."""
    title = f"Records per second and CPU per record: {SMALL.name}"
    panels = {mode.name: dict(_clients(result["figures"], mode.name)) for mode in MODES}
    longest = max(speed for panel in panels.values() for speed, _ in panel.values())
    lines, y = [_text(0, 16, title, weight="600", size=14)], _HEAD + 8
    for name, panel in panels.items():
        lines.append(_text(0, y, name, weight="600"))
        lines += _bars(panel, y + 10, longest)
        y += _STEP * len(panel) + _GAP + 24
    versions = result["versions"]
    clients = ", ".join(
        f"{name} {versions[name]}"
        for name in ("kafka-python", "aiokafka", "confluent-kafka")
    )
    note = f"{result['machine']['cores']} cores, Python {versions['python']}, {clients}"
    lines.append(_text(0, y, f"{note}; {result['date'][:10]}", size=11))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-8 0 {_WIDTH + 16} {y + 10}" '
        f'width="{_WIDTH + 16}" role="img" font-family="system-ui, sans-serif">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *lines, "</svg>\n"])


def _clients(
    figures: Sequence[Mapping[str, Any]], mode: str
) -> Iterator[tuple[str, tuple[float, float]]]:
    # Of each client its speed and its CPU, the slowest first.
    row = f"{SMALL.name}, {mode}"
    found = {one["name"]: one["measured"] for one in figures if one["row"] == row}
    start = f"{SPEED}, "
    speeds = {
        name.removeprefix(start): found[name]
        for name in found
        if name.startswith(start)
    }
    for client in sorted(speeds, key=lambda one: speeds[one]):
        yield client, (speeds[client], found[f"{CPU}, {client}"])


def _bars(
    panel: Mapping[str, tuple[float, float]], y: int, longest: float
) -> Iterator[str]:
    room = _WIDTH - _LEFT - _RIGHT
    for client, (speed, cpu) in panel.items():
        colour = _OURS if client.startswith("safe") else _OTHERS
        width = round(max(2.0, room * speed / longest))
        middle = y + _BAR - 4
        yield _text(_LEFT - 8, middle, _NAMES.get(client, client), anchor="end")
        yield (
            f'<rect x="{_LEFT}" y="{y}" width="{width}" height="{_BAR}" rx="3" '
            f'fill="{colour}"/>'
        )
        figures = f"{speed / 1000:,.0f} k/s · {cpu:.1f} µs CPU"
        yield _text(_LEFT + width + 8, middle, figures)
        y += _STEP


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
