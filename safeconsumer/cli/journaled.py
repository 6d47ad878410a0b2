"""Implements ``--journal``: writes to a journal what commands place and lift."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from click.core import ParameterSource

from safeconsumer.audit.shared import SharedJournal
from safeconsumer.cli import profiles
from safeconsumer.cli.connection import Connect
from safeconsumer.cli.errors import CommandError, Status, give_up
from safeconsumer.cli.saying import printable
from safeconsumer.group.operator import Operator

_VARIABLE = "SAFECONSUMER_JOURNAL"

journal_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--journal",
    cls=profiles.Profiled,
    metavar="FILE",
    envvar=_VARIABLE,
    help="Journal what is placed and lifted: FILE.journal of this cluster, also "
    "given by SAFECONSUMER_JOURNAL or a profile, which all commands and consoles of "
    "this machine may share. An audit needs it to judge whether the group obeyed (G2). "
    "If it cannot be written nothing is changed (status 2); if only the result cannot "
    "be journaled, the change is made, and a message says so (status 1).",
)


def kept_by(context: click.Context, journal: str | None) -> SharedJournal | None:
    """
    Return the journal to use; None for none.

    A profile's journal is for the cluster that the profile names, if it names one.

    Raises:
        CommandError: the path would be another file in each folder.
        JournalError: the path cannot be a journal's.
    """
    if not journal:
        _tell_passed_over(context)
        return None
    source = context.get_parameter_source("journal")
    path = profiles.expanded(journal)
    if source is ParameterSource.ENVIRONMENT and not path.is_absolute():
        message = f"{_VARIABLE}={journal}: write the whole path, from / on"
        raise CommandError(message)
    where = profiles.another_cluster(context)
    if source is ParameterSource.DEFAULT_MAP and where is not None:
        _tell_not_kept(f"{path} is for the cluster of its profile, not for {where}")
        return None
    return SharedJournal(path)


def _tell_passed_over(context: click.Context) -> None:
    exported = os.environ.get(_VARIABLE)
    is_chosen = context.get_parameter_source("journal") is ParameterSource.COMMANDLINE
    if exported and profiles.is_settled(context, "journal") and not is_chosen:
        _tell_not_kept(f"{exported} need not be for the cluster of --profile")


def _tell_not_kept(why: str) -> None:
    click.echo(
        f"safeconsumer: {printable(why)}: nothing is journaled. Give a file with "
        "--journal, or in the profile, if it should be",
        err=True,
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
