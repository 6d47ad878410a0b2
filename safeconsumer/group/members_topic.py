"""
Finds holds on the members' own topic, which only members before version 0.6 read.

A hold that is in force there ends silently with the last member of an earlier version:
``doctor`` and ``control init`` print the command that places it again.
"""

from collections.abc import Iterator
from math import ceil
from shlex import quote

from attrs import evolve
from kafka.errors import TopicAuthorizationFailedError

from safeconsumer.errors.base import ControlTopicError
from safeconsumer.group.described_topics import describe
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.operator import Operator
from safeconsumer.group.settings import PREFIX, Control
from safeconsumer.group.verdicts import BAD, NOTE, Finding
from safeconsumer.group.view import Times
from safeconsumer.holds.explain import utc

# Its name behind the prefix of the control topics' names.
_NAME = "holds_group"


def former_findings(operator: Operator) -> Iterator[Finding]:
    """
    Find holds of members that are in force, as far as a record or a report proves.

    The findings leave out holds that the holds topic has, too. If the topic does not exist,
    or this principal may not see it, there are no findings.

    Raises:
        KafkaError: the topic exists and cannot be read.
    """
    prefix = _prefix(operator.settings)
    name = f"{prefix}{_NAME}"
    if prefix is None or not describe(operator.admin, [name])[0].partitions:
        return
    there, times = _in_force(operator, name)
    placed = _placed(operator, times) if there else frozenset()
    left = [one for one in there if _identity(one) not in placed]
    for one in left:
        yield Finding(
            "former-topic",
            BAD,
            f"{name} has a hold of {one.key.scope} of {one.key.group} by "
            f"{one.key.owner}, which members of this version do not obey",
            do=_placing(one, prefix, times.here),
        )
    if not left:
        holds_topic = operator.settings.holds_topic
        rest = f"each hold on it that is in force is on {holds_topic}, too"
        rest = rest if there else "no hold on it is in force"
        yield Finding(
            "former-topic",
            NOTE,
            f"members of this version do not read {name}; {rest}",
            do="delete it once no member of an earlier version runs, which needs it",
        )


def _prefix(settings: Control) -> str | None:
    # A holds topic with another name than the default shows no prefix.
    known = Control.prefixed("").holds_topic
    prefix = settings.holds_topic.removesuffix(known)
    return None if prefix == settings.holds_topic else prefix


def _identity(one: HoldRecord) -> tuple[str, str, str]:
    return one.key.group, one.key.owner, one.key.scope


def _in_force(operator: Operator, name: str) -> tuple[tuple[HoldRecord, ...], Times]:
    settings = evolve(operator.settings, holds_topic=name, status_topic=None)
    with Operator(operator.base, settings) as other:
        found = other.holds()
        other.board.update()
        mine, times = operator.board.times, other.board.times
    times = evolve(times, now=mine.now, newest=max(times.newest, mine.newest))
    skew = settings.clock_skew
    return tuple(one for one in found if one.in_force(times.proven, skew)), times


def _placed(operator: Operator, times: Times) -> frozenset[tuple[str, str, str]]:
    """Return the holds in force on the holds topic; none if it cannot be read."""
    try:
        found = operator.holds()
    except (
        ControlTopicError,
        TopicAuthorizationFailedError,
    ):  # another finding reports this error
        return frozenset()
    skew = operator.settings.clock_skew
    return frozenset(
        _identity(one) for one in found if one.in_force(times.proven, skew)
    )


def _placing(one: HoldRecord, prefix: str, now: float) -> str:
    """Return advice, with the command that places a hold with the same end."""
    hold, end = one.hold, one.expires_at
    seconds = None if hold is None or hold.ttl_ms is None else hold.ttl_ms / 1000
    again = "place it again"
    if end is not None and end > now:
        seconds = end - now
    elif end is not None:
        again = f"it may have ended at {utc(end)}; place it again if it is still needed"
    return f"{again}: {_command(one, prefix, seconds)}"


def _command(one: HoldRecord, prefix: str, seconds: float | None) -> str:
    reason = (one.hold.reason if one.hold else None) or "as before"
    group, owner, scope = map(quote, (one.key.group, one.key.owner, one.key.scope))
    topic_prefix = "" if prefix == PREFIX else f"--topic-prefix {quote(prefix)} "
    limit = "" if seconds is None else f"--for {ceil(seconds)}s "
    # A member obeyed the hold, so its scope is not mistyped, whatever the group
    # consumes now.
    return (
        f"safeconsumer pause {topic_prefix}--group {group} --owner {owner} "
        f"--reason {quote(reason)} {limit}--future -- {scope}"
    )
