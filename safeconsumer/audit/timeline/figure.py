"""
Draws a timeline with matplotlib, as SVG or PNG.

Names of topics, members and owners come from elsewhere: they become text, whatever they
contain, and never markup or formulas. The same timeline gives the same bytes.
"""

import io
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape

import matplotlib as mpl
import numpy as np
from attrs import frozen
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from safeconsumer.audit.findings import Finding
from safeconsumer.audit.timeline import plan as plans
from safeconsumer.audit.timeline import style
from safeconsumer.audit.timeline.plan import Plan, Row
from safeconsumer.audit.timeline.story import COLUMNS, Owned, Timeline, united
from safeconsumer.audit.timeline.style import legal
from safeconsumer.errors import JournalError

_WIDTH, _LEFT, _RIGHT, _MARGIN = 1012, 134, 118, 16
_PLOT = _WIDTH - _LEFT - _RIGHT
_HEAD, _LINE, _AXIS = 60, 16.5, 30

# Violations nearer than that share one mark; faults that last longer together, as a
# share of the time, would shade everything.
_TOGETHER, _MOST_STRUCK = 22, 0.3

# One unit of an SVG is a pixel; a PNG has four pixels for each unit.
_DPI, _SHARP = 72, 144
# Of the Agg renderer, in either direction; with some for what stands above and below.
_MOST_PIXELS = 2**16 - 2000

_LOOKS = {"good": style.GREEN, "bad": style.RED, "open": style.INK}

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11.0,
    "path.simplify": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "safeconsumer",
    "text.color": style.INK,
    "text.parse_math": False,
}


def drawn(
    timeline: Timeline, kind: str, title: str | None = None, trouble: str = ""
) -> bytes:
    """
    Return a timeline as ``svg`` or ``png``.

    Args:
        timeline: what is shown.
        kind: the kind of file.
        title: replaces the default title.
        trouble: why it is not complete, if it is not.

    Raises:
        JournalError: it has more lanes than a PNG can hold.
    """
    title, plan = title or plans.titled(timeline), plans.planned(timeline)
    if kind == "png":
        _check_height(plan)
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # not the preferences of this machine's users
        mpl.rcParams.update(_STYLE)
        # Letters that the font lacks are boxes in a PNG; in an SVG the viewer has them.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        figure = _Drawing.of(timeline, plan, title, trouble).figure
        if kind == "png":
            return _png(figure, title, plans.spoken(timeline, trouble))
        return _svg(figure, title, plans.spoken(timeline, trouble))


def _check_height(plan: Plan) -> None:
    height = plan.height * _SHARP / _DPI
    if height >= _MOST_PIXELS:
        message = (
            f"a PNG of {height:,.0f} lines is too tall: choose partitions or topics, "
            "or draw an SVG"
        )
        raise JournalError(message)


def _png(figure: Figure, title: str, said: str) -> bytes:
    out = io.BytesIO()
    about = {"Title": legal(title), "Description": legal(said), "Software": None}
    figure.savefig(out, format="png", dpi=_SHARP, metadata=about)
    return out.getvalue()


def _svg(figure: Figure, title: str, said: str) -> bytes:
    out = io.StringIO()
    about = {"Title": legal(title), "Date": None, "Creator": None}
    figure.savefig(out, format="svg", dpi=_DPI, metadata=about)
    text = out.getvalue()
    dark = "".join(
        f'[style*="{what}: {light}"]{{{what}:{colour}!important}}'
        for light, colour in style.DARK.items()
        for what in ("fill", "stroke")
    )
    looks = f"<style>@media(prefers-color-scheme:dark){{{dark}}}</style>"
    text = re.sub(r'(width|height)="([0-9.]+)pt"', r'\1="\2"', text, count=2)
    text = text.replace("<svg ", '<svg role="img" aria-labelledby="title desc" ', 1)
    about_it = f'<title id="title">{escape(legal(title))}</title>'
    about_it += f'<desc id="desc">{escape(legal(said))}</desc>{looks}'
    return re.sub("<title>.*?</title>", lambda _: about_it, text, count=1).encode()


@frozen
class _Drawing:
    """One figure: a title and a legend, and below them one pair of axes for everything."""

    timeline: Timeline
    plan: Plan
    figure: Figure
    axes: Axes

    @classmethod
    def of(cls, timeline: Timeline, plan: Plan, title: str, trouble: str) -> "_Drawing":
        notes = list(plans.not_drawn(timeline, plan, COLUMNS))
        handles = _legend(timeline)
        head = _HEAD + _LINE * math.ceil(len(handles) / 4) + _AXIS
        height = head + plan.height + 8 + 13 * len(notes)
        figure = Figure(
            (_WIDTH / _DPI, height / _DPI), dpi=_DPI, facecolor=style.GROUND
        )
        bottom = 1 - (head + plan.height) / height
        place = (_LEFT / _WIDTH, bottom, _PLOT / _WIDTH, plan.height / height)
        self = cls(timeline, plan, figure, figure.add_axes(place))
        self._head(title, trouble, height, handles)
        for number, note in enumerate(reversed(notes)):
            y = (6 + 13 * number) / height
            figure.text(_MARGIN / _WIDTH, y, _cut(note, 200), size=9, color=style.SOFT)
        self._axes()
        self._faults()
        for row in plan.rows:
            self._row(row)
        self._bars()
        self._members()
        return self

    def _head(
        self, title: str, trouble: str, height: float, handles: Sequence[Line2D | Patch]
    ) -> None:
        left, right = _MARGIN / _WIDTH, 1 - _MARGIN / _WIDTH
        text = self.figure.text
        text(left, 1 - 26 / height, _cut(title, 100), size=16, weight="bold")
        text(left, 1 - 45 / height, plans.summary(self.timeline), color=style.SOFT)
        said, look = plans.verdict(self.timeline, trouble)
        text(
            right,
            1 - 26 / height,
            _cut(said, 60),
            size=13,
            weight="bold",
            ha="right",
            color=_LOOKS[look],
        )
        rows = [one for column in range(4) for one in handles[column::4]]
        self.figure.legend(
            handles=rows,  # it goes down the columns
            loc="upper left",
            bbox_to_anchor=(left, 1 - 58 / height),
            ncols=4,
            frameon=False,
            borderpad=0,
            borderaxespad=0,
            handlelength=2.2,
            columnspacing=1.6,
            labelspacing=0.4,
            fontsize=10.5,
        )

    def _axes(self) -> None:
        axes = self.axes
        axes.set_facecolor("none")
        axes.set_xlim(_x(self.timeline.start), _x(self.timeline.end))
        axes.set_ylim(self.plan.height, 0)
        locator = AutoDateLocator(tz="UTC", minticks=4, maxticks=9)  # type: ignore[no-untyped-call]  # matplotlib's
        axes.xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator, tz="UTC", show_offset=False)  # type: ignore[no-untyped-call]  # matplotlib's
        formatter.formats[5] = "%H:%M:%S.%f"  # it leaves noughts at the end away
        axes.xaxis.set_major_formatter(formatter)
        axes.xaxis.tick_top()
        axes.tick_params(axis="x", length=0, pad=2, labelcolor=style.SOFT, labelsize=10)
        axes.grid(visible=True, axis="x", color=style.GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.yaxis.set_visible(False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for name, y in self.plan.headings:
            if name == "faults":
                self._beside(y, name, is_left=True, weight="bold")
            else:
                self._text(-_LEFT + _MARGIN, y, _cut(name, 120), weight="bold")

    # ------------------------------------------------------------ pieces

    def _text(self, x: float, y: float, text: str, **how: object) -> None:
        # x in pixels from the left of the plot.
        where = self.axes.get_yaxis_transform()
        self.axes.text(x / _PLOT, y, legal(text), transform=where, **how)  # type: ignore[arg-type]  # of Text

    def _beside(self, y: float, text: str, *, is_left: bool, **how: object) -> None:
        side = "right" if is_left else "left"
        self._text(-8 if is_left else _PLOT + 8, y, text, ha=side, **how)

    def _mark(self, at: float, y: float, text: str, **how: object) -> None:
        self.axes.text(_x(at), y, legal(text), clip_on=True, **how)  # type: ignore[arg-type]  # of Text

    def _pixels(self, start: float, end: float) -> float:
        whole = self.timeline.end - self.timeline.start
        return (end - start) / whole * _PLOT

    def _boxes(
        self, boxes: Iterable[tuple[float, float, float, float]], **how: object
    ) -> None:
        # From, to, top, bottom; as one shape. A bar without duration is a hair wide.
        hair = (self.timeline.end - self.timeline.start) / _PLOT / 2
        corners = [
            [(a, top), (max(b, a + hair), top), (max(b, a + hair), foot), (a, foot)]
            for a, b, top, foot in boxes
        ]
        if corners:
            points = np.array([[*one, one[0]] for one in corners]).reshape(-1, 2)
            points[:, 0] = points[:, 0] / 86_400
            step = [Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY]
            path = Path(points, np.tile(np.array(step, Path.code_type), len(corners)))
            self.axes.add_patch(PathPatch(path, linewidth=0, **how))

    def _lines(
        self, lines: Iterable[tuple[float, float, float, float]], **how: object
    ) -> None:
        # From, to, y and y; as one shape with gaps.
        xs: list[float] = []
        ys: list[float] = []
        for a, b, top, foot in lines:
            xs += [_x(a), _x(b), math.nan]
            ys += [top, foot, math.nan]
        if xs:
            self.axes.plot(xs, ys, solid_capstyle="butt", dash_capstyle="butt", **how)  # type: ignore[arg-type]  # of Line2D

    def _points(self, points: Sequence[tuple[float, float]], **how: object) -> None:
        if points:
            xs, ys = [_x(at) for at, _ in points], [y for _, y in points]
            self.axes.plot(xs, ys, linestyle="none", clip_on=False, **how)  # type: ignore[arg-type]  # of Line2D

    # ------------------------------------------------------------ rows

    def _faults(self) -> None:
        if not self.timeline.faults:
            return
        count = len(self.timeline.faults)
        said = f"{count} fault{'s' * (count != 1)}"
        self._beside(plans.FAULT - 3, said, is_left=False, color=style.SOFT)
        hair = (self.timeline.end - self.timeline.start) / _PLOT * 3
        drawn = [
            (one, max(one.end, one.start + hair), y) for one, y in self.plan.faults
        ]
        self._boxes(
            [(one.start, end, y - 4.5, y + 4.5) for one, end, y in drawn],
            color=style.FAULTS,
        )
        for number, (one, end, y) in enumerate(drawn):
            later = [other.start for other, _, at in drawn[number + 1 :] if at == y]
            room = self._pixels(end, min([*later, self.timeline.end])) - 4
            kind = _cut(one.kind, 40)
            if len(kind) * plans.CHARACTER * 9 <= room:
                self._mark(end + hair, y + 3, kind, size=9)
        spans = united((one.start, one.end) for one in self.timeline.faults)
        whole = self.timeline.end - self.timeline.start
        if sum(end - start for start, end in spans) <= _MOST_STRUCK * whole:
            top, foot = self.plan.rows[0].top, self.plan.rows[-1].bottom
            self._boxes(
                [(start, end, top, foot) for start, end in spans],
                color=style.STRUCK,
                zorder=0.1,
            )

    def _row(self, row: Row) -> None:
        lane = row.lane
        _, _, partition = lane.place
        broken = plans.broken_text(lane)
        self._beside(row.base, f"partition {partition}", is_left=True)
        y = row.base - 4 if broken or lane.unjudged else row.base
        self._beside(y, f"{lane.records:,} records", is_left=False, color=style.SOFT)
        if broken:
            self._beside(
                row.base + 9, broken, is_left=False, color=style.RED, weight="bold"
            )
        elif lane.unjudged:
            said = _cut(f"not judged: {', '.join(lane.unjudged)}", 20)
            self._beside(row.base + 9, said, is_left=False, color=style.SOFT)
        self._violations(lane.findings, row.top + 4)
        for number, (one, y) in enumerate(row.held):
            later = [other.start for other, at in row.held[number + 1 :] if at == y]
            room = self._pixels(one.start, min([*later, self.timeline.end])) - 2
            owner = _cut(one.owner, 24)
            # Beside its own line only if that is long enough to be seen as its name.
            is_long = self._pixels(one.start, one.end) >= len(owner) * 2
            if is_long and 0 < len(owner) * plans.CHARACTER * 7 <= room:
                self._mark(one.start, y - 2.6, owner, size=7)
        letters = plans.letters_of(self.timeline, self.plan)
        for own in lane.owned:
            name = letters.get(own.member, "?")
            if self._pixels(own.start, own.end) >= 9 * len(name):
                self._mark(own.start, row.base + 8.6, name, size=8, weight="bold")

    def _bars(self) -> None:
        # Draws what all lanes share, each kind as one shape.
        timeline, rows = self.timeline, self.plan.rows
        shade = [
            (start, end, row.top + 2, row.base)
            for row in rows
            for start, end in row.lane.shade()
        ]
        self._boxes(shade, color=style.QUIET, zorder=0.2)
        ends = timeline.start, timeline.end
        self._lines(
            [(*ends, row.base, row.base) for row in rows], color=style.GRID, lw=0.8
        )
        self._owners([(own, row.base) for row in rows for own in row.lane.owned])
        for level in plans.levels_of(timeline):
            held = [one for row in rows for one in row.held if one[0].level is level]
            lines = [(one.start, one.end, y, y) for one, y in held]
            colour, dashes = style.LEVELS[level]
            dashed = (0, dashes) if dashes else "-"
            self._lines(lines, color=colour, linestyle=dashed, lw=4)
        for colour, thick, tall in zip(
            (style.BLUE, style.RED),
            (1.7, 2.4),
            plans.bars_of(timeline, rows, COLUMNS),
            strict=True,
        ):
            lines = [(bar.at, bar.at, base, top) for bar, base, top in tall]
            self._lines(lines, color=colour, lw=thick, zorder=3)
        parked = [
            (one.at, row.base - 2)
            for row in rows
            for one in row.lane.parked
            if one.count
        ]
        self._points(parked, marker="_", color=style.FAULTS, markersize=4)
        purged = [(one.at, row.base - 3) for row in rows for one in row.lane.purged]
        self._points(purged, marker="v", color=style.FAULTS, markersize=4)

    def _owners(self, owned: Sequence[tuple[Owned, float]]) -> None:
        letters = self.timeline.letters
        for number, colour in enumerate(style.OWNERS):
            boxes = [
                (one.start, one.end, base + 1, base + plans.FOOT - 1)
                for one, base in owned
                if letters.get(one.member, 0) % len(style.OWNERS) == number
            ]
            self._boxes(boxes, color=colour, zorder=0.5)
        ends = [
            (one.start, one.start, base + 1, base + plans.FOOT - 1)
            for one, base in owned
        ]
        self._lines(ends, color=style.GROUND, lw=0.8, zorder=0.6)
        lost = [(one.end, base + 5) for one, base in owned if one.is_lost]
        self._points(lost, marker="x", color=style.RED, markersize=5, zorder=3)

    def _violations(self, findings: Sequence[Finding], y: float) -> None:
        dated = sorted((one.at, one.check) for one in findings if one.at is not None)
        pixel = (self.timeline.end - self.timeline.start) / _PLOT
        together: list[list[tuple[float, str]]] = []
        for at, check in dated:
            if not together or self._pixels(together[-1][-1][0], at) > _TOGETHER:
                together.append([])
            together[-1].append((at, check))
        for own in together:
            first, last = own[0][0], own[-1][0]
            checks = " ".join(sorted({check for _, check in own}))
            self._points([(first, y)], marker="v", color=style.RED, markersize=5)
            where = first + 5 * pixel
            look = {"size": 8, "weight": "bold", "color": style.RED}
            self._text(self._pixels(self.timeline.start, where), y + 3, checks, **look)
            beside = where + (3 + 6 * len(checks)) * pixel
            if last > beside:
                self._lines([(beside, last, y, y)], color=style.RED, lw=1.6)

    def _members(self) -> None:
        boxes: dict[str, list[tuple[float, float, float, float]]] = {}
        marks: dict[str, list[tuple[float, float]]] = {}
        for number, (member, y, name) in enumerate(self.plan.members):
            own = boxes.setdefault(style.OWNERS[number % len(style.OWNERS)], [])
            half = plans.MEMBER / 2 - 3
            own += [(start, end, y - half, y + half) for start, end in member.lives]
            label = f"{_cut(member.name, 15)}  {name}"
            self._beside(y + 4, label, is_left=True)
            for kind in ("assigned", "revoked", "lost"):
                points = [one for one in member.points if one.kind == kind]
                shift = {"assigned": 3, "revoked": -3, "lost": 0}[kind]
                apart = {int(self._pixels(0, one.at) / 3): one for one in points}
                marks.setdefault(kind, []).extend(
                    (one.at, y + shift) for one in apart.values()
                )
            counts = [
                f"{n} {kind}"
                for kind in ("assigned", "lost")
                if (n := sum(one.kind == kind for one in member.points))
            ]
            self._beside(y + 4, ", ".join(counts), is_left=False, color=style.SOFT)
        for colour, own in boxes.items():
            self._boxes(own, color=colour, zorder=0.5)
        for kind, places in marks.items():
            self._points(places, **_MARKS[kind])


_MARKS: dict[str, dict[str, object]] = {
    "assigned": {"marker": "^", "color": style.SOFT, "markersize": 4, "mew": 0},
    "revoked": {"marker": "v", "mfc": style.GROUND, "mec": style.SOFT, "markersize": 4},
    "lost": {"marker": "x", "color": style.RED, "markersize": 6},
}


def _legend(timeline: Timeline) -> list[Line2D | Patch]:
    def sign(label: str, **how: object) -> Line2D:
        return Line2D([], [], linestyle="none", label=label, **how)  # type: ignore[arg-type]  # of Line2D

    found: list[Line2D | Patch] = [
        sign("records delivered", marker="|", color=style.BLUE, markersize=9, mew=2)
    ]
    levels = plans.levels_of(timeline)
    if levels:
        found.append(Patch(color=style.QUIET, label="held: no record may come"))
    if any(run.is_wrong for lane in timeline.lanes for run in lane.runs):
        found.append(
            sign(
                "delivered while held",
                marker="|",
                color=style.RED,
                markersize=9,
                mew=2.6,
            )
        )
    for check in timeline.violations:
        label = f"{check}: {plans.MEANINGS[check]}"
        found.append(sign(label, marker="v", color=style.RED, markersize=6))
    for level in levels:
        colour, dashes = style.LEVELS[level]
        how = {"linestyle": (0, dashes)} if dashes else {}
        label = f"hold on a {level.value}, owner above"
        found.append(Line2D([], [], color=colour, lw=4, label=label, **how))  # type: ignore[arg-type]  # of Line2D
    found.append(Patch(color=style.OWNERS[1], label="owned by member A, B, \u2026"))
    kinds = {point.kind for one in timeline.members for point in one.points}
    found += [
        sign(kind, **_MARKS[kind])
        for kind in ("assigned", "revoked", "lost")
        if kind in kinds
    ]
    if timeline.faults:
        found.append(Patch(color=style.FAULTS, label="fault: done to the fleet"))
    if any(lane.parked for lane in timeline.lanes):
        found.append(sign("parked in memory", marker="_", color=style.FAULTS))
    if any(lane.purged for lane in timeline.lanes):
        found.append(sign("purged", marker="v", color=style.FAULTS, markersize=5))
    return found


def _x(at: float) -> float:
    return at / 86_400


def _cut(text: str, most: int) -> str:
    return plans.shortened(legal(text), most)
