"""
``safeconsumer audit``: what journals prove, or refute.
"""

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from kafka.errors import KafkaError

from safeconsumer.audit.checker import Settings, check, digests
from safeconsumer.audit.journal import Journal
from safeconsumer.audit.report import UNKNOWN, VIOLATED, Row, rows_of, status_of
from safeconsumer.cli.against import topic_journal
from safeconsumer.cli.failing import CommandError, Status, give_up
from safeconsumer.cli.journals import files, read_all
from safeconsumer.cli.saying import printable
from safeconsumer.errors import SafeConsumerError

Judged = tuple[tuple[Row, ...], tuple[str, ...]]
Judge = Callable[[Sequence[Path], Settings, Sequence[Journal]], Judged]

_EPILOG = """\b
Exit status:
  0  Clean: every check passed on every partition.
  1  Violations; each is named.
  2  Could not tell: a journal is missing, broken or newer, or none has a partition.
"""


@click.command(epilog=_EPILOG)
@click.argument(
    "journals", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)
@click.option("--drained", is_flag=True, help="All that was written should have come.")
@click.option("--clock-skew", type=float, default=0.0, metavar="SECONDS")
@click.option("--patience", type=float, default=5.0, metavar="SECONDS")
@click.option("--report", type=click.Path(path_type=Path), help="Rows as JSON lines.")
@click.option(
    "--against-topic",
    is_flag=True,
    help="Read the topics too: finds what a client lost without noticing.",
)
@click.option("--bootstrap", metavar="HOST:PORT,...", help="For --against-topic.")
@click.option("--master", help="Run it on Spark, for example local[*].")
@click.pass_context
def audit(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    journals: tuple[Path, ...],
    drained: bool,
    clock_skew: float,
    patience: float,
    report: Path | None,
    against_topic: bool,
    bootstrap: str | None,
    master: str | None,
) -> None:
    """
    Judge what consumers did by their delivery journals.

    JOURNAL is a file, or a folder of *.journal files; give those of all members,
    producers and operators together.
    """
    settings = Settings(patience=patience, clock_skew=clock_skew, is_drained=drained)
    paths = files(journals)
    judge = _here if master is None else _on_spark(master)
    if against_topic != bool(bootstrap):
        message = "--against-topic and --bootstrap belong together"
        raise click.UsageError(message)
    try:
        more = _topics(paths, bootstrap) if bootstrap else ()
        rows, troubles = judge(paths, settings, more)
    except (CommandError, KafkaError, SafeConsumerError) as error:
        give_up(context, str(error) or type(error).__name__, Status.USAGE)
        return
    if report is not None:
        lines = (json.dumps(row.as_dict()) for row in rows)
        report.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    for trouble in troubles:
        click.echo(f"safeconsumer: {printable(trouble)}", err=True)
    status = status_of(rows, is_complete=not troubles)
    click.echo("\n".join(_said(rows, len(paths), status)))
    context.exit(status)


def _topics(paths: Sequence[Path], bootstrap: str) -> tuple[Journal, ...]:
    named = {
        tp
        for journal in read_all(paths)[0]
        for tp, _ in digests(journal, Settings())
        if tp is not None
    }
    base = {"bootstrap_servers": bootstrap.split(",")}
    return (topic_journal(base, sorted(named)),) if named else ()


def _here(
    paths: Sequence[Path], settings: Settings, more: Sequence[Journal] = ()
) -> Judged:
    journals, troubles = read_all(paths)
    judged = check((*journals, *more), settings)
    rows = tuple(row for tp, found in judged.items() for row in rows_of(tp, found))
    return rows, tuple(troubles)


def _on_spark(master: str) -> Judge:
    from safeconsumer.cli.sparking import session  # noqa: PLC0415 - only with --master

    auditing = importlib.import_module("safeconsumer.spark.auditing")

    def on_spark(
        paths: Sequence[Path], settings: Settings, more: Sequence[Journal]
    ) -> Judged:
        with session(master, "safeconsumer audit") as spark:
            found: Judged = auditing.audit(spark, paths, settings, more)
            return found

    return on_spark


def _said(rows: Sequence[Row], journals: int, status: int) -> list[str]:
    broken = [row for row in rows if row.violations]
    lines = [
        printable(
            f"{row.check}  {row.topic}:{row.partition}  {row.violations} x, first by "
            f"{row.member or 'the fleet'}: {row.evidence}"
        )
        for row in broken
    ]
    partitions = len({(row.topic, row.partition) for row in rows})
    what = {VIOLATED: "violations", UNKNOWN: "could not tell"}.get(status, "clean")
    return [*lines, f"{what}: {journals} journals, {partitions} partitions"]
