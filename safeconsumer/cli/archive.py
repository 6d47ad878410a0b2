"""Implements ``safeconsumer archive``: copies topics into Parquet or Delta on Spark."""

import importlib
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from safeconsumer.cli.errors import CommandError, Status, epilog, explained
from safeconsumer.cli.sparking import Build, is_submitted, session, stop_by_signal
from safeconsumer.errors import MissingExtraError, SparkRunError
from safeconsumer.group.properties import read_properties
from safeconsumer.spark.options import parse

# The settings by which a session loads Delta, from Delta's documentation.
_DELTA: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": (
        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
}


@click.command(
    epilog=epilog(
        Status.DONE,
        Status.FAILED,
        Status.USAGE,
    )
)
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--bootstrap", required=True, metavar="HOST:PORT,...", help="The cluster."
)
@click.option("--to", required=True, help="Folder, by topic and partition.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help="Of the files; delta needs delta-spark.",
)
@click.option("--checkpoint", required=True, help="Folder of Spark's checkpoint.")
@click.option("--trigger", default="once", show_default=True, help="once, 10s, 5m.")
@click.option("--holds", help='Fixed holds: "orders:3 re:tmp.*".')
@click.option("--control", metavar="GROUP", help="Obey the holds of this group.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Java client properties, for Spark's connector: security.protocol, sasl.*, "
    "ssl.*.",
)
@click.option(
    "--option",
    "more",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the source, such as maxOffsetsPerTrigger=10000; repeatable. It "
    "wins over the others.",
)
@click.option("--master", default=None, help="Spark's master, without spark-submit.")
@click.option(
    "--connector",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="A folder with the connector's jars; without it Spark fetches them.",
)
@click.option("--table", "is_table", is_flag=True, help="Count the archive's rows.")
@click.pass_context
def archive(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    topics: tuple[str, ...],
    bootstrap: str,
    to: str,
    kind: str,
    checkpoint: str,
    trigger: str,
    holds: str | None,
    control: str | None,
    config: Path | None,
    more: tuple[str, ...],
    master: str | None,
    connector: Path | None,
    is_table: bool,
) -> None:
    """
    Copy topics into Parquet or a Delta table, each record exactly once.

    Parquet has each record once for readers that follow its _spark_metadata, as Spark
    does; others also find the files of batches that died. A Delta table has each once
    for all its readers; --format delta needs delta-spark.

    If it is started again with the same --checkpoint it goes on where it stopped.
    SIGTERM and Ctrl-C end it cleanly, a second one at once. If the holds cannot be
    read, a run with --trigger once fails with status 1, and one that goes on waits. The
    status is also 1 if no broker answers, or it refuses; the error of the query is
    printed. Spark's Kafka connector, and Delta, are taken from --connector, a folder
    with their jars; without it Spark fetches them from Maven Central.

    --table reads the whole archive at the end, and counts rows by partition.
    """
    options = {"kafka.bootstrap.servers": bootstrap}
    with explained(context):
        options = {**_client(config), **options}
    if holds is not None:
        options["holds"] = holds
    if control is not None:
        options |= {"holds.control": "true", "holds.group": control}
    with explained(context):
        options |= _pairs(more)
    archiving: Any = importlib.import_module("safeconsumer.spark.archiving")
    wanted = archiving.Archive(
        topics=topics,
        to=to,
        checkpoint=checkpoint,
        trigger=trigger,
        format=kind,
        options=options,
    )
    with explained(context):
        wanted.trigger_of()  # checked before Spark is started
        wanted.topics_of()
        parse(options)
        _run(archiving, wanted, master, connector, is_table=is_table)


def _client(config: Path | None) -> dict[str, str]:
    if config is None:
        return {}
    try:
        known = read_properties(config.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        message = f"{config} cannot be read: {error}"
        raise CommandError(message) from error
    return {f"kafka.{key}": one for key, one in known.items()}


def _run(
    archiving: Any,  # noqa: ANN401 - a module of an extra
    wanted: Any,  # noqa: ANN401 - its Archive
    master: str | None,
    connector: Path | None,
    *,
    is_table: bool,
) -> None:
    safe: Any = importlib.import_module("safeconsumer.spark")
    settings, build = _needs(safe, connector, is_delta=wanted.format == archiving.DELTA)
    stopping = threading.Event()
    with session(master, "safeconsumer archive", settings, build) as spark:
        # Not before: whoever waits for a master or for Maven must be able to give up,
        # and pyspark installs a handler of its own for SIGINT with each session.
        _stop_by_signal(stopping.set)
        if is_submitted():
            stop_by_signal(spark, stopping.set)
        safe.register(spark)
        try:
            query = archiving.start(spark, wanted)
            kept = archiving.kept_by(spark)
            seen = archiving.follow(query, click.echo, stopping.is_set, kept)
            click.echo(seen.summary())
            rows = archiving.table(spark, wanted) if is_table else ()
        except SparkRunError as error:
            raise CommandError(str(error), Status.FAILED) from error
        if is_table:
            click.echo("\n".join(_columns(rows)) if rows else "the archive is empty")


def _stop_by_signal(stop: Callable[[], object]) -> None:
    # Only the first one: a Spark that starts, or does not answer, may take minutes.
    usual: dict[signal.Signals, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }

    def first(*_: object) -> None:
        for one, handler in usual.items():
            signal.signal(one, handler)
        stop()

    for one in usual:
        signal.signal(one, first)


def _needs(
    safe: Any,  # noqa: ANN401 - a module of an extra
    connector: Path | None,
    *,
    is_delta: bool,
) -> tuple[dict[str, str], Build | None]:
    # Jars and packages were given to spark-submit, if it was called.
    settings = dict(_DELTA) if is_delta else {}
    if is_submitted():
        return settings, None
    settings["spark.jars"] = safe.jars(connector)
    if connector is None:
        settings["spark.jars.packages"] = safe.packages()
        return settings, _with_delta(settings) if is_delta else None
    if is_delta:
        found = sorted(connector.glob("delta-*.jar"))
        if not found:
            message = f"{connector} has no delta-*.jar; --format delta needs them"
            raise CommandError(message)
        settings["spark.jars"] += "".join(f",{jar}" for jar in found)
    return settings, None


def _with_delta(settings: Mapping[str, str]) -> Build:
    try:
        delta: Any = importlib.import_module("delta")
    except ModuleNotFoundError as error:
        message = (
            "--format delta needs delta-spark of your Spark's version: pip install "
            "delta-spark, or give a folder with its jars as --connector"
        )
        raise MissingExtraError(message) from error
    packages = settings["spark.jars.packages"]

    def build(builder: Any) -> Any:  # noqa: ANN401 - pyspark's
        return delta.configure_spark_with_delta_pip(builder, [packages])

    return build


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            message = f"--option must be NAME=VALUE, not {text!r}"
            raise CommandError(message)
        found[name] = value
    return found


def _columns(rows: Sequence[tuple[object, ...]]) -> list[str]:
    head = ("topic", "partition", "rows", "first", "last")
    table = [head, *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    return [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in table
    ]


if __name__ == "__main__":  # spark-submit runs a file
    archive()
