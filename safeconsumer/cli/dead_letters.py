"""Implements ``safeconsumer dead-letters``: lists dead letters, and sends them back."""

import contextlib
import functools
import itertools
import re
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from safeconsumer._kafka.of_group import producers
from safeconsumer.cli import cluster, group_text, letters
from safeconsumer.cli.connection import cluster_options
from safeconsumer.cli.errors import CommandError, complain, explained, give_up
from safeconsumer.cli.letters import Wanted
from safeconsumer.cli.listing import Listing
from safeconsumer.cli.options import options, since_of
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.replaying import Replay, producer_of
from safeconsumer.cli.statuses import EPILOG, Status
from safeconsumer.group.rights import REPLAYING
from safeconsumer.holds.explain import counted, printable
from safeconsumer.worker.letters_format import Letter
from safeconsumer.worker.signals import LAST, taking

Base = Callable[[], dict[str, Any]]

_LETTER = re.compile(r"([A-Za-z0-9._-]+):(\d{1,9})@(\d{1,18})")


@click.group("dead-letters", cls=Listing)
def dead_letters() -> None:
    """List and show dead letters, and send them back to their topics."""


def _parse_place(
    _context: click.Context, parameter: click.Parameter, text: str
) -> tuple[str, tuple[int, int] | None]:
    # Returns a topic, and the partition and offset of a single letter, or None for all
    # letters.
    if match := _LETTER.fullmatch(letters.place_of(text)):
        return match[1], (int(match[2]), int(match[3]))
    if parameter.name == "letter":
        message = f"{text[:100]!r} is not TOPIC:PARTITION@OFFSET, as list shows it"
        raise click.BadParameter(message)
    return text, None


_filters = options(
    "wanted",
    Wanted,
    click.option(
        "--from",
        "origins",
        multiple=True,
        metavar="TOPIC[:PARTITION[@OFFSET]]",
        help="Only records that failed there; repeatable.",
    ),
    click.option(
        "--error",
        "errors",
        multiple=True,
        metavar="CLASS",
        help="Only this exception, with or without its module; repeatable.",
    ),
    click.option(
        "--since",
        metavar="TIME",
        help="Only letters written since: 2026-11-22T07:30 (UTC), or 2h for 2h ago.",
        callback=since_of,
    ),
    click.option("--limit", type=click.IntRange(1), help="At most this many letters."),
)


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
    wanted: Wanted,
    output: Output,
    base: Base,
) -> None:
    """
    List the letters in TOPIC, each with its time, origin, error and number of attempts.

    Each partition's letters are listed in order, while they are read. Records that were
    not written as letters by a Worker are listed, too, and marked. -o json prints whole
    letters.
    """
    with explained(context), letters.opened(base(), topic) as there:
        pieces = there.read(wanted)
        if output.is_json:
            every = itertools.chain.from_iterable(pieces)
            output.documents(map(letters.document, every))
        else:
            _table(pieces, wanted.limit)


def _table(pieces: Iterable[list[Letter]], limit: int | None) -> None:
    head, widths, count, foreign = [letters.HEAD], [0] * len(letters.HEAD), 0, 0
    for several in pieces:
        rows = [*head, *map(letters.row, several)]
        Output().lines(group_text.columns(rows, "", widths))
        head = []
        count += len(several)
        foreign += sum(bool(one.why) for one in several)
    no_letters = "that is no letter" if foreign == 1 else "that are no letters"
    none = f", {counted(foreign, 'record')} {no_letters}" if foreign else ""
    more = "; there may be more than --limit" if count == limit else ""
    click.echo(f"{counted(count - foreign, 'letter')}{none}{more}")


@dead_letters.command(epilog=EPILOG)
@click.argument("letter", metavar="TOPIC:PARTITION@OFFSET", callback=_parse_place)
@cluster_options
@click.pass_context
def show(
    context: click.Context, /, letter: tuple[str, tuple[int, int]], *, base: Base
) -> None:
    """
    Show one whole letter: the failed record and its error, its headers, key and value.

    Data that is not plain text is shown in hex. Text that could be mistaken for hex,
    null or quoted text is shown in quotes. Status 1: there is no record at this offset,
    or the record is not a letter.
    """
    topic, at = letter
    with explained(context), letters.opened(base(), topic, at=at) as there:
        one = next(itertools.chain.from_iterable(there.read()), None)
        if one is None:
            raise _nothing_at(topic, at)
        for line in letters.lines(one):
            click.echo(printable(line.replace("\t", "    ")))
        if one.why:
            context.exit(Status.FAILED)


def _nothing_at(topic: str, at: tuple[int, int]) -> CommandError:
    message = f"there is no record at {topic}:{at[0]}@{at[1]}"
    return CommandError(message, Status.FAILED)


@dead_letters.command(epilog=EPILOG)
@click.argument("which", metavar="TOPIC[:PARTITION@OFFSET]", callback=_parse_place)
@_filters
@click.option(
    "--dry-run",
    "is_dry",
    is_flag=True,
    help="Only list the letters that would be sent.",
)
@cluster_options
@click.pass_context
def replay(
    context: click.Context,
    /,
    which: tuple[str, tuple[int, int] | None],
    *,
    wanted: Wanted,
    is_dry: bool,
    base: Base,
) -> None:
    """
    Send the letters in TOPIC back to the topics that they came from, at least once.

    Each record gets its original key, value and headers, and goes to its old partition
    if that still exists. The header dead-letter-replayed-from names the letter, so that
    a consumer can recognize a letter that was sent twice.

    A run continues where the last run stopped: at the offsets that the group
    safeconsumer-replay-TOPIC has committed, which Kafka keeps for
    offsets.retention.minutes, 7 days by default. If a run is killed, the next run may
    send up to 100 letters again. If two runs overlap, both send all letters. To go
    back, use kafka-consumer-groups.sh --reset-offsets on the group.

    A run with --from, --error or --since also starts there, but does not commit:
    letters that it skips remain for other runs, and the next run sends its letters
    again; with --limit, each run sends the same letters. TOPIC:PARTITION@OFFSET, as
    printed by list, sends only this letter, even if it was sent before, and does not
    commit either; it cannot be combined with --from, --error and --since.

    A letter that cannot be sent is reported and skipped; you can send it later by its
    name.
    """
    topic, at = which
    if at and wanted.is_filter:
        message = "this is one letter: leave out --from, --error and --since"
        raise click.UsageError(message, context)
    group = None if at else f"{REPLAYING}{topic}"
    commits = group is not None and not wanted.is_filter
    with explained(context), contextlib.ExitStack() as stack:
        where = base()
        there = stack.enter_context(letters.opened(where, topic, group=group, at=at))
        replaying = Replay(_partitions(where), complain)
        pieces = there.read(wanted, replaying.stopping.is_set)
        _report_start(there.passed, group, commits=commits or is_dry)
        if is_dry:
            _dry_run(replaying, pieces)
        else:
            producer = producer_of(where)
            stack.callback(producers.end, producer, 5.0)
            commit = there.commit if commits else lambda _: None
            _replay(replaying, lambda: replaying.run(pieces, producer, commit))
        if at and not replaying.selected:
            raise _nothing_at(topic, at)
        if replaying.is_cut:
            how = "run it again to continue" if commits else "nothing was committed"
            give_up(context, f"interrupted; {how}", Status.INTERRUPTED)
        if replaying.left:
            context.exit(Status.FAILED)


def _partitions(
    base: Mapping[str, Any],
) -> Callable[[str], frozenset[int] | None]:
    return functools.cache(lambda name: cluster.partitions_of(base, [name])[name])


def _report_start(passed: int, group: str | None, *, commits: bool) -> None:
    if passed:
        complain(
            f"continues after {counted(passed, 'record')}, at the offsets of the group "
            f"{group}; kafka-consumer-groups.sh --reset-offsets sets it back"
        )
    if group is not None and not commits:
        complain(
            "commits nothing, as letters are selected: the next run sends them again"
        )


def _dry_run(replaying: Replay, pieces: Iterable[list[Letter]]) -> None:
    for letter in replaying.sendable(pieces):
        target = replaying.target(letter)
        where = "by its key" if target is None else target
        click.echo(f"{letter.name}  to  {letter.topic}:{where}")
    count = replaying.selected - replaying.left
    click.echo(f"would send {count}; {replaying.left} could not be")


def _replay(replaying: Replay, run: Callable[[], None]) -> None:
    # After a first Ctrl-C, the command still waits until sent letters are acknowledged,
    # and commits their offsets. A second Ctrl-C stops it immediately.
    def stop(count: int) -> None:
        if count == LAST:
            raise KeyboardInterrupt
        replaying.stopping.set()

    try:
        with taking((signal.SIGINT, signal.SIGTERM), stop):
            run()
    finally:
        click.echo(f"{replaying.sent} sent back, {replaying.left} could not be")
