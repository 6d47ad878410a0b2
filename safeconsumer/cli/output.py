"""Prints the results of group commands as a table, a wide table, or JSON."""

import functools
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

import click
from attrs import frozen

from safeconsumer.cli.saying import printable

TABLE, JSON, WIDE = "table", "json", "wide"
_CUT = "…"
_HINT = "(cut to this terminal's width: -o wide shows all)"


@frozen
class Output:
    """
    Prints in the form that was chosen.

    Attributes:
        kind: ``table``, which is cut to the terminal's width, ``wide`` or ``json``.
    """

    kind: str = TABLE

    @property
    def is_json(self) -> bool:
        """Whether a document is printed instead of lines."""
        return self.kind == JSON

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines, cut to the width of a terminal; a line end in one is an escape."""
        width = None
        out: TextIO | None = sys.stdout  # None in a program without a standard output
        if self.kind == TABLE and out is not None and out.isatty():
            width = shutil.get_terminal_size().columns
        shown = [printable(line) for line in lines]
        click.echo("\n".join(fitted(shown, width)))

    def document(self, document: object, *, is_one_line: bool = False) -> None:
        """Print a document."""
        click.echo(json.dumps(document, indent=None if is_one_line else 2))


def fitted(lines: Sequence[str], width: int | None) -> list[str]:
    """Return lines that fit, and a last one that says so if any was cut."""
    shown = [cut(line, width) for line in lines]
    return shown if shown == [*lines] else [*shown, cut(_HINT, width)]


def cut(line: str, width: int | None) -> str:
    """Return as much of a line as fits; None for all of it."""
    if width is None or len(line) <= width:
        return line
    return line[: max(0, width - len(_CUT))] + _CUT


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``-o``; it is called with ``output``."""

    @click.option(
        "-o",
        "--output",
        "kind",
        type=click.Choice([TABLE, JSON, WIDE]),
        default=TABLE,
        show_default=True,
        help="wide: lines are not cut to the terminal's width.",
    )
    @functools.wraps(command)
    def with_output(
        *args: Any,  # noqa: ANN401 - the command's own
        kind: str,
        **kwargs: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the command's own
        return command(*args, output=Output(kind), **kwargs)

    return with_output
