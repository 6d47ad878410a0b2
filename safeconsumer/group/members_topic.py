"""
Names holds on the members' own topic, which versions before 0.6 read and no other does.

A hold that is still in force there ends without a word when the last member of an
earlier version does: ``doctor`` and ``control init`` say how to place it again.
"""

from collections.abc import Iterator
from shlex import quote

from attrs import evolve

from safeconsumer.group.described_topics import ask
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.operator import Operator
from safeconsumer.group.settings import Control
from safeconsumer.group.verdicts import BAD, NOTE, Finding

# Its name behind the prefix of the control topics' names.
_NAME = "holds_group"


def former_findings(operator: Operator) -> Iterator[Finding]:
    """
    Find holds of members that are in force, as far as a record or a report proves.

    Nothing is found if there is no such topic, or if this principal may not see it.

    Raises:
        KafkaError: the topic is there, and cannot be read.
    """
    name = _former(operator.settings)
    if name is None or not ask(operator.admin, [name])[0].partitions:
        return
    holds = _in_force(operator, name)
    for one in holds:
        yield Finding(
            id="former-topic",
            rank=BAD,
            what=f"{name} has a hold of {one.key.scope} of {one.key.group} by "
            f"{one.key.owner}, which members of this version do not obey",
            do=f"place it again, with a limit if it has one: {_placing(one)}",
        )
    if not holds:
        yield Finding(
            id="former-topic",
            rank=NOTE,
            what=f"members of this version do not read {name}; no hold on it is in force",
            do="delete it once no member of an earlier version runs, which needs it",
        )


def _former(settings: Control) -> str | None:
    # Topics that were named one by one leave no trace of the other's name.
    known = Control.prefixed("").holds_topic
    prefix = settings.holds_topic.removesuffix(known)
    return None if prefix == settings.holds_topic else prefix + _NAME


def _in_force(operator: Operator, name: str) -> tuple[HoldRecord, ...]:
    settings = evolve(operator.settings, holds_topic=name, status_topic=None)
    with Operator(operator.base, settings) as other:
        found = other.holds()
        other.board.update()
        proven = max(other.board.times.proven, operator.board.times.proven)
    return tuple(one for one in found if one.in_force(proven, settings.clock_skew))


def _placing(one: HoldRecord) -> str:
    reason = (one.hold.reason if one.hold else None) or "as before"
    group, owner, scope = map(quote, (one.key.group, one.key.owner, one.key.scope))
    words = f"safeconsumer pause --group {group} --owner {owner}"
    return f"{words} --reason {quote(reason)} -- {scope}"
