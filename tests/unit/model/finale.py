"""How every history ends: what flows catches up, what is resumed comes, nothing is lost."""

from __future__ import annotations

from collections.abc import Collection

from kafka.structs import TopicPartition

from tests.unit.model.group import Kind
from tests.unit.model.member import ALL_RECORDS, ModelMember
from tests.unit.model.truth import Violation

# Rounds of "answer everything, then poll" until a record must have come: an answer of
# an ended ownership, a lost session, a lost position and a fetch each cost one or two.
MOST_ROUNDS = 8


def catch_up(member: ModelMember, number: str) -> None:
    """Answer and read until all that flows was delivered: L1, L2."""
    for _ in range(MOST_ROUNDS + len(member.raises)):
        if member.group.join is None and not behind(member):
            return
        member.answer_all()
        member.read(ALL_RECORDS)
    late = behind(member)
    if late:
        raise Violation(number, f"{late} do not come in {MOST_ROUNDS} rounds")


def behind(member: ModelMember) -> set[TopicPartition]:
    """Return the flowing partitions with records yet to be delivered."""
    truth, logs = member.truth, member.broker.logs
    return {
        tp
        for tp, own in truth.owned.items()
        if not truth.is_held(tp) and logs[tp].next_from(own.cursor) is not None
    }


def end(member: ModelMember) -> None:
    """Resume all, take everything over, drain, close; judge it all."""
    catch_up(member, "L2")
    _resume_all(member)
    _hand_over(member, member.existing())
    catch_up(member, "L1")
    _check_nothing_lost(member)
    member.stop()


def _resume_all(member: ModelMember) -> None:
    truth = member.truth
    parked = {tp for tp in truth.quiet() if truth.owned[tp].has_buffered}
    before = {tp: truth.owned[tp].cursor for tp in parked}
    for hold in list(truth.holds.holds.values()):
        member.resume(hold.scope, hold.owner)
    if not parked or not member.subject.checks_all:
        return
    raising = bool(member.raises)
    member.read(ALL_RECORDS)
    late = {tp for tp in parked if truth.owned[tp].cursor == before[tp]}
    if late and not raising:
        raise Violation("L1", f"{late} were parked and do not come with the next poll")
    member.sights["parked data came with the next poll"] += 1


def _hand_over(member: ModelMember, partitions: Collection[TopicPartition]) -> None:
    member.rebalance(
        frozenset(partitions), Kind.EAGER, is_split=False, listener=lambda _: None
    )


def _check_nothing_lost(member: ModelMember) -> None:
    truth = member.truth
    for tp, log in member.broker.logs.items():
        seen = truth.delivered.get(tp, set()) | truth.skipped.get(tp, set())
        missing = set(log.offsets) - seen
        if missing:
            raise Violation("A2", f"{tp} never delivered {sorted(missing)}")
