"""Prints the results of commands as a table or JSON."""

import json
import select
import sys
import textwrap
from collections.abc import Iterable

import click
from attrs import frozen

from safeconsumer.cli.options import options
from safeconsumer.holds.explain import printable

TABLE, JSON = "table", "json"
_PIECE = 8192


@frozen
class Output:
    """
    Prints results in the chosen format.

    Attributes:
        kind: ``table`` or ``json``.
    """

    kind: str = TABLE

    @property
    def is_json(self) -> bool:
        """Whether documents are printed instead of lines."""
        return self.kind == JSON

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines; a line break within a line is escaped."""
        _print("\n".join(map(printable, lines)))

    def document(self, document: object) -> None:
        """Print a document."""
        _print(json.dumps(document, indent=2))

    def line(self, document: object) -> None:
        """Print a document as one line."""
        _print(json.dumps(document))

    def documents(self, several: Iterable[object]) -> None:
        """Print documents as one JSON array, each as soon as it is available."""
        before = "["
        for one in several:
            text = textwrap.indent(json.dumps(one, indent=2), "  ")
            _print(f"{before}\n{text}", end="")
            before = ","
        _print("[]" if before == "[" else "\n]")


def _print(text: str, end: str = "\n") -> None:
    # Write the text in pieces: if the reader of an unbuffered pipe goes away during one
    # long write, Python drops the rest without an error.
    for start in range(0, len(text), _PIECE):
        click.echo(text[start : start + _PIECE], nl=False)
    click.echo(end, nl=False)


def check_has_reader() -> None:
    """
    Check that the output still has a reader.

    Raises:
        BrokenPipeError: the output is a pipe that has lost its reader.
    """
    watched = select.poll()
    try:
        watched.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # stdout is closed or not a file
        return
    if any(events & select.POLLERR for _, events in watched.poll(0)):
        raise BrokenPipeError


output_options = options(
    "output",
    Output,
    click.option(
        "-o",
        "--output",
        "kind",
        type=click.Choice([TABLE, JSON]),
        default=TABLE,
        show_default=True,
        help="A table for people, or JSON for programs.",
    ),
)
"""Gives a command ``-o``, as the argument ``output``."""
