"""Implements ``safeconsumer timeline``: draws what journals report."""

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from safeconsumer.audit.loading import load
from safeconsumer.audit.results import Settings
from safeconsumer.audit.timeline.collect import Collector, Part
from safeconsumer.audit.timeline.data import Timeline
from safeconsumer.cli.errors import EPILOG, CommandError, Status, explained
from safeconsumer.cli.holding import timeout_of
from safeconsumer.cli.journals import (
    check_there,
    settings_options,
    topic_or_partition,
)
from safeconsumer.cli.saying import printable
from safeconsumer.holds.explain import counted


@click.command(epilog=EPILOG)
@click.argument("journals", nargs=-1, required=True, metavar="JOURNAL...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="OUT.svg or OUT.png; OUT.html is a page that can be zoomed.",
)
@click.option(
    "--group", "groups", multiple=True, help="Only this consumer group; repeatable."
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="TOPIC[:N]",
    help="Only this partition, or all of this topic; repeatable.",
)
@click.option(
    "--from",
    "start",
    default="0s",
    metavar="DURATION",
    help="Begin this long after the first entry: 90s, 1m30s.",
)
@click.option(
    "--to",
    "end",
    metavar="DURATION",
    help="End this long after it.",
)
@settings_options
@click.pass_context
def timeline(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    journals: tuple[str, ...],
    output: Path,
    groups: tuple[str, ...],
    partitions: tuple[str, ...],
    start: str,
    end: str | None,
    settings: Settings,
) -> None:
    """
    Draw what consumers did, by their delivery journals.

    One lane for each partition of each group: its holds, its deliveries, its owners,
    and in red what the audit finds wrong. Needs the extra audit.

    JOURNAL is a file, or a folder of *.journal files; give those of all members and
    producers together. Status 0: it was drawn, with or without violations; 2: a journal
    is broken or of a newer version, and the picture says so, or nothing could be drawn.
    """
    with explained(context):
        kind = _kind_of(output)
        part = Part(
            groups=frozenset(groups),
            partitions=frozenset(map(topic_or_partition, partitions)),
            start=timeout_of(start, "--from"),
            end=None if end is None else timeout_of(end, "--to"),
        )
        check_there(journals)
        page = _page()
        collector, given = Collector(settings), load(map(Path, journals))
        troubles = given.read_by(collector.read)
        for line in troubles:
            click.echo(f"safeconsumer: {printable(line)}", err=True)
        trouble = "journals are missing or broken" if troubles else ""
        found = collector.timeline(part)
        drawn = page.drawn(found, kind, trouble=trouble)
        try:
            output.write_bytes(drawn)
        except OSError as error:
            raise CommandError(str(error)) from error
    click.echo(f"{printable(str(output))}: {_counts(found, len(given))}")
    context.exit(Status.USAGE if troubles else Status.DONE)


def _kind_of(output: Path) -> str:
    # Asked before the journals are read, which may take minutes.
    kind = output.suffix.lower()[1:]
    if kind not in {"svg", "png", "html"}:
        message = f"{output} must end in .svg, .png or .html, which chooses the format"
        raise CommandError(message)
    if not output.parent.is_dir():
        message = f"{output} cannot be written: there is no folder {output.parent}"
        raise CommandError(message)
    return kind


def _page() -> Any:  # noqa: ANN401 - a module of an extra
    # Asked for before the journals are read, which may take minutes.
    try:
        import_module("vl_convert")
        return import_module("safeconsumer.audit.timeline.page")
    except ModuleNotFoundError as error:
        if error.name != "vl_convert":
            raise
        message = "a timeline needs vl-convert: pip install 'safeconsumer[audit]'"
        raise CommandError(message) from None


def _counts(found: Timeline, journals: int) -> str:
    counts = [
        counted(len(found.lanes), "partition"),
        counted(journals, "journal"),
        counted(sum(found.violations.values()), "violation"),
    ]
    if found.elsewhere:
        counts[-1] += f" in this part, {found.elsewhere:,} elsewhere"
    if found.unjudged:
        counts.append(f"not judged: {', '.join(found.unjudged)}")
    return ", ".join(counts)
