"""Implements ``pause``, ``extend``, ``resume`` and ``reset-offsets`` for whole groups."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Any

import click
from attrs import evolve, frozen
from kafka.errors import KafkaError

from safeconsumer.cli import checks, waiting
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import CommandError, explained, give_up, status_of
from safeconsumer.cli.group_text import columns
from safeconsumer.cli.options import options
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.owners import host, owner_of, owner_option, principal
from safeconsumer.cli.statuses import EPILOG, Status
from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group import patterns
from safeconsumer.group.carry_out import Done, PlanChangedError, carry_out, read_again
from safeconsumer.group.facts import NOT_READ, HoldRecord
from safeconsumer.group.operator import Operator
from safeconsumer.group.partitions import (
    folded,
    folded_cells,
    partitions_text,
    scopes_text,
)
from safeconsumer.group.plan import (
    LACKED,
    Consent,
    Extend,
    Lift,
    NamedHold,
    Place,
    Plan,
    TimedHolds,
    duration_of,
    later_version_scopes,
    place_action,
    plan_of,
    warnings,
)
from safeconsumer.group.report_wire import kept_holds_text
from safeconsumer.group.reset_to import (
    commit_for_empty_group,
    parse_target,
    reset_action,
)
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.troubles import error_text
from safeconsumer.group.view import View
from safeconsumer.holds.explain import counted
from safeconsumer.holds.scope import Scope

_CLUSTER_ERRORS = (KafkaError, OSError, ControlTopicError)
# The message and exit status for each missing consent. @all does not need consent here,
# because nobody types it by mistake.
_REFUSALS = {
    Consent.FUTURE: ("{why} (use --future to hold it for later)", Status.USAGE),
    Consent.REPLACE: (
        (
            "{why}. Nothing was changed: use extend to lengthen a hold that has an end, "
            "--replace to replace it"
        ),
        Status.FAILED,
    ),
    Consent.FORCE: ("{why}. Nothing was changed: {ask}", Status.FAILED),
    Consent.NONE: ("{why}: {ask}. Nothing was changed", Status.FAILED),
}


# ---------------------------------------------------------------- shared


@frozen
class ChangeOptions:
    """
    The options shared by all commands that change holds.

    Attributes:
        group: the consumer group.
        owner: the owner of the holds, if it was given.
        dry_run: whether to show the plan only.
        output: prints the results.
        connect: returns the settings for the connection and for group control.
    """

    group: str
    owner: str | None
    dry_run: bool
    output: Output
    connect: Connect

    @property
    def owner_name(self) -> str:
        """The owner of the holds; raises a CommandError if no name is known."""
        return owner_of(self.owner)

    def carried_out(
        self, operator: Operator, plan: Plan, flags: Mapping[str, bool]
    ) -> Done | None:
        """
        Carry out a plan; in a dry run, only show it and return None.

        Args:
            operator: the connection.
            plan: the plan.
            flags: whether each consent was given, by option name.

        Raises:
            CommandError: the plan requires a flag that was not given, or the plan has
                changed.
        """
        if self.dry_run:
            self._show(operator, plan)
        _refuse(plan, flags)
        if self.dry_run:
            return None
        try:
            return carry_out(
                operator,
                plan.view,
                plan.action,
                operator,
                # The flags give consent to this plan only.
                lambda now: now.digest == plan.digest,
            )
        except PlanChangedError as error:
            raise CommandError(str(error), Status.FAILED) from error

    def _show(self, operator: Operator, plan: Plan) -> None:
        if isinstance(plan.action, TimedHolds):
            topics = sorted({tp.topic for tp in plan.covers})
            plan = evolve(plan, limits=operator.retention(topics))
        if self.output.is_json:
            self.output.document({"dry_run": True, **plan.document()})
            return
        says = (text for _, text in plan.points)
        others = (
            f"also held by {owner_name}: {scope}"
            for scope, owner_name, *_ in folded_cells(plan.others)
        )
        self.output.lines([*says, *others, "nothing was changed"])

    def finish(
        self,
        operator: Operator,
        done: Done,
        lines: Iterable[str],
        state: str,
        wait: "Wait | None" = None,
    ) -> bool:
        """
        Print a change, and wait if requested; return whether the call has waited.

        Args:
            operator: the connection.
            done: the change.
            lines: the change as lines for people.
            state: the new state of the holds in one word.
            wait: how to wait; None if the command has no option ``--wait``.
        """
        if not self.output.is_json:
            self.output.lines(lines)
        reached = None
        if wait is not None and wait.seconds is not None:
            group = done.plan.action.group
            reached = waiting.wait_until(operator, group, wait.judge, wait.seconds)
        if self.output.is_json:
            more = {} if wait is None else {"wait": reached and reached.document()}
            self.output.document({**done.document(), **more})
        if wait is None or reached is None:
            return False
        if not reached.is_reached:
            last = reached.sentence.removeprefix(waiting.NOT_FLOWING)
            why = f"{state}, but not {wait.what} in {reached.waited:.0f} s: {last}"
            give_up(click.get_current_context(), why, Status.FAILED)
        if not self.output.is_json:
            self.output.lines([f"{reached.sentence}, after {reached.waited:.1f} s"])
        return True


@frozen
class Wait:
    """
    How to wait after a change to holds.

    Attributes:
        seconds: the maximum time to wait; None to not wait.
        what: the awaited state in one word.
        judge: decides whether a view of the group shows that state.
    """

    seconds: float | None
    what: str
    judge: waiting.Condition


def _refuse(plan: Plan, flags: Mapping[str, bool]) -> None:
    for one in plan.needs:
        if one.consent in _REFUSALS and not flags.get(one.consent.value):
            words, status = _REFUSALS[one.consent]
            raise CommandError(words.format(why=one.why, ask=one.ask), status)


GROUP_OPTION = click.option("--group", required=True, help="The consumer group.")
SCOPES = click.argument("scopes", nargs=-1, required=True, metavar="SCOPE...")
change_options = options(
    "change",
    ChangeOptions,
    GROUP_OPTION,
    owner_option,
    click.option("--dry-run", is_flag=True, help="Only show the effect."),
    output_options,
    connection_options,
)
"""Gives a command these options, as the argument ``change``."""


def wait_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the option ``--wait`` to a command; :func:`_limit_of` reads its value."""
    return click.option(
        "--wait",
        "patience",
        metavar="DURATION",
        help=f"Wait until {what}, at most this long; after it the status is 1.",
    )


def timeout_of(text: str, option: str = "--timeout") -> float:
    """
    Return an option's duration in seconds; with ``0s``, the group is read only once.

    Raises:
        HoldSettingError: the text is not a duration.
    """
    return 0.0 if text == "0s" else duration_of(text, option)


def _limit_of(patience: str | None) -> float | None:
    return None if patience is None else timeout_of(patience, "--wait")


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


@contextmanager
def reporting(what: str, done: Sequence[HoldRecord]) -> Iterator[None]:
    """
    Report the acknowledged changes if a later step fails.

    For example, the group cannot be read, or printing fails because a disk is full.
    """
    try:
        yield
    except (*_CLUSTER_ERRORS, KeyboardInterrupt) as error:
        if not done or isinstance(error, BrokenPipeError):
            raise
        scopes, status = scopes_text([one.scope for one in done]), Status.INTERRUPTED
        rest = "interrupted after that"
        if not isinstance(error, KeyboardInterrupt):
            rest, status = (
                f"but the rest is not shown: {error_text(error)}",
                status_of(error),
            )
        message = f"{what} and acknowledged: {scopes}; {rest}"
        raise CommandError(message, status) from error


def _rows(heading: str, holds: Sequence[HoldRecord]) -> list[str]:
    return [heading, *columns(folded_cells(holds))] if holds else []


def _covers_text(plan: Plan) -> str:
    if not plan.covers:
        return "warning: covers nothing that the group consumes now"
    shown, count = partitions_text(plan.covers), len(plan.covers)
    return f"covers {counted(count, 'partition')} of the group now: {shown}"


# ---------------------------------------------------------------- pause


@click.command(epilog=EPILOG)
@SCOPES
@change_options
@click.option("--reason", required=True, help="The reason; every member can show it.")
@_for_option()
@click.option(
    "--future",
    is_flag=True,
    help="Allow a group that does not exist yet, and a SCOPE that covers nothing yet.",
)
@click.option(
    "--replace", is_flag=True, help="Replace your own hold of the same scope."
)
@wait_option("quiet")
@click.pass_context
def pause(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    change: ChangeOptions,
    reason: str,
    for_: str | None,
    patience: str | None,
    **flags: bool,
) -> None:
    """
    Hold partitions for all current and future members of a group.

    SCOPE is a partition (orders:3), several partitions (orders:0-2,5), a topic
    (orders), an RE2 pattern for whole topic names (re:ord.*), or @all. Each scope
    becomes a separate hold. If you run the same command again, existing holds stay
    unchanged, even extended ones, and holds that an interrupted command did not place
    are placed. Holds that have ended, or may have ended by this machine's clock, are
    renewed. With --wait, quiet means that the members obey and are not processing
    records of the scope: handlers have finished, and the loop has polled again.
    """
    with explained(context):
        if for_ is not None:  # an error from the action would name a form's field
            duration_of(for_, "--for")
        action = place_action(
            group=change.group,
            owner=change.owner_name,
            texts=scopes,
            reason=reason,
            for_=for_,
        )
        action = evolve(action, replaces=flags["replace"])
        quiet = Wait(
            _limit_of(patience), "quiet", lambda now, _: _is_quiet(now, action)
        )
        with Operator(*change.connect()) as operator:
            action = action.written_by(host(), principal(operator.base))
            view = operator.look(change.group, is_strict=True)
            done = change.carried_out(operator, plan_of(view, action, operator), flags)
            if done is None:
                return
            with reporting("held", done.acknowledged):
                change.finish(operator, done, _placed_lines(done), "held", quiet)


def _placed_lines(done: Done) -> Iterator[str]:
    plan = done.plan
    lacked = [one for one in plan.renewed if plan.view.is_from_earlier_topic(one)]
    over = [one for one in plan.renewed if one not in lacked]
    yield from _rows("held", done.acknowledged)
    yield from _rows("held already, unchanged", plan.unchanged)
    yield from _rows("renewed, as it ended or may have ended", over)
    yield from _rows(f"renewed, as {LACKED}", lacked)
    yield from _rows("instead of", plan.replaced)
    yield _covers_text(plan)
    yield from _rows("also held", plan.others)
    yield from (f"warning: {one}" for one in warnings(plan))


def _is_quiet(view: View, action: Place) -> tuple[bool, str]:
    there = {one.key for one in view.lasting}
    gone = [one.key.scope for one in action.changes if one.key not in there]
    if gone and view.ends is not None:
        message = f"lifted or expired since: {', '.join(gone[:5])}"
        raise waiting.NeverReachedError(message)
    return waiting.is_quiet(view, action.scopes)


# ---------------------------------------------------------------- extend


@click.command(epilog=EPILOG)
@SCOPES
@change_options
@_for_option(is_required=True)
@click.pass_context
def extend(
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    change: ChangeOptions,
    for_: str,
) -> None:
    """
    Make your holds on exactly these scopes last longer, counted from now.

    The command never shortens holds. It does not renew holds that have ended, or may
    have ended by this machine's clock: place these again with pause.
    """
    with explained(context):
        action = Extend(
            group=change.group,
            owner=change.owner_name,
            seconds=duration_of(for_, "--for"),
            scopes=scopes_of(scopes, change.group),
        )
        with Operator(*change.connect()) as operator:
            view = operator.look(change.group, is_strict=True, has_lags=change.dry_run)
            checks.check_known(operator, view)
            done = change.carried_out(operator, plan_of(view, action, operator), {})
            if done is None:
                return
            with reporting("extended", done.acknowledged):
                rows = _rows("extended", done.acknowledged)
                change.finish(operator, done, rows, "extended")


# ---------------------------------------------------------------- resume


@click.command(epilog=EPILOG)
@click.argument("scopes", nargs=-1, metavar="[SCOPE...]")
@change_options
@click.option("--all", "is_all", is_flag=True, help="Every hold of --owner.")
@click.option(
    "--force",
    is_flag=True,
    help="Lift a hold although its offset reset is not done, or although it cannot be "
    "read.",
)
@wait_option("flowing")
@click.pass_context
def resume(
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    change: ChangeOptions,
    is_all: bool,
    patience: str | None,
    **flags: bool,
) -> None:
    """
    Lift your holds on exactly these scopes; other holds stay, and are listed.

    A scope that nobody holds is not an error if the group consumes it, because the
    command also lifts holds that members still obey after a control topic was lost. A
    hold with an offset reset can be lifted only when every partition is moved, or with
    --force. If the holds cannot be read, it is unknown whether partitions are moved,
    and only --force lifts the scope. With --wait, flowing means that the members have
    read the lift, and that nobody else holds any part of the scope. To wait again, run
    the same command again.
    """
    with explained(context):
        if bool(scopes) is is_all:
            advice = "too much: give only one of" if is_all else "nothing to lift: give"
            message = f"{advice} SCOPE... or --all"
            raise CommandError(message)
        owner, group = change.owner_name, change.group
        found = scopes_of(scopes, group)
        limit = _limit_of(patience)
        with Operator(*change.connect()) as operator:
            view, trouble = _read_view(operator, change)
            if view is not None and trouble is None:
                _refuse_unheld(operator, view, found)
            action = Lift(group=group, holds=_named(group, view, owner, found))
            plan = plan_of(view or View(group=group, facts=NOT_READ), action, operator)
            if change.dry_run:
                if trouble is not None:
                    raise trouble
                change.carried_out(operator, plan, flags)
                _refuse_in_vain(context, Done(plan=plan, acknowledged=()), limit)
                return
            done = _lifted(operator, view, plan, flags, trouble)
            with reporting("lifted", done.acknowledged):
                if trouble is not None:
                    raise trouble
                state = "lifted" if done.was_held else "not held"
                is_vain = not done.was_held and later_version_scopes(done.plan)
                flowing = Wait(
                    None if is_vain else limit,
                    "flowing",
                    lambda now, end: waiting.flows(operator, now, action.scopes, end),
                )
                lines = _lifted_lines(done)
                has_waited = change.finish(operator, done, lines, state, flowing)
            if not has_waited:
                _refuse_in_vain(context, done, limit)


def _lifted(
    operator: Operator,
    view: View | None,
    plan: Plan,
    flags: Mapping[str, bool],
    trouble: Exception | None,
) -> Done:
    """Carry out a plan; if the holds cannot be read, --force is required."""
    if view is None and trouble is not None and not flags["force"]:
        message = (
            f"the holds cannot be read now: {error_text(trouble)}. Nothing was changed: "
            "resume --force lifts it, and does not move what a reset has not moved yet"
        )
        raise CommandError(message, status_of(trouble))
    _refuse(plan, flags)
    if view is None:
        return Done(plan=plan, acknowledged=operator.write(plan.changes))

    def agrees(now: Plan) -> bool:
        _refuse(now, flags)  # the user named the scope, whatever its current holds are
        return True

    return carry_out(operator, view, plan.action, operator, agrees)


def _read_view(
    operator: Operator, change: ChangeOptions
) -> tuple[View | None, Exception | None]:
    """
    Return the view of a group, and the error if not everything could be read.

    It must be possible to lift holds even if only the holds topic can be read. With
    scopes and --force, lifting must be possible even if nothing can be read; the view
    is then None.
    """
    operator.check()
    try:
        view = operator.look(change.group, is_strict=True, has_lags=change.dry_run)
    except _CLUSTER_ERRORS as error:
        trouble = error
    else:
        return view, None
    try:
        return read_again(operator, View(group=change.group, facts=NOT_READ)), trouble
    except _CLUSTER_ERRORS:
        return None, trouble


def _refuse_unheld(operator: Operator, view: View, found: Sequence[Scope]) -> None:
    """Refuse an unknown group, and scopes that are not held and cover no partition."""
    checks.check_known(operator, view)
    held = {one.key.scope for one in view.holds}
    held |= {one.scope for one in view.kept}
    unheld = [one for one in found if str(one) not in held]
    checks.check_scopes(operator, view, unheld)


def _named(
    group: str, view: View | None, owner: str, found: Sequence[Scope]
) -> tuple[NamedHold, ...]:
    """Return the holds to lift: an owner's holds on these scopes; if none are given, all."""
    if found:
        return tuple(NamedHold(scope=str(one), owner=owner) for one in found)
    if view is None:
        message = "the holds cannot be read now: name the scopes"
        raise CommandError(message, Status.UNREACHABLE)
    scopes = [one.key.scope for one in view.holds if one.key.owner == owner]
    if scopes:
        return tuple(NamedHold(scope=one, owner=owner) for one in scopes)
    if not view.holds and view.kept:
        kept = kept_holds_text(view.kept)
        message = f"no hold is on the topics; name the scopes that members keep: {kept}"
        raise CommandError(message, Status.FAILED)
    owners = sorted({one.cells()[1] for one in view.holds})
    more = f"; there are holds by {', '.join(owners[:5])}" if owners else ""
    message = f"nothing of {group!r} is held by {owner}{more}"
    raise CommandError(message, Status.FAILED)


def _refuse_in_vain(context: click.Context, done: Done, limit: float | None) -> None:
    """Unless it waits, end a command that lifted nothing because of others' holds."""
    is_waiting = limit is not None and not later_version_scopes(done.plan)
    if not is_waiting and not done.was_held and done.plan.others:
        give_up(context, _advice(done.plan), Status.FAILED)


def _advice(plan: Plan) -> str:
    """Return advice on how to lift the existing holds by other owners or on other scopes."""
    if later := later_version_scopes(plan):
        return f"nothing was lifted: a later version holds {later}; upgrade first"
    scopes = {one.key.scope for one in plan.changes}
    owners = [one.key.owner for one in plan.others if one.key.scope in scopes]
    if owners:
        several = " or ".join(f"--owner {quote(one)}" for one in dict.fromkeys(owners))
        return f"nothing was lifted: name the owner, {several}"
    by_owner: dict[str, list[Scope]] = {}
    for one in plan.others:
        by_owner.setdefault(one.key.owner, []).append(one.scope)
    held = (f"{scopes_text(several)} by {owner}" for owner, several in by_owner.items())
    return f"nothing was lifted: name a scope as it is held: {'; '.join(held)}"


def _lifted_lines(done: Done) -> Iterator[str]:
    plan, was_held = done.plan, done.was_held
    keys = [one.key for one in plan.changes]
    rows = (
        (key.scope, "lifted" if key in was_held else "was not held:", key.owner)
        for key in keys
    )
    for scope, what, owner in folded(
        rows, [patterns.read_key(key).scope for key in keys]
    ):
        yield f"{what} {scope} operator:{owner}"
    yield _covers_text(plan)
    yield from _rows("still held", plan.others)


# ---------------------------------------------------------------- reset-offsets


@click.command("reset-offsets", epilog=EPILOG)
@SCOPES
@change_options
@click.option(
    "--to",
    "to",
    required=True,
    metavar="WHERE",
    help="earliest, latest, an offset, -N (before what is committed), or a time: "
    "2026-11-27T10:00, in UTC, or 2h, two hours ago.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Move the others, even if the owner of a partition will not move it.",
)
@wait_option("it is done")
@click.pass_context
def reset_offsets(
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    change: ChangeOptions,
    to: str,
    patience: str | None,
    **flags: bool,
) -> None:
    """
    Reset the offsets of a running group while your hold covers SCOPE.

    Place the hold first (pause), and lift it (resume) when all partitions are moved. No
    record is delivered in between. Each member moves its partitions as soon as it has
    finished processing their records. A partition without an owner is moved by its next
    owner, or by this command if the group has no members. The offsets are looked up
    only once, now; -N counts offsets, not records. If offsets move back, records are
    delivered again, and their earlier effects are not undone.
    """
    with explained(context):
        owner, group = change.owner_name, change.group
        where, found = parse_target(to, "--to"), scopes_of(scopes, group)
        moved = Wait(
            _limit_of(patience), "done", lambda now, _: waiting.is_moved(now, found)
        )
        with Operator(*change.connect()) as operator:
            view = operator.look(group, is_strict=True, has_lags=False)
            checks.check_known(operator, view)
            checks.check_scopes(operator, view, found)
            action = reset_action(
                operator.admin, view, owner=owner, scopes=found, to=where
            )
            done = change.carried_out(operator, plan_of(view, action, operator), flags)
            if done is None:
                return
            with reporting("requested", done.acknowledged):
                view = operator.look(group, is_strict=True, has_lags=False)
                commit_for_empty_group(operator.admin, view, found)
                lines = [text for kind, text in done.plan.points if kind == "note"]
                if moved.seconds is None:
                    lines.append("requested: wait moved shows when it is done")
                change.finish(operator, done, lines, "requested", moved)
