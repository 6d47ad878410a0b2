"""
``safeconsumer audit``: what journals prove, or refute.
"""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from kafka.errors import KafkaError

from safeconsumer.audit.around import excerpts, lines
from safeconsumer.audit.checker import Digest, Settings, check_digests, digests
from safeconsumer.audit.journal import Journal, tp_of
from safeconsumer.audit.packs import pack
from safeconsumer.audit.replay import Finding
from safeconsumer.audit.report import UNKNOWN, VIOLATED, Row, rows_of, status_of
from safeconsumer.audit.stream import sources
from safeconsumer.cli import errors
from safeconsumer.cli.against import topic_journal
from safeconsumer.cli.connection import cluster_options
from safeconsumer.cli.errors import CommandError, Status, epilog, give_up
from safeconsumer.cli.journals import files
from safeconsumer.cli.saying import printable
from safeconsumer.errors import JournalError, SafeConsumerError
from safeconsumer.group import troubles as cluster
from safeconsumer.holds.scope import TopicPartition

Judged = tuple[tuple[Row, ...], tuple[str, ...]]
Digested = tuple[list[tuple[TopicPartition | None, Digest]], list[str]]
Judge = Callable[[Sequence[Path], Settings, Sequence[Journal]], Judged]

_EPILOG = epilog(
    Status.DONE, Status.FAILED, Status.USAGE, Status.UNREACHABLE, Status.REFUSED
)


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
@click.option(
    "--partition",
    metavar="TOPIC:NUMBER",
    help="Only this one, with what the journals say around each violation.",
)
@click.option(
    "--pack",
    "packed",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Keep the journals as Parquet there, too; this command reads them as well.",
)
@click.option("--master", help="Run it on Spark, for example local[*].")
@cluster_options
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
    base: Callable[[], dict[str, Any]],
    partition: str | None,
    packed: Path | None,
    master: str | None,
) -> None:
    """
    Judge what consumers did by their delivery journals.

    JOURNAL is a file, or a folder of *.journal and *.parquet files; give those of all
    members, producers and operators together. Status 1: violations, each is named; 2:
    it could not be told, for a journal is missing, broken or newer, or none has a
    partition.
    """
    settings = Settings(patience=patience, clock_skew=clock_skew, is_drained=drained)
    paths = files(journals, "*.journal", "*.parquet")
    judge = _here if master is None else _on_spark(master)
    try:
        only = None if partition is None else _named(partition)
        more = _topics(paths, base()) if against_topic else ()
        rows, troubles = judge(paths, settings, more)
        _pack(paths, packed, troubles)
    except KafkaError as error:
        give_up(context, cluster.said(error), errors.status_of(error))
        return
    except CommandError as error:
        give_up(context, str(error), error.status)
        return
    except SafeConsumerError as error:
        give_up(context, str(error) or type(error).__name__, Status.USAGE)
        return
    if only is not None:
        rows = tuple(row for row in rows if (row.topic, row.partition) == only)
    if report is not None:
        lines = (json.dumps(row.as_dict()) for row in rows)
        report.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    for trouble in troubles:
        click.echo(f"safeconsumer: {printable(trouble)}", err=True)
    status = status_of(rows, is_complete=not troubles)
    said = _said(rows, len(paths), status, paths if only is not None else ())
    click.echo("\n".join(said))
    context.exit(status)


def _topics(paths: Sequence[Path], base: Mapping[str, Any]) -> tuple[Journal, ...]:
    told, _ = _digested(paths, Settings())
    named = {tp for tp, _ in told if tp is not None}
    return (topic_journal(base, sorted(named)),) if named else ()


def _digested(paths: Sequence[Path], settings: Settings) -> Digested:
    told: list[tuple[TopicPartition | None, Digest]] = []
    found, troubles = sources(paths)
    for one in found:
        try:
            told.extend(digests(one, settings))
        except JournalError as error:
            troubles.append(str(error))
    return told, troubles


def _here(
    paths: Sequence[Path], settings: Settings, more: Sequence[Journal] = ()
) -> Judged:
    told, troubles = _digested(paths, settings)
    told += [one for journal in more for one in digests(journal, settings)]
    judged = check_digests(told, settings)
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


def _named(text: str) -> TopicPartition:
    try:
        return tp_of(text)
    except ValueError as error:
        message = f"--partition: {text!r} is not TOPIC:NUMBER, such as orders:3"
        raise CommandError(message) from error


def _pack(paths: Sequence[Path], folder: Path | None, troubles: Sequence[str]) -> None:
    if folder is None:
        return
    if troubles:
        message = f"not packed, for {len(troubles)} journals are broken: {troubles[0]}"
        raise CommandError(message)
    folder.mkdir(parents=True, exist_ok=True)
    found, _ = sources(paths)
    for one in found:
        pack(one, folder / f"{one.member}.parquet")


def _said(
    rows: Sequence[Row], journals: int, status: int, shown: Sequence[Path]
) -> list[str]:
    said: list[str] = []
    for row in rows:
        if row.violations:
            line = (
                f"{row.check}  {row.topic}:{row.partition}  {row.violations} x, first "
                f"by {row.member or 'the fleet'}: {row.evidence}"
            )
            said += map(printable, (line, *_around(row, shown)))
    partitions = len({(row.topic, row.partition) for row in rows})
    what = {VIOLATED: "violations", UNKNOWN: "could not tell"}.get(status, "clean")
    return [*said, f"{what}: {journals} journals, {partitions} partitions"]


def _around(row: Row, paths: Sequence[Path]) -> Sequence[str]:
    tp = row.topic, row.partition
    finding = Finding(
        check=row.check,
        partition=tp,
        member=row.member,
        offset=row.offset,
        evidence=row.evidence,
        entry=row.entry,
    )
    found, _ = sources(paths)  # what cannot be read was named
    return lines(excerpts(found, tp, finding))
