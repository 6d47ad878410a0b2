"""Implements ``safeconsumer resume``: lifts holds by scope, by owner or by id."""

from collections.abc import Sequence
from typing import Any

import click
from attrs import frozen
from click.core import ParameterSource
from kafka.errors import KafkaError

from safeconsumer.cli import group_text, refusing
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import EPILOG, CommandError, Status, explained
from safeconsumer.cli.holding import GROUP_OPTION, covers_text, undo, written
from safeconsumer.cli.journaled import journal_option, operating
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.owners import owner_of, owner_option
from safeconsumer.cli.saying import Command
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import patterns
from safeconsumer.group.documents import standing_document
from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import GROUP, OPERATOR, Operator
from safeconsumer.group.overtaking import Overtaken, overtaken, time_of
from safeconsumer.group.picture import Picture
from safeconsumer.group.publisher import Acknowledged, Change, changes
from safeconsumer.group.scopes import covered, partitions_of, scopes_of
from safeconsumer.holds.hold import APP
from safeconsumer.holds.scope import Scope


@frozen(kw_only=True)
class _Asked:
    """
    What to lift.

    Attributes:
        group: the group whose members obey the holds.
        source: ``operator`` or ``group``, for the control topic.
        owner: the owner of the holds; None if ids are given.
        scopes: exactly these scopes; empty for all of the owner's holds.
        ids: the ids that ``pause -o json`` and ``status`` show.
    """

    group: str
    source: str
    owner: str | None
    scopes: tuple[Scope, ...]
    ids: tuple[str, ...]


@click.command(cls=Command, epilog=EPILOG)
@click.argument("scopes", nargs=-1, metavar="[SCOPE...]")
@GROUP_OPTION
@owner_option
@click.option("--all", "is_all", is_flag=True, help="Every hold of --owner.")
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    help="The hold with this id, of any owner.",
)
@click.option(
    "--from-group",
    "source",
    flag_value=GROUP,
    default=OPERATOR,
    help="Lift a hold that a member placed with pause_group(); its owner is app "
    "unless --owner says otherwise.",
)
@journal_option
@output_options
@connection_options
@click.pass_context
def resume(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    group: str,
    owner: str | None,
    is_all: bool,
    ids: tuple[str, ...],
    source: str,
    journal: str | None,
    output: Output,
    connect: Connect,
) -> None:
    """
    Lift holds of exactly these scopes; others stay, and are named.

    Lifting a scope without a hold is no error if the group consumes it: it also lifts
    holds that members still obey after a control topic was lost.
    """
    with explained(context):
        if sum(map(bool, (scopes, is_all, ids))) != 1:
            message = "nothing to lift: give SCOPE..., --all, or --id ID"
            raise CommandError(message)
        given = context.get_parameter_source("owner") is ParameterSource.COMMANDLINE
        default = APP if source == GROUP and not given else owner
        asked = _Asked(
            group=group,
            source=source,
            owner=None if ids else owner_of(default),
            scopes=scopes_of(scopes, group),
            ids=ids,
        )
        with operating(context, connect, journal) as operator:
            operator.check()
            before, since = _standing(operator, asked)
            if not (asked.scopes or before is None or before):
                refusing.refuse_unknown(operator, operator.look(group))
            wanted = _wanted(asked, before)
            if before is not None:
                _refuse_typos(operator, asked, wanted, before)
            done = operator.write(asked.source, wanted)
            with written("resumed", done):
                unseen = _unseen(operator, asked, done, since)
                _check_ids(operator, asked, done, unseen)
                after = operator.look(group, is_strict=True)
                if before is not None:
                    before = (*before, *(one.before for one in unseen))
                    before = _in_force(before, done, after.skew)
                _tell(output, asked, done, before, after)
        if _is_in_vain(asked, done, before, after):
            context.exit(Status.FAILED)


def _standing(
    operator: Operator, asked: _Asked
) -> tuple[tuple[Standing, ...] | None, int | None]:
    """Return the existing holds, and an offset below which everything was read."""
    # Holds that cannot be read must still be liftable.
    try:
        ends = operator.ends()
        standing = operator.standing(asked.group)
    except (KafkaError, OSError, ControlTopicError):
        return None, None
    return standing, ends[operator.topic_of(asked.source)]


def _wanted(asked: _Asked, before: Sequence[Standing] | None) -> tuple[Change, ...]:
    if asked.scopes:
        return changes(asked.group, str(asked.owner), map(str, asked.scopes), None)
    if before is None:
        message = "what is held cannot be read now: name the scopes"
        raise CommandError(message, Status.UNREACHABLE)
    here = [one for one in before if one.source == asked.source]
    found = [
        one for one in here if one.key.owner == asked.owner or _id_of(one) in asked.ids
    ]
    missing = [one for one in asked.ids if one not in map(_id_of, found)]
    if missing or not found:
        which = f"with id {', '.join(missing)}" if missing else f"by {asked.owner}"
        message = f"nothing of {asked.group!r} is held {which}{_holders(before)}"
        if len(asked.ids) > len(missing) > 0:
            message += ". Nothing was changed"
        raise CommandError(message, Status.FAILED)
    return tuple(Change(one.key, None) for one in found)


def _id_of(one: Standing) -> str | None:
    return None if one.hold is None else one.hold.hold_id


def _unseen(
    operator: Operator,
    asked: _Asked,
    done: Sequence[Acknowledged],
    since: int | None,
) -> tuple[Overtaken, ...]:
    """Return the holds that were placed after the look, and that were lifted unseen."""
    if since is None:
        return ()
    found = overtaken(operator, asked.source, done, since)
    return tuple(one for one in found if one.before.hold is not None)


def _in_force(
    before: Sequence[Standing], done: Sequence[Acknowledged], skew: float
) -> tuple[Standing, ...]:
    """Return the holds that had not expired when they were lifted, by the broker's time."""
    lifted = max((time_of(one) or 0.0 for one in done), default=0.0)
    return tuple(one for one in before if one.in_force(lifted, skew))


def _check_ids(
    operator: Operator,
    asked: _Asked,
    done: Sequence[Acknowledged],
    unseen: Sequence[Overtaken],
) -> None:
    """Put back what was lifted by an id that it does not have."""
    others = [one for one in unseen if _id_of(one.before) not in asked.ids]
    if asked.ids and others:
        undo(operator, asked.source, others, done, "resumed", _another)


def _another(one: Overtaken) -> str:
    return f"another hold stands there: {' '.join(one.before.cells())}"


def _holders(before: Sequence[Standing]) -> str:
    owners = sorted({f"{one.source}:{one.key.owner}" for one in before})
    return f"; there are holds by {', '.join(owners[:5])}" if owners else ""


def _refuse_typos(
    operator: Operator,
    asked: _Asked,
    wanted: Sequence[Change],
    before: Sequence[Standing],
) -> None:
    held = {one.key.scope for one in before}
    unheld = [one for one in asked.scopes if str(one) not in held]
    if not wanted or not unheld:
        return
    try:
        picture = operator.look(asked.group)
    except (KafkaError, OSError, ControlTopicError):
        return  # write first; report afterwards what could not be read
    refusing.refuse_unknown(operator, picture)
    refusing.refuse_nothing(operator, picture, unheld, unless="")


def _tell(
    output: Output,
    asked: _Asked,
    done: Sequence[Acknowledged],
    before: Sequence[Standing] | None,
    after: Picture,
) -> None:
    were = {(one.source, one.key): one for one in before or ()}
    scopes = _scopes(done)
    covers = covered(scopes, partitions_of(after))
    left = _left(scopes, covers, after)
    if output.is_json:
        output.document(
            {
                "resumed": [
                    {
                        "scope": one.change.key.scope,
                        "source": asked.source,
                        "owner": one.change.key.owner,
                        "was_held": None
                        if before is None
                        else (asked.source, one.change.key) in were,
                    }
                    for one in done
                ],
                "covers": [f"{tp.topic}:{tp.partition}" for tp in covers],
                "still_held": [standing_document(one) for one in left],
            }
        )
        return
    lines = []
    for one in done:
        key = one.change.key
        was = before is None or (asked.source, key) in were
        said = "resumed" if was else "was not held:"
        lines.append(f"{said} {key.scope} {asked.source}:{key.owner}")
    lines.append(covers_text(covers))
    if left:
        rows = group_text.columns(map(Standing.cells, left))
        lines += ["still held", *rows]
    output.lines(lines)


def _scopes(done: Sequence[Acknowledged]) -> list[Any]:
    reads = (patterns.read(one.change.key.scope) for one in done)
    return [one.scope for one in reads if one is not None]


def _left(
    scopes: Sequence[Any], covers: Sequence[Any], after: Picture
) -> list[Standing]:
    named = set(map(str, scopes))
    return [
        one
        for one in after.standing
        if one.key.scope in named or any(one.covers(tp) for tp in covers)
    ]


def _is_in_vain(
    asked: _Asked,
    done: Sequence[Acknowledged],
    before: Sequence[Standing] | None,
    after: Picture,
) -> bool:
    # A command that lifts nothing while something holds the scope was given the wrong
    # owner or scope: it has not succeeded.
    if before is None:
        return False
    were = {(one.source, one.key) for one in before}
    if any((asked.source, one.change.key) in were for one in done):
        return False
    scopes = _scopes(done)
    return bool(_left(scopes, covered(scopes, partitions_of(after)), after))
