"""Checks by Kafka's ACLs who may write, delete and change the control topics."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    ResourcePatternFilter,
    ResourceType,
)

from safeconsumer.group.operator import Operator
from safeconsumer.group.verdicts import BAD, GOOD, NOTE, Finding

_EVERYBODY = "User:*"
_OPEN = "allow.everyone.if.no.acl.found"

# What a principal without need for a right could do with it.
_ON_OPERATORS: Mapping[ACLOperation, str] = {
    ACLOperation.WRITE: "can place and lift operators' holds, in any name",
    ACLOperation.DELETE: "can delete it, or records of it, with all holds",
    ACLOperation.ALTER_CONFIGS: "can change its settings so that holds are lost",
    ACLOperation.ALTER: "can change its partitions",
}
_ON_OTHERS: Mapping[ACLOperation, str] = {
    one: why for one, why in _ON_OPERATORS.items() if one is not ACLOperation.WRITE
}


def acl_findings(operator: Operator, expected: Collection[str]) -> Iterator[Finding]:
    """
    Check the ACLs of all control topics.

    Args:
        operator: the connection.
        expected: principals who should have operators' rights; if it is empty, only
            rights that everybody has are judged.
    """
    settings = operator.settings
    try:
        found = {name: _acls(operator, name) for name in settings.all_topics}
    except kafka_errors.SecurityDisabledError:
        yield Finding(
            id="acls",
            rank=NOTE,
            what="the broker has no authorizer: any client can write operators' holds",
            do="set up an authorizer and the ACLs of safeconsumer control acls",
        )
        return
    except kafka_errors.KafkaError as error:
        yield Finding(
            id="acls",
            rank=NOTE,
            what=f"the ACLs cannot be read ({type(error).__name__}): it is unknown "
            f"who may write {settings.operator_topic}",
            do="run doctor as a principal that may describe the cluster",
        )
        return
    for name, acls in found.items():
        if not acls:
            yield _without(operator, name)
            continue
        rights = _ON_OPERATORS if name == settings.operator_topic else _ON_OTHERS
        yield from judged(name, acls, rights, expected)


def _acls(operator: Operator, name: str) -> list[ACL]:
    wanted = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(
            ResourceType.TOPIC, name, ACLResourcePatternType.MATCH
        ),
    )
    acls, error = operator.admin.describe_acls(wanted)
    if error is not None and error is not kafka_errors.NoError:
        raise error
    return list(acls)


def _without(operator: Operator, name: str) -> Finding:
    # Then only super users may write it, unless the broker is set up to allow
    # everybody.
    is_open = _is_open(operator)
    if is_open is None:
        return Finding(
            id="acls",
            rank=NOTE,
            what=f"{name} has no ACLs, and it cannot be read whether the broker then "
            f"lets everybody write it ({_OPEN})",
            do="set the ACLs of safeconsumer control acls",
        )
    if is_open:
        return Finding(
            id="acls",
            rank=BAD,
            what=f"{name} has no ACLs and the broker has {_OPEN}=true: any client can "
            "write, delete and change it",
            do="set the ACLs of safeconsumer control acls",
        )
    return Finding(id="acls", rank=GOOD, what=f"{name} is written by: super users only")


def _is_open(operator: Operator) -> bool | None:
    try:
        brokers = operator.admin.describe_cluster()["brokers"]
        number = str(brokers[0]["broker_id"])
        resource = ConfigResource(ConfigResourceType.BROKER, number)
        answer = operator.admin.describe_configs([resource], config_filter="all")
    except (kafka_errors.KafkaError, IndexError, KeyError):
        return None
    settings: Mapping[str, Any] = answer.get("broker", {}).get(number) or {}
    if not settings:
        return None
    value = settings.get(_OPEN, {}).get("value")
    return str(value).lower() == "true"  # a setting that is missing is false


def judged(
    name: str,
    acls: Iterable[ACL],
    rights: Mapping[ACLOperation, str],
    expected: Collection[str],
) -> Iterator[Finding]:
    """
    Report for each right who has it and should not.

    Args:
        name: the topic.
        acls: all ACLs that apply to it.
        rights: the rights to check, with what their misuse could do.
        expected: who should have them; empty if that is not known.
    """
    acls = tuple(acls)
    is_well = True
    for right, why in rights.items():
        who = _allowed(acls, right)
        if _EVERYBODY in who:
            strangers = [_EVERYBODY]
        else:
            strangers = sorted(who.difference(expected)) if expected else []
        if strangers:
            is_well = False
            yield Finding(
                id="acls",
                rank=BAD,
                what=f"{', '.join(strangers)} {why}: {right.name} on {name}",
                do="remove that ACL; safeconsumer control acls prints those needed",
            )
    if not is_well:
        return
    said = _told(acls, rights)
    yield Finding(id="acls", rank=GOOD, what=f"{name}: {said}")
    if not expected and ACLOperation.WRITE in rights:
        yield Finding(
            id="acls",
            rank=NOTE,
            what="check yourself whether all of these are operators",
            do="name them: safeconsumer doctor --operators User:alice ...",
        )


def _told(acls: Sequence[ACL], rights: Mapping[ACLOperation, str]) -> str:
    told = []
    for right in rights:
        who = ", ".join(sorted(_allowed(acls, right))) or "super users only"
        told.append(f"{_VERBS[right]} by: {who}")
    return "; ".join(told)


_VERBS = {
    ACLOperation.WRITE: "written",
    ACLOperation.DELETE: "deleted",
    ACLOperation.ALTER_CONFIGS: "settings changed",
    ACLOperation.ALTER: "partitions changed",
}


def _allowed(acls: Iterable[ACL], right: ACLOperation) -> set[str]:
    # A denial counts only if it is for every host; otherwise there is a way in.
    about = [one for one in acls if one.operation in {right, ACLOperation.ALL}]
    denied = {
        one.principal
        for one in about
        if one.permission_type == ACLPermissionType.DENY and one.host == "*"
    }
    if _EVERYBODY in denied:
        return set()
    return {
        one.principal for one in about if one.permission_type == ACLPermissionType.ALLOW
    } - denied
