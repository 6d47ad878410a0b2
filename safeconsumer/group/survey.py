"""Queries the cluster about groups: their members, committed offsets and lags."""

import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from attrs import evolve, field, frozen
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer._kafka.of_group.consumer_groups import describe_consumer_groups
from safeconsumer._kafka.of_group.coordinators import (
    committed_offsets,
    coordinators,
    forget,
)
from safeconsumer.group.clients import Queries
from safeconsumer.group.facts import UNKNOWN, GroupFacts, MemberFacts

AWAY = (
    kafka_errors.KafkaConnectionError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.RequestTimedOutError,
    OSError,
)
"""Errors that a request to an unreachable broker can cause."""

_DEAD = "Dead"
_NO_GROUP: Mapping[str, Any] = {"group_state": _DEAD, "members": ()}
_UNKNOWN_GROUP: dict[str, Any] = {"group_state": UNKNOWN, "members": ()}
_ASK_TIMEOUT_MS = 5_000
# Seconds to wait for lags from all brokers together, and from each broker. The limits
# are short because no verdict needs lags.
_EXTRA_SECONDS = 3.0
_EXTRA_SECONDS_EACH = 1.5

# Seconds for a failover: the controller fences a broker 9 s after its last heartbeat
# (Kafka's setting broker.session.timeout.ms); then the next coordinator loads the
# group.
_COORDINATOR_SECONDS = 12.0
_COORDINATOR_BACKOFF = 0.2
_COORDINATOR_ERRORS = (
    *AWAY,
    kafka_errors.CoordinatorLoadInProgressError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.NotCoordinatorError,
    kafka_errors.UnknownBrokerIdError,
)

# By group, the requests without an answer, each with the reason.
_Missing = dict[str, list[tuple[str, Exception]]]
# By group, the error for a request about the group.
_Errors = dict[str, Exception]

T = TypeVar("T")


@frozen(kw_only=True)
class Survey:
    """
    The cluster's answers to queries about groups.

    Attributes:
        facts: by group, the members and committed offsets.
        lags: by group, the lag of each partition that has a committed offset; only for
            groups whose lags were requested.
        unread: by group, the unanswered requests, each with the reason, as text.
        away: the brokers that do not answer, each with the error.
    """

    facts: Mapping[str, GroupFacts] = field(factory=dict)
    lags: Mapping[str, Mapping[TopicPartition, int]] = field(factory=dict)
    unread: Mapping[str, tuple[str, ...]] = field(factory=dict)
    away: Mapping[int, Exception] = field(factory=dict)

    @property
    def unlisted(self) -> tuple[str, ...]:
        """For each broker whose groups are unknown, a sentence with the reason."""
        return tuple(
            f"the groups of broker {broker} are not known: {error}"[:200]
            for broker, error in self.away.items()
        )


def listed_groups(
    admin: KafkaAdminClient,
) -> tuple[list[str], dict[int, Exception]]:
    """
    Return the names of all consumer groups that this principal may see.

    Each broker lists the groups that it coordinates. The second result contains the
    brokers that do not answer, with their errors.

    Raises:
        KafkaError: no broker answers, or a broker refuses the request.
    """
    found: list[str] = []
    away: dict[int, Exception] = {}
    brokers = [
        one["broker_id"]
        for one in admin.describe_cluster()["brokers"]
        if not one.get("is_fenced")
    ]
    for broker in brokers:
        try:
            listed = admin.list_groups(broker_ids=[broker])
        except (*AWAY, kafka_errors.UnknownBrokerIdError) as error:
            away[broker] = error
        else:
            kinds = {"", "consumer", None}
            found += [
                one["group_id"] for one in listed if one["protocol_type"] in kinds
            ]
    if away and len(away) == len(brokers):
        raise next(iter(away.values()))
    return found, away


def survey_of(admin: KafkaAdminClient, besides: Iterable[str]) -> Survey:
    """
    Return the cluster's answers about all groups, without lags.

    If the cluster refuses to describe one group, or one group's coordinator cannot
    answer, the other groups are not affected.

    Args:
        admin: the client.
        besides: more groups to describe, which the cluster may not list.

    Raises:
        KafkaError: no broker answers, or a broker refuses to list its groups.
    """
    listed, away = listed_groups(admin)
    groups = sorted({*listed, *besides})
    facts, missing = _asked(admin, groups, away)
    return Survey(
        facts=facts,
        away=away,
        unread={
            group: tuple(f"{what}: {error}"[:200] for what, error in several)
            for group, several in missing.items()
        },
    )


def facts_of_one(
    admin: KafkaAdminClient, group: str, until: float = math.inf
) -> GroupFacts:
    """
    Return the cluster's description of one group.

    Args:
        admin: the client.
        group: the group.
        until: when the call stops waiting for the group's coordinator, on the monotonic
            clock; it never waits longer than a broker's failover takes.

    Raises:
        KafkaError: the cluster does not answer, or refuses the request.
    """
    # A coordinator may move or die, and a cluster's first coordinator is created only
    # on demand.
    until = min(until, time.monotonic() + _COORDINATOR_SECONDS)
    while True:
        facts, missing = _asked(admin, [group])
        if not missing:
            return facts[group]
        errors = [error for _, error in missing[group]]
        is_passing = all(isinstance(one, _COORDINATOR_ERRORS) for one in errors)
        if not is_passing or time.monotonic() > until:
            raise errors[0]
        time.sleep(_COORDINATOR_BACKOFF)


def with_lags(
    survey: Survey,
    groups: Collection[str],
    queries: Queries,
) -> Survey:
    """
    Return the survey with the lags of some of its groups, as far as brokers answer.

    Args:
        survey: the survey.
        groups: the groups whose lags are requested.
        queries: the clients.
    """
    facts = {group: one for group, one in survey.facts.items() if group in groups}
    ends = _of_each_leader(
        queries.admin,
        {tp for one in facts.values() for tp in one.committed},
        lambda led, limit_ms: dict(
            queries.consumer.end_offsets(led, timeout_ms=limit_ms)
        ),
        survey.away,
    )
    lags = {
        group: {
            tp: max(0, ends[tp] - at) for tp, at in one.committed.items() if tp in ends
        }
        for group, one in facts.items()
    }
    return evolve(survey, lags=lags)


def ends_of(
    partitions: Iterable[TopicPartition], queries: Queries
) -> dict[TopicPartition, int]:
    """
    Return the end offsets of the partitions that exist and have a leader.

    Raises:
        KafkaError: the end offset of a partition cannot be read.
    """
    by_leader = _by_leader(queries.admin, partitions)
    there = sorted(tp for led in by_leader.values() for tp in led)
    found: dict[TopicPartition, int] = {}
    if there:
        found = queries.consumer.end_offsets(there, timeout_ms=_ASK_TIMEOUT_MS)
    return found


def first_offsets(
    times: Mapping[TopicPartition, float], queries: Queries
) -> dict[TopicPartition, int]:
    """
    Return each partition's first offset at or after a given time, if there is one.

    Args:
        times: the time for each partition, in seconds since the epoch.
        queries: the clients.
    """

    def ask(led: list[TopicPartition], limit_ms: int) -> dict[TopicPartition, int]:
        wanted = {tp: int(times[tp] * 1000) for tp in led}
        found = queries.consumer.offsets_for_times(wanted, timeout_ms=limit_ms)
        return {tp: one.offset for tp, one in found.items() if one is not None}

    return _of_each_leader(queries.admin, times, ask)


def _of_each_leader(
    admin: KafkaAdminClient,
    partitions: Iterable[TopicPartition],
    ask: Callable[[list[TopicPartition], int], dict[TopicPartition, T]],
    away: Collection[int] = (),
) -> dict[TopicPartition, T]:
    # A leader that does not answer, or refuses, does not affect the other leaders.
    deadline = time.monotonic() + _EXTRA_SECONDS
    found: dict[TopicPartition, T] = {}
    for leader, led in _by_leader(admin, partitions).items():
        if leader in away:
            continue
        left = min(deadline - time.monotonic(), _EXTRA_SECONDS_EACH)
        if left <= 0:
            break
        # kafka-python omits a partition that has lost its leader since.
        with suppress(kafka_errors.KafkaError, OSError, KeyError, ValueError):
            found.update(ask(led, int(left * 1000)))
    return found


def _by_leader(
    admin: KafkaAdminClient, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    # Missing or hidden topics and partitions without a leader are left out, because
    # offset requests for them would get no answer.
    wanted = frozenset(partitions)
    names = sorted({tp.topic for tp in wanted})
    leaders: dict[int, list[TopicPartition]] = {}
    for topic in admin.describe_topics(names) if names else ():
        for one in () if topic["error_code"] else topic["partitions"]:
            tp = TopicPartition(topic["name"], one["partition_index"])
            if tp in wanted and one["leader_id"] >= 0:
                leaders.setdefault(one["leader_id"], []).append(tp)
    return {leader: sorted(led) for leader, led in sorted(leaders.items())}


def _asked(
    admin: KafkaAdminClient,
    groups: Sequence[str],
    away: Mapping[int, Exception] | None = None,
) -> tuple[dict[str, GroupFacts], _Missing]:
    described, committed, errors = _answers(admin, groups, away or {})
    facts: dict[str, GroupFacts] = {}
    missing: _Missing = {}
    for name in groups:
        answer = described.get(name) or _UNKNOWN_GROUP
        why = errors[0].get(name) or _error_of(answer.get("error"))
        answer = _UNKNOWN_GROUP if why else answer
        offsets = committed.get(name, {})
        facts[name] = GroupFacts(
            state=answer["group_state"],
            members=tuple(map(_member, answer["members"])),
            committed={tp: one.offset for tp, one in offsets.items()},
            has_committed=name in committed,
        )
        uncommitted = errors[1].get(name)
        if why is uncommitted:
            questions = [(f"neither members nor offsets of {name} can be read", why)]
        else:
            questions = [
                (f"{name} cannot be described", why),
                (f"committed offsets of {name} cannot be read", uncommitted),
            ]
        if found := [(what, error) for what, error in questions if error is not None]:
            missing[name] = found
    forget(admin, missing)
    return facts, missing


def _answers(
    admin: KafkaAdminClient, groups: Sequence[str], away: Mapping[int, Exception]
) -> tuple[dict[str, Any], dict[str, Any], tuple[_Errors, _Errors]]:
    # Each coordinator is queried about its own groups. A coordinator that does not
    # answer is not queried twice, because each request may take seconds; its groups are
    # unknown.
    where, unfound = _try(partial(coordinators, admin), groups)
    described: dict[str, Any] = {}
    committed: dict[str, Any] = {}
    errors = dict(unfound), dict(unfound)
    led: dict[int, list[str]] = {}
    for name, node in where.items():
        led.setdefault(node, []).append(name)
    for node, names in led.items():
        silence = away.get(node)
        describe = partial(_described, admin, node)
        for answers, failed, ask in (
            (described, errors[0], describe),
            (committed, errors[1], partial(committed_offsets, admin, node)),
        ):
            if silence is not None:
                failed.update(dict.fromkeys(names, silence))
                continue
            found, refused = _try(ask, names)
            answers.update(found)
            failed.update(refused)
            silence = next((e for e in refused.values() if isinstance(e, AWAY)), None)
    return described, committed, errors


def _described(
    admin: KafkaAdminClient, node: int, names: Sequence[str]
) -> tuple[dict[str, Any], _Errors]:
    """Return a coordinator's descriptions of groups; missing groups are ``Dead``."""
    found: dict[str, Any] = dict(
        admin.describe_groups(names, group_coordinator_id=node)
    )
    # This request does not find groups that use the newer protocol either, and newer
    # brokers report that as an error.
    dead = [name for name, one in found.items() if one["group_state"] == _DEAD]
    if dead:
        found.update(dict.fromkeys(dead, _NO_GROUP))
        found.update(_of_newer_protocol(admin, node, dead))
    return found, {}


def _of_newer_protocol(
    admin: KafkaAdminClient, node: int, names: list[str]
) -> dict[str, dict[str, Any]]:
    try:
        return describe_consumer_groups(admin, names, node)
    except kafka_errors.UnsupportedVersionError:
        # A broker that does not know this request has no groups that use the newer
        # protocol. If the broker lists the name anyway, a proxy hides the request from
        # us.
        listed = {one["group_id"] for one in admin.list_groups(broker_ids=[node])}
        return {name: _UNKNOWN_GROUP for name in names if name in listed}


def _error_of(text: str | None) -> Exception | None:
    # kafka-python does not raise these errors, but returns them as text in the response.
    if not text:
        return None
    code = re.match(r"\[Error (-?\d+)\]", text)
    kind = kafka_errors.for_code(int(code[1])) if code else kafka_errors.KafkaError
    error: Exception = kind(text.partition(": ")[2])
    return error


def _try(
    ask: Callable[[Sequence[str]], tuple[dict[str, Any], _Errors]], names: Sequence[str]
) -> tuple[dict[str, Any], _Errors]:
    # Errors about single groups are part of the answer. If the whole request fails,
    # separate requests for each group would fail, too.
    try:
        return ask(names)
    except (*AWAY, kafka_errors.KafkaError) as error:
        return {}, dict.fromkeys(names, error)


def _member(described: Mapping[str, Any]) -> MemberFacts:
    found = described.get("member_assignment")
    assigned = found.get("assigned_partitions") if isinstance(found, Mapping) else ()
    return MemberFacts(
        member_id=described["member_id"],
        client_id=described["client_id"],
        host=described["client_host"],
        assigned=frozenset(
            TopicPartition(one["topic"], number)
            for one in assigned or ()
            for number in one["partitions"]
        ),
        epoch=described.get("member_epoch"),
    )
