"""Implements ``--journal``: writes to a journal what commands place and lift."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from click.core import ParameterSource

from safeconsumer.audit.shared import SharedJournal
from safeconsumer.cli import profiles
from safeconsumer.cli.connection import Connect
from safeconsumer.cli.errors import CommandError, Status, give_up
from safeconsumer.group.operator import Operator

_VARIABLE = "SAFECONSUMER_JOURNAL"

journal_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--journal",
    metavar="FILE",
    envvar=_VARIABLE,
    help="Journal what is placed and lifted in FILE.journal, which all commands and "
    "consoles of this machine may share: an audit needs it to judge whether the group "
    "obeyed. If it cannot be written nothing is changed (status 2); if only the result "
    "cannot be, a message says so (status 1).",
)


def kept_by(context: click.Context, journal: str | None) -> SharedJournal | None:
    """
    Return the journal to use; None for none.

    Raises:
        CommandError: the path would be another file in each folder.
        JournalError: the path cannot be a journal's.
    """
    if not journal:
        return None
    source = context.get_parameter_source("journal")
    path = profiles.expanded(journal)
    if source is ParameterSource.ENVIRONMENT and not path.is_absolute():
        message = f"{_VARIABLE}={journal}: write the whole path, from / on"
        raise CommandError(message)
    return SharedJournal(path)


@contextmanager
def operating(
    context: click.Context, connect: Connect, journal: str | None
) -> Iterator[Operator]:
    """
    Provide an operator, which keeps a journal if one is given.

    It ends the command with :attr:`Status.FAILED` if a change was made and its result
    could not be journaled.

    Raises:
        CommandError, JournalError: as :func:`kept_by`.
    """
    kept = kept_by(context, journal)
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
        f"the result could not be journaled: {operator.unwritten}. No audit will "
        "know whether the change was made"
    )
