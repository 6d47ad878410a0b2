"""Implements ``--journal``: writes to a journal what commands place and lift."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from safeconsumer.audit.shared import SharedJournal
from safeconsumer.cli.connection import Connect
from safeconsumer.cli.errors import Status
from safeconsumer.cli.saying import printable
from safeconsumer.group.operator import Operator

journal_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--journal",
    metavar="FILE",
    envvar="SAFECONSUMER_JOURNAL",
    help="Journal what is placed and lifted in FILE.journal, which all commands and "
    "consoles of this machine may share: an audit needs it to judge whether the group "
    "obeyed. If it cannot be written nothing is changed (status 2); if only the result "
    "cannot be, a message says so (status 1).",
)


@contextmanager
def operating(
    context: click.Context, connect: Connect, journal: str | None
) -> Iterator[Operator]:
    """
    Provide an operator, which keeps a journal if one is given.

    It ends the command with :attr:`Status.FAILED` if a change was made and its result
    could not be journaled.

    Raises:
        JournalError: the path cannot be a journal's.
    """
    kept = SharedJournal(journal) if journal else None
    with Operator(*connect(), journal=kept) as operator:
        try:
            yield operator
        finally:
            if operator.unwritten:
                click.echo(
                    "safeconsumer: the result could not be journaled: "
                    f"{printable(operator.unwritten)}. No audit will know whether the "
                    "change was made",
                    err=True,
                )
        if operator.unwritten:
            context.exit(Status.FAILED)
