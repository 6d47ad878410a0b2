"""
``safeconsumer audit``: what journals prove, or refute.
"""

import contextlib
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from kafka.errors import KafkaError

from safeconsumer.audit.around import excerpts, lines
from safeconsumer.audit.checker import CHECKS, Court, Settings
from safeconsumer.audit.facts import Address, facts
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.journal import Source
from safeconsumer.audit.reading import TopicPartition, tp_of
from safeconsumer.audit.report import UNKNOWN, VIOLATED, Row, rows_of, status_of
from safeconsumer.audit.stream import opened, pack
from safeconsumer.cli import errors
from safeconsumer.cli.against import topic_journal
from safeconsumer.cli.connection import cluster_options
from safeconsumer.cli.errors import CommandError, Status, epilog, give_up
from safeconsumer.cli.journals import files
from safeconsumer.cli.saying import printable
from safeconsumer.errors import JournalError, SafeConsumerError
from safeconsumer.group import troubles as cluster

Judged = tuple[tuple[Row, ...], tuple[str, ...]]
Judge = Callable[[Sequence[Path], Settings, Sequence[Source]], Judged]

_EPILOG = epilog(
    Status.DONE, Status.FAILED, Status.USAGE, Status.UNREACHABLE, Status.REFUSED
)


@click.command(epilog=_EPILOG)
@click.argument(
    "journals", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)
@click.option("--drained", is_flag=True, help="All that was written should have come.")
@click.option(
    "--clock-skew",
    type=float,
    default=0.0,
    metavar="SECONDS",
    help="By how much the clocks of any two hosts may differ, brokers too.",
)
@click.option("--patience", type=float, default=5.0, metavar="SECONDS")
@click.option(
    "--without",
    "left_out",
    multiple=True,
    type=click.Choice(CHECKS),
    help="Leave a check out, for example one that cannot be judged here.",
)
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
    left_out: tuple[str, ...],
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
    members, producers and operators together. Each consumer group is judged by itself.
    Status 1: violations, each is named, with what it rests on; 2: it could not be told,
    for a journal is missing, broken or newer, none has a partition, or a check could
    not be judged, which is named, too.
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
    rows = tuple(row for row in rows if row.check not in left_out)
    if only is not None:
        rows = tuple(row for row in rows if (row.topic, row.partition) == only)
    if report is not None:
        lines = (json.dumps(row.as_dict()) for row in rows)
        report.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    for trouble in troubles:
        click.echo(f"safeconsumer: {printable(trouble)}", err=True)
    status = status_of(rows, is_complete=not troubles)
    said = _said(rows, len(paths), status, paths if only is not None else ())
    if left_out:
        said[-1] += f", without {', '.join(sorted(left_out))}"
    click.echo("\n".join(said))
    context.exit(status)


def _topics(paths: Sequence[Path], base: Mapping[str, Any]) -> tuple[Source, ...]:
    named: set[TopicPartition] = set()
    for path in paths:
        with contextlib.suppress(JournalError):  # it is named where it is judged
            for address, _ in facts(opened(path)):
                if address.topic:
                    named.add((address.topic, address.partition))
    return (topic_journal(base, sorted(named)),) if named else ()


def _here(
    paths: Sequence[Path], settings: Settings, more: Sequence[Source] = ()
) -> Judged:
    court = Court(settings)
    troubles: list[str] = []
    for path in paths:
        try:
            court.hear(opened(path))
        except JournalError as error:
            troubles.append(str(error))
    for journal in more:
        court.hear(journal)
    rows = tuple(row for one in court.verdicts().values() for row in rows_of(one))
    return rows, tuple(troubles)


def _on_spark(master: str) -> Judge:
    from safeconsumer.cli.sparking import session  # noqa: PLC0415 - only with --master

    auditing = importlib.import_module("safeconsumer.spark.auditing")

    def on_spark(
        paths: Sequence[Path], settings: Settings, more: Sequence[Source]
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
    for path in paths:
        pack(opened(path), folder / f"{path.stem}.parquet")


def _said(
    rows: Sequence[Row], journals: int, status: int, shown: Sequence[Path]
) -> list[str]:
    said: list[str] = []
    for row in rows:
        if row.violations:
            line = (
                f"{row.check}  {_case(row)}  {row.violations} x, first by "
                f"{row.member or 'the fleet'}: {row.evidence} (by {row.basis})"
            )
            said += map(printable, (line, *_around(row, shown)))
        if row.unjudged:
            line = f"{row.check}  {_case(row)}  could not be judged: {row.unjudged}"
            said.append(printable(line))
    partitions = len({(row.topic, row.partition) for row in rows})
    what = {VIOLATED: "violations", UNKNOWN: "could not tell"}.get(status, "clean")
    return [*said, f"{what}: {journals} journals, {partitions} partitions"]


def _case(row: Row) -> str:
    group = f" of {row.group}" if row.group else ""
    return f"{row.topic}:{row.partition}{group}"


def _around(row: Row, paths: Sequence[Path]) -> Sequence[str]:
    tp = row.topic, row.partition
    finding = Finding(
        check=row.check,
        case=Address(row.group, *tp),
        member=row.member,
        offset=row.offset,
        evidence=row.evidence,
        basis=Basis(row.basis),
        entry=row.entry,
    )
    return lines(excerpts(_readable(paths), tp, finding))


def _readable(paths: Sequence[Path]) -> Iterator[Source]:
    for path in paths:
        with contextlib.suppress(JournalError):  # it was named
            yield opened(path)
