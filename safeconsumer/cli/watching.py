"""
``safeconsumer status``, ``wait`` and ``history``: who obeys what.
"""

import json
import time
from collections.abc import Sequence

import click
from attrs import evolve

from safeconsumer.cli import group_text
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import (
    EPILOG,
    CommandError,
    Status,
    explained,
    give_up,
)
from safeconsumer.cli.holding import known
from safeconsumer.cli.saying import printable_lines
from safeconsumer.group import documents, judging, patterns
from safeconsumer.group.durations import seconds_of
from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import Operator
from safeconsumer.group.picture import Picture
from safeconsumer.holds.explain import utc

_WATCH_EVERY = 1.0
_LOOK_EVERY = 0.25

_GROUP = click.option("--group", required=True, help="The consumer group.")
_JSON = click.option("--json", "is_json", is_flag=True, help="Print JSON.")


@click.command(epilog=EPILOG)
@_GROUP
@click.option("--watch", "is_watching", is_flag=True, help="Again every second.")
@_JSON
@connection_options
@click.pass_context
def status(
    context: click.Context,
    /,
    group: str,
    *,
    is_watching: bool,
    is_json: bool,
    connect: Connect,
) -> None:
    """
    Show a group's holds, its members and what each obeys, and the lag of what is held.

    Members without safeconsumer do not report, and obey no hold.
    """
    with explained(context), Operator(*connect()) as operator:
        while True:
            picture = known(operator.look(group))
            if is_json:
                document = documents.status_document(picture)
                click.echo(json.dumps(document, indent=None if is_watching else 2))
            else:
                if is_watching:
                    click.clear()
                click.echo(printable_lines("\n".join(group_text.status_lines(picture))))
            if not is_watching:
                return
            time.sleep(_WATCH_EVERY)


@click.command(epilog=EPILOG)
@click.argument("scopes", nargs=-1, metavar="[SCOPE...]")
@_GROUP
@click.option(
    "--quiet",
    "is_quiet",
    is_flag=True,
    required=True,
    help="Until no member delivers any of it.",
)
@click.option("--timeout", default="60s", show_default=True, metavar="DURATION")
@connection_options
@click.pass_context
def wait(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    scopes: tuple[str, ...],
    group: str,
    timeout: str,
    *,
    is_quiet: bool,  # noqa: ARG001 - the only thing that can be waited for yet
    connect: Connect,
) -> None:
    """
    Wait until every member obeys what was placed before, and the scopes are quiet.

    Without SCOPE: everything that a hold covers.
    """
    with explained(context), Operator(*connect()) as operator:
        limit = _timeout(timeout)
        found = tuple(map(patterns.parse, scopes))
        ends = operator.ends()  # what is placed meanwhile is not waited for
        deadline = time.monotonic() + limit
        while True:
            picture = evolve(known(operator.look(group)), ends=ends)
            covering = found or _in_force(picture)
            reached = judging.Judge(picture).quietness(covering)
            if reached.is_reached:
                click.echo(printable_lines(reached.sentence()))
                return
            if time.monotonic() > deadline:
                give_up(context, reached.sentence(), Status.FAILED)
            time.sleep(_LOOK_EVERY)


def _in_force(picture: Picture) -> Sequence[Standing]:
    now = picture.now
    found = [one for one in picture.standing if now is None or not one.is_over(now)]
    if not found:
        message = (
            f"nothing of {picture.group!r} is held: pause it first, or name a SCOPE"
        )
        raise CommandError(message, Status.FAILED)
    return found


def _timeout(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise CommandError(str(error)) from error


@click.command(epilog=EPILOG)
@click.option("--group", default=None, help="Only this consumer group.")
@_JSON
@connection_options
@click.pass_context
def history(
    context: click.Context,
    /,
    group: str | None,
    *,
    is_json: bool,
    connect: Connect,
) -> None:
    """
    List what the control topics still hold of pauses and resumes, oldest first.

    The topics are compacted: of each owner and scope the last record stays for good,
    earlier ones for about an hour, a resume for a week.
    """
    with explained(context), Operator(*connect()) as operator:
        records = operator.records(group)
        if is_json:
            found = [documents.standing_document(one) for one in records]
            click.echo(json.dumps(found, indent=2))
            return
        rows = [
            (
                "time unknown" if one.at is None else utc(one.at),
                "resume" if one.hold is None else "pause",
                one.key.group,
                one.key.scope,
                f"{one.source}:{one.key.owner}",
                (one.hold.reason if one.hold else None) or "",
            )
            for one in records
        ]
        click.echo(
            printable_lines("\n".join(group_text.columns(rows, ""))) or "nothing"
        )
