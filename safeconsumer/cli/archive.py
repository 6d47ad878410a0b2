"""
``safeconsumer archive``: topics into Parquet, on Spark, steered by holds.
"""

import importlib
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from safeconsumer.cli.errors import CommandError, Status, epilog, explained
from safeconsumer.cli.sparking import is_submitted, session
from safeconsumer.group.properties import read_properties


@click.command(
    epilog=epilog(
        Status.DONE,
        Status.USAGE,
        Status.UNREACHABLE,
        Status.REFUSED,
        Status.INTERRUPTED,
    )
)
@click.argument("topics", nargs=-1, required=True)
@click.option(
    "--bootstrap", required=True, metavar="HOST:PORT,...", help="The cluster."
)
@click.option("--to", required=True, help="Folder for Parquet, by topic and partition.")
@click.option("--checkpoint", required=True, help="Folder for what was done already.")
@click.option("--trigger", default="once", show_default=True, help="once, 10s, 5m.")
@click.option("--holds", help='Fixed holds: "orders:3 re:tmp.*".')
@click.option("--control", metavar="GROUP", help="Obey the holds of this group.")
@click.option("--config", type=click.Path(path_type=Path, exists=True))
@click.option("--option", "more", multiple=True, metavar="NAME=VALUE")
@click.option("--master", default=None, help="As spark-submit's, if it is not used.")
@click.option("--connector", type=click.Path(path_type=Path, exists=True))
@click.pass_context
def archive(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    topics: tuple[str, ...],
    bootstrap: str,
    to: str,
    checkpoint: str,
    trigger: str,
    holds: str | None,
    control: str | None,
    config: Path | None,
    more: tuple[str, ...],
    master: str | None,
    connector: Path | None,
) -> None:
    """
    Copy topics into Parquet, each record exactly once.

    Started again with the same --checkpoint it goes on where it stood. SIGTERM and
    Ctrl-C end it cleanly. Spark's Kafka connector is taken from --connector, a folder
    with its jars, or else fetched by Spark from Maven Central.
    """
    options = {"kafka.bootstrap.servers": bootstrap}
    if config is not None:
        known = read_properties(config.read_text("utf-8"))
        options = {**{f"kafka.{key}": one for key, one in known.items()}, **options}
    if holds is not None:
        options["holds"] = holds
    if control is not None:
        options |= {"holds.control": "true", "holds.group": control}
    with explained(context):
        options |= _pairs(more)
    archiving: Any = importlib.import_module("safeconsumer.spark.archiving")
    wanted = archiving.Archive(
        topics=topics, to=to, checkpoint=checkpoint, trigger=trigger, options=options
    )
    with explained(context):
        wanted.trigger_of()  # refused before Spark is started
        wanted.topics_of()
        _run(archiving, wanted, master, connector)


def _run(
    archiving: Any,  # noqa: ANN401 - a module of an extra
    wanted: Any,  # noqa: ANN401 - its Archive
    master: str | None,
    connector: Path | None,
) -> None:
    safe: Any = importlib.import_module("safeconsumer.spark")
    settings = {}
    if not is_submitted():  # whoever calls spark-submit has named the jars to it
        settings["spark.jars"] = safe.jars(connector)
        if connector is None:
            settings["spark.jars.packages"] = safe.packages()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, lambda *_: stopping.set())
    with session(master, "safeconsumer archive", settings) as spark:
        safe.register(spark)
        query = archiving.start(spark, wanted)
        archiving.follow(query, click.echo, stopping.is_set)
        rows = archiving.table(spark, wanted)
        click.echo("\n".join(_columns(rows)) if rows else "the archive is empty")


def _pairs(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            message = f"--option is NAME=VALUE, not {text!r}"
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
