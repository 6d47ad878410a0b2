"""Implements ``safeconsumer dead-letters``: lists dead letters, and sends them back."""

import contextlib
import functools
import itertools
import json
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import click

from safeconsumer._kafka.fixes import producers
from safeconsumer.cli import cluster, group_text, letters
from safeconsumer.cli.connection import cluster_options
from safeconsumer.cli.errors import CommandError, Status, epilog, explained, give_up
from safeconsumer.cli.letters import Wanted
from safeconsumer.cli.rates import rate_of
from safeconsumer.cli.replay_memory import Memory
from safeconsumer.cli.replaying import Arrivals, Replay, producer_of
from safeconsumer.cli.saying import Listing, printable, printable_lines
from safeconsumer.holds.explain import counted

Base = Callable[[], dict[str, Any]]

_READING = (
    Status.DONE,
    Status.USAGE,
    Status.UNREACHABLE,
    Status.REFUSED,
    Status.MISSING,
)
_LETTER = re.compile(r"([A-Za-z0-9._-]+):(\d{1,9})@(\d{1,18})")


@click.group("dead-letters", cls=Listing)
def dead_letters() -> None:
    """Look at dead letters, and send them back to their topics."""


def _moment(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> float | None:
    try:
        return None if text is None else letters.moment_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _rate(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> float | None:
    try:
        return None if text is None else rate_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _letter(
    _context: click.Context, _parameter: click.Parameter, text: str
) -> tuple[str, int, int]:
    match = _LETTER.fullmatch(text)
    if match is None:
        message = f"{text[:100]!r} is not TOPIC:PARTITION@OFFSET, as list shows it"
        raise click.BadParameter(message)
    return match[1], int(match[2]), int(match[3])


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    # Called with wanted: a Wanted, and limit.
    @click.option(
        "--from",
        "origins",
        multiple=True,
        metavar="TOPIC[:PARTITION[@OFFSET]]",
        help="Only records that failed there; repeatable.",
    )
    @click.option(
        "--error",
        "errors",
        multiple=True,
        metavar="CLASS",
        help="Only this exception, with or without its module; repeatable.",
    )
    @click.option(
        "--since",
        callback=_moment,
        metavar="TIME",
        help="Only letters written since: 2026-11-22T07:30 (UTC), or 2h for 2h ago.",
    )
    @click.option(
        "--until", callback=_moment, metavar="TIME", help="Only letters written before."
    )
    @click.option(
        "--partition", type=click.IntRange(0), help="Only this partition of TOPIC."
    )
    @click.option("--offset", type=click.IntRange(0), help="Only this offset.")
    @click.option("--limit", type=click.IntRange(1), help="At most this many letters.")
    @functools.wraps(command)
    def with_filters(
        *args: Any,  # noqa: ANN401 - the command's own
        limit: int | None,
        **options: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the command's own
        names = ("origins", "errors", "since", "until", "partition", "offset")
        wanted = Wanted(**{name: options.pop(name) for name in names})
        return command(*args, wanted=wanted, limit=limit, **options)

    return with_filters


@dead_letters.command("list", epilog=epilog(*_READING))
@click.argument("topic")
@_filters
@click.option("--json", "is_json", is_flag=True, help="Print whole letters as JSON.")
@cluster_options
@click.pass_context
def list_letters(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    topic: str,
    wanted: Wanted,
    limit: int | None,
    *,
    is_json: bool,
    base: Base,
) -> None:
    """
    List the letters in TOPIC: when, from where, which error, after how many attempts.

    A record that no Worker wrote as a letter is listed, too, and marked.
    """
    with explained(context), letters.opened(base(), topic) as there:
        several = list(itertools.islice(there.read(wanted), limit))
        _say_unmet(there)
        several.sort(key=lambda one: one.record.timestamp)
        if is_json:
            click.echo(json.dumps(list(map(letters.document, several)), indent=2))
            return
        table = [tuple(map(printable, row)) for row in letters.rows(several)]
        for line in group_text.columns(table, ""):
            click.echo(line)
        foreign = sum(one.letter is None for one in several)
        none = f", {foreign} records that are no letters" if foreign else ""
        click.echo(f"{counted(len(several) - foreign, 'letter')}{none}")


@dead_letters.command(epilog=epilog(Status.DONE, Status.FAILED, *_READING[1:]))
@click.argument("letter", metavar="TOPIC:PARTITION@OFFSET", callback=_letter)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@cluster_options
@click.pass_context
def show(
    context: click.Context,
    /,
    letter: tuple[str, int, int],
    *,
    is_json: bool,
    base: Base,
) -> None:
    """
    Show one whole letter: what failed and how, its headers, key and value.

    Data that is not plain text is shown in hex. Status 1: there is nothing at this
    offset, or no letter.
    """
    topic, partition, offset = letter
    with explained(context), letters.opened(base(), topic) as there:
        wanted = Wanted(partition=partition, offset=offset)
        one = next(there.read(wanted), None)
        if one is None:
            message = f"there is no record at {topic}:{partition}@{offset}"
            raise CommandError(message, Status.FAILED)
        if is_json:
            click.echo(json.dumps(letters.document(one), indent=2))
        else:
            text = "\n".join(letters.lines(one))
            click.echo(printable_lines(text.replace("\t", "    ")))
        if one.letter is None:
            context.exit(Status.FAILED)


@dead_letters.command(
    epilog=epilog(*_READING, Status.LEFT),
)
@click.argument("topic")
@_filters
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show what would be sent.")
@click.option(
    "--rate", callback=_rate, metavar="N/s", help="The most letters per time."
)
@click.option(
    "--again",
    "is_again",
    is_flag=True,
    help="Send letters again that were sent back before.",
)
@click.option(
    "--memory",
    metavar="GROUP",
    help="The group whose committed offsets remember which letters were sent back; "
    "safeconsumer-replay-TOPIC by default.",
)
@click.option(
    "--keep-timestamp",
    "keeps_timestamp",
    is_flag=True,
    help="Keep records' old timestamps; retention may delete them at once.",
)
@cluster_options
@click.pass_context
def replay(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    topic: str,
    wanted: Wanted,
    limit: int | None,
    *,
    is_dry: bool,
    memory: str | None,
    base: Base,
    **choices: Any,  # noqa: ANN401 - rate, is_again, keeps_timestamp
) -> None:
    """
    Send the letters of TOPIC back to the topics they come from.

    Each record has its key, its value and its own headers again, and one that names the
    letter (dead-letter-replayed-from); it goes to its old partition if that still
    exists. A letter is sent back once, also by runs that are interrupted and by runs
    with other filters: Kafka remembers that for offsets.retention.minutes, 7 days by
    default. Only one run at a time is allowed. Letters that cannot be sent stay, and
    are named.
    """
    with explained(context):
        where = base()
        group = memory or f"safeconsumer-replay-{topic}"
        with contextlib.ExitStack() as stack:
            there = stack.enter_context(letters.opened(where, topic, group))
            producer = None
            if not is_dry:
                producer = producer_of(where)
                stack.callback(producers.end, producer, 5.0)
            replaying = Replay(
                producer,
                Memory(there.consumer, there.begins),
                functools.cache(
                    lambda name: cluster.partitions_of(where, [name])[name]
                ),
                Arrivals(where).has,
                lambda line: click.echo(f"safeconsumer: {printable(line)}", err=True),
                most=limit,
                **choices,
            )
            several = there.read(wanted)
            if is_dry:
                _rehearse(replaying, several)
            else:
                with _stopping(replaying):
                    _replay(replaying, several)
            _say_unmet(there)
        _conclude(context, replaying)


def _say_unmet(there: letters.Letters) -> None:
    # A name that is spelled wrong finds nothing, as one does whose letters are gone.
    for line in there.unmet():
        click.echo(f"safeconsumer: {printable(line)}", err=True)


def _rehearse(replaying: Replay, several: Iterator[letters.Found]) -> None:
    count = 0
    for letter in replaying.chosen(several):
        count += 1
        click.echo(f"{letter.found.place}  to  {letter.target}")
    counts = replaying.counts
    click.echo(f"would send {count}, leave {counts.left}; {counts.before} sent before")


def _replay(replaying: Replay, several: Iterator[letters.Found]) -> None:
    try:
        replaying.run(several)
    finally:
        counts = replaying.counts
        click.echo(
            f"{counts.sent} sent back, {counts.left} left; {counts.before} sent before"
        )


def _conclude(context: click.Context, replaying: Replay) -> None:
    if replaying.is_cut:
        give_up(context, "interrupted; run it again to go on", Status.INTERRUPTED)
    if replaying.counts.left:
        context.exit(Status.LEFT)


@contextlib.contextmanager
def _stopping(replaying: Replay) -> Iterator[None]:
    # Letters that were sent are waited for and remembered, unless a second Ctrl-C
    # comes.
    def stop(_number: int, _frame: object) -> None:
        if replaying.stopping.is_set():
            raise KeyboardInterrupt
        replaying.stopping.set()

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
