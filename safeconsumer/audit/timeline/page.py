"""
Draws a timeline as one Vega-Lite specification: an SVG, a PNG or a page.

Names of topics, members and owners come from elsewhere: they become text, whatever they
contain, and never markup. Everybody can distinguish blue and vermilion, and nothing is
shown by colour alone.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import import_module
from typing import Any

from safeconsumer.audit.findings import Finding
from safeconsumer.audit.timeline import words
from safeconsumer.audit.timeline.data import Held, Lane, Run, Time, Timeline
from safeconsumer.errors.base import JournalError
from safeconsumer.journal.format import tp_text

_WIDTH, _COLUMNS = 760, 380
# A PNG has two pixels for each of the picture; its renderer takes no more in a row.
_SCALE, _MOST_PIXELS = 2, 32_000

# The heights of what a lane has, from its top to the next lane.
_FINDINGS, _HOLD, _BARS, _OWNERS, _GAP = 10, 12, 18, 12, 7
# So many pixels are needed for a text in a box, and from flag to flag of one check.
_LEAST_TEXT, _FLAG = 14, 28

_INK, _SOFT, _BLUE, _RED, _GREEN = "#24292f", "#57606a", "#0969da", "#c9251b", "#1a7f37"
_HELD, _QUIET = "#e3b778", "#f6ecd4"
_VERDICTS = {"\u2713": _GREEN, "\u2717": _RED}

# The colours of members, by turns; their numbers distinguish them.
_MEMBERS = (
    *("#d8dee4", "#b6e3ff", "#ffd8b5", "#c9e9c3"),
    *("#e6d3fb", "#f7d6e6", "#e4e2a8", "#c2e6e2"),
)

# Characters that XML 1.0 cannot have, and lone surrogates, which UTF-8 cannot have.
_ILLEGAL = re.compile("[^\t -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# A text is cut to the width of its box, as it is now that the page is zoomed.
_WIDTH_NOW = "max(1, scale('x', datum.end) - scale('x', datum.start) - 4)"

# A flag at the right edge stands before its moment.
_INWARD = f"scale('x', datum.start) > {_WIDTH - _FLAG} ? 'right' : 'left'"

# Its own scripts may run, which make functions; nothing may be loaded.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data:"
)

Fields = dict[str, Any]


def drawn(timeline: Timeline, kind: str, trouble: str = "") -> bytes:
    """
    Return a timeline as ``svg``, ``png`` or ``html``.

    A page shows what it is pointed at in words, zooms, and loads nothing.

    Args:
        timeline: what is shown.
        kind: the kind of file.
        trouble: why it is not complete, if it is not.

    Raises:
        JournalError: it has more lanes than a PNG can hold.
    """
    picture = Picture(timeline)
    if kind == "png" and picture.height * _SCALE > _MOST_PIXELS:
        message = (
            f"a PNG of {picture.height * _SCALE:,.0f} lines is too tall: choose "
            "partitions or topics, or draw an SVG"
        )
        raise JournalError(message)
    spec = _spec(timeline, picture, trouble)
    if kind == "png":
        return bytes(_drawing().vegalite_to_png(spec, scale=_SCALE))
    if kind == "svg":
        return _described(str(_drawing().vegalite_to_svg(spec)), spec).encode()
    return _page(spec).encode()


def _drawing() -> Any:  # noqa: ANN401 - of an extra, and the marks do without
    return import_module("vl_convert")


def legal(text: str) -> str:
    """Return a text without the characters that XML or UTF-8 cannot have."""
    return _ILLEGAL.sub("\ufffd", text)


def _described(svg: str, spec: Fields) -> str:
    # For those who do not see it.
    head, rest = svg.split(">", 1)
    about = (
        f'<title id="title">{escape(spec["title"]["text"][0])}</title>'
        f'<desc id="desc">{escape(spec["description"])}</desc>'
    )
    return f'{head} role="img" aria-labelledby="title desc">{about}{rest}'


def _page(spec: Fields) -> str:
    zoom = {"type": "interval", "encodings": ["x"]}
    spec["layer"][0]["params"] = [{"name": "zoom", "select": zoom, "bind": "scales"}]
    # A name must not end the script that it stands in.
    data = json.dumps(spec).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    library = _drawing().javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(spec['title']['text'][0])}</title></head><body>"
        f'<main id="timeline" role="img" aria-label="{escape(spec["description"])}">'
        f"</main><script>{library}</script>"
        f'<script>vegaEmbed("#timeline", {data}, {{renderer: "svg", actions: false, '
        f"tooltip: {{theme: 'light'}}}});</script></body></html>\n"
    )


class Picture:
    """
    The marks of a timeline, with their places in pixels from the top.

    Args:
        timeline: what is shown.

    Attributes:
        marks: what is drawn, by ``kind``: a ``box``, perhaps with a ``text`` in it; a
            ``flag``, which is a text at a moment; a ``name`` at the left; a ``count``
            at the right.
        height: the height of it all.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.marks: list[Fields] = []
        self.height = 0
        seconds = timeline.end - timeline.start
        self._pixel, self._width = seconds / _WIDTH, seconds / _COLUMNS
        self._numbers = {one.member: n for n, one in enumerate(timeline.members, 1)}
        is_mixed = len({lane.case.group for lane in timeline.lanes}) > 1
        bars = [
            one.bars(timeline.start, self._width, _COLUMNS) for one in timeline.lanes
        ]
        most = max((bar.count for own in bars for bar in own), default=1)
        for lane, own in zip(timeline.lanes, bars, strict=True):
            base = self._held(lane)
            self._delivered(own, base, math.log1p(most))
            self._owned(lane.owned, base)
            of = f" of {lane.case.group}" if is_mixed else ""
            self._mark("name", base - 5, text=f"{tp_text(lane.case.tp)}{of}")
            color = _RED if lane.violations else _SOFT
            counts = words.lane_in_words(lane)
            self._mark("count", base - 5, text=counts, color=color)
            self.height = base + _OWNERS + _GAP
        for one in timeline.members:
            name = f"{self._numbers[one.member]}  {one.member}"
            self._mark("name", self.height + 6, text=name)
            self._of_member(one, self.height, one.member)
            self.height += _OWNERS

    def _held(self, lane: Lane) -> int:
        # Returns where deliveries stand: below what was found, and the holds.
        rows = _rows(lane.held)
        first = self.height + _FINDINGS
        base = first + _HOLD * len({*rows}) + _BARS
        for start, end in lane.shade():
            self._box(start, end, first, base - first, color=_QUIET, hint="held")
        for one, row in zip(lane.held, rows, strict=True):
            hint, text = words.hold_in_words(one), f"{one.scope} by {one.owner}"
            looks = {"color": _HELD, "hint": hint, "text": text}
            self._box(one.start, one.end, first + _HOLD * row, _HOLD - 1, **looks)
        for found in _apart(lane.findings, _FLAG * self._pixel):
            at, text = found.at or 0.0, f"\u25be {found.check}"
            self._flag(at, first - 5, text, found.evidence)
        return base

    def _delivered(self, bars: Sequence[Run], base: int, most: float) -> None:
        for bar in bars:
            hint = words.bar_in_words(bar)
            start, end = bar.at - self._width / 2, bar.at + self._width / 2
            for count, color in ((bar.count, _BLUE), (bar.wrong, _RED)):
                height = 3 + (_BARS - 4) * math.log1p(count) / most
                if count:
                    top = base - height
                    self._box(start, end, top, height, color=color, hint=hint)

    def _owned(self, owned: Sequence[Time], base: int) -> None:
        for one in owned:
            hint = f"owned by {one.member}{', lost' * one.is_lost}"
            self._of_member(one, base + 1, hint)
            if one.is_lost:
                self._flag(one.end, base + 6, "\u2715", f"lost by {one.member}")

    def _of_member(self, time: Time, top: int, hint: str) -> None:
        number = self._numbers.get(time.member, 0)
        color = _MEMBERS[number % len(_MEMBERS)]
        looks = {"color": color, "hint": hint, "text": str(number or "?")}
        self._box(time.start, time.end, top, _OWNERS - 2, **looks)

    def _box(
        self,
        start: float,
        end: float,
        top: float,
        height: float,
        **looks: str,
    ) -> None:
        # One without duration is a hair wide.
        end = max(end, start + self._pixel / 2)
        if end - start < _LEAST_TEXT * self._pixel:
            looks.pop("text", None)
        places = {"start": start * 1000, "end": end * 1000, "foot": top + height}
        self._mark("box", top, **places, **looks)

    def _flag(self, at: float, top: float, text: str, hint: str) -> None:
        self._mark("flag", top, start=at * 1000, text=text, hint=hint)

    def _mark(self, kind: str, top: float, **more: str | float) -> None:
        mark: Fields = {"kind": kind, "top": top, "hint": more.get("text", ""), **more}
        for name in {"hint", "text"} & mark.keys():
            mark[name] = legal(mark[name])
        self.marks.append(mark)


def _apart(findings: Iterable[Finding], least: float) -> Iterator[Finding]:
    # Those of a check that are nearer share one flag; the lane has their number.
    last: dict[str, float] = {}
    for one in findings:
        if one.at is not None and one.at - last.get(one.check, -math.inf) > least:
            last[one.check] = one.at
            yield one


def _rows(held: Iterable[Held]) -> list[int]:
    # Each goes into the first free row; they come in the order of their starts.
    ends: list[float] = []
    rows: list[int] = []
    for one in held:
        free = next((n for n, last in enumerate(ends) if last <= one.start), len(ends))
        ends[free : free + 1] = [one.end]
        rows.append(free)
    return rows


def _spec(timeline: Timeline, picture: Picture, trouble: str) -> Fields:
    title, verdict = words.title_of(timeline), words.verdict_of(timeline, trouble)
    summary = words.summary_of(timeline)
    notes = words.notes_on(timeline, (timeline.end - timeline.start) / _COLUMNS)
    hint = {"field": "hint", "type": "nominal"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": legal(f"{summary}; {verdict}."),
        "background": "#ffffff",
        "title": {
            "text": [legal(title), legal(verdict)],
            "color": _VERDICTS.get(verdict[0], _INK),
            "subtitle": [summary, *map(legal, notes)],
            "subtitleColor": _SOFT,
            "anchor": "start",
            "frame": "bounds",
            "limit": 1200,
            "offset": 12,
        },
        "width": _WIDTH,
        "height": picture.height,
        "data": {"values": picture.marks},
        "encoding": {"x": _time(timeline), "y": _place(picture), "tooltip": hint},
        "layer": _layers(),
        "config": {
            "view": {"stroke": None, "fill": "#ffffff"},
            "mark": {"aria": False},
            "text": {"font": "sans-serif", "baseline": "middle"},
        },
    }


def _time(timeline: Timeline) -> Fields:
    axis: Fields = {"orient": "top", "title": None, "domain": False, "tickCount": 8}
    seconds = timeline.end - timeline.start
    if seconds <= 86_400:  # noqa: PLR2004 - a day; of more, Vega chooses
        axis["format"] = "%H:%M:%S" if seconds > 10 else "%H:%M:%S.%L"  # noqa: PLR2004 - ticks of a second
    ends = {"domainMin": timeline.start * 1000, "domainMax": timeline.end * 1000}
    scale = {"type": "utc", "nice": False, **ends}
    return {"field": "start", "type": "temporal", "scale": scale, "axis": axis}


def _place(picture: Picture) -> Fields:
    scale = {"domain": [0, picture.height], "reverse": True, "nice": False}
    return {"field": "top", "type": "quantitative", "axis": None, "scale": scale}


def _layers() -> list[Fields]:
    color = {"color": {"field": "color", "type": "nominal", "scale": None}}
    ends = {"x2": {"field": "end"}, "y2": {"field": "foot"}}
    inside = {"baseline": "top", "dx": 3, "dy": 2, "limit": {"expr": _WIDTH_NOW}}
    left, right = {"x": {"value": -8}}, {"x": {"value": _WIDTH + 8}}
    boxes = {
        "transform": [{"filter": "datum.kind === 'box'"}],
        "mark": {"type": "rect", "clip": True},
        "encoding": color | ends,
    }
    return [
        boxes,
        _texts("box", {}, fontSize=8, color=_INK, clip=True, **inside),
        _texts("flag", {}, align={"expr": _INWARD}, color=_RED, clip=True),
        _texts("name", left, align="right", limit=200),
        _texts("count", color | right),
    ]


def _texts(kind: str, encoding: Fields, **looks: object) -> Fields:
    which = f"datum.kind === '{kind}' && isValid(datum.text)"
    return {
        "transform": [{"filter": which}],
        "mark": {"type": "text", "align": "left", "fontSize": 11, **looks},
        "encoding": {"text": {"field": "text", "type": "nominal"}, **encoding},
    }
