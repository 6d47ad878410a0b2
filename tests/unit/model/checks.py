"""The invariants that can be looked at between calls, and what else is seen there."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import pytest
from kafka.structs import TopicPartition

from safeconsumer._kafka.errors import NotConsumedError
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import Everything, Partition, Pattern, Scope, Topic
from tests.unit.model.truth import Ownership, Truth, Violation

if TYPE_CHECKING:
    from tests.unit.model.member import ModelMember


def watch(member: ModelMember, fetcher: Any) -> None:  # noqa: ANN401 - ours or upstream's
    """Let things happen where another thread could come between, and judge each drain."""
    interrupt = member.interrupt
    parse, append, fetch = (
        fetcher._parse_fetched_data,
        fetcher._append,
        fetcher.fetch_records,
    )

    def parse_later(completion: Any) -> object:  # noqa: ANN401 - upstream's
        member.current = completion.topic_partition
        interrupt("parse")
        return parse(completion)

    def append_later(drained: object, part: Any, *more: object) -> object:  # noqa: ANN401 - either class
        member.current = part.topic_partition
        interrupt("append")
        return append(drained, part, *more)

    def fetch_and_go_on(*args: object, **more: object) -> object:
        before = member.truth.assignments
        found = fetch(*args, **more)
        if member.subject.checks_all and before == member.truth.assignments:
            check_buffers(member)
        interrupt("drained")
        return found

    fetcher._parse_fetched_data = parse_later
    fetcher._append = append_later
    fetcher.fetch_records = fetch_and_go_on


def position(consumer: Any, tp: TopicPartition) -> int | None:  # noqa: ANN401
    """Return where the consumer stands, if it does."""
    state = consumer._subscription.assignment.get(tp)
    found = None if state is None else state.position
    return None if found is None else found.offset


def check(member: ModelMember) -> None:
    """Judge everything that can be seen between two calls."""
    if not member.subject.checks_all:
        return
    if member.told_by_itself:
        raise Violation("A7", f"the product tells so itself: {member.told_by_itself}")
    owned = member.truth.owned
    found = member.consumer.assignment()
    if found != set(owned):
        raise Violation("P6", f"assigned {found}, expected {set(owned)}")
    _check_paused(member)
    for tp, own in owned.items():
        _check_position(member, tp, own)


def _check_paused(member: ModelMember) -> None:
    truth, consumer = member.truth, member.consumer
    truth.holds.expire(truth.now)
    expected_paused, paused = truth.paused(), consumer.paused()
    if paused != expected_paused:
        raise Violation("A7", f"paused() is {paused}, expected {expected_paused}")
    expected = sorted(map(_key, truth.holds.holds.values()))
    if sorted(map(_key, consumer.holds())) != expected:
        raise Violation("A7", f"holds() is {consumer.holds()}, expected {expected}")
    for tp in truth.owned:
        lines, holds = consumer.explain(tp), truth.holds.covering(tp)
        if len(lines) != len(holds):
            raise Violation("A7", f"explain({tp}) is {lines}, expected {holds}")


def _check_position(member: ModelMember, tp: TopicPartition, own: Ownership) -> None:
    log, state = member.broker.logs[tp], member.consumer._subscription.assignment[tp]
    if state.position is None:
        if own.is_placed and not own.may_reset:
            raise Violation("A4", f"{tp} lost its position {own.cursor}")
        return
    own.is_placed, own.is_rewinding = True, False
    here = state.position.offset
    between = log.between(min(here, own.cursor), max(here, own.cursor))
    if between:
        raise Violation("A4", f"{tp} stands at {here}, expected {own.cursor}")


def check_buffers(member: ModelMember) -> None:
    """Judge what is kept at the end of a drain: A8."""
    fetcher, owned = member.fetcher, member.truth.owned
    parked = {*fetcher._paused_completed_fetches, *fetcher._paused_partition_records}
    slot = fetcher._next_partition_records
    kept = parked | ({slot.topic_partition} if slot else set())
    size = fetcher.parked_bytes()
    if not kept <= set(owned):
        raise Violation("A8", f"data of {kept - set(owned)} is kept and not owned")
    most = 2 * sum(owned[tp].largest for tp in parked)
    if not size <= min(most, member.parked_max_bytes):
        raise Violation("A8", f"{size} bytes parked of {parked}, at most {most}")


def check_empty(member: ModelMember) -> None:
    """Judge what is left after close: A8."""
    fetcher = member.fetcher
    left = [
        *fetcher._paused_completed_fetches,
        *fetcher._paused_partition_records,
        *fetcher._completed_fetches,
    ]
    if member.subject.checks_all and (
        left or fetcher._next_partition_records or fetcher.parked_bytes()
    ):
        raise Violation("A8", f"{left} are left after close")


# ------------------------------------------------------------ calls


def is_consumed(scope: Scope, partitions: Collection[TopicPartition]) -> bool:
    """Tell whether a consumer of these partitions accepts the scope (P5)."""
    if isinstance(scope, Partition | Topic):
        return any(scope.covers(tp) for tp in partitions)
    return True


def check_refused(member: ModelMember, scope: Scope) -> None:
    """Judge a pause of what cannot belong here: P4, P5."""
    with pytest.raises(NotConsumedError):
        member.subject.pause(member.consumer, scope, owner="app")
    member.sights["a pause was refused"] += 1


def must_refuse(member: ModelMember, partitions: Collection[TopicPartition]) -> bool:
    """Tell whether ``assign`` refuses these for a hold placed before any (P5)."""
    there = member.truth.holds.holds
    unfit = [
        key
        for key, scope in member.early.items()
        if key in there and not is_consumed(scope, partitions)
    ]
    if not partitions or not unfit:
        return False
    with pytest.raises(NotConsumedError):
        member.consumer.assign(sorted(partitions))
    member.sights["an assignment was refused"] += 1
    return True


def check_remaining(member: ModelMember, scope: Scope, found: Iterable[Hold]) -> None:
    """Judge what ``resume`` returns: what still covers the target (P3)."""
    holds = list(member.truth.holds.holds.values())
    expected = [hold for hold in holds if _overlaps(hold.scope, scope)]
    if sorted(map(_key, found)) != sorted(map(_key, expected)):
        raise Violation("A7", f"resume({scope}) left {found}, expected {expected}")


def _overlaps(scope: Scope, target: Scope) -> bool:
    # Two patterns overlap if they are the same: more cannot be told.
    match target:
        case Partition(topic, number):
            return scope.covers((topic, number))
        case Topic(topic):
            if isinstance(scope, Partition):
                return scope.topic == topic
            return scope.covers((topic, 0))
        case Pattern():
            if isinstance(scope, Partition | Topic):
                return target.covers((scope.topic, 0))
            return scope == target or isinstance(scope, Everything)
        case Everything():
            return True


def _key(hold: Hold) -> tuple[str, str, str]:
    return str(hold.scope), hold.owner, hold.lifetime.value


# ------------------------------------------------------------ what is worth seeing


def look_at_pause(member: ModelMember, scope: Scope) -> None:
    """Count what a pause meets."""
    fetcher, sights = member.fetcher, member.sights
    for tp in _changing(member.truth, scope):
        slot = fetcher._next_partition_records
        if slot and slot.topic_partition == tp and member.truth.owned[tp].is_begun:
            sights["a pause in mid batch"] += 1
        if is_in_flight(member, tp):
            sights["a pause in flight"] += 1
        if tp in getattr(fetcher, "_held_back", ()):
            sights["a pause in mid iteration"] += 1


def look_at_resume(member: ModelMember, scope: Scope) -> None:
    """Count what a resume meets; the hold is gone from the truth already."""
    sights, truth = member.sights, member.truth
    if any(scope.covers(tp) and truth.is_held(tp) for tp in truth.owned):
        sights["a resume that left another hold"] += 1
    for tp in _changing(truth, scope):
        if is_in_flight(member, tp):
            sights["a resume in flight"] += 1
        if truth.owned[tp].has_buffered:
            sights["a resume of parked data"] += 1


def is_in_flight(member: ModelMember, tp: TopicPartition) -> bool:
    """Tell whether a fetch of this ownership waits for its answer."""
    number = member.truth.owned[tp].number
    return any(one.stamps.get(tp) == number for one in member.broker.pending)


def _changing(truth: Truth, scope: Scope) -> list[TopicPartition]:
    return [tp for tp in truth.owned if scope.covers(tp) and not truth.is_held(tp)]
