"""
Draws a timeline as one Vega-Lite specification: an SVG, a PNG or a page.

Names of topics, members and owners come from elsewhere: they become text, whatever they
contain, and never markup. Everybody can distinguish blue and vermilion, and nothing is
shown by colour alone.
"""

import json
import math
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

import vl_convert

from safeconsumer.audit.timeline import words
from safeconsumer.audit.timeline.data import Level, Timeline
from safeconsumer.audit.timeline.layout import (
    BARS,
    FOOT,
    MEMBER,
    Layout,
    Row,
    layout_of,
)
from safeconsumer.audit.timeline.words import legal, shortened
from safeconsumer.errors import JournalError

_WIDTH, _COLUMNS = 760, 380
_LEFT, _RIGHT = -8, _WIDTH + 8
# A PNG has two pixels for each of the picture; its renderer takes no more in a row.
_SCALE, _MOST_PIXELS = 2, 32_000
# The width of a character in small letters, as a share of their size.
_CHARACTER = 0.6

_INK, _SOFT, _BLUE, _RED, _GREEN = "#24292f", "#57606a", "#0969da", "#c9251b", "#1a7f37"
_QUIET, _FAULTS = "#f6ecd4", "#8250df"
_LOOKS = {"good": _GREEN, "bad": _RED, "open": _INK}
_RECORDS = {"delivered": _BLUE, "delivered while held": _RED}

# The colours of members, by turns; their numbers distinguish them.
_OWNERS = (
    *("#d8dee4", "#b6e3ff", "#ffd8b5", "#c9e9c3"),
    *("#e6d3fb", "#f7d6e6", "#e4e2a8", "#c2e6e2"),
)

# Each level also has dashes of its own: drawn, left out, ...
_LEVELS: dict[Level, tuple[str, list[float]]] = {
    Level.PARTITION: ("#0072b2", [1, 0]),
    Level.TOPIC: ("#008060", [11, 2]),
    Level.PATTERN: ("#b5508c", [2, 2]),
    Level.CONSUMER: ("#c77700", [9, 2, 2, 2]),
    Level.GROUP: ("#5c3d26", [5, 3]),
}

# Its own scripts may run, which make functions; nothing may be loaded.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data:"
)

Layer = dict[str, Any]
Values = list[dict[str, Any]]

_Y: Layer = {"field": "top", "type": "quantitative", "axis": None}


def drawn(
    timeline: Timeline, kind: str, title: str | None = None, trouble: str = ""
) -> bytes:
    """
    Return a timeline as ``svg``, ``png`` or ``html``.

    A page shows what it is pointed at in words, zooms, and loads nothing.

    Args:
        timeline: what is shown.
        kind: the kind of file.
        title: replaces the default title.
        trouble: why it is not complete, if it is not.

    Raises:
        JournalError: it has more lanes than a PNG can hold.
    """
    title, layout = legal(title or words.title_of(timeline)), layout_of(timeline)
    if kind == "png" and layout.height * _SCALE > _MOST_PIXELS:
        message = (
            f"a PNG of {layout.height * _SCALE:,.0f} lines is too tall: choose "
            "partitions or topics, or draw an SVG"
        )
        raise JournalError(message)
    spec = _Drawing(timeline, layout).spec(title, legal(trouble))
    if kind == "png":
        return bytes(vl_convert.vegalite_to_png(spec, scale=_SCALE))
    if kind == "svg":
        return _titled(str(vl_convert.vegalite_to_svg(spec)), title, spec).encode()
    return _page(spec, title).encode()


def _titled(svg: str, title: str, spec: Layer) -> str:
    # For those who do not see it.
    head, rest = svg.split(">", 1)
    about = (
        f'<title id="title">{escape(title)}</title>'
        f'<desc id="desc">{escape(spec["description"])}</desc>'
    )
    return f'{head} role="img" aria-labelledby="title desc">{about}{rest}'


def _page(spec: Layer, title: str) -> str:
    zoom = {"type": "interval", "encodings": ["x"]}
    spec["layer"][0]["params"] = [{"name": "zoom", "select": zoom, "bind": "scales"}]
    # A name must not end the script that it stands in.
    data = json.dumps(spec).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    library = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(title)}</title></head><body>"
        f'<main id="timeline" role="img" aria-label="{escape(spec["description"])}">'
        f"</main><script>{library}</script>"
        f'<script>vegaEmbed("#timeline", {data}, {{renderer: "svg", actions: false, '
        f"tooltip: {{theme: 'light'}}}});</script></body></html>\n"
    )


class _Drawing:
    """One timeline: its layers, from the ground up."""

    def __init__(self, timeline: Timeline, layout: Layout) -> None:
        self._timeline = timeline
        self._layout = layout
        self._numbers = {one.name: n for n, one in enumerate(timeline.members, 1)}
        self._pixel = (timeline.end - timeline.start) / _WIDTH
        self._column = (timeline.end - timeline.start) / _COLUMNS

    def spec(self, title: str, trouble: str) -> Layer:
        verdict, look = words.verdict_of(self._timeline, trouble)
        notes = words.notes_on(self._timeline, self._column)
        layers = [one for one in self._layers() if one["data"]["values"]]
        start, end = self._timeline.start * 1000, self._timeline.end * 1000
        first = layers[0]["encoding"]  # all layers share its scales
        first["x"]["scale"] |= {"domainMin": start, "domainMax": end, "nice": False}
        height = {"domain": [0, self._layout.height], "reverse": True, "nice": False}
        first["y"] = _Y | {"scale": height}
        return {
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
            "description": legal(words.description_of(self._timeline, trouble)),
            "background": "#ffffff",
            "title": {
                "text": [title, verdict],
                "color": _LOOKS[look],
                "subtitle": [words.summary_of(self._timeline), *map(legal, notes)],
                "subtitleColor": _SOFT,
                "anchor": "start",
                "frame": "bounds",
                "offset": 12,
            },
            "width": _WIDTH,
            "height": self._layout.height,
            "layer": layers,
            "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}},
            "config": {
                "view": {"stroke": None},
                "mark": {"aria": False},
                "text": {"fontSize": 11, "font": "sans-serif"},
                "legend": {"orient": "top", "direction": "horizontal"},
            },
        }

    def _layers(self) -> Iterator[Layer]:
        ends = self._timeline.start, self._timeline.end
        whole = self._span(*ends, 0.0, self._layout.height, color="transparent")
        yield self._boxes([whole, *self._shades(), *self._faults()])
        yield self._boxes([*self._owners(), *self._members()])
        yield self._text(self._owner_numbers(), fontSize=8, fontWeight="bold")
        yield self._holds()
        yield self._text(self._hold_names(), fontSize=7)
        yield self._bars()
        yield self._text(self._ends(), color=_RED, fontSize=8, align="right")
        yield self._text(self._findings(), color=_RED, fontWeight="bold", dx=6)
        yield self._beside(self._names(), _LEFT, align="right")
        yield self._beside(self._headings(), -100, fontWeight="bold")
        yield self._beside(self._counts(), _RIGHT, color=_SOFT)
        yield self._beside(self._broken(), _RIGHT, color=_RED)

    # ------------------------------------------------------------ kinds of layers

    def _x(self) -> Layer:
        axis: Layer = {"orient": "top", "title": None, "domain": False, "tickCount": 8}
        seconds = self._timeline.end - self._timeline.start
        if seconds <= 86_400:  # noqa: PLR2004 - a day; of more, Vega chooses
            axis["format"] = "%H:%M:%S" if seconds > 10 else "%H:%M:%S.%L"  # noqa: PLR2004 - ticks of a second
        scale = {"type": "utc"}
        return {"field": "start", "type": "temporal", "scale": scale, "axis": axis}

    def _layer(self, values: Values, mark: Layer, encoding: Layer) -> Layer:
        hint = {"tooltip": {"field": "hint", "type": "nominal"}}
        return {
            "data": {"values": values},
            "mark": {"clip": True, **mark},
            "encoding": {"x": self._x(), "y": _Y, **encoding, **hint},
        }

    def _boxes(self, values: Values) -> Layer:
        ends = {"x2": {"field": "end"}, "y2": {"field": "foot"}}
        color = {"color": {"field": "color", "scale": None}}
        return self._layer(values, {"type": "rect"}, ends | color)

    def _text(self, values: Values, **how: object) -> Layer:
        mark = {"type": "text", "align": "left", "baseline": "middle", **how}
        return self._layer(values, mark, {"text": {"field": "text", "type": "nominal"}})

    def _beside(
        self, found: Iterable[tuple[str, float]], x: int, **how: object
    ) -> Layer:
        values: Values = [{"top": y, "text": legal(text)} for text, y in found]
        layer = self._text(values, clip=False, **how)
        layer["encoding"]["x"] = {"value": x}
        return layer

    def _holds(self) -> Layer:
        values = self._held()
        shown = {one["level"] for one in values}
        levels = {k.value: look for k, look in _LEVELS.items() if k.value in shown}
        own = {"field": "level", "type": "nominal", "title": "held by a pause of"}
        colors = [color for color, _ in levels.values()]
        dashes = [dash for _, dash in levels.values()]
        encoding = {
            "x2": {"field": "end"},
            "color": {**own, "scale": {"domain": [*levels], "range": colors}},
            "strokeDash": {**own, "scale": {"domain": [*levels], "range": dashes}},
        }
        return self._layer(values, {"type": "rule", "size": 4}, encoding)

    def _bars(self) -> Layer:
        scale = {"domain": [*_RECORDS], "range": [*_RECORDS.values()]}
        color = {"field": "kind", "title": "records", "scale": scale}
        return self._layer(
            self._delivered(),
            {"type": "rule", "size": 2},
            {"y2": {"field": "foot"}, "color": color},
        )

    # ------------------------------------------------------------ values

    def _value(self, at: float, top: float, hint: str = "", **more: object) -> Layer:
        return {"start": at * 1000, "top": top, "hint": legal(hint), **more}

    def _span(
        self,
        start: float,
        end: float,
        top: float,
        foot: float,
        hint: str = "",
        **more: object,
    ) -> Layer:
        # One without duration is a hair wide.
        last = max(end, start + self._pixel / 2) * 1000
        return self._value(start, top, hint, end=last, foot=foot, **more)

    def _fits(self, text: str, start: float, end: float, size: float) -> bool:
        return len(text) * _CHARACTER * size <= (end - start) / self._pixel

    def _shades(self) -> Values:
        return [
            self._span(start, end, row.top + 2, row.base, "held", color=_QUIET)
            for row in self._layout.rows
            for start, end in row.lane.shade()
        ]

    def _faults(self) -> Values:
        return [
            self._span(
                *(one.start, one.end, y - 4.5, y + 4.5),
                f"{one.kind} of {', '.join(one.targets)}",
                color=_FAULTS,
            )
            for one, y in self._layout.faults
        ]

    def _owners(self) -> Values:
        return [
            self._span(
                *(one.start, one.end, row.base + 1, row.base + FOOT - 1),
                f"owned by {one.member}{', lost' * one.is_lost}",
                color=self._color(one.member),
            )
            for row in self._layout.rows
            for one in row.lane.owned
        ]

    def _members(self) -> Values:
        half = MEMBER / 2 - 3
        return [
            self._span(
                *(one.start, one.end, y - half, y + half),
                one.name,
                color=self._color(one.name),
            )
            for one, y in self._layout.members
        ]

    def _number(self, member: str) -> str:
        return str(self._numbers.get(member, "?"))

    def _color(self, member: str) -> str:
        return _OWNERS[self._numbers.get(member, 0) % len(_OWNERS)]

    def _owner_numbers(self) -> Values:
        return [
            self._value(one.start, row.base + 5.5, text=name)
            for row in self._layout.rows
            for one in row.lane.owned
            if self._fits(name := self._number(one.member), one.start, one.end, 14)
        ]

    def _ends(self) -> Values:
        return [
            self._value(one.end, row.base + 5.5, text="\u2715")
            for row in self._layout.rows
            for one in row.lane.owned
            if one.is_lost
        ]

    def _held(self) -> Values:
        return [
            self._span(
                *(one.start, one.end, y, y),
                words.hold_in_words(one),
                level=one.level.value,
            )
            for row in self._layout.rows
            for one, y in row.held
        ]

    def _hold_names(self) -> Values:
        return [
            self._value(one.start, y - 5, text=legal(owner))
            for row in self._layout.rows
            for one, y in row.held
            if self._fits(owner := shortened(one.owner, 24), one.start, one.end, 7)
        ]

    def _delivered(self) -> Values:
        bars = [
            (bar, row.base)
            for row in self._layout.rows
            for bar in row.lane.bars(self._timeline.start, self._column, _COLUMNS)
        ]
        most = math.log1p(max((bar.count for bar, _ in bars), default=1))
        return [
            self._value(
                *(bar.at, base - 3 - (BARS - 4) * math.log1p(count) / most),
                words.bar_in_words(bar),
                foot=base,
                kind=kind,
            )
            for bar, base in bars
            for kind, count in zip(_RECORDS, (bar.count, bar.wrong), strict=True)
            if count
        ]

    def _findings(self) -> Values:
        return [
            self._value(one.at, row.top + 4, one.evidence, text=f"\u25be {one.check}")
            for row in self._layout.rows
            for one in _first_of_each(row, self._pixel)
        ]

    # ------------------------------------------------------------ beside the lanes

    def _names(self) -> Iterator[tuple[str, float]]:
        for row in self._layout.rows:
            yield f"partition {row.lane.case.partition}", row.base
        for one, y in self._layout.members:
            yield f"{shortened(one.name, 15)}  {self._number(one.name)}", y

    def _headings(self) -> Iterator[tuple[str, float]]:
        for name, y in self._layout.headings:
            yield shortened(name, 120), y

    def _counts(self) -> Iterator[tuple[str, float]]:
        for row in self._layout.rows:
            yield f"{row.lane.records:,} records", row.base - 5
            if row.lane.unjudged and not row.lane.violations:
                yield f"not judged: {', '.join(row.lane.unjudged)}", row.base + 6

    def _broken(self) -> Iterator[tuple[str, float]]:
        for row in self._layout.rows:
            if row.lane.violations:
                yield words.violations_of(row.lane), row.base + 6


def _first_of_each(row: Row, pixel: float) -> Iterator[Any]:
    # Violations nearer than that share one mark; the lane has their number at its side.
    last: dict[str, float] = {}
    for one in sorted(row.lane.findings, key=lambda one: one.at or 0.0):
        if one.at is not None and one.at - last.get(one.check, -math.inf) > 22 * pixel:
            last[one.check] = one.at
            yield one
