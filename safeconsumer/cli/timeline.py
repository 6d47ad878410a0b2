"""
``safeconsumer timeline``: what journals tell, as a picture.
"""

from pathlib import Path

import click

from safeconsumer.audit.checker import Settings, check, findings_of
from safeconsumer.audit.timeline.layout import laid_out
from safeconsumer.audit.timeline.svg import page, svg
from safeconsumer.audit.timeline.told import Wanted, told
from safeconsumer.cli.errors import Status, epilog, give_up
from safeconsumer.cli.journals import files, read_all
from safeconsumer.cli.saying import printable
from safeconsumer.errors import SafeConsumerError
from safeconsumer.group.durations import seconds_of
from safeconsumer.holds.scope import Partition, TopicPartition, parse

_FORMATS = {".svg": svg, ".html": page}

_EPILOG = epilog(Status.DONE, Status.USAGE)


def _moment(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> float | None:
    try:
        return None if text is None else seconds_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _partitions(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> frozenset[TopicPartition]:
    found = set()
    for text in texts:
        try:
            scope = parse(text)
        except SafeConsumerError as error:
            raise click.BadParameter(str(error), context, parameter) from error
        if not isinstance(scope, Partition):
            message = f"{text!r} is no partition: write topic:number"
            raise click.BadParameter(message, context, parameter)
        found.add((scope.topic, scope.partition))
    return frozenset(found)


def _checked_format(
    context: click.Context, parameter: click.Parameter, path: Path
) -> Path:
    if path.suffix.lower() not in _FORMATS:
        message = f"{path} must end in .svg or .html; the ending chooses the format"
        raise click.BadParameter(message, context, parameter)
    return path


@click.command(epilog=_EPILOG)
@click.argument(
    "journals", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_checked_format,
    help="OUT.svg, or OUT.html: the same on a page; point at a thing to read of it.",
)
@click.option("--topic", "topics", multiple=True, help="Only this one; repeatable.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    callback=_partitions,
    metavar="TOPIC:N",
    help="Only this one; repeatable, adds to --topic.",
)
@click.option(
    "--from",
    "start",
    callback=_moment,
    metavar="DURATION",
    help="Begin so long after the first entry: 90s, 1m30s.",
)
@click.option(
    "--to", "end", callback=_moment, metavar="DURATION", help="End there, likewise."
)
@click.option("--title", help="Instead of the groups' names.")
@click.option("--drained", is_flag=True, help="All that was written should have come.")
@click.option("--clock-skew", type=float, default=0.0, metavar="SECONDS")
@click.option("--patience", type=float, default=5.0, metavar="SECONDS")
@click.pass_context
def timeline(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    journals: tuple[Path, ...],
    output: Path,
    topics: tuple[str, ...],
    partitions: frozenset[TopicPartition],
    start: float | None,
    end: float | None,
    title: str | None,
    drained: bool,
    clock_skew: float,
    patience: float,
) -> None:
    """
    Draw what consumers did, by their delivery journals.

    One lane for each partition: its holds, its deliveries, its owners, and in red what
    the audit finds wrong.

    JOURNAL is a file, or a folder of *.journal files; give those of all members,
    producers and operators together. Status 0: drawn, with or without violations; 2: a
    journal is broken or newer, and the picture says so, or nothing could be drawn.
    """
    settings = Settings(patience=patience, clock_skew=clock_skew, is_drained=drained)
    wanted = Wanted(
        topics=frozenset(topics), partitions=partitions, start=start or 0.0, end=end
    )
    read, troubles = read_all(files(journals))
    trouble = f"{len(troubles)} journals cannot be read" if troubles else ""
    for line in troubles:
        click.echo(f"safeconsumer: {printable(line)}", err=True)
    try:
        story = told(read, findings_of(check(read, settings)), wanted)
        drawn = _FORMATS[output.suffix.lower()](laid_out(story, title, trouble))
        output.write_text(drawn, "utf-8")
    except (OSError, SafeConsumerError) as error:
        give_up(context, str(error), Status.USAGE)
        return
    where = printable(str(output))
    click.echo(
        f"{where}: {len(story.lanes)} partitions, {len(read)} journals, "
        f"{sum(len(lane.findings) for lane in story.lanes)} violations"
    )
    context.exit(Status.USAGE if troubles else Status.DONE)
