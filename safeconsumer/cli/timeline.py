"""Implements ``safeconsumer timeline``: draws what journals report."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from safeconsumer.audit.loading import Journals, load
from safeconsumer.audit.results import Settings
from safeconsumer.audit.timeline.collect import Collector, Part
from safeconsumer.audit.timeline.data import Timeline
from safeconsumer.cli.errors import EPILOG, CommandError, Status, explained
from safeconsumer.cli.journals import (
    check_there,
    settings_options,
    topic_or_partition,
)
from safeconsumer.cli.saying import printable
from safeconsumer.errors import JournalError
from safeconsumer.group.durations import seconds_of
from safeconsumer.holds.explain import counted


def _checked(make: Callable[[str], Any]) -> Callable[..., Any]:
    # What an option is given becomes what a function makes of it, or a usage error.
    def convert(
        context: click.Context,
        parameter: click.Parameter,
        given: Any,  # noqa: ANN401 - one text, several, or none
    ) -> Any:  # noqa: ANN401 - whatever the function makes
        try:
            if isinstance(given, tuple):
                return tuple(map(make, given))
            return None if given is None else make(given)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from error

    return convert


def _output(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in {".svg", ".png", ".html"}:
        message = f"{path} must end in .svg, .png or .html, which chooses the format"
        raise ValueError(message)
    if not path.parent.is_dir():  # before the journals are read: that may take minutes
        message = f"{path} cannot be written: there is no folder {path.parent}"
        raise ValueError(message)
    return path


@click.command(epilog=EPILOG)
@click.argument("journals", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    callback=_checked(_output),
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
    callback=_checked(topic_or_partition),
    help="Only this partition, or all of this topic; repeatable.",
)
@click.option(
    "--from",
    "start",
    metavar="DURATION",
    callback=_checked(seconds_of),
    help="Begin this long after the first entry: 90s, 1m30s.",
)
@click.option(
    "--to",
    "end",
    metavar="DURATION",
    callback=_checked(seconds_of),
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
    partitions: tuple[tuple[str, int | None], ...],
    start: float | None,
    end: float | None,
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
    part = Part(
        groups=frozenset(groups),
        topics=frozenset(topic for topic, number in partitions if number is None),
        partitions=frozenset(
            (topic, number) for topic, number in partitions if number is not None
        ),
        start=start or 0.0,
        end=end,
    )
    with explained(context):
        check_there(journals)
        page = _page()
        collector, given = Collector(settings), load(map(Path, journals))
        troubles = _read(collector, given)
        for line in troubles:
            click.echo(f"safeconsumer: {printable(line)}", err=True)
        trouble = "journals are missing or broken" if troubles else ""
        found = collector.timeline(part)
        kind = output.suffix.lower()[1:]
        drawn = page.drawn(found, kind, trouble=trouble)
        try:
            output.write_bytes(drawn)
        except OSError as error:
            raise CommandError(str(error)) from error
    click.echo(f"{printable(str(output))}: {_counts(found, len(given))}")
    context.exit(Status.USAGE if troubles else Status.DONE)


def _page() -> Any:  # noqa: ANN401 - a module of an extra
    # Asked for before the journals are read, which may take minutes.
    try:
        return import_module("safeconsumer.audit.timeline.page")
    except ModuleNotFoundError as error:
        if error.name != "vl_convert":
            raise
        message = "a timeline needs vl-convert: pip install 'safeconsumer[audit]'"
        raise CommandError(message) from None


def _read(collector: Collector, given: Journals) -> list[str]:
    # Returns what is wrong with them.
    troubles = list(given.troubles)
    for journal in given.opened:
        try:
            collector.read(journal)
        except JournalError as error:
            troubles.append(str(error))
    return troubles


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
