"""
Draws a timeline as one Vega-Lite specification: an SVG, a PNG or a page.

Names of topics, members and owners come from elsewhere: they become text, whatever they
contain, and never markup.
"""

import json
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

import vl_convert

from safeconsumer.audit.timeline import plan as plans
from safeconsumer.audit.timeline import style
from safeconsumer.audit.timeline.plan import Plan, Row
from safeconsumer.audit.timeline.story import COLUMNS, Timeline
from safeconsumer.audit.timeline.style import legal
from safeconsumer.errors import JournalError

_WIDTH = 760
_LEFT, _RIGHT = -8, _WIDTH + 8
# A PNG has two pixels for each of the picture; its renderer takes no more in a row.
_SCALE, _MOST_PIXELS = 2, 32_000
_LOOKS = {"good": style.GREEN, "bad": style.RED, "open": style.INK}
_RECORDS = {"delivered": style.BLUE, "delivered while held": style.RED}
_MEMBER_MARKS = {"assigned": "triangle-up", "revoked": "triangle-down", "lost": "cross"}

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
    title, plan = legal(title or plans.titled(timeline)), plans.planned(timeline)
    if kind == "png" and plan.height * _SCALE > _MOST_PIXELS:
        message = (
            f"a PNG of {plan.height * _SCALE:,.0f} lines is too tall: choose partitions "
            "or topics, or draw an SVG"
        )
        raise JournalError(message)
    spec = _Drawing(timeline, plan).spec(title, legal(trouble), is_page=kind == "html")
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
    """One picture: its layers, from the ground up."""

    def __init__(self, timeline: Timeline, plan: Plan) -> None:
        self._timeline = timeline
        self._plan = plan
        self._letters = plans.letters_of(timeline, plan)
        self._pixel = (timeline.end - timeline.start) / _WIDTH

    def spec(self, title: str, trouble: str, *, is_page: bool) -> Layer:
        verdict, look = plans.verdict(self._timeline, trouble)
        notes = plans.not_drawn(self._timeline, self._plan, COLUMNS)
        layers = [one for one in self._layers() if one["data"]["values"]]
        start, end = self._timeline.start * 1000, self._timeline.end * 1000
        first = layers[0]["encoding"]  # all layers share its scales
        first["x"]["scale"] |= {"domainMin": start, "domainMax": end, "nice": False}
        first["y"] = _Y | {
            "scale": {"domain": [0, self._plan.height], "reverse": True, "nice": False}
        }
        if is_page:
            zoom = {"type": "interval", "encodings": ["x"]}
            layers[0]["params"] = [{"name": "zoom", "select": zoom, "bind": "scales"}]
        return {
            "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
            "description": legal(plans.spoken(self._timeline, trouble)),
            "background": style.GROUND,
            "title": {
                "text": [title, verdict],
                "color": _LOOKS[look],
                "subtitle": [plans.summary(self._timeline), *map(legal, notes)],
                "subtitleColor": style.SOFT,
                "anchor": "start",
                "frame": "bounds",
                "offset": 12,
            },
            "width": _WIDTH,
            "height": self._plan.height,
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
        yield self._boxes([self._span(*ends, 0.0, self._plan.height)], "transparent")
        yield self._boxes(self._shades(), style.QUIET)
        yield self._boxes(self._faults(), style.FAULTS)
        yield self._boxes(self._owners(), None)
        yield self._text(self._owner_letters(), fontSize=8, fontWeight="bold")
        yield self._holds()
        yield self._text(self._hold_names(), fontSize=7)
        yield self._bars()
        for shape in ("triangle-down", *_MEMBER_MARKS.values()):
            yield self._points(shape)
        yield self._text(self._findings(), color=style.RED, fontWeight="bold", dx=6)
        yield self._beside(self._names(), _LEFT, "right")
        yield self._beside(self._headings(), -100, "left", fontWeight="bold")
        yield self._beside(self._counts(), _RIGHT, "left", color=style.SOFT)
        yield self._beside(self._broken(), _RIGHT, "left", color=style.RED)

    # ------------------------------------------------------------ kinds of layers

    def _x(self) -> Layer:
        axis = {"orient": "top", "title": None, "domain": False, "tickCount": 8}
        return {
            "field": "start",
            "type": "temporal",
            "scale": {"type": "utc"},
            "axis": {**axis, **self._format()},
        }

    def _format(self) -> Layer:
        seconds = self._timeline.end - self._timeline.start
        if seconds > 86_400:  # noqa: PLR2004 - a day: then Vega chooses
            return {}
        return {"format": "%H:%M:%S" if seconds > 10 else "%H:%M:%S.%L"}  # noqa: PLR2004 - ticks of a second

    def _layer(self, values: Values, mark: Layer, encoding: Layer) -> Layer:
        hint = {"tooltip": {"field": "hint", "type": "nominal"}}
        return {
            "data": {"values": values},
            "mark": {"clip": True, **mark},
            "encoding": {"y": _Y, **encoding, **hint},
        }

    def _boxes(self, values: Values, color: str | None) -> Layer:
        paint = {"value": color} if color else {"field": "color", "scale": None}
        encoding = {"x": self._x(), "x2": {"field": "end"}, "color": paint}
        return self._layer(
            values, {"type": "rect"}, {**encoding, "y2": {"field": "foot"}}
        )

    def _text(self, values: Values, **how: object) -> Layer:
        mark = {"type": "text", "align": "left", "baseline": "middle", **how}
        return self._layer(
            values, mark, {"x": self._x(), "text": {"field": "text", "type": "nominal"}}
        )

    def _beside(self, values: Values, x: int, align: str, **how: object) -> Layer:
        mark = {"type": "text", "align": align, "baseline": "middle", **how}
        layer = self._layer(
            values, mark, {"x": {"value": x}, "text": {"field": "text"}}
        )
        layer["mark"]["clip"] = False
        return layer

    def _holds(self) -> Layer:
        levels = plans.levels_of(self._timeline)
        looks = [style.LEVELS[level] for level in levels]
        names = [level.value for level in levels]
        dashes = [[4 * one for one in dashed] or [1, 0] for _, dashed in looks]
        own = {"field": "level", "type": "nominal", "title": "held by a pause of"}
        encoding = {
            "x": self._x(),
            "x2": {"field": "end"},
            "color": {
                **own,
                "scale": {"domain": names, "range": [c for c, _ in looks]},
            },
            "strokeDash": {**own, "scale": {"domain": names, "range": dashes}},
        }
        return self._layer(self._held(), {"type": "rule", "size": 4}, encoding)

    def _bars(self) -> Layer:
        scale = {"domain": [*_RECORDS], "range": [*_RECORDS.values()]}
        encoding = {
            "x": self._x(),
            "y2": {"field": "foot"},
            "color": {"field": "kind", "title": "records", "scale": scale},
        }
        return self._layer(self._delivered(), {"type": "rule", "size": 2}, encoding)

    def _points(self, shape: str) -> Layer:
        values = [
            one
            for one in (*self._parked_or_purged(), *self._rebalances())
            if one["shape"] == shape
        ]
        mark = {"type": "point", "shape": shape, "size": 18, "filled": True}
        return self._layer(
            values, mark, {"x": self._x(), "color": {"field": "color", "scale": None}}
        )

    # ------------------------------------------------------------ values

    def _value(self, at: float, top: float, hint: str = "", **more: object) -> Layer:
        return {"start": at * 1000, "top": top, "hint": legal(hint), **more}

    def _span(self, start: float, end: float, *where: float, **more: object) -> Layer:
        # One without duration is a hair wide.
        top, foot = where
        last = max(end, start + self._pixel / 2) * 1000
        return self._value(start, top, **more) | {"end": last, "foot": foot}  # type: ignore[arg-type]  # hint is text

    def _fits(self, text: str, start: float, end: float, size: float) -> bool:
        return len(text) * plans.CHARACTER * size <= (end - start) / self._pixel

    def _shades(self) -> Values:
        return [
            self._span(start, end, row.top + 2, row.base, hint="held")
            for row in self._plan.rows
            for start, end in row.lane.shade()
        ]

    def _faults(self) -> Values:
        return [
            self._span(
                one.start,
                one.end,
                y - 4.5,
                y + 4.5,
                hint=f"{one.kind} of {', '.join(one.targets)}",
            )
            for one, y in self._plan.faults
        ]

    def _owners(self) -> Values:
        owned = [
            self._span(
                one.start,
                one.end,
                row.base + 1,
                row.base + plans.FOOT - 1,
                hint=f"owned by {one.member}{', lost' * one.is_lost}",
                color=self._color(self._timeline.letters.get(one.member, 0)),
            )
            for row in self._plan.rows
            for one in row.lane.owned
        ]
        half = plans.MEMBER / 2 - 3
        return owned + [
            self._span(
                start, end, y - half, y + half, hint=member.name, color=self._color(at)
            )
            for at, (member, y, _) in enumerate(self._plan.members)
            for start, end in member.lives
        ]

    def _color(self, number: int) -> str:
        return style.OWNERS[number % len(style.OWNERS)]

    def _owner_letters(self) -> Values:
        return [
            self._value(one.start, row.base + 5.5, text=name)
            for row in self._plan.rows
            for one in row.lane.owned
            if self._fits(
                name := self._letters.get(one.member, "?"), one.start, one.end, 14
            )
        ]

    def _held(self) -> Values:
        return [
            self._span(
                one.start,
                one.end,
                y,
                y,
                hint=plans.said_of_hold(one),
                level=one.level.value,
            )
            for row in self._plan.rows
            for one, y in row.held
        ]

    def _hold_names(self) -> Values:
        return [
            self._value(one.start, y - 5, text=legal(owner))
            for row in self._plan.rows
            for one, y in row.held
            if self._fits(
                owner := plans.shortened(one.owner, 24), one.start, one.end, 7
            )
        ]

    def _delivered(self) -> Values:
        kinds = plans.bars_of(self._timeline, self._plan.rows, COLUMNS)
        return [
            self._value(bar.at, top, plans.said_of_bar(bar), foot=base, kind=kind)
            for kind, bars in zip(_RECORDS, kinds, strict=True)
            for bar, base, top in bars
        ]

    def _parked_or_purged(self) -> Iterator[Layer]:
        for row in self._plan.rows:
            for one in (*row.lane.parked, *row.lane.purged):
                hint = f"{one.kind}: {one.count:,} {one.said}"
                look = {"shape": "triangle-down", "color": style.FAULTS}
                yield self._value(one.at, row.base - 3, hint, **look)

    def _rebalances(self) -> Iterator[Layer]:
        for member, y, _ in self._plan.members:
            for one in member.points:
                color = style.RED if one.kind == "lost" else style.SOFT
                look = {"shape": _MEMBER_MARKS[one.kind], "color": color}
                yield self._value(one.at, y, f"{one.kind}: {one.count}", **look)

    def _findings(self) -> Values:
        return [
            self._value(one.at, row.top + 4, one.evidence, text=f"\u25be {one.check}")
            for row in self._plan.rows
            for one in _first_of_each(row, self._pixel)
        ]

    # ------------------------------------------------------------ beside the lanes

    def _names(self) -> Values:
        lanes = [
            (row.base, f"partition {row.lane.place[2]}") for row in self._plan.rows
        ]
        members = [
            (y, f"{plans.shortened(one.name, 15)}  {letter}")
            for one, y, letter in self._plan.members
        ]
        return _texts([*lanes, *members])

    def _headings(self) -> Values:
        return _texts(
            (y, plans.shortened(name, 120)) for name, y in self._plan.headings
        )

    def _counts(self) -> Values:
        found = [
            (row.base - 5, f"{row.lane.records:,} records") for row in self._plan.rows
        ]
        for row in self._plan.rows:
            if row.lane.unjudged and not row.lane.violations:
                checks = ", ".join(row.lane.unjudged)
                found.append((row.base + 6, f"not judged: {checks}"))
        for member, y, _ in self._plan.members:
            counts = [
                f"{n} {kind}"
                for kind in ("assigned", "lost")
                if (n := sum(one.kind == kind for one in member.points))
            ]
            found.append((y, ", ".join(counts)))
        return _texts(found)

    def _broken(self) -> Values:
        return _texts(
            (row.base + 6, plans.broken_text(row.lane))
            for row in self._plan.rows
            if row.lane.violations
        )


def _texts(found: Iterable[tuple[float, str]]) -> Values:
    return [{"top": y, "text": legal(text)} for y, text in found]


def _first_of_each(row: Row, pixel: float) -> Iterator[Any]:
    # Violations nearer than that share one mark; the lane has their number at its side.
    last: dict[str, float] = {}
    for one in sorted(row.lane.findings, key=lambda one: one.at or 0.0):
        if one.at is not None and one.at - last.get(one.check, -1e18) > 22 * pixel:
            last[one.check] = one.at
            yield one
