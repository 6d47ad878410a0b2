"""Implements ``safeconsumer resume``: lifts holds by scope, or all of an owner."""

from collections.abc import Sequence
from shlex import quote
from typing import Any

import click
from attrs import frozen
from kafka import TopicPartition
from kafka.errors import KafkaError

from safeconsumer.cli import group_text, refusing
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.errors import EPILOG, CommandError, Status, explained, give_up
from safeconsumer.cli.holding import GROUP_OPTION, covers_text, written
from safeconsumer.cli.output import Output, output_options
from safeconsumer.cli.owners import owner_of, owner_option
from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group import patterns
from safeconsumer.group.documents import hold_document
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.operator import Operator
from safeconsumer.group.partitions import covered
from safeconsumer.group.publisher import Acknowledged, Change, changes
from safeconsumer.group.report_wire import Kept, kept_text
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.view import View
from safeconsumer.group.wire import ControlKey
from safeconsumer.holds.hold import OPERATOR
from safeconsumer.holds.scope import Scope

Holds = tuple[HoldRecord, ...]


@frozen(kw_only=True)
class _Asked:
    """
    What to lift.

    Attributes:
        group: the group whose members obey the holds.
        owner: the owner of the holds.
        scopes: exactly these scopes; empty for all of the owner's holds.
    """

    group: str
    owner: str
    scopes: tuple[Scope, ...]


@click.command(epilog=EPILOG)
@click.argument("scopes", nargs=-1, metavar="[SCOPE...]")
@GROUP_OPTION
@owner_option
@click.option("--all", "is_all", is_flag=True, help="Every hold of --owner.")
@output_options
@connection_options
@click.pass_context
def resume(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    /,
    *,
    scopes: tuple[str, ...],
    group: str,
    owner: str | None,
    is_all: bool,
    output: Output,
    connect: Connect,
) -> None:
    """
    Lift holds of exactly these scopes; others stay, and are named.

    Lifting a scope without a hold is no error if the group consumes it: it also lifts
    holds that members still obey after the holds topic was lost.
    """
    with explained(context):
        if bool(scopes) is is_all:
            said = "too much: give only one of" if is_all else "nothing to lift: give"
            message = f"{said} SCOPE... or --all"
            raise CommandError(message)
        asked = _Asked(
            group=group,
            owner=owner_of(owner),
            scopes=scopes_of(scopes, group),
        )
        with Operator(*connect()) as operator:
            operator.check()
            seen = _look(operator, asked)
            if seen is not None and not seen and not asked.scopes:
                _refuse_unnamed(operator, operator.look(group, has_lags=False))
            todo = _todo(asked, seen)
            kept = () if seen is None else _refuse_typos(operator, asked, seen)
            done = operator.write(todo)
            with written("lifted", done):
                lifted = _lifted(operator, asked, seen, done, kept)
                if output.is_json:
                    output.document(lifted.document())
                else:
                    output.lines(lifted.lines())
            if advice := lifted.advice():
                give_up(context, advice, Status.FAILED)
        if lifted.has_lifted_nothing:
            context.exit(Status.FAILED)


def _look(operator: Operator, asked: _Asked) -> Holds | None:
    # None: holds that cannot be read must still be liftable.
    try:
        return operator.holds(asked.group)
    except (KafkaError, OSError, ControlTopicError):
        return None


def _refuse_unnamed(operator: Operator, view: View) -> None:
    # Nothing is held, as far as the topics tell.
    refusing.refuse_unknown(operator, view)
    if view.kept:
        kept = kept_text(view.kept)
        message = f"nothing is on the topics; name the scopes that members keep: {kept}"
        raise CommandError(message, Status.FAILED)


def _todo(asked: _Asked, seen: Holds | None) -> tuple[Change, ...]:
    if asked.scopes:
        return changes(asked.group, asked.owner, map(str, asked.scopes), None)
    if seen is None:
        message = "what is held cannot be read now: name the scopes"
        raise CommandError(message, Status.UNREACHABLE)
    found = [one for one in seen if one.key.owner == asked.owner]
    if not found:
        message = f"nothing of {asked.group!r} is held by {asked.owner}{_holders(seen)}"
        raise CommandError(message, Status.FAILED)
    return tuple(Change(one.key, None) for one in found)


def _holders(seen: Holds) -> str:
    owners = sorted({one.owner for one in seen})
    return f"; there are holds by {', '.join(owners[:5])}" if owners else ""


def _refuse_typos(operator: Operator, asked: _Asked, seen: Holds) -> tuple[Kept, ...]:
    # Returns what members keep although the topics have lost it.
    held = {one.key.scope for one in seen}
    unheld = [one for one in asked.scopes if str(one) not in held]
    if not unheld:
        return ()
    try:
        view = operator.look(asked.group)
    except (KafkaError, OSError, ControlTopicError):
        return ()  # write first; report afterwards what could not be read
    refusing.refuse_unknown(operator, view)
    refusing.refuse_nothing(operator, view, unheld, unless="")
    return view.kept


@frozen(kw_only=True)
class _Lifted:
    """
    The result of ``resume``.

    Attributes:
        keys: what was lifted, whether it was held or not.
        held: those of ``keys`` that were held; None if that could not be read.
        covers: the partitions of the group that ``keys`` cover.
        left: the holds that still cover some of them, or have the same scope.
    """

    keys: tuple[ControlKey, ...]
    held: frozenset[ControlKey] | None
    covers: tuple[TopicPartition, ...]
    left: tuple[HoldRecord, ...]

    @property
    def has_lifted_nothing(self) -> bool:
        """Whether it lifted nothing while something holds: a wrong owner or scope."""
        return self.held is not None and not self.held and bool(self.left)

    def advice(self) -> str:
        """Tell how to lift holds of the same scopes; "" if something was lifted."""
        scopes = {one.scope for one in self.keys}
        given = [
            f"--owner {quote(one.key.owner)}"
            for one in self.left
            if self.has_lifted_nothing and one.key.scope in scopes
        ]
        several = " or ".join(dict.fromkeys(given))
        return f"nothing was lifted: name the owner, {several}" if given else ""

    def document(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        return {
            "lifted": [
                {
                    "scope": one.scope,
                    "owner": one.owner,
                    "was_held": None if self.held is None else one in self.held,
                }
                for one in self.keys
            ],
            "covers": [f"{tp.topic}:{tp.partition}" for tp in self.covers],
            "still_held": [hold_document(one) for one in self.left],
        }

    def lines(self) -> list[str]:
        """Return the result as lines for people."""
        lines = []
        for one in self.keys:
            was_held = self.held is None or one in self.held
            what = "lifted" if was_held else "was not held:"
            lines.append(f"{what} {one.scope} {OPERATOR}{one.owner}")
        lines.append(covers_text(self.covers))
        if self.left:
            rows = group_text.columns(map(HoldRecord.cells, self.left))
            lines += ["still held", *rows]
        return lines


def _lifted(
    operator: Operator,
    asked: _Asked,
    seen: Holds | None,
    done: Sequence[Acknowledged],
    kept: Sequence[Kept],
) -> _Lifted:
    after = operator.look(asked.group, is_strict=True, has_lags=False)
    keys = tuple(one.change.key for one in done)
    held = None
    if seen is not None:
        # What had expired when it was lifted, by the broker's clock, was not held.
        at = max((one.at or 0.0 for one in done), default=0.0)
        last = {one.key: one for one in seen if one.key in keys}
        known = {(one.owner, one.scope) for one in kept}
        held = frozenset(
            key for key, one in last.items() if one.in_force(at, after.skew)
        ) | frozenset(one for one in keys if (OPERATOR + one.owner, one.scope) in known)
    reads = [one for key in keys if (one := patterns.read(key.scope)) is not None]
    scopes = [one.scope for one in reads]
    covers = covered(scopes, after.consumed)
    named = set(map(str, scopes))
    return _Lifted(
        keys=keys,
        held=held,
        covers=covers,
        left=tuple(
            one
            for one in after.holds
            if one.key.scope in named or any(one.covers(tp) for tp in covers)
        ),
    )
