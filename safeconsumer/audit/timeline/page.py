"""
Draws a timeline as one HTML page with plotly, which can be zoomed and has hints.

The page includes the library. Its policy allows only its own two scripts to run, and
nothing to be loaded. Names come from elsewhere and are text, whatever they contain.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape

from attrs import frozen
from plotly import graph_objects
from plotly.offline import get_plotlyjs

from safeconsumer.audit.timeline import plan as plans
from safeconsumer.audit.timeline import style
from safeconsumer.audit.timeline.plan import Plan, Row
from safeconsumer.audit.timeline.story import Bar, Lane, Level, Timeline
from safeconsumer.audit.timeline.style import legal

# More than in a still picture, since it can be zoomed, but still quick in browsers.
_MOST_COLUMNS, _MOST_BARS = 4000, 60_000

_TOP, _LEFT, _RIGHT, _BOTTOM = 110, 170, 130, 10

# Taller than in a still picture, so that people can point at things.
_TALLER = 1.6

# Longer texts are cut.
_READABLE = 400

# Levels differ by colour, and by what their bars are filled with.
_FILLED = {
    Level.PARTITION: "",
    Level.TOPIC: "/",
    Level.PATTERN: ".",
    Level.CONSUMER: "x",
    Level.GROUP: "-",
}

_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    # No button leads elsewhere.
    "modeBarButtonsToRemove": ["lasso2d", "select2d", "sendDataToCloud"],
}

_STYLE = (
    "body{margin:1em;font:14px system-ui,'DejaVu Sans',sans-serif;color-scheme:light;"
    f"color:{style.INK};background:{style.GROUND}}}"
    "h1{font-size:1.3em;margin:0}p{margin:.3em 0}"
    f".good{{color:{style.GREEN};font-weight:bold}}"
    f".bad{{color:{style.RED};font-weight:bold}}"
    f".open{{font-weight:bold}}.soft{{color:{style.SOFT}}}"
    "td,th{padding:0 1em 0 0;text-align:left}"
)


_HOW_TO = (
    "<p class=soft>Drag to zoom, double-click to see all again, point at a thing to "
    "read of it, click on the legend to leave things out.</p>"
)


def page(timeline: Timeline, title: str | None = None, trouble: str = "") -> str:
    """
    Return a timeline as an HTML page.

    Args:
        timeline: the timeline.
        title: replaces the default title.
        trouble: why it is not complete, if it is not.
    """
    plan = plans.planned(timeline)
    lanes = max(1, len(timeline.lanes))
    columns = max(400, min(_MOST_COLUMNS, _MOST_BARS // lanes))
    figure = _Page(timeline, plan, columns).figure()
    library = get_plotlyjs().replace("\r\n", "\n")
    # In a script "<" could end it, or begin a comment.
    document = figure.to_json().replace("<", "\\u003c")
    drawing = (
        f"const figure={document};\n"
        f'Plotly.newPlot("timeline",figure.data,figure.layout,{json.dumps(_CONFIG)})'
    )
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(drawing)}; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )
    name, (said, look) = (
        _text(title or plans.titled(timeline)),
        plans.verdict(timeline, trouble),
    )
    said_of_it = _text(plans.spoken(timeline, trouble))
    notes = "".join(
        f"<li>{_text(one)}" for one in plans.not_drawn(timeline, plan, columns)
    )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{name}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{name}</h1><p class=soft>{_text(plans.summary(timeline))}</p>",
            f'<p class="{look}">{_text(said)}</p>',
            _HOW_TO,
            f'<div id="timeline" role="img" aria-label="{said_of_it}"></div>',
            _table(timeline),
            f"<ul class=soft>{notes}</ul>",
            f"<script>{library}</script>",
            f"<script>{drawing}</script>",
            "</body></html>\n",
        ]
    )


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _text(text: str) -> str:
    return escape(legal(text))


def _broken(lane: Lane) -> Iterable[str]:
    for one in lane.findings:
        what = f"{one.check} {plans.MEANINGS[one.check]}"
        yield f"{what}, by {one.member}: {one.evidence}"


def _not_judged(lane: Lane) -> Iterable[str]:
    for check, why in lane.unjudged.items():
        yield f"{check} could not be judged: {why}"


def _table(timeline: Timeline) -> str:
    # For people who cannot see the picture, and for copying.
    rows = (
        f"<tr><td>{_text(group)}<td>{_text(topic)}:{partition}<td>{lane.records:,}"
        f"<td>{len(lane.held):,}<td>"
        + "<br>".join(_text(one) for one in (*_broken(lane), *_not_judged(lane)))
        for lane in timeline.lanes
        for group, topic, partition in [lane.place]
    )
    return (
        "<details><summary>The same as a table</summary><table><tr><th>group"
        "<th>partition<th>records<th>holds<th>broken promises"
        f"{''.join(rows)}</table></details>"
    )


@frozen
class _Box:
    """Something that lasts, with its place and its hint."""

    start: float
    end: float
    y: float
    height: float
    hint: str = ""
    label: str = ""
    colour: str = ""


@frozen
class _Page:
    timeline: Timeline
    plan: Plan
    columns: int

    def figure(self) -> graph_objects.Figure:
        rows = self.plan.rows
        traces = [
            self._boxes(
                "held: no record may come", style.QUIET, self._shade(), is_silent=True
            ),
            *(self._boxes("owners", "", self._owned()),),
            *(self._held(level) for level in plans.levels_of(self.timeline)),
            *self._deliveries(rows),
            *self._marks(rows),
            self._boxes("faults", style.FAULTS, self._faults()),
            self._boxes("members", "", self._members()),
            *self._rebalances(),
        ]
        figure = graph_objects.Figure([one for one in traces if one is not None])
        self._lay_out(figure)
        self._name(figure)
        return figure

    def _lay_out(self, figure: graph_objects.Figure) -> None:
        tall = _TALLER * self.plan.height
        figure.update_layout(
            template="none",
            barmode="overlay",
            dragmode="zoom",
            hovermode="closest",
            height=_TOP + tall + _BOTTOM,
            margin={"t": _TOP, "l": _LEFT, "r": _RIGHT, "b": _BOTTOM},
            legend={"orientation": "h", "y": 1 + 30 / tall, "yanchor": "bottom"},
            font={"color": style.INK, "size": 11},
            uniformtext={"mode": "hide", "minsize": 7},
            paper_bgcolor=style.GROUND,
            plot_bgcolor=style.GROUND,
        )
        figure.update_xaxes(
            type="date",
            side="top",
            gridcolor=style.GRID,
            range=[_iso(self.timeline.start), _iso(self.timeline.end)],
            showspikes=True,
            spikemode="across",
            spikethickness=1,
            hoverformat="%Y-%m-%d %H:%M:%S.%L",
        )

    def _name(self, figure: graph_objects.Figure) -> None:
        rows = self.plan.rows
        places = [
            *((row.base - 4, f"partition {row.lane.place[2]}") for row in rows),
            *(
                (y, _hint(plans.shortened(f"{one.name}  {letter}", 24)))
                for one, y, letter in self.plan.members
            ),
        ]
        figure.update_yaxes(
            range=[self.plan.height, 0],
            tickvals=[y for y, _ in places],
            ticktext=[text for _, text in places],
            showgrid=False,
            zeroline=False,
        )
        for name, y in self.plan.headings:
            side = "right" if name == "faults" else "left"
            self._note(
                figure, 0, y - 4, f"<b>{_hint(plans.shortened(name, 120))}</b>", side
            )
        for row in rows:
            broken = plans.broken_text(row.lane)
            said = f"{row.lane.records:,} records"
            if broken:
                said += f'<br><b><span style="color:{style.RED}">{broken}</span></b>'
            elif row.lane.unjudged:
                said += f"<br>not judged: {', '.join(row.lane.unjudged)}"
            self._note(figure, 1, row.base - 4, said, "left")

    @staticmethod
    def _note(
        figure: graph_objects.Figure, x: float, y: float, text: str, side: str
    ) -> None:
        figure.add_annotation(
            x=x,
            xref="paper",
            xanchor=side,
            y=y,
            text=text,
            showarrow=False,
            align="left",
        )

    # ------------------------------------------------------------ what lasts

    def _boxes(
        self,
        name: str,
        colour: str,
        boxes: Iterable[_Box],
        *,
        is_silent: bool = False,
        filled: str = "",
    ) -> graph_objects.Bar | None:
        own = list(boxes)
        if not own:
            return None
        hair = (self.timeline.end - self.timeline.start) / 1500
        return graph_objects.Bar(
            name=name,
            orientation="h",
            base=[_iso(one.start) for one in own],
            x=[1000 * max(hair, one.end - one.start) for one in own],
            y=[one.y for one in own],
            width=[one.height for one in own],
            marker={
                "color": colour or [one.colour for one in own],
                "line": {"width": 0},
                **({"pattern": _pattern(colour, filled)} if filled else {}),
            },
            text=[_hint(one.label) for one in own],
            textposition="inside",
            insidetextanchor="start",
            textangle=0,
            textfont={
                "size": 9,
                "color": style.GROUND if filled or colour else style.INK,
            },
            hovertext=[one.hint for one in own],
            hoverinfo="skip" if is_silent else "text",
        )

    def _shade(self) -> Iterable[_Box]:
        for row in self.plan.rows:
            middle, height = (row.top + row.base) / 2, row.base - row.top - 2
            for start, end in row.lane.shade():
                yield _Box(start, end, middle, height)

    def _owned(self) -> Iterable[_Box]:
        letters = plans.letters_of(self.timeline, self.plan)
        for row in self.plan.rows:
            for one in row.lane.owned:
                how = " (lost)" if one.is_lost else ""
                said = _hint(
                    f"{row.lane.place[1]}:{row.lane.place[2]} owned by {one.member}, "
                    f"{plans.lasting(one.end - one.start)}{how}"
                )
                colour = style.OWNERS[
                    self.timeline.letters.get(one.member, 0) % len(style.OWNERS)
                ]
                label = letters.get(one.member, "?")
                y = row.base + plans.FOOT / 2
                yield _Box(one.start, one.end, y, plans.FOOT - 2, said, label, colour)

    def _held(self, level: Level) -> graph_objects.Bar | None:
        boxes = (
            _Box(
                one.start, one.end, y - 2, 9, _hint(plans.said_of_hold(one)), one.owner
            )
            for row in self.plan.rows
            for one, y in row.held
            if one.level is level
        )
        colour, filled = style.LEVELS[level][0], _FILLED[level]
        return self._boxes(f"hold on a {level.value}", colour, boxes, filled=filled)

    def _faults(self) -> Iterable[_Box]:
        for one, y in self.plan.faults:
            whom = f" of {', '.join(one.targets)}" if one.targets else ""
            said = _hint(f"{one.kind}{whom}, {plans.lasting(one.end - one.start)}")
            yield _Box(one.start, one.end, y, plans.FAULT - 4, said, one.kind)

    def _members(self) -> Iterable[_Box]:
        for number, (one, y, _) in enumerate(self.plan.members):
            colour = style.OWNERS[number % len(style.OWNERS)]
            for start, end in one.lives:
                said = _hint(f"{one.name}, {plans.lasting(end - start)}")
                yield _Box(start, end, y, plans.MEMBER - 5, said, "", colour)

    # ------------------------------------------------------------ what happens at once

    def _deliveries(
        self, rows: Sequence[Row]
    ) -> Iterable[graph_objects.Scatter | None]:
        for name, colour, tall in zip(
            ("records delivered", "delivered while held"),
            (style.BLUE, style.RED),
            plans.bars_of(self.timeline, rows, self.columns),
            strict=True,
        ):
            xs: list[str | None] = []
            ys: list[float | None] = []
            hints: list[str] = []
            for bar, base, top in tall:
                xs += [_iso(bar.at), _iso(bar.at), None]
                ys += [base, top, None]
                hints += [_counted(bar)] * 3
            yield _lines(name, xs, ys, hints, color=colour, width=2)

    def _marks(self, rows: Sequence[Row]) -> Iterable[graph_objects.Scatter | None]:
        found = [
            (one, row.top + 4)
            for row in rows
            for one in row.lane.findings
            if one.at is not None
        ]
        for check in sorted({one.check for one, _ in found}):
            yield _points(
                f"{check}: {plans.MEANINGS[check]}",
                [
                    (
                        one.at or 0.0,
                        y,
                        _hint(f"{check} by {one.member}: {one.evidence}"),
                    )
                    for one, y in found
                    if one.check == check
                ],
                symbol="triangle-down",
                color=style.RED,
            )
        for kind, symbol in (("parked", "line-ew-open"), ("purged", "diamond")):
            unit = "bytes parked" if kind == "parked" else "records purged"
            yield _points(
                kind,
                [
                    (one.at, row.base - 2, _hint(f"{one.count:,} {unit} {one.said}"))
                    for row in rows
                    for one in getattr(row.lane, kind)
                    if one.count or kind == "purged"
                ],
                symbol=symbol,
                color=style.FAULTS,
            )

    def _rebalances(self) -> Iterable[graph_objects.Scatter | None]:
        kinds = {
            "assigned": ("triangle-up", style.SOFT, 4),
            "revoked": ("triangle-down-open", style.SOFT, -4),
            "lost": ("x-thin-open", style.RED, 0),
        }
        for kind, (symbol, colour, shift) in kinds.items():
            points = [
                (one.at, y + shift, _hint(f"{one.count} {kind}: {one.said}"))
                for member, y, _ in self.plan.members
                for one in member.points
                if one.kind == kind
            ]
            yield _points(kind, points, symbol=symbol, color=colour)


def _pattern(colour: str, shape: str) -> dict[str, object]:
    return {
        "shape": shape,
        "size": 5,
        "solidity": 0.2,
        "fgcolor": style.GROUND,
        "bgcolor": colour,
    }


def _lines(
    name: str,
    xs: Sequence[str | None],
    ys: Sequence[float | None],
    hints: Sequence[str],
    **line: object,
) -> graph_objects.Scatter | None:
    if not xs:
        return None
    return graph_objects.Scatter(
        name=name,
        x=xs,
        y=ys,
        mode="lines",
        line=line,
        hovertext=hints,
        hoverinfo="text",
    )


def _points(
    name: str, points: Sequence[tuple[float, float, str]], **marker: object
) -> graph_objects.Scatter | None:
    if not points:
        return None
    return graph_objects.Scatter(
        name=name,
        x=[_iso(at) for at, _, _ in points],
        y=[y for _, y, _ in points],
        mode="markers",
        marker={"size": 7, **marker},
        hovertext=[hint for _, _, hint in points],
        hoverinfo="text",
    )


def _counted(bar: Bar) -> str:
    held = f", {bar.wrong:,} of them while held" if bar.wrong else ""
    return f"{bar.count:,} records{held}, offsets {bar.first:,} to {bar.last:,}"


def _hint(text: str) -> str:
    # Plotly reads some HTML in texts, links for one, and formulas between dollars.
    text = escape(plans.shortened(legal(text), _READABLE), quote=False)
    return text.replace("$", "&#36;")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
