"""
Carries out exactly the plan that the operator agreed to, once, or writes no record.

1. The module reads the holds again on the connection that writes, because the view from
   which the shown plan was made may be old: a follower that loses its connection
   notices the loss late.
2. The module makes the plan again from these holds. If the holds already are as
   planned, the module does not write any record: the same form was sent twice, or
   another operator made the same change.
3. If the digest of this plan differs from that of the agreed plan, the module does not
   write any record.
"""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from safeconsumer.group.documents import hold_document
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.operator import Operator
from safeconsumer.group.partitions import names
from safeconsumer.group.plan import (
    Action,
    Cluster,
    Lift,
    Plan,
    TimedHolds,
    plan_of,
    warnings,
)
from safeconsumer.group.view import View
from safeconsumer.group.wire import ControlKey
from safeconsumer.holds.hold import OPERATOR


class PlanChangedError(Exception):
    """
    The plan differs from the one that the operator agreed to; nothing was written.

    The caller should show the new plan and ask again.

    Attributes:
        plan: the new plan.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__("the holds have changed in the meantime. Nothing was changed")
        self.plan = plan


@frozen(kw_only=True)
class Done:
    """
    A plan that was carried out.

    Attributes:
        plan: the plan, as it was made right before the write.
        acknowledged: the written records; empty if nothing had to be written.
    """

    plan: Plan
    acknowledged: tuple[HoldRecord, ...]

    @property
    def was_held(self) -> frozenset[ControlKey]:
        """The lifted holds that the holds topic had, or that only members still obeyed."""
        there = {(one.owner, one.key.scope) for one in self.plan.own}
        there |= {(one.owner, one.scope) for one in self.plan.kept}
        return frozenset(
            one.key
            for one in self.plan.changes
            if (OPERATOR + one.key.owner, one.key.scope) in there
        )

    def document(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values."""
        plan = self.plan
        if isinstance(plan.action, Lift):
            was_held = self.was_held
            return {
                "is_done_already": plan.is_done,
                "lifted": [
                    {
                        "scope": one.key.scope,
                        "owner": one.key.owner,
                        "was_held": one.key in was_held,
                    }
                    for one in self.acknowledged
                ],
                "covers": names(plan.covers),
                "also_held": list(map(hold_document, plan.others)),
            }
        if not isinstance(plan.action, TimedHolds):
            return {"is_done_already": plan.is_done, **plan.document()}
        return {
            "is_done_already": plan.is_done,
            "held": list(map(hold_document, self.acknowledged)),
            "unchanged": list(map(hold_document, plan.unchanged)),
            "renewed": list(map(hold_document, plan.renewed)),
            "replaced": list(map(hold_document, plan.replaced)),
            "covers": names(plan.covers),
            "also_held": list(map(hold_document, plan.others)),
            "warnings": warnings(plan),
        }


def carry_out(
    operator: Operator,
    view: View,
    action: Action,
    cluster: Cluster,
    agrees: Callable[[Plan], bool],
) -> Done:
    """
    Write the records for an action, and wait until all replicas acknowledge them.

    Args:
        operator: the connection.
        view: the group as it was shown.
        action: the action.
        cluster: lists groups and topics.
        agrees: called right before the write; returns whether the operator agreed to
            this plan. If it raises, no record is written.

    Raises:
        PlanChangedError: the plan differs from the one that the operator agreed to.
        HoldSettingError: a hold can no longer be extended.
        ControlWriteError: a change was not acknowledged; running the action again is
            safe.
        KafkaError: the broker does not answer or refuses a request; nothing was
            written.
    """
    plan = plan_of(read_again(operator, view), action, cluster)
    if plan.is_done:
        return Done(plan=plan, acknowledged=())
    if plan.is_refused or not agrees(plan):
        raise PlanChangedError(plan)
    return Done(plan=plan, acknowledged=operator.write(plan.changes))


def read_again(operator: Operator, view: View) -> View:
    """Return the view with the holds that are in force now."""
    found = operator.holds(view.group)
    newest = max(view.times.newest, operator.board.proven)
    times = evolve(view.times, newest=newest)
    holds = tuple(one for one in found if one.in_force(times.proven, view.skew))
    # The view may come from a follower, which has its own count of recreated topics.
    incarnation = operator.board.incarnation
    return evolve(view, holds=holds, times=times, incarnation=incarnation)
