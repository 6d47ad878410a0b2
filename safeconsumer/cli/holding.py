"""Implements ``safeconsumer pause`` and ``safeconsumer extend`` for whole groups."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, TextIO

import click
from attrs import evolve, frozen
from kafka import TopicPartition
from kafka.errors import KafkaError

from safeconsumer.cli import group_text, refusing, waiting
from safeconsumer.cli.connection import Connect, connection_options, skew_option
from safeconsumer.cli.errors import (
    EPILOG,
    CommandError,
    Status,
    explained,
    give_up,
    status_of,
)
from safeconsumer.cli.journaled import journal_option, operating
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.owners import host, owner_of, owner_option, principal
from safeconsumer.cli.refusing import FUTURE
from safeconsumer.cli.saying import Command, printable
from safeconsumer.errors import ControlTopicError, ControlWriteError
from safeconsumer.group import judging
from safeconsumer.group.documents import standing_document
from safeconsumer.group.durations import seconds_of
from safeconsumer.group.ending import Ending, ending_of
from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import OPERATOR, Operator
from safeconsumer.group.overtaking import (
    Overtaken,
    overtaken,
    put_back,
    time_of,
    timed,
)
from safeconsumer.group.picture import Picture
from safeconsumer.group.preview import (
    SAME_MOMENT,
    Consent,
    Objection,
    Placing,
    Preview,
    objections,
    own_of,
    placing,
    preview,
    replacing,
    wish_of,
)
from safeconsumer.group.publisher import Acknowledged, Change, changes, new_hold
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.troubles import said
from safeconsumer.group.wire import ControlHold
from safeconsumer.holds.explain import counted, utc

SCOPES = click.argument("scopes", nargs=-1, required=True, metavar="SCOPE...")
GROUP_OPTION = click.option("--group", required=True, help="The consumer group.")

_UNCHANGED = (
    ". Nothing was changed: extend makes it last longer, --replace puts this in its "
    "place"
)
# The end of a refusal, and its exit status; @all is confirmed instead.
_REFUSALS = {
    Consent.NEW_GROUP: (
        ", or hold it before it exists with --new-group",
        Status.USAGE,
    ),
    Consent.FUTURE: (f" {FUTURE}", Status.USAGE),
    Consent.REPLACE: (_UNCHANGED, Status.FAILED),
}


def _ending_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option(
        "--until",
        metavar="TIME",
        help="It ends at this time: 18:30, or 2026-11-22T18:30, which may have a "
        "time zone (+01:00 or Z); otherwise this machine's time zone.",
    )(command)
    return click.option(
        "--for",
        "for_",
        metavar="DURATION",
        help="It ends after this time: 90s, 30m, 2h, 1d, 1w.",
    )(command)


@click.command(cls=Command, epilog=EPILOG)
@SCOPES
@GROUP_OPTION
@click.option("--reason", required=True, help="Why; every member can show it.")
@_ending_options
@owner_option
@click.option(
    "--new-group",
    is_flag=True,
    help="The group does not exist yet; hold it from its first member on.",
)
@click.option("--future", is_flag=True, help="Allow a SCOPE that covers nothing yet.")
@click.option(
    "--replace", is_flag=True, help="Replace your own hold of the same scope."
)
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before @all is held.")
@click.option(
    "--wait",
    "patience",
    metavar="DURATION",
    help="Wait until quiet, at most this long; after it the status is 1.",
)
@journal_option
@output_options
@skew_option
@connection_options
@click.pass_context
def pause(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    group: str,
    reason: str,
    for_: str | None,
    until: str | None,
    owner: str | None,
    patience: str | None,
    journal: str | None,
    output: Output,
    connect: Connect,
    **flags: bool,
) -> None:
    """
    Hold partitions for every member of a group, now and in the future.

    SCOPE is a partition (orders:3), several (orders:0-2,5), a topic (orders), an RE2
    pattern over whole topic names (re:ord.*), or @all. Several scopes are several
    holds: each is complete by itself. Running the same command again does not change
    existing holds.
    """
    with explained(context):
        wish = wish_of(
            group=group,
            owner=owner_of(owner),
            texts=scopes,
            reason=reason,
            for_=for_,
            until=until,
        )
        limit = None if patience is None else timeout_of(patience, "--wait")
        with operating(context, connect, journal) as operator:
            operator.check()
            laid = partial(
                placing,
                wish=wish,
                skew=operator.settings.clock_skew,
                host=host(),
                principal=principal(operator.base),
            )
            wanted = laid(operator.look(group, is_strict=True))
            against = tuple(objections(operator, wanted))
            is_all = _check(against, flags)
            if flags["dry_run"]:
                operator.check_journal()
                _tell_preview(output, preview(operator, wanted, against))
                return
            if is_all and not flags["yes"] and is_terminal():
                _confirm(preview(operator, wanted, against))
                # People think for minutes; overtaken() finds what is written in
                # between.
                wanted = laid(operator.look_again(wanted.picture))
                _check(tuple(replacing(wanted)), flags)
            wanted, done = _placed(operator, wanted, is_replacing=flags["replace"])
            told, reached = _told(wanted, done), None
            if journal and told.unchanged:
                _tell_unwritten(told.unchanged)
            with written("held", done):
                if not output.is_json:
                    output.lines(_lines(told))
                if limit is not None:
                    reached = _wait(operator, wanted, limit)
                _end(context, output, told, reached)


def timeout_of(text: str, option: str = "--timeout") -> float:
    """
    Return the seconds of an option; with ``0s`` it looks once.

    Raises:
        CommandError: it is not a duration.
    """
    try:
        return 0.0 if text == "0s" else seconds_of(text)
    except ValueError as error:
        message = f"{option}: {error}"
        raise CommandError(message) from error


def _check(against: Sequence[Objection], flags: Mapping[str, bool]) -> bool:
    """Return whether all of the group would be held, if the flags allow the rest."""
    for one in against:
        if one.consent in _REFUSALS and not flags[one.consent.value]:
            more, status = _REFUSALS[one.consent]
            raise CommandError(one.what + more, status)
    return any(one.consent is Consent.EVERYTHING for one in against)


def _placed(
    operator: Operator, wanted: Placing, *, is_replacing: bool
) -> tuple[Placing, tuple[Acknowledged, ...]]:
    """Write the holds, and find holds that they replaced unseen."""
    todo = wanted.todo(is_replacing=is_replacing)
    if not todo:
        return wanted, ()
    done, unseen = _noted(operator, wanted.picture, todo, wanted.wish.ending)
    mine = {one.key: one for one in wanted.changes}
    found = {mine[one.before.key]: one for one in unseen if one.before.hold is not None}
    own = {change: one.before for change, one in found.items()}
    if is_replacing:
        return evolve(wanted, own={**wanted.own, **own}), done
    others = evolve(wanted, own=own).replaces
    if wrong := [one for one in found.values() if one.before in others]:
        undo(operator, OPERATOR, wrong, done, "held", _replaced)
    return wanted, done


def _replaced(one: Overtaken) -> str:
    return f"held already: {' '.join(one.before.cells())}"


def _noted(
    operator: Operator, picture: Picture, todo: Sequence[Change], ending: Ending
) -> tuple[tuple[Acknowledged, ...], tuple[Overtaken, ...]]:
    """Write the changes; return them, and what was written since the picture."""
    since = (picture.ends or {})[operator.topic_of(OPERATOR)]
    first = operator.write(OPERATOR, todo)
    with written("held", first):
        done = timed(operator, OPERATOR, first, ending.until)
        return done, overtaken(operator, OPERATOR, done, since, first)


def undo(  # noqa: PLR0913, PLR0917 - what was done, and why it should not have been
    operator: Operator,
    source: str,
    wrong: Sequence[Overtaken],
    done: Sequence[Acknowledged],
    what: str,
    why: Callable[[Overtaken], str],
) -> NoReturn:
    """
    Restore what should not have been overwritten, and end with a message about it.

    Args:
        operator: the connection.
        source: ``operator`` or ``group``, for the control topic.
        wrong: the records that should not have been overwritten.
        done: everything that was written.
        what: what happened to the others: ``held``, ``extended``, ``resumed``.
        why: returns the reason for restoring one record.

    Raises:
        CommandError: always.
    """
    said = "; ".join(why(one) for one in wrong)
    with written(f"overwritten before it was seen ({said}),", done):
        is_alone = put_back(operator, source, wrong)
    undone = {one.ours for one in wrong}
    rest = ", ".join(one.change.key.scope for one in done if one not in undone)
    message = (
        f"overwritten before it was seen, and put back: {said}"
        f"{'' if is_alone else '. Somebody wrote again meanwhile: check status'}"
        f"{f'. {what}: {rest}' if rest else ''}"
    )
    raise CommandError(message, Status.FAILED)


def is_terminal() -> bool:
    """Tell whether there is a person at a terminal who can be asked."""
    stdin: TextIO | None = sys.stdin  # None in a program without a standard input
    return stdin is not None and stdin.isatty()


def _confirm(seen: Preview) -> None:
    for line in _preview_lines(seen):
        click.echo(printable(line), err=True)
    picture = seen.placing.picture
    question = (
        f"Hold all {counted(len(seen.placing.covers), 'partition')} of "
        f"{printable(picture.group)}, {counted(len(picture.facts.members), 'member')}?"
    )
    if not click.confirm(question, err=True):
        message = "nothing was changed"
        raise CommandError(message, Status.FAILED)


def _preview_lines(seen: Preview) -> Iterator[str]:
    yield from (text for _, text in seen.points)
    for one in seen.placing.others:
        yield f"held besides by {one.source}:{one.key.owner}: {one.key.scope}"


def _tell_preview(output: Output, seen: Preview) -> None:
    if output.is_json:
        output.document({"dry_run": True, **seen.document()})
        return
    output.lines([*_preview_lines(seen), "nothing was changed"])


def as_standing(one: Acknowledged) -> Standing:
    """Return the hold that an acknowledgement shows."""
    return Standing(
        source=OPERATOR,
        key=one.change.key,
        hold=one.change.hold,
        at=time_of(one),
        offset=one.offset,
    )


@frozen(kw_only=True)
class _Told:
    """
    The result of ``pause``.

    Attributes:
        held: the holds that were placed.
        unchanged: the holds that existed already.
        replaced: the holds that existed instead.
        covers: the partitions of the group that all of these cover.
        others: holds of other owners that cover some of these partitions.
    """

    held: tuple[Standing, ...]
    unchanged: tuple[Standing, ...]
    replaced: tuple[Standing, ...]
    covers: tuple[TopicPartition, ...]
    others: tuple[Standing, ...]

    def document(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        return {
            "held": [standing_document(one) for one in self.held],
            "unchanged": [standing_document(one) for one in self.unchanged],
            "replaced": [standing_document(one) for one in self.replaced],
            "covers": [f"{tp.topic}:{tp.partition}" for tp in self.covers],
            "also_held": [standing_document(one) for one in self.others],
        }


def _told(wanted: Placing, done: Sequence[Acknowledged]) -> _Told:
    written_again = {one.change.key for one in done}
    own = wanted.own.values()
    return _Told(
        held=tuple(map(as_standing, done)),
        unchanged=tuple(one for one in own if one.key not in written_again),
        replaced=tuple(one for one in own if one.key in written_again),
        covers=wanted.covers,
        others=wanted.others,
    )


def _lines(told: _Told) -> Iterator[str]:
    for heading, several in (
        ("held", told.held),
        ("held already, unchanged", told.unchanged),
        ("instead of", told.replaced),
    ):
        if several:
            yield heading
            yield from group_text.columns(map(Standing.cells, several))
    yield covers_text(told.covers)
    if told.others:
        yield "also held"
        yield from group_text.columns(map(Standing.cells, told.others))


def _tell_unwritten(unchanged: Sequence[Standing]) -> None:
    scopes = printable(", ".join(one.key.scope for one in unchanged))
    click.echo(
        f"safeconsumer: {scopes}: held already, so nothing was written to the "
        "journal; if the journal lacks it, --replace places it again and journals it",
        err=True,
    )


def _end(
    context: click.Context,
    output: Output,
    told: _Told,
    reached: waiting.Outcome | None,
) -> None:
    if output.is_json:
        waited = None if reached is None else reached.document()
        output.document({**told.document(), "wait": waited})
    if reached is None:
        return
    if not reached.is_reached:
        why = f"held, but not quiet in {reached.waited:.0f} s: {reached.sentence}"
        give_up(context, why, Status.FAILED)
    if not output.is_json:
        output.lines([f"{reached.sentence}, after {reached.waited:.1f} s"])


def covers_text(covers: Sequence[Any]) -> str:
    """Describe what scopes cover now."""
    if not covers:
        return "warning: covers nothing that the group consumes now"
    shown = judging.partitions_text(covers)
    return f"covers {counted(len(covers), 'partition')} of the group now: {shown}"


def _wait(operator: Operator, wanted: Placing, limit: float) -> waiting.Outcome:
    return waiting.wait_until(
        operator,
        wanted.wish.group,
        lambda picture: _is_quiet(picture, wanted),
        limit,
    )


def _is_quiet(picture: Picture, wanted: Placing) -> tuple[bool, str]:
    there = {one.key for one in picture.standing if one.source == OPERATOR}
    gone = [one.key.scope for one in wanted.changes if one.key not in there]
    if gone and picture.ends is not None:
        message = f"lifted or expired meanwhile: {', '.join(gone[:5])}"
        raise waiting.InVainError(message)
    return waiting.is_quiet(picture, wanted.wish.scopes)


@contextmanager
def written(what: str, done: Sequence[Acknowledged]) -> Iterator[None]:
    """
    Report what was acknowledged if something fails after that.

    A look may fail, and so may printing, for example on a full disk.
    """
    scopes = ", ".join(one.change.key.scope for one in done)
    try:
        yield
    except BrokenPipeError:
        raise
    except ControlWriteError as error:
        if not done:
            raise
        message = f"{what} and acknowledged: {scopes}; but after that: {error}"
        raise CommandError(message, status_of(error.__cause__)) from error
    except (KafkaError, OSError, ControlTopicError) as error:
        if not done:
            raise
        message = (
            f"{what} and acknowledged: {scopes}; but the rest is not shown: "
            f"{said(error)}"
        )
        raise CommandError(message, status_of(error)) from error
    except KeyboardInterrupt as interrupt:
        if not done:
            raise
        after = (
            f"after that {interrupt}" if str(interrupt) else "interrupted after that"
        )
        message = f"{what} and acknowledged: {scopes}; {after}"
        raise CommandError(message, Status.INTERRUPTED) from None


@click.command(cls=Command, epilog=EPILOG)
@SCOPES
@GROUP_OPTION
@_ending_options
@owner_option
@journal_option
@output_options
@connection_options
@click.pass_context
def extend(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    group: str,
    for_: str | None,
    until: str | None,
    owner: str | None,
    journal: str | None,
    output: Output,
    connect: Connect,
) -> None:
    """
    Let your holds of exactly these scopes last longer, counted from now.

    It never makes them shorter, and never renews ended holds: place those with pause.
    """
    with explained(context):
        whose = owner_of(owner)
        ending = ending_of(for_, until)
        found = scopes_of(scopes, group)
        if ending == Ending():
            message = "give a duration or an end: --for 2h or --until 18:30"
            raise CommandError(message)
        with operating(context, connect, journal) as operator:
            operator.check()
            picture = operator.look_again(operator.look(group, is_strict=True))
            refusing.refuse_unknown(operator, picture)
            wanted = changes(group, whose, map(str, found), ControlHold())
            own = own_of(picture, wanted)
            there = [one for one in own.values() if _ends_then(one, ending)]
            stays = {one.key for one in there}
            longer = [
                _longer(one, own.get(one), ending, picture)
                for one in wanted
                if one.key not in stays
            ]
            done, unseen = _noted(operator, picture, longer, ending)
            _check_longer(
                operator, done, [*own.values(), *(one.before for one in unseen)]
            )
        told = [*there, *map(as_standing, done)]
        with written("extended", done):
            if output.is_json:
                output.document({"extended": list(map(standing_document, told))})
                return
            rows = group_text.columns(map(Standing.cells, told))
            output.lines(["extended", *rows])


def _longer(
    change: Change, own: Standing | None, ending: Ending, picture: Picture
) -> Change:
    scope, now = change.key.scope, picture.now
    if own is None or own.hold is None or (now is not None and own.is_over(now)):
        message = (
            f"{scope} is not held by {change.key.owner}: place it with pause, or give "
            "its owner with --owner. Nothing was changed"
        )
        raise CommandError(message, Status.FAILED)
    if own.hold.ttl_ms is None:
        message = f"{scope} is held until it is resumed. Nothing was changed"
        raise CommandError(message, Status.FAILED)
    end, made = own.expires_at, new_hold(own.hold.reason, ending.seconds_from(now))
    if end is not None and (_end_of(ending, picture) or end) < end:
        message = (
            f"{scope} is held until {utc(end)}, which is later. Nothing was changed: "
            "pause --replace makes it shorter"
        )
        raise CommandError(message, Status.FAILED)
    since_ms = None if own.since is None else int(own.since * 1000)
    return Change(change.key, evolve(own.hold, ttl_ms=made.ttl_ms, since_ms=since_ms))


def _ends_then(one: Standing, ending: Ending) -> bool:
    # Compared again: it was written a little after the time was read.
    end, until = one.expires_at, ending.until
    return end is not None and until is not None and 0 <= end - until <= SAME_MOMENT


def _check_longer(
    operator: Operator, done: Sequence[Acknowledged], before: Sequence[Standing]
) -> None:
    """
    Restore holds that turn out to have been lifted, to have ended, or to last longer.

    Args:
        operator: the connection.
        done: what was written.
        before: the holds before that; of each hold the last entry counts.
    """
    last = {one.key: one for one in before}
    found = [Overtaken(ours=one, before=last[one.change.key]) for one in done]
    if wrong := [one for one in found if _why_not_longer(one)]:
        undo(operator, OPERATOR, wrong, done, "extended", _why_not_longer)


def _end_of(ending: Ending, picture: Picture) -> float | None:
    # If no member reports, the acknowledgement gives the broker's time.
    if ending.until is not None or picture.now is None or ending.seconds is None:
        return ending.until
    return picture.now + ending.seconds


def _why_not_longer(one: Overtaken) -> str:
    """Return why a hold should not have been extended; empty if it should."""
    scope, before, now = one.before.key.scope, one.before, one.at
    made, mine = before.hold, one.ours.change.hold
    if made is None:
        return f"{scope} was lifted"
    if mine is not None and made.hold_id != mine.hold_id:
        return f"{scope} was replaced: {' '.join(before.cells())}"
    if made.ttl_ms is None:
        return f"{scope} is held until it is resumed"
    if now is not None and before.is_over(now):
        return f"{scope} is not held any more: it has expired"
    end, mine_end = before.expires_at, as_standing(one.ours).expires_at
    if end is not None and mine_end is not None and mine_end < end:
        return f"{scope} is held until {utc(end)}, which is later"
    return ""
