"""Implements ``safeconsumer history``: lists the changes to holds, and follows them."""

from collections.abc import Callable, Iterable, Iterator

import click
from kafka.errors import KafkaError

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.cli import checks, group_text
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.control_topics import cluster_id, history_since
from safeconsumer.cli.ending import stopped_by_signals
from safeconsumer.cli.errors import explained, status_of
from safeconsumer.cli.options import since_of
from safeconsumer.cli.output import Output, check_has_reader, output_options
from safeconsumer.cli.statuses import EPILOG, Status
from safeconsumer.cli.watching import operator_for
from safeconsumer.group.history import (
    Entry,
    EntryStream,
    entries,
    history_document,
    history_of,
)
from safeconsumer.group.operator import Operator
from safeconsumer.group.troubles import error_text
from safeconsumer.holds.explain import printable, utc

# Seconds between two reads with --follow.
_INTERVAL = 1.0


@click.command(epilog=EPILOG)
@click.option("--group", default=None, help="Only this consumer group.")
@click.option(
    "--since",
    metavar="TIME",
    callback=since_of,
    help="Only changes since: 2026-11-22T07:30 (UTC), or 2h for 2h ago.",
)
@click.option(
    "--follow",
    "is_followed",
    is_flag=True,
    help="Continue with new changes, until Ctrl-C; with -o json one object per line.",
)
@output_options
@connection_options
@click.pass_context
def history(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    group: str | None,
    *,
    since: float | None,
    is_followed: bool,
    output: Output,
    connect: Connect,
) -> None:
    """
    List the changes to holds in the last 30 days, oldest first.

    Each line shows when the hold expires or has expired. The last record of each owner
    and scope is kept forever. With -o json, the output contains everything that an
    audit needs from the holds topic. With --since it does not, and a field shows that.

    With --follow, the command also prints later changes, and each hold that expires.
    If no broker answers at the start, the status is 3. After that, the command waits
    for a broker that is unreachable, and Ctrl-C and SIGTERM end it with status 0.
    """
    with explained(context), operator_for(connect, group) as operator:
        operator.board.keep_all_records()
        operator.read(is_strict=True)
        if group is not None and not history_of(operator.board.records, group):
            checks.check_known(operator, operator.look(group, has_lags=False))
        if is_followed:
            _follow(operator, group, since, _printer(output))
            return
        found = [
            one
            for one in _entries(operator, group)
            if since is None or one.happened_since(since)
        ]
        if output.is_json:
            output.document(_document(operator, group, found, since))
        else:
            rows = map(_row, found)
            output.lines(group_text.columns(rows, "") or ["nothing"])


def _entries(operator: Operator, group: str | None) -> tuple[Entry, ...]:
    board = operator.board
    records = history_of(board.records, group)
    return entries(records, board.skew, board.times.proven, board.times.here)


def _document(
    operator: Operator, group: str | None, found: Iterable[Entry], since: float | None
) -> dict[str, object]:
    board, facts = operator.board, operator.facts()
    until = board.read_until
    if since is None:
        end = board.ends.get(operator.settings.holds_topic)
        complete = history_since(tuple(board.records), end)
    else:  # earlier holds that are still in force are left out
        complete = until
    cluster = cluster_id(operator.admin)
    return history_document(group, facts, found, complete, until=until, cluster=cluster)


def _row(one: Entry) -> tuple[str, ...]:
    record = one.record
    return (
        "time unknown" if one.at is None else utc(one.at),
        one.what,
        record.key.group,
        record.key.scope,
        record.owner,
        one.ending,
        (record.hold.reason if record.hold else None) or "",
    )


# ---------------------------------------------------------------- followed


def _printer(output: Output) -> Callable[[Entry], None]:
    widths: list[int] = [0] * 7

    def show(one: Entry) -> None:
        if output.is_json:
            output.line(one.document())
        else:
            output.lines(group_text.columns([_row(one)], "", widths))

    return show


def _follow(
    operator: Operator,
    group: str | None,
    since: float | None,
    show: Callable[[Entry], None],
) -> None:
    board, stopping = operator.board, InterruptibleEvent()
    stream = EntryStream(board.skew, since)
    with stopped_by_signals(stopping.set):
        for _ in _readings(operator, stopping):
            records, times = history_of(board.records, group), board.times
            board.records.clear()
            for one in stream.of(records, times.proven, times.here):
                show(one)
                if stopping.is_set():
                    return


def _readings(operator: Operator, stopping: InterruptibleEvent) -> Iterator[None]:
    # Yields after each read of the topics; the first read is already done.
    yield
    is_away = False
    while not stopping.wait(_INTERVAL):
        check_has_reader()
        try:
            operator.read(is_strict=True)
        except (KafkaError, OSError) as error:
            if status_of(error) != Status.UNREACHABLE:
                raise
            if not is_away:
                trouble = printable(error_text(error))
                line = f"safeconsumer: {trouble}; the command tries again"
                click.echo(line, err=True)
            is_away = True
        else:
            is_away = False
            yield
