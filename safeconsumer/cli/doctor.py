"""Implements ``safeconsumer doctor``: finds what prevents group holds from working."""

from collections.abc import Sequence

import click
from attrs import asdict

from safeconsumer.cli import group_text
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import explained
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.statuses import EPILOG, Status
from safeconsumer.group.findings import findings
from safeconsumer.group.operator import Operator
from safeconsumer.group.scopes import checked_group
from safeconsumer.group.verdicts import BAD, Finding


@click.command(epilog=EPILOG)
@click.option("--group", default=None, help="Check this group's members too.")
@output_options
@connection_options
@click.pass_context
def doctor(
    context: click.Context,
    /,
    group: str | None,
    *,
    output: Output,
    connect: Connect,
) -> None:
    """
    Check versions, topics, holds, clocks and members, and give advice.

    The command does not check which principals may write to the control topics, but
    prints the kafka-acls.sh command that lists them.
    """
    with explained(context):
        if group is not None:
            checked_group(group)
        found: list[Finding] = []
        with Operator(*connect()) as operator:
            try:
                for one in findings(operator, group):
                    found.append(one)  # noqa: PERF402 - findings before an error are kept
            finally:
                _print(output, found)
        if any(one.rank == BAD for one in found):
            context.exit(Status.FAILED)


def _print(output: Output, found: Sequence[Finding]) -> None:
    if output.is_json:
        output.document([asdict(one) for one in found])
        return
    rows = group_text.columns(((one.rank, one.what) for one in found), "")
    lines: list[str] = []
    for line, one in zip(rows, found, strict=True):
        lines += [line, f"         {one.do}"] if one.do else [line]
    output.lines(lines)
