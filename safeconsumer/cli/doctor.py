"""
``safeconsumer doctor``: what would keep a group hold from working, and what to do.
"""

import json
import time
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec

import click
import kafka.errors as kafka_errors
from attrs import asdict, frozen
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)

from safeconsumer.cli import group_text
from safeconsumer.cli.connection import Connect, connection_options
from safeconsumer.cli.durations import words_of
from safeconsumer.cli.errors import EPILOG, Status, explained
from safeconsumer.cli.saying import printable_lines
from safeconsumer.group import patterns, topics
from safeconsumer.group.operator import Operator

_GOOD, _NOTE, _BAD = "ok", "note", "PROBLEM"
_SKEW = 10.0
_WRITES = {ACLOperation.WRITE, ACLOperation.ALL}


@frozen(kw_only=True)
class Finding:
    """
    One thing that was looked at.

    Attributes:
        rank: ``ok``, ``note`` or ``PROBLEM``.
        what: what is the case.
        do: what to do about it; empty if nothing.
    """

    rank: str
    what: str
    do: str = ""


@click.command(epilog=EPILOG)
@click.option("--group", default=None, help="Look at this group's members too.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
@connection_options
@click.pass_context
def doctor(
    context: click.Context,
    /,
    group: str | None,
    *,
    is_json: bool,
    connect: Connect,
) -> None:
    """
    Look at versions, topics, ACLs, clocks and members, and say what to do.
    """
    with explained(context), Operator(*connect()) as operator:
        found = list(_findings(operator, group))
        if is_json:
            click.echo(json.dumps([asdict(one) for one in found], indent=2))
        else:
            rows = [(one.rank, one.what) for one in found]
            for line, one in zip(group_text.columns(rows, ""), found, strict=True):
                click.echo(printable_lines(line))
                if one.do:
                    click.echo(f"         {one.do}")
        if any(one.rank == _BAD for one in found):
            context.exit(Status.FAILED)


def _findings(operator: Operator, group: str | None) -> Iterator[Finding]:
    names = ("safeconsumer", "kafka-python")
    said = ", ".join(f"{name} {version(name)}" for name in names)
    yield Finding(rank=_GOOD, what=said)
    broker = ".".join(map(str, operator.broker_version()))
    yield Finding(rank=_GOOD, what=f"the cluster answers, protocols of Kafka {broker}")
    yield _re2()
    fit = True
    for facts in topics.ask(operator.admin, operator.settings.topics):
        for one in _topic(facts):
            fit = fit and one.rank != _BAD
            yield one
    yield from _acls(operator)
    if fit:
        yield from _holds(operator, group)
    if fit and group is not None:
        yield from _members(operator, group)


def _re2() -> Finding:
    if find_spec("re2") is not None:
        return Finding(rank=_GOOD, what="google-re2 is here: patterns can be checked")
    return Finding(
        rank=_NOTE,
        what="google-re2 is missing: a member without it obeys a pattern as @all",
        do="pip install 'safeconsumer[group]', on every member too",
    )


def _topic(facts: topics.Facts) -> Iterator[Finding]:
    faults = topics.faults(facts)
    for fault in faults:
        yield Finding(rank=_BAD, what=fault, do="safeconsumer control init")
    if faults:
        return
    for said in topics.advice(facts):
        yield Finding(rank=_NOTE, what=said, do="safeconsumer control init")
    if not topics.advice(facts):
        yield Finding(rank=_GOOD, what=f"{facts.name}: settings are right")


def _acls(operator: Operator) -> Iterator[Finding]:
    name = operator.settings.operator_topic
    wanted = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(
            ResourceType.TOPIC, name, ACLResourcePatternType.MATCH
        ),
    )
    try:
        acls, _ = operator.admin.describe_acls(wanted)
    except kafka_errors.SecurityDisabledError:
        yield Finding(
            rank=_NOTE,
            what="the broker has no authorizer: any client can write operators' holds",
            do="set up an authorizer and the ACLs of safeconsumer control init",
        )
    except kafka_errors.KafkaError as error:
        yield Finding(
            rank=_NOTE,
            what=f"ACLs could not be read ({type(error).__name__})",
            do="run doctor as a principal that may describe the cluster",
        )
    else:
        writers = sorted(
            {
                one.principal
                for one in acls
                if one.operation in _WRITES
                and one.permission_type == ACLPermissionType.ALLOW
            }
        )
        yield Finding(
            rank=_GOOD,
            what=f"{name} is written by: {', '.join(writers) or 'super users only'}",
        )


def _holds(operator: Operator, group: str | None) -> Iterator[Finding]:
    now = time.time()
    standing = operator.standing(group)
    yield Finding(rank=_GOOD, what=f"{len(standing)} holds stand on the topics")
    for one in standing:
        label = f"{one.key.scope} {one.source}:{one.key.owner} of {one.key.group}"
        read = patterns.read(one.key.scope)
        if read is None or read.trouble is not None:
            why = "no scope of this version" if read is None else read.trouble
            yield Finding(
                rank=_BAD,
                what=f"{label} is not understood here ({why})",
                do="members of this version obey it as @all: upgrade, or resume it",
            )
        if one.expires_at is not None and one.expires_at < now:
            yield Finding(
                rank=_NOTE,
                what=f"{label} expired {words_of(now - one.expires_at)} ago",
                do="nothing needs doing; safeconsumer resume tidies it away",
            )


def _members(operator: Operator, group: str) -> Iterator[Finding]:
    facts, reports = operator.group(group), operator.reports(group)
    ends, standing = operator.ends(), operator.standing(group)
    if not facts.is_known and not standing and not reports:
        yield Finding(
            rank=_BAD,
            what=f"no group {group!r} here, and no hold for it",
            do="look for a typing error",
        )
    if facts.members > len(reports):
        yield Finding(
            rank=_BAD,
            what=f"{facts.members - len(reports)} of {facts.members} members of "
            f"{group} do not report",
            do="plain clients obey no hold: give them SafeConsumer(control=Control()); "
            "or they may not write the status topic",
        )
    for one in reports:
        label = f"member {one.client_id} on {one.host}"
        if one.state != "ready":
            yield Finding(
                rank=_BAD,
                what=f"{label}: {group_text.obeys_text(one, ends)}",
                do="look at its log for control_unavailable",
            )
        elif not group_text.has_applied(one, ends):
            yield Finding(rank=_NOTE, what=f"{label} is behind", do="look again")
        elif one.holds > len(standing):
            yield Finding(
                rank=_BAD,
                what=f"{label} obeys {one.holds} holds, the topics have "
                f"{len(standing)}: they were lost or made again",
                do="place them again with pause, or lift them with resume",
            )
        else:
            yield Finding(rank=_GOOD, what=f"{label} obeys everything")
        if one.skipped:
            yield Finding(
                rank=_NOTE,
                what=f"{label} skipped {one.skipped} unreadable control records",
                do="look who writes to the control topics besides safeconsumer",
            )
        if abs(one.clock_offset) > _SKEW:
            yield Finding(
                rank=_NOTE,
                what=f"{label}: its clock and the broker's differ by "
                f"{abs(one.clock_offset):.0f} s",
                do="set its clock; clock_skew= must be larger than the difference",
            )
