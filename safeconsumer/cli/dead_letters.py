"""Implements ``safeconsumer dead-letters``: lists dead letters, and sends them back."""

import contextlib
import functools
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
from attrs import evolve

from safeconsumer._kafka.of_group import producers
from safeconsumer.cli import cluster, group_text, letters
from safeconsumer.cli.connection import cluster_options
from safeconsumer.cli.errors import EPILOG, CommandError, Status, explained, give_up
from safeconsumer.cli.letters import Wanted
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.replaying import Replay, producer_of
from safeconsumer.cli.saying import Listing, printable
from safeconsumer.group.rights import REPLAYING
from safeconsumer.holds.explain import counted

Base = Callable[[], dict[str, Any]]

_LETTER = re.compile(r"([A-Za-z0-9._-]+):(\d{1,9})@(\d{1,18})")


@click.group("dead-letters", cls=Listing)
def dead_letters() -> None:
    """Look at dead letters, and send them back to their topics."""


def _letter(
    _context: click.Context, _parameter: click.Parameter, text: str
) -> tuple[str, int, int]:
    found = _place(text)
    if found is None:
        message = f"{text[:100]!r} is not TOPIC:PARTITION@OFFSET, as list shows it"
        raise click.BadParameter(message)
    return found


def _place(text: str) -> tuple[str, int, int] | None:
    match = _LETTER.fullmatch(text)
    return (match[1], int(match[2]), int(match[3])) if match else None


def _filters(command: Callable[..., Any]) -> Callable[..., Any]:
    # Called with from, error and since.
    for option in (
        click.option(
            "--since",
            metavar="TIME",
            help="Only letters written since: 2026-11-22T07:30 (UTC), or 2h for 2h ago.",
        ),
        click.option(
            "--error",
            multiple=True,
            metavar="CLASS",
            help="Only this exception, with or without its module; repeatable.",
        ),
        click.option(
            "--from",
            "from",
            multiple=True,
            metavar="TOPIC[:PARTITION[@OFFSET]]",
            help="Only records that failed there; repeatable.",
        ),
    ):
        command = option(command)
    return command


def _wanted(filters: Mapping[str, Any]) -> Wanted:
    text = filters["since"]
    try:
        since = None if text is None else letters.moment_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--since") from error
    return Wanted(origins=filters["from"], errors=filters["error"], since=since)


def _group_of(topic: str, filters: Mapping[str, Any]) -> str:
    # A run with other filters passes over other letters.
    texts = [
        f"{name}={one}"
        for name, value in filters.items()
        for one in (sorted(set(value)) if isinstance(value, tuple) else [value])
        if one is not None
    ]
    return f"{REPLAYING}{topic}{':' if texts else ''}{','.join(texts)}"


@dead_letters.command("list", epilog=EPILOG)
@click.argument("topic")
@_filters
@output_options
@cluster_options
@click.pass_context
def list_letters(
    context: click.Context,
    /,
    topic: str,
    *,
    output: Output,
    base: Base,
    **filters: Any,  # noqa: ANN401 - from, error and since
) -> None:
    """
    List the letters in TOPIC: when, from where, which error, after how many attempts.

    A record that no Worker wrote as a letter is listed, too, and marked. -o json prints
    whole letters.
    """
    wanted = _wanted(filters)
    with explained(context), letters.opened(base(), topic) as there:
        several = sorted(there.read(wanted), key=lambda one: one.record.timestamp)
        if output.is_json:
            output.document([*map(letters.document, several)])
            return
        output.lines(group_text.columns(letters.rows(several), ""))
        foreign = sum(one.letter is None for one in several)
        none = f", {foreign} records that are no letters" if foreign else ""
        click.echo(f"{counted(len(several) - foreign, 'letter')}{none}")


@dead_letters.command(epilog=EPILOG)
@click.argument("letter", metavar="TOPIC:PARTITION@OFFSET", callback=_letter)
@cluster_options
@click.pass_context
def show(
    context: click.Context, /, letter: tuple[str, int, int], *, base: Base
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
        for line in letters.lines(one):
            click.echo(printable(line.replace("\t", "    ")))
        if one.letter is None:
            context.exit(Status.FAILED)


@dead_letters.command(epilog=EPILOG)
@click.argument("which", metavar="TOPIC[:PARTITION@OFFSET]")
@_filters
@click.option("--limit", type=click.IntRange(1), help="At most this many letters.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Only show what would be sent.")
@click.option(
    "--again",
    "is_again",
    is_flag=True,
    help="Begin at the first letter, not where the last run stopped; the next run "
    "without it goes on where this one stops.",
)
@cluster_options
@click.pass_context
def replay(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    which: str,
    limit: int | None,
    *,
    is_dry: bool,
    is_again: bool,
    base: Base,
    **filters: Any,  # noqa: ANN401 - from, error and since
) -> None:
    """
    Send the letters of TOPIC back to the topics they come from, at least once.

    Each record has its key, its value and its own headers again; it goes to its old
    partition if that still exists. Its header dead-letter-replayed-from names the
    letter, and is the key by which a consumer knows a letter that was sent twice.

    A run goes on where the last one stopped: at the offsets that the group
    safeconsumer-replay-TOPIC has committed, which Kafka keeps for
    offsets.retention.minutes, 7 days by default. A run that is killed may have sent up
    to 100 letters that the next one sends again. Two runs at the same time both send
    all.

    A run with filters has a group of its own, such as
    safeconsumer-replay-TOPIC:error=ValueError: it goes on where the last one with the
    same filters stopped, and what it passes over stays for the others, which send what
    it has sent, too. TOPIC:PARTITION@OFFSET, as list shows it, sends this letter,
    whatever was sent before.

    A letter that cannot be sent is named, and passed: send it by its name later.
    """
    wanted = _wanted(filters)
    topic = which
    group: str | None = _group_of(which, filters)
    if single := _place(which):
        topic, group = single[0], None
        wanted = evolve(wanted, partition=single[1], offset=single[2])
    with explained(context):
        where = base()
        with contextlib.ExitStack() as stack:
            there = stack.enter_context(letters.opened(where, topic, group))
            producer = None
            if not is_dry:
                producer = producer_of(where)
                stack.callback(producers.end, producer, 5.0)
            partitions = functools.cache(
                lambda name: cluster.partitions_of(where, [name])[name]
            )
            replaying = Replay(
                there,
                wanted,
                producer,
                partitions,
                _say,
                most=limit,
                is_again=is_again,
            )
            if before := replaying.before:
                _say(
                    f"goes on after {counted(before, 'record')}, where the group "
                    f"{group} stands; --again begins with the first"
                )
            if is_again and group and not is_dry:
                _say(
                    f"the group {group} begins anew: the next run goes on where this "
                    "one stops, without --again"
                )
            (_rehearse if is_dry else _replay)(replaying)
            if single and not replaying.selected:
                message = f"there is no record at {which}"
                raise CommandError(message, Status.FAILED)
        _conclude(context, replaying, " without --again" if is_again else "")


def _say(line: str) -> None:
    click.echo(f"safeconsumer: {printable(line)}", err=True)


def _rehearse(replaying: Replay) -> None:
    for letter in replaying.chosen():
        click.echo(f"{letter.found.place}  to  {letter.target}")
    count = replaying.selected - replaying.left
    click.echo(f"would send {count}; {replaying.left} could not be")


def _replay(replaying: Replay) -> None:
    try:
        with _stopping(replaying):
            replaying.run()
    finally:
        click.echo(f"{replaying.sent} sent back, {replaying.left} could not be")


def _conclude(context: click.Context, replaying: Replay, how: str) -> None:
    if replaying.is_cut:
        message = f"interrupted; run it again{how} to go on"
        give_up(context, message, Status.INTERRUPTED)
    if replaying.left:
        context.exit(Status.FAILED)


@contextlib.contextmanager
def _stopping(replaying: Replay) -> Iterator[None]:
    # Letters that were sent are waited for and committed, unless a second Ctrl-C comes.
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
