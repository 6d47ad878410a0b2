"""
Looks for what would keep a group hold from working, and says what to do.
"""

from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec

import kafka.errors as kafka_errors
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePatternFilter,
    ResourceType,
)

from safeconsumer.group import patterns, topics
from safeconsumer.group.judging import BAD, GOOD, NOTE, Finding, member_findings
from safeconsumer.group.operator import Operator
from safeconsumer.holds.explain import utc

_WRITES = {ACLOperation.WRITE, ACLOperation.ALL}


def findings(operator: Operator, group: str | None) -> Iterator[Finding]:
    """
    Look at versions, topics, ACLs, clocks and members.
    """
    names = ("safeconsumer", "kafka-python")
    said = ", ".join(f"{name} {version(name)}" for name in names)
    yield Finding(rank=GOOD, what=said)
    broker = ".".join(map(str, operator.broker_version()))
    yield Finding(rank=GOOD, what=f"the cluster answers, protocols of Kafka {broker}")
    yield _re2()
    fit = True
    for facts in topics.ask(operator.admin, operator.settings.topics):
        for one in _topic(facts):
            fit = fit and one.rank != BAD
            yield one
    yield from _acls(operator)
    if fit:
        yield from _holds(operator, group)
    if group is not None:
        yield from member_findings(operator.look(group))


def _re2() -> Finding:
    if find_spec("re2") is not None:
        return Finding(rank=GOOD, what="google-re2 is here: patterns can be checked")
    return Finding(
        rank=NOTE,
        what="google-re2 is missing: a member without it obeys a pattern as @all",
        do="pip install 'safeconsumer[group]', on every member too",
    )


def _topic(facts: topics.Facts) -> Iterator[Finding]:
    faults = topics.faults(facts)
    for fault in faults:
        yield Finding(rank=BAD, what=fault, do="safeconsumer control init")
    if faults:
        return
    for said in topics.advice(facts):
        yield Finding(rank=NOTE, what=said, do="safeconsumer control init")
    if not topics.advice(facts):
        yield Finding(rank=GOOD, what=f"{facts.name}: settings are right")


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
            rank=NOTE,
            what="the broker has no authorizer: any client can write operators' holds",
            do="set up an authorizer and the ACLs of safeconsumer control init",
        )
    except kafka_errors.KafkaError as error:
        yield Finding(
            rank=NOTE,
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
            rank=GOOD,
            what=f"{name} is written by: {', '.join(writers) or 'super users only'}",
        )


def _holds(operator: Operator, group: str | None) -> Iterator[Finding]:
    now = operator.broker_time()
    standing = operator.standing(group)
    yield Finding(rank=GOOD, what=f"{len(standing)} holds stand on the topics")
    for one in standing:
        label = f"{one.key.scope} {one.source}:{one.key.owner} of {one.key.group}"
        read = patterns.read(one.key.scope)
        if read is None or read.trouble is not None:
            why = "no scope of this version" if read is None else read.trouble
            yield Finding(
                rank=BAD,
                what=f"{label} is not understood here ({why})",
                do="members of this version obey it as @all: upgrade, or resume it",
            )
        if one.expires_at is not None and one.is_over(now):
            yield Finding(
                rank=NOTE,
                what=f"{label} expired at {utc(one.expires_at)}",
                do="nothing needs doing; safeconsumer resume tidies it away",
            )
