"""Checks that the groups, scopes and control topics that a command names exist."""

from collections.abc import Sequence

from safeconsumer.cli.errors import CommandError
from safeconsumer.cli.statuses import Status
from safeconsumer.group import scopes
from safeconsumer.group.operator import Operator
from safeconsumer.group.view import View
from safeconsumer.holds.scope import Scope


def check_scopes(operator: Operator, view: View, found: Sequence[Scope]) -> None:
    """
    Check that each scope covers a partition that the group consumes.

    Raises:
        CommandError: a scope covers nothing; the message suggests similar names.
    """
    if text := scopes.mistakes(view, found, operator.topics):
        raise CommandError(text)


def check_known(operator: Operator, view: View) -> None:
    """
    Check that the group exists or has a hold.

    Raises:
        CommandError: the group does not exist and has no known hold; the message
            suggests similar names.
    """
    if not view.is_known:
        message = scopes.unknown_group(view, operator.groups())
        is_read = view.ends is not None
        raise CommandError(message, Status.USAGE if is_read else Status.REFUSED)


def check_set_up(operator: Operator) -> None:
    """
    Check that a control topic exists, or may exist but be hidden from this principal.

    Raises:
        CommandError: no control topic exists.
    """
    if not operator.is_set_up():
        message = (
            "holds are not set up on this cluster: run safeconsumer control init "
            "(or name your topics with --topic-prefix)"
        )
        raise CommandError(message, Status.REFUSED)
