"""Implements ``safeconsumer history``."""

import click

from safeconsumer.cli import group_text, refusing
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.control_topics import cluster_id, history_since
from safeconsumer.cli.errors import EPILOG, explained
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.watching import operator_for
from safeconsumer.group.board import history_of
from safeconsumer.group.history import entries, history_document
from safeconsumer.holds.explain import utc


@click.command(epilog=EPILOG)
@click.option("--group", default=None, help="Only this consumer group.")
@output_options
@connection_options
@click.pass_context
def history(
    context: click.Context,
    /,
    group: str | None,
    *,
    output: Output,
    connect: Connect,
) -> None:
    """
    List what was held, extended and lifted in the last 30 days, oldest first.

    It says until when a hold was to last, or when it expired. The last record of each
    owner and scope is kept without a limit. With -o json it has all that an audit needs
    of the control topics.
    """
    with explained(context), operator_for(connect, group) as operator:
        operator.read(is_strict=True)
        board, times = operator.board, operator.board.times
        ends, log = board.ends, tuple(board.records)
        records = history_of(log, group)
        if group is not None and not records:
            refusing.refuse_unknown(operator, operator.look(group, has_lags=False))
        skew = operator.settings.clock_skew
        found = entries(records, skew, times.proven, times.here)
        if output.is_json:
            facts = operator.facts()
            names = {source: one.name for source, one in facts.items()}
            since = history_since(log, ends, names)
            cluster = cluster_id(operator.admin)
            document = history_document(
                group, facts, found, since, until=board.read_until, cluster=cluster
            )
            output.document(document)
            return
        rows = [
            (
                "time unknown" if one.record.at is None else utc(one.record.at),
                one.what,
                one.record.key.group,
                one.record.key.scope,
                f"{one.record.source}:{one.record.key.owner}",
                one.ending,
                (one.record.hold.reason if one.record.hold else None) or "",
            )
            for one in found
        ]
        output.lines(group_text.columns(rows, "") or ["nothing"])
