"""
``--journal``: what commands place and lift is written down, for audits.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from safeconsumer.audit.shared import SharedJournal
from safeconsumer.cli import profiles
from safeconsumer.cli.connection import Connect
from safeconsumer.cli.errors import Status, give_up
from safeconsumer.group.operator import Operator

journal_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--journal",
    cls=profiles.Profiled,
    metavar="FILE",
    envvar="SAFECONSUMER_JOURNAL",
    help="Write down what is placed and lifted: FILE.journal, which all commands and "
    "consoles of this machine may share. An audit needs it to judge whether the group "
    "obeyed (G2).",
)


@contextmanager
def operating(
    context: click.Context, connect: Connect, journal: str | None
) -> Iterator[Operator]:
    """
    Lend an operator that keeps a journal, if one is wanted.

    Ends the command with :attr:`Status.FAILED` where something was done and the journal
    lacks what came of it.

    Raises:
        JournalError: it is no name of a journal.
    """
    kept = SharedJournal(journal) if journal else None
    with Operator(*connect(), journal=kept) as operator:
        try:
            yield operator
        except BaseException:
            if why := _lacks(operator):
                click.echo(f"safeconsumer: {why}", err=True)
            raise
        if why := _lacks(operator):
            give_up(context, why, Status.FAILED)


def _lacks(operator: Operator) -> str:
    if not operator.unwritten:
        return ""
    return (
        f"what came of it could not be journaled: {operator.unwritten}. No audit will "
        "tell whether it was done"
    )
