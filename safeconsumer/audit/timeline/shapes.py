"""
What pictures are made of: a shape's ``kind`` says what it means, a style how it looks.
"""

from collections.abc import Iterable, Sequence

from attrs import frozen


@frozen(kw_only=True)
class Rect:
    """
    A rectangle.
    """

    kind: str
    x: float
    y: float
    width: float
    height: float
    title: str = ""


@frozen(kw_only=True)
class Path:
    """
    Lines or an area, in SVG's own notation.
    """

    kind: str
    d: str
    title: str = ""


@frozen(kw_only=True)
class Text:
    """
    A text that begins, ends or is centred where it stands.
    """

    kind: str
    x: float
    y: float
    text: str
    anchor: str = "start"
    title: str = ""


Shape = Rect | Path | Text


@frozen(kw_only=True)
class Picture:
    """
    Shapes on a ground; the later ones lie above the earlier ones.
    """

    title: str
    width: int
    height: int
    shapes: Sequence[Shape]


def number(value: float) -> str:
    """
    Return a length with one digit after the point at most.
    """
    return f"{value:.1f}".removesuffix(".0")


def level(x: float, y: float, end: float) -> str:
    """
    Return a horizontal line's path.
    """
    return f"M{number(x)} {number(y)}H{number(end)}"


def upright(x: float, y: float, end: float) -> str:
    """
    Return a vertical line's path.
    """
    return f"M{number(x)} {number(y)}V{number(end)}"


def triangle(x: float, y: float, size: float) -> str:
    """
    Return a triangle around a place: pointing down if the size is negative.
    """
    half = abs(size)
    return (
        f"M{number(x - half)} {number(y + size)}h{number(2 * half)}"
        f"l{number(-half)} {number(-2 * size)}z"
    )


def cross(x: float, y: float, size: float) -> str:
    """
    Return a cross around a place.
    """
    left, top, side = number(x - size), number(y - size), number(2 * size)
    return f"M{left} {top}l{side} {side}M{left} {number(y + size)}l{side} -{side}"


def united(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """
    Return stretches that do not overlap and cover the same.
    """
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def shortened(text: str, length: int) -> str:
    """
    Return a text without its middle if it is longer than that.
    """
    if len(text) <= length:
        return text
    head = (length - 1) // 2
    return f"{text[:head]}\u2026{text[head + 1 - length :]}"
