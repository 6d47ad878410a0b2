"""Implements ``safeconsumer reset-offsets``: moves the offsets of a group that runs."""

import click

from safeconsumer.cli import refusing, waiting
from safeconsumer.cli.errors import EPILOG, explained
from safeconsumer.cli.holding import (
    SCOPES,
    Asked,
    asked_options,
    timeout_of,
    wait_option,
    written,
)
from safeconsumer.group.operator import Operator
from safeconsumer.group.plan import plan_of
from safeconsumer.group.reset_to import move_what_nobody_owns, read_to, wish_to_reset
from safeconsumer.group.scopes import scopes_of


@click.command("reset-offsets", epilog=EPILOG)
@SCOPES
@asked_options
@click.option(
    "--to",
    "to",
    required=True,
    metavar="WHERE",
    help="earliest, latest, an offset, -N (before what is committed), or a time: "
    "2026-11-27T10:00, in UTC.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Move the others, though the owner of a partition will not move it.",
)
@wait_option("it is done")
@click.pass_context
def reset_offsets(
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    asked: Asked,
    to: str,
    patience: str | None,
    **flags: bool,
) -> None:
    """
    Move the offsets of a group that runs, under a hold of yours that covers SCOPE.

    Place the hold first (pause), and lift it (resume) when all is moved: nothing is
    delivered in between. Each member moves what it owns, once it has no record of it in
    hand; what nobody owns its next owner moves, or this command if the group has no
    member. Offsets are looked up once, now: -N counts offsets, not records. Moved back,
    records are delivered again; what was done with them is not undone.
    """
    with explained(context):
        owner, group, where = asked.whose, asked.group, read_to(to)
        found = scopes_of(scopes, group)
        limit = None if patience is None else timeout_of(patience, "--wait")
        with Operator(*asked.connect()) as operator:
            view = operator.look(group, is_strict=True, has_lags=False)
            refusing.refuse_unknown(operator, view)
            wish = wish_to_reset(
                operator.admin, view, owner=owner, scopes=found, to=where
            )
            done = asked.carried_out(operator, plan_of(view, wish, operator), flags)
            if done is None:
                return
            with written("asked for", done.acknowledged):
                view = operator.look(group, is_strict=True, has_lags=False)
                move_what_nobody_owns(operator.admin, view, found)
                if not asked.output.is_json:
                    asked.output.lines(wish.rows(done.plan.view))
                reached = None
                if limit is not None:
                    reached = waiting.wait_until(
                        operator,
                        group,
                        lambda now: waiting.is_moved(now, found),
                        limit,
                    )
                elif not asked.output.is_json:
                    asked.output.lines(["asked for: wait moved tells when it is done"])
                asked.end(context, done.document(), reached, "asked for, but not moved")
