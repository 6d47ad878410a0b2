"""Asks the cluster which members consumer groups have, and what they have committed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from attrs import evolve
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer.group.facts import UNKNOWN, GroupFacts, MemberFacts

AWAY = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.RequestTimedOutError,
    OSError,
)
"""
Errors of any request to a broker that cannot be reached.
"""

_DEAD = "Dead"


def listed_groups(admin: KafkaAdminClient) -> list[str]:
    """Return the names of all consumer groups that this principal may see."""
    return [
        one["group_id"]
        for one in admin.list_groups()
        if one["protocol_type"] in {"", "consumer", None}
    ]


def facts_of_groups(
    admin: KafkaAdminClient,
    names: Sequence[str],
    listed: Collection[str],
    committed_of: Collection[str] | None = None,
) -> tuple[dict[str, GroupFacts], dict[str, tuple[str, ...]]]:
    """
    Return what the cluster knows of groups, and for which groups it does not answer.

    If it refuses to describe one group, or one group's coordinator cannot answer, the
    others are not affected.

    Args:
        admin: the client.
        names: the groups.
        listed: the groups that the cluster lists.
        committed_of: the groups whose committed offsets are fetched; None for all.
    """
    described, not_described = _each(admin.describe_groups, names)
    wanted = [one for one in names if committed_of is None or one in committed_of]
    committed, not_committed = _each(admin.list_group_offsets, wanted)
    facts: dict[str, GroupFacts] = {}
    unread: dict[str, tuple[str, ...]] = {}
    for name in names:
        one = described.get(name, {})
        why = not_described.get(name) or one.get("error")
        if one.get("group_state") == _DEAD:
            # The group does not exist, which newer brokers call an error; or it is of
            # KIP-848.
            why, one = None, {} if name in listed else one
        told = _facts({} if why else one, committed.get(name, {}))
        facts[name] = evolve(told, has_committed=name in committed)
        missing = (
            (f"{name} cannot be described", why),
            (f"what {name} has committed cannot be read", not_committed.get(name)),
        )
        said = tuple(f"{what}: {error}"[:200] for what, error in missing if error)
        if said:
            unread[name] = said
    return facts, unread


def _each(
    ask: Callable[[list[str]], Mapping[str, Any]], names: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Exception]]:
    # One request for all; if that fails, each half is asked, until the cause is found:
    # one group without the right to see it would spoil the answer for the others.
    if not names:
        return {}, {}
    try:
        return dict(ask(list(names))), {}
    except AWAY:
        raise
    except kafka_errors.KafkaError as error:
        if len(names) == 1:
            return {}, {names[0]: error}
    middle = len(names) // 2
    first, second = _each(ask, names[:middle]), _each(ask, names[middle:])
    return {**first[0], **second[0]}, {**first[1], **second[1]}


def _facts(
    described: Mapping[str, Any], committed: Mapping[TopicPartition, Any]
) -> GroupFacts:
    if described:
        return facts_of(described, committed)
    return facts_of({"group_state": UNKNOWN, "members": ()}, committed)


def facts_of(
    described: Mapping[str, Any], committed: Mapping[TopicPartition, Any]
) -> GroupFacts:
    """Return what an admin client's answers say of a group."""
    return GroupFacts(
        state=described["group_state"],
        members=tuple(map(_member, described["members"])),
        committed={tp: one.offset for tp, one in committed.items()},
    )


def _member(described: Mapping[str, Any]) -> MemberFacts:
    return MemberFacts(
        member_id=described["member_id"],
        client_id=described["client_id"],
        host=described["client_host"],
        assigned=frozenset(
            TopicPartition(one["topic"], number)
            for one in _assigned(described)
            for number in one["partitions"]
        ),
    )


def _assigned(member: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    assignment = member.get("member_assignment")
    if not isinstance(assignment, Mapping):
        return ()
    found: Sequence[Mapping[str, Any]] = assignment.get("assigned_partitions") or ()
    return found
