"""Implements ``safeconsumer status`` and ``safeconsumer wait``."""

import time
from collections.abc import Sequence
from contextlib import suppress

import click

from safeconsumer.cli import checks, group_text, waiting
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import CommandError, explained, give_up
from safeconsumer.cli.holding import GROUP_OPTION, timeout_of
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.statuses import EPILOG, Status
from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group import documents
from safeconsumer.group.operator import Operator
from safeconsumer.group.partitions import Coverage, covered, partitions_text
from safeconsumer.group.report_wire import kept_holds_text
from safeconsumer.group.scopes import checked_group, scopes_of
from safeconsumer.group.verdicts import NOTHING_HELD
from safeconsumer.group.view import View, urgency
from safeconsumer.holds.explain import counted, printable, utc
from safeconsumer.holds.scope import Scope


@click.command(epilog=EPILOG)
@click.option("--group", default=None, help="The consumer group; all, without it.")
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help="List groups with nothing held too, those with the most lag first.",
)
@output_options
@connection_options
@click.pass_context
def status(
    context: click.Context,
    /,
    group: str | None,
    *,
    is_all: bool,
    output: Output,
    connect: Connect,
) -> None:
    """
    Show a group's holds, its members and whether they obey, and the lag.

    Members without safeconsumer do not report, and do not obey holds. Without --group,
    the output has one line for each held group: its members, its holds, the next
    expiry, its lag, and whether its members obey. The other groups are only counted; -o json
    contains all groups. A hold that has expired only by this machine's clock may have
    ended, but counts as in force.
    """
    with explained(context):
        if group is not None and is_all:
            message = "--all is for all groups: leave out --group"
            raise CommandError(message)
        with operator_for(connect, group) as operator:
            if group is None:
                _show_groups(operator, output, is_all=is_all or output.is_json)
            else:
                _show_group(operator, group, output)


def _show_group(operator: Operator, group: str, output: Output) -> None:
    view = operator.look(group)
    if view.ends is None:
        checks.check_set_up(operator)
    checks.check_known(operator, view)
    if output.is_json:
        output.document(documents.status_document(view))
        return
    output.lines(group_text.status_lines(view))


def operator_for(connect: Connect, group: str | None) -> Operator:
    """Return an operator; an invalid group name is refused before a broker is contacted."""
    if group is not None:
        checked_group(group)
    return Operator(*connect())


def _show_groups(operator: Operator, output: Output, *, is_all: bool) -> None:
    every, readable = operator.survey(has_lags=is_all)
    if not readable.ends:
        checks.check_set_up(operator)
    if not every:
        with suppress(ControlTopicError):  # raises if this user may not read the holds
            operator.holds()
    unread = dict.fromkeys(readable.unread)
    unread.update(dict.fromkeys(why for one in every for why in one.unread))
    if output.is_json:
        document = {
            "read_until": operator.board.read_until,
            "now": operator.board.times.now,
            "unread": [*unread],
            "groups": list(map(documents.group_document, every)),
        }
        output.document(document)
        return
    lines = [f"unknown: {why}" for why in unread]
    if not every:
        if not unread:
            lines.append("no groups that you may see, and no holds")
        output.lines(lines)
        return
    shown = [one for one in every if is_all or one.verdict != NOTHING_HELD]
    if shown:
        heading = ("GROUP", "STATE", "MEMBERS", "HOLDS", "NEXT END", "LAG", "NOW")
        rows = map(_group_row, sorted(shown, key=urgency))
        lines += group_text.columns([heading, *rows], "")
    if folded := len(every) - len(shown):
        lines.append(f"nothing is held in {counted(folded, 'group')}: --all lists them")
    output.lines(lines)


def _group_row(one: View) -> tuple[str, ...]:
    facts, holds = one.facts, one.holds
    count, reporting = facts.member_count, one.reporting
    members = "unknown" if count is None else str(count)
    # Show this count even before the first hold, so that operators see which members
    # would obey.
    if count and (holds or reporting):
        known = None if reporting is None else group_text.reporting_text(reporting)
        members += f", {known or 'reports unknown'}"
    return (
        one.group,
        "no such group yet" if facts.state == "Dead" else facts.state,
        members,
        "unknown" if one.ends is None else str(len(holds) or "-"),
        utc(one.next_expiry) if one.next_expiry else "-",
        one.lag_words(),
        group_text.short_verdict(one.verdict),
    )


@click.command(epilog=EPILOG)
@click.argument("words", nargs=-1, metavar="quiet|flowing|moved [SCOPE...]")
@GROUP_OPTION
@click.option(
    "--timeout",
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="The longest time to wait; after it the status is 1.",
)
@connection_options
@click.pass_context
def wait(
    context: click.Context,
    /,
    words: tuple[str, ...],
    group: str,
    timeout: str,
    *,
    connect: Connect,
) -> None:
    """
    Wait until every member obeys all earlier holds, and the scopes are quiet.

    Quiet: each owner reports that it obeys; or it no longer reports, but obeyed a hold
    on its partition that is still in force. Also, no member is processing records of
    the scopes: handlers have finished, and the loop has polled again. Flowing: the
    scopes are not held, and no member keeps them quiet. Without SCOPE, quiet applies to
    everything that a hold covers, and flowing to the whole group, except for topics
    that its members no longer read.

    Moved: every offset reset that is in force has been carried out. If none is in
    force, the command ends immediately with status 1.

    A plain consumer that assigns its partitions itself is not a member of the group:
    the command cannot see it, and it does not obey holds.
    """
    began = time.monotonic()
    with explained(context):
        what, texts = _condition(words)
        limit = timeout_of(timeout)
        found = scopes_of(texts, group)
        with Operator(*connect()) as operator:

            def judge(view: View, until: float) -> tuple[bool, str]:
                if what == "flowing":
                    return waiting.flows(operator, view, found, until)
                if what == "moved":
                    return waiting.is_moved(view, found)
                return _is_quiet(view, found)

            def check(one: Operator, view: View) -> None:
                if view.ends is None:
                    checks.check_set_up(one)
                checks.check_known(one, view)
                if not view.unsettled:  # otherwise the scopes might cover something
                    checks.check_scopes(one, view, found)

            reached = waiting.wait_until(
                operator, group, judge, limit, check, began=began
            )
        if not reached.is_reached:
            give_up(context, reached.sentence, Status.FAILED)
        click.echo(printable(reached.sentence))


def _condition(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    if not words or words[0] not in {"quiet", "flowing", "moved"}:
        message = "name a state: wait quiet, wait flowing, or wait moved"
        raise CommandError(message)
    return words[0], tuple(words[1:])


def _is_quiet(view: View, found: Sequence[Scope]) -> tuple[bool, str]:
    held = view.lasting
    if not found and not held and view.ends is not None:
        message = f"{view.group!r} has no hold: pause it first, or name a SCOPE"
        if view.kept:
            message += f". Kept by members: {kept_holds_text(view.kept)}"
        raise CommandError(message, Status.FAILED)
    reached, sentence = waiting.is_quiet(view, found or held)
    holding = Coverage(held)
    loose = [tp for tp in covered(found, view.consumed) if not holding.covering(tp)]
    if reached and loose and not view.present:
        shown = partitions_text(loose)
        sentence += f"; no hold covers {shown}: a new owner delivers it"
        return False, sentence
    return reached, sentence
