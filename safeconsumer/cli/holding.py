"""
``safeconsumer pause`` and ``safeconsumer resume``: a whole group, from outside.
"""

import getpass
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from kafka.errors import KafkaError

from safeconsumer.cli import group_text
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import EPILOG, CommandError, explained, said, status_of
from safeconsumer.cli.saying import printable_lines
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import judging, patterns, wire
from safeconsumer.group.durations import seconds_of
from safeconsumer.group.facts import GroupFacts, Standing
from safeconsumer.group.operator import GROUP, OPERATOR, Operator
from safeconsumer.group.picture import Picture
from safeconsumer.group.publisher import Acknowledged, changes, new_hold
from safeconsumer.group.wire import ControlKey
from safeconsumer.holds.hold import checked_owner, checked_reason
from safeconsumer.holds.scope import Everything, Scope

_SCOPES = click.argument("scopes", nargs=-1, required=True, metavar="SCOPE...")
_GROUP = click.option("--group", required=True, help="The consumer group.")
_UNKNOWN = click.option(
    "--new-group",
    "is_new",
    is_flag=True,
    help="The group does not exist yet; hold it from its first member on.",
)


def _duration(text: str | None) -> float | None:
    try:
        return None if text is None else seconds_of(text)
    except ValueError as error:
        message = f"--for: {error}"
        raise CommandError(message) from error


@click.command(epilog=EPILOG)
@_SCOPES
@_GROUP
@click.option("--reason", required=True, help="Why; every member can tell it.")
@click.option(
    "--for",
    "for_",
    metavar="DURATION",
    help="It ends by itself after that: 90s, 30m, 2h, 1d.",
)
@click.option("--owner", default=None, help="Whose hold it is; your login by default.")
@_UNKNOWN
@connection_options
@click.pass_context
def pause(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    group: str,
    reason: str,
    for_: str | None,
    owner: str | None,
    is_new: bool,
    connect: Connect,
) -> None:
    """
    Hold partitions for every member of a group, now and in the future.

    SCOPE is a partition (orders:3), a topic (orders), an RE2 pattern over whole topic
    names (re:ord.*), or @all. Several scopes are several holds: each is complete by
    itself, and running the command again is safe.
    """
    with explained(context):
        whose = checked_owner(owner or _login())
        reason = checked_reason(reason) or ""
        seconds = _duration(for_)
        found = _checked(scopes, group)
        wanted = changes(group, whose, map(str, found), new_hold(reason, seconds))
        with Operator(*connect()) as operator:
            operator.check()
            facts = _known(operator, group, is_new=is_new)
            done = operator.write(OPERATOR, wanted)
            with _written("held", done):
                standing = operator.look(group, is_strict=True).standing
                keys = {one.change.key for one in done}
                own = [
                    one
                    for one in standing
                    if one.source == OPERATOR and one.key in keys
                ]
                shown = "\n".join(_paused(operator, facts, found, own))
                click.echo(printable_lines(shown))
                _tell_others(standing, own, found, facts)


@click.command(epilog=EPILOG)
@_SCOPES
@_GROUP
@click.option("--owner", default=None, help="Whose hold it is; your login by default.")
@click.option(
    "--from-group",
    "source",
    flag_value=GROUP,
    default=OPERATOR,
    help="Lift a hold that a member placed with pause_group(); its owner is app "
    "unless --owner says otherwise.",
)
@connection_options
@click.pass_context
def resume(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    group: str,
    owner: str | None,
    source: str,
    connect: Connect,
) -> None:
    """
    Lift holds of exactly these scopes; others stay, and are named.

    Lifting what is not held is no error: it also lifts what members still obey after a
    control topic was lost.
    """
    with explained(context):
        whose = checked_owner(owner or ("app" if source == GROUP else _login()))
        found = _checked(scopes, group)
        wanted = changes(group, whose, map(str, found), None)
        with Operator(*connect()) as operator:
            operator.check()
            before = _standing_before(operator, group)
            done = operator.write(source, wanted)
            for one in done:
                key = one.change.key
                was = before is None or (source, key) in before
                said = "resumed" if was else "was not held:"
                click.echo(f"{said} {key.scope} {source}:{whose}")
            with _written("resumed", done):
                picture = operator.look(group, is_strict=True)
                click.echo(_covers(operator, picture.facts, found))
                _tell_others(picture.standing, (), found, picture.facts)


def _standing_before(
    operator: Operator, group: str
) -> set[tuple[str, ControlKey]] | None:
    """
    Return what stands before a resume; None if it cannot be read: it is lifted anyway.

    Raises:
        CommandError: there is no such group, and no hold for it.
    """
    try:
        standing = operator.standing(group)
        if not standing:
            known(operator.look(group))
    except (KafkaError, OSError, ControlTopicError):
        return None
    return {(one.source, one.key) for one in standing}


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # a container's user has no name
        message = "nobody knows who you are here: say it with --owner NAME"
        raise CommandError(message) from error


@contextmanager
def _written(what: str, done: Sequence[Acknowledged]) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        scopes = ", ".join(one.change.key.scope for one in done)
        message = (
            f"{what} and acknowledged: {scopes}; but it could not be looked at "
            f"afterwards: {said(error)}"
        )
        raise CommandError(message, status_of(error)) from error


def known(picture: Picture) -> Picture:
    """
    Return the picture if there is anything of the group.

    Raises:
        CommandError: there is no such group, and no hold for it.
    """
    if not picture.is_known:
        message = f"no group {picture.group!r} here, and no hold for it"
        raise CommandError(message)
    return picture


def _checked(texts: Sequence[str], group: str) -> tuple[Scope, ...]:
    if not wire.is_group(group):
        message = f"a group must be printable text of 1 to 1024 characters: {group!r}"
        raise CommandError(message)
    return tuple(map(patterns.parse, dict.fromkeys(texts)))


def _known(operator: Operator, group: str, *, is_new: bool) -> GroupFacts:
    facts = operator.group(group)
    if not facts.is_known and not is_new:
        message = (
            f"no group {group!r} here; look for a typing error, or hold it before it "
            "exists with --new-group"
        )
        raise CommandError(message)
    return facts


def _paused(
    operator: Operator,
    facts: GroupFacts,
    found: Sequence[Scope],
    own: Sequence[Standing],
) -> list[str]:
    lines = ["held"]
    lines += group_text.columns(group_text.standing_row(one) for one in own)
    return [*lines, _covers(operator, facts, found)]


def _covers(operator: Operator, facts: GroupFacts, found: Sequence[Scope]) -> str:
    here = [tp for tp in facts.partitions if any(one.covers(tp) for one in found)]
    if here:
        shown = judging.partitions_text(here)
        return f"covers {len(here)} partitions of the group now: {shown}"
    named = [one for one in found if not isinstance(one, Everything)]
    exist = operator.partitions(named) if named else ()
    there = f"; they exist: {judging.partitions_text(exist)}" if exist else ""
    return f"warning: covers nothing that the group consumes now{there}"


def _tell_others(
    standing: Sequence[Standing],
    own: Sequence[Standing],
    found: Sequence[Scope],
    facts: GroupFacts,
) -> None:
    here = [tp for tp in facts.partitions if any(one.covers(tp) for one in found)]
    named = set(map(str, found))
    others = [
        one
        for one in standing
        if one not in own
        and (one.key.scope in named or any(one.covers(tp) for tp in here))
    ]
    if others:
        rows = group_text.columns(map(group_text.standing_row, others))
        click.echo(
            printable_lines("\n".join(["also held" if own else "still held", *rows]))
        )
