"""Implements ``safeconsumer timeline``: draws what journals report as a picture."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import click

from safeconsumer.audit.loading import Journals, load
from safeconsumer.audit.reading import partition_of
from safeconsumer.audit.results import Settings
from safeconsumer.audit.timeline.story import Timeline
from safeconsumer.audit.timeline.telling import Wanted, Watching
from safeconsumer.cli.errors import EPILOG, CommandError, Status, explained
from safeconsumer.cli.journals import settings_options
from safeconsumer.cli.saying import printable
from safeconsumer.errors import JournalError
from safeconsumer.group.durations import seconds_of
from safeconsumer.holds.explain import counted

_FORMATS = frozenset({".svg", ".png", ".html"})


def _moment(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> float | None:
    try:
        return None if text is None else seconds_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _checked_partitions(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[str, ...]:
    try:
        for text in texts:
            if ":" in text:
                partition_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error
    return texts


def _checked_format(
    context: click.Context, parameter: click.Parameter, path: Path
) -> Path:
    if path.suffix.lower() not in _FORMATS:
        endings = ".svg, .png or .html"
        message = f"{path} must end in {endings}; the ending chooses the format"
        raise click.BadParameter(message, context, parameter)
    return path


def _check_folder(output: Path) -> None:
    # Before the journals are read, which may take minutes.
    if not output.parent.is_dir():
        message = (
            f"{output} cannot be written: No such file or directory: {output.parent}"
        )
        raise CommandError(message)


@click.command(epilog=EPILOG)
@click.argument(
    "journals", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True)
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_checked_format,
    help="OUT.svg or OUT.png; OUT.html is a page that can be zoomed.",
)
@click.option(
    "--group", "groups", multiple=True, help="Only this consumer group; repeatable."
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    callback=_checked_partitions,
    metavar="TOPIC[:N]",
    help="Only this partition, or all of this topic; repeatable.",
)
@click.option(
    "--from",
    "start",
    callback=_moment,
    metavar="DURATION",
    help="Begin this long after the first entry: 90s, 1m30s.",
)
@click.option(
    "--to", "end", callback=_moment, metavar="DURATION", help="End this long after it."
)
@settings_options
@click.pass_context
def timeline(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    journals: tuple[Path, ...],
    output: Path,
    groups: tuple[str, ...],
    partitions: tuple[str, ...],
    start: float | None,
    end: float | None,
    settings: Settings,
) -> None:
    """
    Draw what consumers did, by their delivery journals.

    One lane for each partition of each group: its holds, its deliveries, its owners,
    and in red what the audit finds wrong. Needs the extra audit.

    JOURNAL is a file, or a folder of *.journal files; give those of all members,
    producers and operators together. Status 0: the picture was drawn,
    with or without violations; 2: a journal is broken or of a newer version, and the
    picture says so, or nothing could be drawn.
    """
    wanted = Wanted(
        groups=frozenset(groups),
        topics=frozenset(one for one in partitions if ":" not in one),
        partitions=frozenset(partition_of(one) for one in partitions if ":" in one),
        start=start or 0.0,
        end=end,
    )
    with explained(context):
        _check_folder(output)
        draw = _drawing(output)
        watching = Watching(settings)
        given = load(journals)
        troubles, unread = _heard(watching, given)
        for line in troubles:
            click.echo(f"safeconsumer: {printable(line)}", err=True)
        story = watching.told(wanted)
        if unnamed := watching.unnamed(wanted):
            click.echo(f"safeconsumer: {printable(unnamed)}", err=True)
        picture = draw(story, _trouble(troubles, unread))
        try:
            output.write_bytes(picture)
        except OSError as error:
            raise CommandError(str(error)) from error
    click.echo(f"{printable(str(output))}: {_counts(story, len(given))}")
    context.exit(Status.USAGE if troubles else Status.DONE)


def _counts(story: Timeline, journals: int) -> str:
    said = [
        counted(len(story.lanes), "partition"),
        counted(journals, "journal"),
        counted(sum(story.violations.values()), "violation"),
    ]
    if story.elsewhere:
        said[-1] += f" in this part, {story.elsewhere:,} elsewhere"
    if story.unjudged:
        said.append(f"not judged: {', '.join(story.unjudged)}")
    return ", ".join(said)


def _drawing(output: Path) -> Callable[[Timeline, str], bytes]:
    # Checked before the journals are read, which may take minutes.
    try:
        picture = import_module("safeconsumer.audit.timeline.picture")
    except ModuleNotFoundError as error:
        if error.name != "vl_convert":
            raise
        message = "a timeline needs vl-convert: pip install 'safeconsumer[audit]'"
        raise CommandError(message) from None
    kind = output.suffix.lower()[1:]
    return lambda story, why: picture.drawn(story, kind, trouble=why)


def _trouble(troubles: Sequence[str], unread: int) -> str:
    if unread:
        return f"{counted(unread, 'journal')} cannot be read"
    return "journals may be missing" if troubles else ""


def _heard(watching: Watching, given: Journals) -> tuple[list[str], int]:
    # What is wrong, and how many journals cannot be read because of it.
    troubles, unread = list(given.troubles), given.lost
    for journal in given.opened:
        try:
            watching.hear(journal)
        except JournalError as error:
            troubles.append(str(error))
            unread += 1
    return troubles, unread
