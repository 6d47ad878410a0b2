"""
``safeconsumer doctor``: what would keep a group hold from working, and what to do.
"""

import json

import click
from attrs import asdict

from safeconsumer.cli import group_text
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import EPILOG, Status, explained
from safeconsumer.cli.saying import printable_lines
from safeconsumer.group.findings import findings
from safeconsumer.group.judging import BAD
from safeconsumer.group.operator import Operator


@click.command(epilog=EPILOG)
@click.option("--group", default=None, help="Look at this group's members too.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@connection_options
@click.pass_context
def doctor(
    context: click.Context,
    /,
    group: str | None,
    *,
    is_json: bool,
    connect: Connect,
) -> None:
    """
    Look at versions, topics, ACLs, clocks and members, and say what to do.
    """
    with explained(context), Operator(*connect()) as operator:
        found = list(findings(operator, group))
        if is_json:
            click.echo(json.dumps([asdict(one) for one in found], indent=2))
        else:
            rows = [(one.rank, one.what) for one in found]
            for line, one in zip(group_text.columns(rows, ""), found, strict=True):
                click.echo(printable_lines(line))
                if one.do:
                    click.echo(f"         {one.do}")
        if any(one.rank == BAD for one in found):
            context.exit(Status.FAILED)
