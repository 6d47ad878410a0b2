"""
Shapes as SVG, and as a page that shows the SVG; standard library only.

Names of topics, members and owners come from elsewhere: they become text, whatever they
contain, and never markup. The picture has a ground of its own and asks for the dark
colours where people prefer them, so it is readable on any page.
"""

import re
from xml.sax.saxutils import escape

from safeconsumer.audit.timeline.shapes import (
    Path,
    Picture,
    Rect,
    Shape,
    Text,
    number,
)

# What XML 1.0 cannot carry, and halves of surrogate pairs, which UTF-8 cannot.
_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_LIGHT = """
.ground{fill:#fff;stroke:#d0d7de}
text{fill:#24292f;font:11px ui-sans-serif,system-ui,"Segoe UI","DejaVu Sans",sans-serif}
.title{font-size:16px;font-weight:600}
.topic{font-weight:600}
.soft{fill:#57606a}
.small{font-size:9px}
.letter{font-size:8px;font-weight:600;fill:#1f2328}
.good{fill:#1a7f37;font-weight:600}
.bad{fill:#cf222e;font-weight:600}
.grid{stroke:#d0d7de;stroke-width:.6;fill:none}
.rule{stroke:#afb8c1;stroke-width:.8;fill:none}
.quiet{fill:#bf8700;fill-opacity:.13}
.bars,.wrong{pointer-events:bounding-box}
.bars{stroke:#0969da;stroke-width:1.7;fill:none}
.wrong{stroke:#cf222e;stroke-width:2.4;fill:none}
.violation{fill:#cf222e;stroke:#fff;stroke-width:.5}
.wrong-line{stroke:#cf222e;stroke-width:1.6;fill:none}
.lost{stroke:#cf222e;stroke-width:1.4;fill:none}
.assigned{fill:#57606a}
.revoked{fill:none;stroke:#57606a;stroke-width:1}
.life{fill:#57606a;fill-opacity:.16}
.fault{fill:#8250df;fill-opacity:.75}
.struck{fill:#8250df;fill-opacity:.06}
.parked{stroke:#8250df;stroke-width:1.2;stroke-dasharray:2 2;fill:none}
.purged{fill:#8250df}
.o0{fill:#d8dee4}.o1{fill:#b6e3ff}.o2{fill:#ffd8b5}.o3{fill:#c9e9c3}
.o4{fill:#e6d3fb}.o5{fill:#f7d6e6}.o6{fill:#e4e2a8}.o7{fill:#c2e6e2}
.held{stroke-width:4;fill:none}
.partition{stroke:#0072b2}
.topic-hold{stroke:#008060;stroke-dasharray:11 2}
.pattern{stroke:#b5508c;stroke-dasharray:2 2}
.consumer{stroke:#c77700;stroke-dasharray:9 2 2 2}
.group{stroke:#5c3d26;stroke-dasharray:5 3}
"""

_DARK = """
.ground{fill:#0d1117;stroke:#30363d}
text{fill:#e6edf3}
.soft{fill:#9198a1}
.letter{fill:#f0f6fc}
.good{fill:#3fb950}.bad{fill:#ff7b72}
.grid{stroke:#30363d}.rule{stroke:#484f58}
.quiet{fill:#d29922;fill-opacity:.2}
.bars{stroke:#58a6ff}
.wrong,.wrong-line,.lost{stroke:#ff7b72}
.violation{fill:#ff7b72;stroke:#0d1117}
.assigned{fill:#9198a1}.revoked{stroke:#9198a1}
.life{fill:#9198a1;fill-opacity:.22}
.fault,.purged{fill:#bc8cff}.struck{fill:#bc8cff;fill-opacity:.1}
.parked{stroke:#bc8cff}
.o0{fill:#3d444d}.o1{fill:#1f4b72}.o2{fill:#6b4423}.o3{fill:#2b5a34}
.o4{fill:#513a70}.o5{fill:#6b3550}.o6{fill:#5a5720}.o7{fill:#1f5854}
.partition{stroke:#56b4e9}.topic-hold{stroke:#2fc79a}.pattern{stroke:#e0a3c6}
.consumer{stroke:#f0b429}.group{stroke:#c39a78}
"""

_STYLE = f"<style>{_LIGHT}@media(prefers-color-scheme:dark){{{_DARK}}}</style>"


def svg(picture: Picture) -> str:
    """
    Return a picture as an SVG document.
    """
    width, height = picture.width, picture.height
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} '
                f'{height}" width="{width}" height="{height}" role="img">'
            ),
            f"<title>{said(picture.title)}</title>",
            _STYLE,
            (
                f'<rect class="ground" x=".5" y=".5" width="{width - 1}" '
                f'height="{height - 1}" rx="6"/>'
            ),
            *map(_drawn, picture.shapes),
            "</svg>\n",
        ]
    )


def page(picture: Picture) -> str:
    """
    Return a picture as an HTML page; it loads nothing and runs nothing.
    """
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            (
                '<meta http-equiv="Content-Security-Policy" '
                "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
            ),
            '<meta name="viewport" content="width=device-width">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{said(picture.title)}</title>",
            "<style>body{margin:1em}svg{max-width:100%;height:auto}</style>",
            "</head><body>",
            svg(picture),
            "</body></html>\n",
        ]
    )


def said(text: str) -> str:
    """
    Return any text as the content of an element or of a quoted attribute.
    """
    return escape(_ILLEGAL.sub("\ufffd", text), {'"': "&quot;"})


def _drawn(shape: Shape) -> str:
    title = f"<title>{said(shape.title)}</title>" if shape.title else ""
    match shape:
        case Rect():
            name, inside = "rect", title
            x, y, width, height = map(
                number, (shape.x, shape.y, shape.width, shape.height)
            )
            place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        case Path():
            name, inside, place = "path", title, f'd="{shape.d}"'
        case Text():
            name, inside = "text", title + said(shape.text)
            place = f'x="{number(shape.x)}" y="{number(shape.y)}"'
            if shape.anchor != "start":
                place += f' text-anchor="{shape.anchor}"'
    end = f">{inside}</{name}>" if inside else "/>"
    return f'<{name} class="{shape.kind}" {place}{end}'
