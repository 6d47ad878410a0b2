"""Asks the cluster about groups: their members, what they have committed, their lags."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from attrs import evolve, field, frozen
from kafka import KafkaConsumer, TopicPartition
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
_ASK_TIMEOUT_MS = 5_000

_COORDINATOR_SECONDS = 5.0
_COORDINATOR_BACKOFF = 0.2
_COORDINATOR_ERRORS = (
    kafka_errors.CoordinatorLoadInProgressError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorError,
)

# Of a group, what could not be asked, each with the reason.
_Missing = dict[str, list[tuple[str, Exception]]]


@frozen(kw_only=True)
class Survey:
    """
    What the cluster says of groups.

    Attributes:
        facts: by group, its members and committed offsets.
        lags: by group, how many records wait in partitions with a committed offset, of
            groups for which that was asked.
        unread: by group, what could not be asked, each with the reason, as text.
    """

    facts: Mapping[str, GroupFacts] = field(factory=dict)
    lags: Mapping[str, Mapping[TopicPartition, int]] = field(factory=dict)
    unread: Mapping[str, tuple[str, ...]] = field(factory=dict)


def listed_groups(admin: KafkaAdminClient) -> list[str]:
    """Return the names of all consumer groups that this principal may see."""
    return [
        one["group_id"]
        for one in admin.list_groups()
        if one["protocol_type"] in {"", "consumer", None}
    ]


def survey_of(
    admin: KafkaAdminClient, groups: Collection[str], listed: Collection[str]
) -> Survey:
    """
    Return what the cluster knows of groups, without lags.

    If it refuses to describe one group, or one group's coordinator cannot answer, the
    others are not affected.

    Args:
        admin: the client.
        groups: the groups.
        listed: the groups that the cluster lists.
    """
    facts, missing = _asked(admin, sorted(groups), lambda: listed)
    return Survey(
        facts=facts,
        unread={
            group: tuple(f"{what}: {error}"[:200] for what, error in several)
            for group, several in missing.items()
        },
    )


def facts_of_one(admin: KafkaAdminClient, group: str) -> GroupFacts:
    """
    Return what the cluster knows of one group.

    Raises:
        KafkaError: it does not answer, or refuses.
    """
    # A coordinator may move, and a cluster's first is created only on demand.
    deadline = time.monotonic() + _COORDINATOR_SECONDS
    while True:
        facts, missing = _asked(admin, [group], lambda: listed_groups(admin))
        if not missing:
            return facts[group]
        error = missing[group][0][1]
        if not isinstance(error, _COORDINATOR_ERRORS) or time.monotonic() > deadline:
            raise error
        time.sleep(_COORDINATOR_BACKOFF)


def with_lags(
    survey: Survey,
    groups: Collection[str],
    admin: KafkaAdminClient,
    asker: KafkaConsumer,
    besides: Collection[TopicPartition] = (),
) -> tuple[Survey, dict[TopicPartition, int]]:
    """
    Return a survey with the lags of some of its groups, and where partitions end.

    Args:
        survey: the survey.
        groups: the groups whose lags are wanted.
        admin: the client that asks which topics there are.
        asker: the client that asks where they end.
        besides: other partitions whose ends are wanted.
    """
    facts = {group: one for group, one in survey.facts.items() if group in groups}
    wanted = {tp for one in facts.values() for tp in one.committed}
    there = _existing(admin, wanted | set(besides))
    ends: dict[TopicPartition, int] = {}
    if there:
        ends = asker.end_offsets(there, timeout_ms=_ASK_TIMEOUT_MS)
    lags = {
        group: {
            tp: max(0, ends[tp] - at) for tp, at in one.committed.items() if tp in ends
        }
        for group, one in facts.items()
    }
    return evolve(survey, lags=lags), ends


def _existing(
    admin: KafkaAdminClient, partitions: Collection[TopicPartition]
) -> list[TopicPartition]:
    # Asking for the end of a topic that is gone, or hidden from us, would wait in vain.
    names = sorted({tp.topic for tp in partitions})
    described = admin.describe_topics(names) if names else []
    counts = {
        one["name"]: len(one["partitions"])
        for one in described
        if not one["error_code"]
    }
    return sorted(tp for tp in partitions if tp.partition < counts.get(tp.topic, 0))


def _asked(
    admin: KafkaAdminClient,
    groups: Sequence[str],
    listed: Callable[[], Collection[str]],
) -> tuple[dict[str, GroupFacts], _Missing]:
    described, not_described = _each(admin.describe_groups, groups)
    committed, not_committed = _each(admin.list_group_offsets, groups)
    facts: dict[str, GroupFacts] = {}
    missing: _Missing = {}
    for name in groups:
        one = described.get(name, {})
        why = not_described.get(name) or _error_of(one.get("error"))
        if one.get("group_state") == _DEAD:
            # The group does not exist, which newer brokers call an error; or it is of
            # KIP-848, about which kafka-python's admin cannot ask.
            why, one = None, {} if name in listed() else one
        told = _facts({} if why else one, committed.get(name, {}))
        facts[name] = evolve(told, has_committed=name in committed)
        for what, error in (
            (f"{name} cannot be described", why),
            (f"what {name} has committed cannot be read", not_committed.get(name)),
        ):
            if error is not None:
                missing.setdefault(name, []).append((what, error))
    return facts, missing


def _error_of(text: str | None) -> Exception | None:
    # kafka-python does not raise these errors: they are in the answer, as text.
    kinds = (one for one in _COORDINATOR_ERRORS if one.__name__ in (text or ""))
    return next(kinds, kafka_errors.KafkaError)(text) if text else None


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
