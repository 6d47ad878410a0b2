"""Implements ``safeconsumer reset-offsets``: moves the offsets of a group that runs."""

from collections.abc import Mapping
from typing import Any

import click

from safeconsumer.cli import refusing, waiting
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import EPILOG, CommandError, Status, explained, give_up
from safeconsumer.cli.holding import (
    GROUP_OPTION,
    SCOPES,
    refuse_unforced,
    timeout_of,
)
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.owners import owner_of, owner_option
from safeconsumer.group.carry_out import Done, PlanChangedError, carry_out
from safeconsumer.group.movements import is_moved, movements, readers
from safeconsumer.group.operator import Operator
from safeconsumer.group.partitions import covered
from safeconsumer.group.plan import Consent, Plan, ResetTo, plan_of, reset_row
from safeconsumer.group.reset_to import read_to
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.view import View


@click.command("reset-offsets", epilog=EPILOG)
@SCOPES
@GROUP_OPTION
@click.option(
    "--to",
    "to",
    required=True,
    metavar="WHERE",
    help="earliest, latest, an offset, -N (before what is committed), or a time: "
    "2026-11-27T10:00, in UTC.",
)
@owner_option
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@click.option(
    "--force",
    is_flag=True,
    help="Move the others, though the owner of a partition will not move it.",
)
@click.option(
    "--wait",
    "patience",
    metavar="DURATION",
    help="Wait until it is done, at most this long; after it the status is 1.",
)
@output_options
@connection_options
@click.pass_context
def reset_offsets(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    group: str,
    to: str,
    owner: str | None,
    patience: str | None,
    output: Output,
    connect: Connect,
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
        whose, where = owner_of(owner), read_to(to)
        found = scopes_of(scopes, group)
        limit = None if patience is None else timeout_of(patience, "--wait")
        with Operator(*connect()) as operator:
            operator.check()
            view = operator.look(group, is_strict=True, has_lags=False)
            refusing.refuse_unknown(operator, view)
            partitions = covered(found, view.consumed)
            wish = ResetTo(
                group=group,
                owner=whose,
                scopes=found,
                asked=to,
                places=operator.places(where, partitions, view.facts.committed),
                topic_ids=operator.topic_ids({tp.topic for tp in partitions}),
            )
            plan = plan_of(view, wish, operator)
            if flags["dry_run"]:
                _show(output, plan)
                return
            _refuse(plan, flags)
            done = _carried_out(operator, plan)
            if not output.is_json:
                output.lines(_rows(done.plan, wish))
            _move_what_nobody_owns(operator, wish)
            reached = None
            if limit is not None:
                reached = waiting.wait_until(
                    operator, group, lambda now: is_moved(now, found), limit
                )
            _end(context, output, done, reached)


def _refuse(plan: Plan, flags: Mapping[str, bool]) -> None:
    for one in plan.needs:
        if one.consent is Consent.NONE:
            message = f"{one.why}: {one.ask}. Nothing was changed"
            raise CommandError(message, Status.FAILED)
    refuse_unforced(plan, force=flags["force"])


def _carried_out(operator: Operator, plan: Plan) -> Done:
    def agrees(now: Plan) -> bool:
        return now.digest == plan.digest

    try:
        return carry_out(operator, plan.view, plan.wish, operator, agrees)
    except PlanChangedError as error:
        raise CommandError(str(error), Status.FAILED) from error


def _move_what_nobody_owns(operator: Operator, wish: ResetTo) -> None:
    """Commit for a group without members, of which nobody reports that it reads."""
    view = operator.look(wish.group, is_strict=True, has_lags=False)
    if readers(view) or view.unsettled:
        return
    left = {one.tp: one.offset for one in movements(view, wish.scopes) if one.why}
    if left:
        operator.move_empty(wish.group, left)  # what is refused has an owner by now


def _rows(plan: Plan, wish: ResetTo) -> list[str]:
    view: View = plan.view
    return [reset_row(view, tp, at.offset) for tp, at in wish.places.items()]


def _show(output: Output, plan: Plan) -> None:
    if output.is_json:
        output.document({"dry_run": True, **plan.document()})
        return
    output.lines([*(text for _, text in plan.says), "nothing was changed"])


def _end(
    context: click.Context,
    output: Output,
    done: Done,
    reached: waiting.Outcome | None,
) -> None:
    if output.is_json:
        waited = None if reached is None else reached.document()
        document: dict[str, Any] = {**done.plan.document(), "wait": waited}
        output.document(document)
    if reached is not None and not reached.is_reached:
        why = f"asked for, but not moved in {reached.waited:.0f} s: {reached.sentence}"
        give_up(context, why, Status.FAILED)
    if not output.is_json:
        lines = ["asked for: wait moved tells when it is done"]
        if reached is not None:
            lines = [f"{reached.sentence}, after {reached.waited:.1f} s"]
        output.lines(lines)
