"""Implements ``safeconsumer pause``, ``extend`` and ``resume`` for whole groups."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Any

import click
from kafka import TopicPartition
from kafka.errors import KafkaError

from safeconsumer.cli import group_text, refusing, waiting
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import (
    EPILOG,
    CommandError,
    Status,
    explained,
    give_up,
    status_of,
)
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.owners import host, owner_of, owner_option, principal
from safeconsumer.errors.base import ControlTopicError, HoldSettingError
from safeconsumer.group.carry_out import (
    Done,
    PlanChangedError,
    carry_out,
    read_again,
)
from safeconsumer.group.documents import hold_document
from safeconsumer.group.durations import seconds_of
from safeconsumer.group.facts import UNKNOWN, GroupFacts, HoldRecord
from safeconsumer.group.operator import Operator
from safeconsumer.group.partitions import partitions_text
from safeconsumer.group.plan import (
    LACKED,
    Consent,
    Extend,
    Lift,
    Named,
    Place,
    Plan,
    duration_of,
    lift,
    of_later_version,
    plan_of,
    wish_of,
)
from safeconsumer.group.report_wire import kept_text
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.troubles import said
from safeconsumer.group.view import View
from safeconsumer.holds.explain import counted
from safeconsumer.holds.scope import Scope

SCOPES = click.argument("scopes", nargs=-1, required=True, metavar="SCOPE...")
GROUP_OPTION = click.option("--group", required=True, help="The consumer group.")

_UNCHANGED = (
    ". Nothing was changed: extend makes it last longer, --replace puts this in its "
    "place"
)
_TROUBLES = (KafkaError, OSError, ControlTopicError)
# The end of a refusal, and its exit status; who types @all means it.
_REFUSALS = {
    Consent.FUTURE: (" (use --future to hold it for later)", Status.USAGE),
    Consent.REPLACE: (_UNCHANGED, Status.FAILED),
}


def _for_option(
    *, is_required: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--for",
        "for_",
        required=is_required,
        metavar="DURATION",
        help="It ends after this time, counted from now: 90s, 30m, 2h, 1d, 1w.",
    )


# ---------------------------------------------------------------- pause


@click.command(epilog=EPILOG)
@SCOPES
@GROUP_OPTION
@click.option("--reason", required=True, help="Why; every member can show it.")
@_for_option()
@owner_option
@click.option(
    "--future",
    is_flag=True,
    help="Allow a group that does not exist yet, and a SCOPE that covers nothing yet.",
)
@click.option(
    "--replace", is_flag=True, help="Replace your own hold of the same scope."
)
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@click.option(
    "--wait",
    "patience",
    metavar="DURATION",
    help="Wait until quiet, at most this long; after it the status is 1.",
)
@output_options
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
    patience: str | None,
    output: Output,
    connect: Connect,
    **flags: bool,
) -> None:
    """
    Hold partitions for every member of a group, now and in the future.

    SCOPE is a partition (orders:3), several (orders:0-2,5), a topic (orders), an RE2
    pattern over whole topic names (re:ord.*), or @all. Several scopes are several
    holds: each is complete by itself. Running the same command again does not change
    existing holds, and places those that an interrupted command did not; what has ended,
    or may have by this clock, is renewed. With --wait, quiet means that the members obey
    and have no record of it in hand: no handler runs, and a loop has polled again.
    """
    with explained(context):
        wish = wish_of(
            group=group,
            owner=owner_of(owner),
            texts=scopes,
            reason=reason,
            for_=for_,
        )
        limit = None if patience is None else timeout_of(patience, "--wait")
        with Operator(*connect()) as operator:
            operator.check()
            wish = wish.written_by(host(), principal(operator.base))
            plan = plan_of(operator.look(group, is_strict=True), wish, operator)
            _refuse(plan, flags)
            if flags["dry_run"]:
                _show(output, operator, plan)
                return
            done = _carried_out(operator, plan)
            with _written("held", done.acknowledged):
                if not output.is_json:
                    output.lines(_placed_lines(done))
                reached = None
                if limit is not None:
                    reached = _wait(operator, wish, limit)
                _end(context, output, done, reached)


def _refuse(plan: Plan, flags: Mapping[str, bool]) -> None:
    """Refuse a plan that needs a flag which was not given."""
    for one in plan.needs:
        if one.consent is Consent.NONE:
            message = f"{one.why}: {one.ask}. Nothing was changed"
            raise CommandError(message, Status.FAILED)
        if one.consent in _REFUSALS and not flags[one.consent.value]:
            more, status = _REFUSALS[one.consent]
            raise CommandError(one.why + more, status)


def _carried_out(operator: Operator, plan: Plan) -> Done:
    # The flags agree to what this plan needs, and to nothing else.
    try:
        return carry_out(
            operator,
            plan.view,
            plan.wish,
            operator,
            lambda now: now.digest == plan.digest,
        )
    except (PlanChangedError, HoldSettingError) as error:
        raise CommandError(str(error), Status.FAILED) from error


def timeout_of(text: str, option: str = "--timeout") -> float:
    """
    Return the seconds of an option; with ``0s`` it looks once.

    Raises:
        CommandError: it is not a duration.
    """
    try:
        return 0.0 if text == "0s" else seconds_of(text)
    except ValueError as error:
        message = f"{option}: {error}"
        raise CommandError(message) from error


def _show(output: Output, operator: Operator, plan: Plan) -> None:
    topics = sorted({tp.topic for tp in plan.covers})
    plan = plan.with_retention(operator.retention(topics))
    if output.is_json:
        output.document({"dry_run": True, **plan.document()})
        return
    others = (
        f"held besides by {one.cells()[1]}: {one.key.scope}" for one in plan.others
    )
    says = (text for _, text in plan.says)
    output.lines([*says, *others, "nothing was changed"])


def _placed_lines(done: Done) -> Iterator[str]:
    plan = done.plan
    lacked = [one for one in plan.renewed if plan.view.is_outlived(one)]
    over = [one for one in plan.renewed if one not in lacked]
    for heading, several in (
        ("held", done.acknowledged),
        ("held already, unchanged", plan.unchanged),
        ("renewed, as it was over or may have been", over),
        (f"renewed, as {LACKED}", lacked),
        ("instead of", plan.replaced),
    ):
        if several:
            yield heading
            yield from group_text.columns(map(HoldRecord.cells, several))
    yield _covers_text(plan.covers)
    if plan.others:
        yield "also held"
        yield from group_text.columns(map(HoldRecord.cells, plan.others))


def _end(
    context: click.Context,
    output: Output,
    done: Done,
    reached: waiting.Outcome | None,
) -> None:
    if output.is_json:
        waited = None if reached is None else reached.document()
        output.document({**done.document(), "wait": waited})
    if reached is not None and not reached.is_reached:
        why = f"held, but not quiet in {reached.waited:.0f} s: {reached.sentence}"
        give_up(context, why, Status.FAILED)
    if reached is not None and not output.is_json:
        output.lines([f"{reached.sentence}, after {reached.waited:.1f} s"])


def _covers_text(covers: Sequence[TopicPartition]) -> str:
    if not covers:
        return "warning: covers nothing that the group consumes now"
    shown = partitions_text(covers)
    return f"covers {counted(len(covers), 'partition')} of the group now: {shown}"


def _wait(operator: Operator, wish: Place, limit: float) -> waiting.Outcome:
    return waiting.wait_until(
        operator, wish.group, lambda view: _is_quiet(view, wish), limit
    )


def _is_quiet(view: View, wish: Place) -> tuple[bool, str]:
    there = {one.key for one in view.holds}
    gone = [one.key.scope for one in wish.changes if one.key not in there]
    if gone and view.ends is not None:
        message = f"lifted or expired meanwhile: {', '.join(gone[:5])}"
        raise waiting.InVainError(message)
    return waiting.is_quiet(view, wish.scopes)


@contextmanager
def _written(what: str, done: Sequence[HoldRecord]) -> Iterator[None]:
    """
    Report what was acknowledged if something fails after that.

    A look may fail, and so may printing, for example on a full disk.
    """
    scopes = ", ".join(one.key.scope for one in done)
    try:
        yield
    except BrokenPipeError:
        raise
    except _TROUBLES as error:
        if not done:
            raise
        message = (
            f"{what} and acknowledged: {scopes}; but the rest is not shown: "
            f"{said(error)}"
        )
        raise CommandError(message, status_of(error)) from error
    except KeyboardInterrupt:
        if not done:
            raise
        message = f"{what} and acknowledged: {scopes}; interrupted after that"
        raise CommandError(message, Status.INTERRUPTED) from None


# ---------------------------------------------------------------- extend


@click.command(epilog=EPILOG)
@SCOPES
@GROUP_OPTION
@_for_option(is_required=True)
@owner_option
@output_options
@connection_options
@click.pass_context
def extend(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    group: str,
    for_: str,
    owner: str | None,
    output: Output,
    connect: Connect,
) -> None:
    """
    Let your holds of exactly these scopes last longer, counted from now.

    It never makes them shorter, and never renews holds that have ended, or may have by
    this clock: place those again with pause.
    """
    with explained(context):
        whose = owner_of(owner)
        wish = Extend(
            group=group,
            owner=whose,
            seconds=duration_of(for_),
            scopes=scopes_of(scopes, group),
        )
        with Operator(*connect()) as operator:
            operator.check()
            view = operator.look(group, is_strict=True, has_lags=False)
            refusing.refuse_unknown(operator, view)
            try:
                plan = plan_of(view, wish, operator)
            except HoldSettingError as error:
                raise CommandError(str(error), Status.FAILED) from error
            done = _carried_out(operator, plan)
            with _written("extended", done.acknowledged):
                if output.is_json:
                    held = list(map(hold_document, done.acknowledged))
                    output.document({"extended": held})
                else:
                    rows = group_text.columns(map(HoldRecord.cells, done.acknowledged))
                    output.lines(["extended", *rows])


# ---------------------------------------------------------------- resume


@click.command(epilog=EPILOG)
@click.argument("scopes", nargs=-1, metavar="[SCOPE...]")
@GROUP_OPTION
@owner_option
@click.option("--all", "is_all", is_flag=True, help="Every hold of --owner.")
@click.option(
    "--force",
    is_flag=True,
    help="Lift a hold though what reset-offsets asked for under it is not done.",
)
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
    force: bool,
    output: Output,
    connect: Connect,
) -> None:
    """
    Lift holds of exactly these scopes; others stay, and are named.

    Lifting a scope without a hold is no error if the group consumes it: it also lifts
    holds that members still obey after a control topic was lost. A hold under which
    reset-offsets moves the group is lifted when that is done.
    """
    with explained(context):
        if bool(scopes) is is_all:
            said = "too much: give only one of" if is_all else "nothing to lift: give"
            message = f"{said} SCOPE... or --all"
            raise CommandError(message)
        whose = owner_of(owner)
        found = scopes_of(scopes, group)
        with Operator(*connect()) as operator:
            operator.check()
            view, trouble = _looked(operator, group)
            if view is not None and trouble is None:
                _refuse_unheld(operator, view, found)
            wish = Lift(group=group, holds=_named(group, view, whose, found))
            plan = lift(view or _blind(group), wish)
            refuse_unforced(plan, force=force)
            done = Done(plan=plan, acknowledged=operator.write(plan.changes))
            with _written("lifted", done.acknowledged):
                if trouble is not None:
                    raise trouble
                if output.is_json:
                    output.document(done.document())
                else:
                    output.lines(_lifted_lines(done))
            if not done.was_held and (advice := _advice(plan)):
                give_up(context, advice, Status.FAILED)
        if not done.was_held and plan.others:  # a wrong owner or scope
            context.exit(Status.FAILED)


def refuse_unforced(plan: Plan, *, force: bool) -> None:
    """Refuse a plan that needs ``--force`` without it."""
    for one in plan.needs:
        if one.consent is Consent.FORCE and not force:
            message = f"{one.why}. Nothing was changed: {one.ask}"
            raise CommandError(message, Status.FAILED)


def _blind(group: str) -> View:
    nobody = GroupFacts(state=UNKNOWN, members=(), committed={}, has_committed=False)
    return View(group=group, facts=nobody)


def _looked(operator: Operator, group: str) -> tuple[View | None, Exception | None]:
    """
    Return what is known of a group, and why more is not known.

    Holds must be liftable though nothing else can be read, and by scope though nothing
    at all can: then there is no view.
    """
    try:
        return operator.look(group, is_strict=True, has_lags=False), None
    except _TROUBLES as error:
        trouble = error
    try:
        return read_again(operator, _blind(group)), trouble
    except _TROUBLES:
        return None, trouble


def _refuse_unheld(operator: Operator, view: View, found: Sequence[Scope]) -> None:
    """Refuse an unknown group, and scopes that cover nothing and are not held."""
    refusing.refuse_unknown(operator, view)
    held = {one.key.scope for one in view.holds}
    unheld = [one for one in found if str(one) not in held]
    refusing.refuse_nothing(operator, view, unheld)


def _named(
    group: str, view: View | None, owner: str, found: Sequence[Scope]
) -> tuple[Named, ...]:
    """Return what to lift: these scopes of an owner or, without any, all of them."""
    if found:
        return tuple(Named(scope=str(one), owner=owner) for one in found)
    if view is None:
        message = "what is held cannot be read now: name the scopes"
        raise CommandError(message, Status.UNREACHABLE)
    scopes = [one.key.scope for one in view.holds if one.key.owner == owner]
    if scopes:
        return tuple(Named(scope=one, owner=owner) for one in scopes)
    if not view.holds and view.kept:
        kept = kept_text(view.kept)
        message = f"nothing is on the topics; name the scopes that members keep: {kept}"
        raise CommandError(message, Status.FAILED)
    owners = sorted({one.cells()[1] for one in view.holds})
    more = f"; there are holds by {', '.join(owners[:5])}" if owners else ""
    message = f"nothing of {group!r} is held by {owner}{more}"
    raise CommandError(message, Status.FAILED)


def _advice(plan: Plan) -> str:
    """Tell how to lift holds of the same scopes; "" if nobody has any."""
    if later := of_later_version(plan):
        named = ", ".join(dict.fromkeys(one.key.scope for one in later))
        return f"nothing was lifted: a later version holds {named}; upgrade first"
    scopes = {one.key.scope for one in plan.changes}
    owners = [one.key.owner for one in plan.others if one.key.scope in scopes]
    several = " or ".join(f"--owner {quote(one)}" for one in dict.fromkeys(owners))
    return f"nothing was lifted: name the owner, {several}" if several else ""


def _lifted_lines(done: Done) -> Iterator[str]:
    plan, was_held = done.plan, done.was_held
    for one in plan.changes:
        what = "lifted" if one.key in was_held else "was not held:"
        yield f"{what} {one.key.scope} operator:{one.key.owner}"
    yield _covers_text(plan.covers)
    if plan.others:
        yield "still held"
        yield from group_text.columns(map(HoldRecord.cells, plan.others))
