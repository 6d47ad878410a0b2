"""
``safeconsumer pause`` and ``safeconsumer extend``: a whole group, from outside.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from attrs import evolve, frozen
from kafka import TopicPartition
from kafka.errors import KafkaError

from safeconsumer.cli import group_text, scoping, waiting
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.ending import Ending, ending_of, ending_options
from safeconsumer.cli.errors import (
    EPILOG,
    CommandError,
    Status,
    explained,
    give_up,
    status_of,
)
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.owners import host, owner_of, owner_option, principal
from safeconsumer.cli.preview import Preview, preview
from safeconsumer.cli.saying import printable
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import judging
from safeconsumer.group.documents import standing_document
from safeconsumer.group.durations import seconds_of
from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import OPERATOR, Operator
from safeconsumer.group.picture import Picture
from safeconsumer.group.publisher import Acknowledged, Change, changes, new_hold
from safeconsumer.group.troubles import said
from safeconsumer.group.wire import ControlHold
from safeconsumer.holds.explain import utc
from safeconsumer.holds.hold import checked_reason
from safeconsumer.holds.scope import Everything, Scope

SCOPES = click.argument("scopes", nargs=-1, required=True, metavar="SCOPE...")
GROUP_OPTION = click.option("--group", required=True, help="The consumer group.")
_TIMEOUT = click.option(
    "--timeout",
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="For --wait.",
)


@frozen(kw_only=True)
class _Wish:
    """
    What is to be held.

    Attributes:
        group: whose members.
        scopes: what.
        changes: one for each scope.
        seconds: for how long; None until it is resumed.
    """

    group: str
    scopes: tuple[Scope, ...]
    changes: tuple[Change, ...]
    seconds: float | None


@click.command(epilog=EPILOG)
@SCOPES
@GROUP_OPTION
@click.option("--reason", required=True, help="Why; every member can tell it.")
@ending_options
@owner_option
@click.option(
    "--new-group",
    "is_new",
    is_flag=True,
    help="The group does not exist yet; hold it from its first member on.",
)
@click.option(
    "--future", "is_future", is_flag=True, help="SCOPE may cover nothing yet."
)
@click.option(
    "--replace", is_flag=True, help="Replace your own hold of the same scope."
)
@click.option("--dry-run", is_flag=True, help="Only say what it would do.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before @all is held.")
@click.option("--wait", "is_waiting", is_flag=True, help="Until the group is quiet.")
@_TIMEOUT
@output_options
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
    timeout: str,
    output: Output,
    connect: Connect,
    **flags: bool,
) -> None:
    """
    Hold partitions for every member of a group, now and in the future.

    SCOPE is a partition (orders:3), several (orders:0-2,5), a topic (orders), an RE2
    pattern over whole topic names (re:ord.*), or @all. Several scopes are several
    holds: each is complete by itself. Running the same command again changes nothing
    that stands already.
    """
    with explained(context):
        whose = owner_of(owner)
        why = _reason(reason)
        ending = ending_of(for_, until)
        limit = timeout_of(timeout)
        found = scoping.scopes_of(scopes, group)
        base, control = connect()
        with Operator(base, control) as operator:
            operator.check()
            picture = operator.look(group, is_strict=True)
            _check(operator, picture, found, **flags)
            wish = _wish(group, whose, found, why, ending, picture, base)
            todo = _unheld(picture, wish, is_replacing=flags["replace"])
            if flags["dry_run"]:
                _tell_preview(output, _preview(operator, picture, wish))
                return
            if _is_to_be_asked(found, is_sure=flags["yes"]):
                _confirm(picture, _preview(operator, picture, wish))
            done = operator.write(OPERATOR, todo) if todo else ()
            told = _told(picture, wish, done)
            if not output.is_json:
                output.lines(_lines(told))
            reached = None
            if flags["is_waiting"]:
                with written("held", done):
                    reached = _wait(operator, wish, limit)
            _end(context, output, told, reached)


def _reason(text: str) -> str:
    reason = checked_reason(text) or ""
    if not reason.strip():
        message = "--reason: say why; whoever is on call will want to know"
        raise CommandError(message)
    return reason


def timeout_of(text: str) -> float:
    """
    Return the seconds of ``--timeout``.

    Raises:
        CommandError: it is no duration.
    """
    try:
        return seconds_of(text)
    except ValueError as error:
        message = f"--timeout: {error}"
        raise CommandError(message) from error


def _check(
    operator: Operator,
    picture: Picture,
    found: Sequence[Scope],
    *,
    is_new: bool,
    is_future: bool,
    **_: bool,
) -> None:
    if not picture.facts.is_known:
        if not is_new:
            near = scoping.near_group(operator, picture.group)
            near = near or "; look for a typing error"
            message = (
                f"no group {picture.group!r} here{near}, or hold "
                "it before it exists with --new-group"
            )
            raise CommandError(message)
    elif not is_future:
        scoping.refuse_nothing(operator, picture, found)


def _wish(  # noqa: PLR0913, PLR0917 - all that makes a hold
    group: str,
    whose: str,
    found: tuple[Scope, ...],
    why: str,
    ending: Ending,
    picture: Picture,
    base: dict[str, Any],
) -> _Wish:
    seconds = ending.seconds_from(picture.now)
    hold = new_hold(why, seconds, host(), principal(base))
    wanted = changes(group, whose, map(str, found), hold)
    return _Wish(group=group, scopes=found, changes=wanted, seconds=seconds)


def own_of(picture: Picture, wanted: Sequence[Change]) -> dict[Change, Standing]:
    """
    Return the holds that stand already under the same owner and scope.
    """
    standing = {one.key: one for one in picture.standing if one.source == OPERATOR}
    return {one: standing[one.key] for one in wanted if one.key in standing}


def _unheld(picture: Picture, wish: _Wish, *, is_replacing: bool) -> tuple[Change, ...]:
    own = own_of(picture, wish.changes)
    if is_replacing:
        return wish.changes
    different = [one for change, one in own.items() if not _is_same(change, one)]
    if different:
        rows = "; ".join(" ".join(group_text.standing_row(one)) for one in different)
        message = (
            f"held already: {rows}. Nothing was changed: extend makes it last longer, "
            "--replace puts this in its place"
        )
        raise CommandError(message, Status.FAILED)
    return tuple(one for one in wish.changes if one not in own)


def _is_same(change: Change, one: Standing) -> bool:
    wanted, hold = change.hold, one.hold
    if wanted is None or hold is None:
        return False
    return wanted.reason == hold.reason and wanted.ttl_ms == hold.ttl_ms


def _others(picture: Picture, wish: _Wish) -> tuple[Standing, ...]:
    own = {one.key for one in own_of(picture, wish.changes).values()}
    covers = scoping.covered(wish.scopes, scoping.partitions_of(picture))
    named = set(map(str, wish.scopes))
    return tuple(
        one
        for one in picture.standing
        if not (one.source == OPERATOR and one.key in own)
        and (one.key.scope in named or any(one.covers(tp) for tp in covers))
    )


def _preview(operator: Operator, picture: Picture, wish: _Wish) -> Preview:
    others = _others(picture, wish)
    return preview(operator, picture, wish.scopes, others, wish.seconds)


def is_terminal() -> bool:
    """
    Tell whether somebody sits there who can be asked.
    """
    return sys.stdin.isatty()


def _is_to_be_asked(found: Sequence[Scope], *, is_sure: bool) -> bool:
    is_all = any(isinstance(one, Everything) for one in found)
    return is_all and not is_sure and is_terminal()


def _confirm(picture: Picture, seen: Preview) -> None:
    for line in seen.lines():
        click.echo(printable(line), err=True)
    question = (
        f"Hold all {len(seen.covers)} partitions of {printable(picture.group)}, "
        f"{len(picture.facts.members)} members?"
    )
    if not click.confirm(question, err=True):
        message = "nothing was changed"
        raise CommandError(message, Status.FAILED)


def _tell_preview(output: Output, seen: Preview) -> None:
    if output.is_json:
        output.document({"dry_run": True, **seen.document()})
        return
    output.lines([*seen.lines(), "nothing was changed"])


def as_standing(one: Acknowledged) -> Standing:
    """
    Return what was acknowledged as it stands now.
    """
    at = None if one.at_ms is None or one.at_ms < 0 else one.at_ms / 1000
    return Standing(
        source=OPERATOR,
        key=one.change.key,
        hold=one.change.hold,
        at=at,
        offset=one.offset,
    )


@frozen(kw_only=True)
class _Told:
    """
    What came of it.

    Attributes:
        held: what was placed.
        unchanged: what stood already.
        replaced: what stood instead.
        covers: the partitions of the group that all of it covers.
        others: holds of others that cover some of these.
    """

    held: tuple[Standing, ...]
    unchanged: tuple[Standing, ...]
    replaced: tuple[Standing, ...]
    covers: tuple[TopicPartition, ...]
    others: tuple[Standing, ...]

    def document(self) -> dict[str, Any]:
        """
        Return it as plain JSON values.
        """
        return {
            "held": [standing_document(one) for one in self.held],
            "unchanged": [standing_document(one) for one in self.unchanged],
            "replaced": [standing_document(one) for one in self.replaced],
            "covers": [f"{tp.topic}:{tp.partition}" for tp in self.covers],
            "also_held": [standing_document(one) for one in self.others],
        }


def _told(picture: Picture, wish: _Wish, done: Sequence[Acknowledged]) -> _Told:
    before = own_of(picture, wish.changes)
    replaced = tuple(before[one.change] for one in done if one.change in before)
    return _Told(
        held=tuple(map(as_standing, done)),
        unchanged=tuple(one for one in before.values() if one not in replaced),
        replaced=replaced,
        covers=scoping.covered(wish.scopes, scoping.partitions_of(picture)),
        others=_others(picture, wish),
    )


def _lines(told: _Told) -> Iterator[str]:
    for heading, several in (
        ("held", told.held),
        ("held already, unchanged", told.unchanged),
        ("instead of", told.replaced),
    ):
        if several:
            yield heading
            yield from group_text.columns(map(group_text.standing_row, several))
    yield covers_text(told.covers)
    if told.others:
        yield "also held"
        yield from group_text.columns(map(group_text.standing_row, told.others))


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
    """
    Say what scopes cover now.
    """
    if not covers:
        return "warning: covers nothing that the group consumes now"
    shown = judging.partitions_text(covers)
    return f"covers {len(covers)} partitions of the group now: {shown}"


def _wait(operator: Operator, wish: _Wish, limit: float) -> waiting.Outcome:
    return waiting.wait_until(
        operator,
        wish.group,
        lambda picture: waiting.is_quiet(picture, wish.scopes),
        limit,
    )


@contextmanager
def written(what: str, done: Sequence[Acknowledged]) -> Iterator[None]:
    """
    Say what was acknowledged if something goes wrong after that.
    """
    try:
        yield
    except (KafkaError, OSError, ControlTopicError) as error:
        scopes = ", ".join(one.change.key.scope for one in done)
        message = (
            f"{what} and acknowledged: {scopes}; but it could not be looked at "
            f"afterwards: {said(error)}"
        )
        raise CommandError(message, status_of(error)) from error


@click.command(epilog=EPILOG)
@SCOPES
@GROUP_OPTION
@ending_options
@owner_option
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
    output: Output,
    connect: Connect,
) -> None:
    """
    Let your holds of exactly these scopes last longer, counted from now.

    Never shorter, and never what is not held any more: place that with pause.
    """
    with explained(context):
        whose = owner_of(owner)
        ending = ending_of(for_, until)
        found = scoping.scopes_of(scopes, group)
        if ending == Ending():
            message = "say for how long: --for 2h or --until 18:30"
            raise CommandError(message)
        with Operator(*connect()) as operator:
            operator.check()
            picture = operator.look(group, is_strict=True)
            seconds = ending.seconds_from(picture.now)
            wanted = changes(group, whose, map(str, found), ControlHold())
            own = own_of(picture, wanted)
            now = time.time() if picture.now is None else picture.now
            longer = [_longer(one, own.get(one), seconds, now) for one in wanted]
            done = operator.write(OPERATOR, longer)
        told = [as_standing(one) for one in done]
        if output.is_json:
            output.document({"extended": [standing_document(one) for one in told]})
            return
        rows = group_text.columns(map(group_text.standing_row, told))
        output.lines(["extended", *rows])


def _longer(
    change: Change, own: Standing | None, seconds: float | None, now: float
) -> Change:
    scope = change.key.scope
    if own is None or own.hold is None:
        message = (
            f"{scope} is not held by {change.key.owner}: place it with pause, or say "
            "whose it is with --owner. Nothing was changed"
        )
        raise CommandError(message, Status.FAILED)
    if own.hold.ttl_ms is None:
        message = f"{scope} is held until it is resumed. Nothing was changed"
        raise CommandError(message, Status.FAILED)
    end, made = own.expires_at, new_hold(own.hold.reason, seconds)
    if end is not None and seconds is not None and now + seconds < end:
        message = (
            f"{scope} is held until {utc(end)}, which is later. Nothing was changed: "
            "pause --replace makes it shorter"
        )
        raise CommandError(message, Status.FAILED)
    since_ms = None if own.since is None else int(own.since * 1000)
    return Change(change.key, evolve(own.hold, ttl_ms=made.ttl_ms, since_ms=since_ms))
