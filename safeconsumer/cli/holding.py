"""Implements ``safeconsumer pause`` and ``safeconsumer extend`` for whole groups."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from attrs import frozen
from kafka import TopicPartition
from kafka.errors import KafkaError

from safeconsumer.cli import group_text, refusing, waiting
from safeconsumer.cli.connection import Connect, connection_options
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
from safeconsumer.cli.refusing import FUTURE
from safeconsumer.errors.base import ControlTopicError, HoldSettingError
from safeconsumer.group.documents import hold_document
from safeconsumer.group.durations import seconds_of
from safeconsumer.group.extending import longer
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.operator import Operator
from safeconsumer.group.partitions import partitions_text
from safeconsumer.group.preview import (
    Consent,
    Objection,
    Placing,
    Preview,
    Wish,
    duration_of,
    objections,
    placing,
    preview,
    wish_of,
)
from safeconsumer.group.publisher import Acknowledged
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.troubles import said
from safeconsumer.group.view import View
from safeconsumer.holds.explain import counted

SCOPES = click.argument("scopes", nargs=-1, required=True, metavar="SCOPE...")
GROUP_OPTION = click.option("--group", required=True, help="The consumer group.")

_UNCHANGED = (
    ". Nothing was changed: extend makes it last longer, --replace puts this in its "
    "place"
)
# The end of a refusal, and its exit status; who types @all means it.
_REFUSALS = {
    Consent.FUTURE: (f" {FUTURE}", Status.USAGE),
    Consent.REPLACE: (_UNCHANGED, Status.FAILED),
}


def _for_option(
    *, is_required: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--for",
        "for_",
        required=is_required,
        metavar="DURATION",
        help="It ends after this time, counted from now: 90s, 30m, 2h, 1d, 1w.",
    )


@click.command(epilog=EPILOG)
@SCOPES
@GROUP_OPTION
@click.option("--reason", required=True, help="Why; every member can show it.")
@_for_option()
@owner_option
@click.option(
    "--future",
    is_flag=True,
    help="Allow a group that does not exist yet, and a SCOPE that covers nothing yet.",
)
@click.option(
    "--replace", is_flag=True, help="Replace your own hold of the same scope."
)
@click.option("--dry-run", is_flag=True, help="Only show what it would do.")
@click.option(
    "--wait",
    "patience",
    metavar="DURATION",
    help="Wait until quiet, at most this long; after it the status is 1.",
)
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
    owner: str | None,
    patience: str | None,
    output: Output,
    connect: Connect,
    **flags: bool,
) -> None:
    """
    Hold partitions for every member of a group, now and in the future.

    SCOPE is a partition (orders:3), several (orders:0-2,5), a topic (orders), an RE2
    pattern over whole topic names (re:ord.*), or @all. Several scopes are several
    holds: each is complete by itself. Running the same command again does not change
    existing holds, and places those that an interrupted command did not; what has ended,
    or may have by this clock, is renewed. With --wait, quiet means that the members obey
    and have no record of it in hand: no handler runs, and a loop has polled again.
    """
    with explained(context):
        wish = wish_of(
            group=group,
            owner=owner_of(owner),
            texts=scopes,
            reason=reason,
            for_=for_,
        )
        limit = None if patience is None else timeout_of(patience, "--wait")
        with Operator(*connect()) as operator:
            operator.check()
            wanted, against = _look(operator, wish, flags)
            if flags["dry_run"]:
                _tell_preview(output, preview(operator, wanted, against))
                return
            todo = wanted.todo(is_replacing=flags["replace"])
            done = operator.write(todo)
            with written("held", done):
                placed = _placed(wanted, done)
                if not output.is_json:
                    output.lines(placed.lines())
                reached = None
                if limit is not None:
                    reached = _wait(operator, wanted, limit)
                _end(context, output, placed, reached)


def _look(
    operator: Operator, wish: Wish, flags: Mapping[str, bool]
) -> tuple[Placing, tuple[Objection, ...]]:
    """Return what to place, and what keeps it from being placed but for the flags."""
    wanted = placing(
        operator.look(wish.group, is_strict=True),
        wish,
        skew=operator.settings.clock_skew,
        host=host(),
        principal=principal(operator.base),
    )
    against = tuple(objections(operator, wanted))
    for one in against:
        if one.consent in _REFUSALS and not flags[one.consent.value]:
            more, status = _REFUSALS[one.consent]
            raise CommandError(one.what + more, status)
    return wanted, against


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


def _preview_lines(seen: Preview) -> Iterator[str]:
    yield from (text for _, text in seen.points)
    for one in seen.placing.others:
        yield f"held besides by {one.owner}: {one.key.scope}"


def _tell_preview(output: Output, seen: Preview) -> None:
    if output.is_json:
        output.document({"dry_run": True, **seen.document()})
        return
    output.lines([*_preview_lines(seen), "nothing was changed"])


def acknowledged_hold(one: Acknowledged) -> HoldRecord:
    """Return the hold that an acknowledgement shows."""
    return HoldRecord(
        key=one.change.key,
        hold=one.change.hold,
        at=one.at,
        offset=one.offset,
    )


@frozen(kw_only=True)
class _Placed:
    """
    The result of ``pause``.

    Attributes:
        held: the holds that were placed.
        unchanged: the holds that existed already.
        renewed: those that existed already, and had ended, or may have.
        replaced: the holds that existed instead.
        covers: the partitions of the group that all of these cover.
        others: holds of other owners that cover some of these partitions.
    """

    held: tuple[HoldRecord, ...]
    unchanged: tuple[HoldRecord, ...]
    renewed: tuple[HoldRecord, ...]
    replaced: tuple[HoldRecord, ...]
    covers: tuple[TopicPartition, ...]
    others: tuple[HoldRecord, ...]

    def document(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        return {
            "held": [hold_document(one) for one in self.held],
            "unchanged": [hold_document(one) for one in self.unchanged],
            "renewed": [hold_document(one) for one in self.renewed],
            "replaced": [hold_document(one) for one in self.replaced],
            "covers": [f"{tp.topic}:{tp.partition}" for tp in self.covers],
            "also_held": [hold_document(one) for one in self.others],
        }

    def lines(self) -> Iterator[str]:
        """Yield the result as lines for people."""
        for heading, several in (
            ("held", self.held),
            ("held already, unchanged", self.unchanged),
            ("renewed, as it was over or may have been", self.renewed),
            ("instead of", self.replaced),
        ):
            if several:
                yield heading
                yield from group_text.columns(map(HoldRecord.cells, several))
        yield covers_text(self.covers)
        if self.others:
            yield "also held"
            yield from group_text.columns(map(HoldRecord.cells, self.others))


def _placed(wanted: Placing, done: Sequence[Acknowledged]) -> _Placed:
    written_now = {one.change.key for one in done}
    held, own = tuple(map(acknowledged_hold, done)), wanted.own.values()
    return _Placed(
        held=held,
        unchanged=tuple(one for one in own if one.key not in written_now),
        renewed=wanted.renewed,
        replaced=tuple(
            one for one in own if one.key in written_now and one not in wanted.renewed
        ),
        covers=wanted.covers,
        others=wanted.others,
    )


def _end(
    context: click.Context,
    output: Output,
    placed: _Placed,
    reached: waiting.Outcome | None,
) -> None:
    if output.is_json:
        waited = None if reached is None else reached.document()
        output.document({**placed.document(), "wait": waited})
    if reached is not None and not reached.is_reached:
        why = f"held, but not quiet in {reached.waited:.0f} s: {reached.sentence}"
        give_up(context, why, Status.FAILED)
    if reached is not None and not output.is_json:
        output.lines([f"{reached.sentence}, after {reached.waited:.1f} s"])


def covers_text(covers: Sequence[Any]) -> str:
    """Describe what scopes cover now."""
    if not covers:
        return "warning: covers nothing that the group consumes now"
    shown = partitions_text(covers)
    return f"covers {counted(len(covers), 'partition')} of the group now: {shown}"


def _wait(operator: Operator, wanted: Placing, limit: float) -> waiting.Outcome:
    return waiting.wait_until(
        operator,
        wanted.wish.group,
        lambda view: _is_quiet(view, wanted),
        limit,
    )


def _is_quiet(view: View, wanted: Placing) -> tuple[bool, str]:
    there = {one.key for one in view.holds}
    gone = [one.key.scope for one in wanted.changes if one.key not in there]
    if gone and view.ends is not None:
        message = f"lifted or expired meanwhile: {', '.join(gone[:5])}"
        raise waiting.InVainError(message)
    return waiting.is_quiet(view, wanted.wish.scopes)


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
    except (KafkaError, OSError, ControlTopicError) as error:
        if not done:
            raise
        message = (
            f"{what} and acknowledged: {scopes}; but the rest is not shown: "
            f"{said(error)}"
        )
        raise CommandError(message, status_of(error)) from error
    except KeyboardInterrupt:
        if not done:
            raise
        message = f"{what} and acknowledged: {scopes}; interrupted after that"
        raise CommandError(message, Status.INTERRUPTED) from None


@click.command(epilog=EPILOG)
@SCOPES
@GROUP_OPTION
@_for_option(is_required=True)
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
    for_: str,
    owner: str | None,
    output: Output,
    connect: Connect,
) -> None:
    """
    Let your holds of exactly these scopes last longer, counted from now.

    It never makes them shorter, and never renews holds that have ended, or may have by
    this clock: place those again with pause.
    """
    with explained(context):
        whose = owner_of(owner)
        seconds = duration_of(for_)
        found = scopes_of(scopes, group)
        with Operator(*connect()) as operator:
            operator.check()
            view = operator.look(group, is_strict=True, has_lags=False)
            refusing.refuse_unknown(operator, view)
            try:
                todo = longer(view, whose, map(str, found), seconds)
            except HoldSettingError as error:
                raise CommandError(str(error), Status.FAILED) from error
            done = operator.write(todo)
            with written("extended", done):
                held = tuple(map(acknowledged_hold, done))
                if output.is_json:
                    output.document({"extended": list(map(hold_document, held))})
                else:
                    rows = group_text.columns(map(HoldRecord.cells, held))
                    output.lines(["extended", *rows])
