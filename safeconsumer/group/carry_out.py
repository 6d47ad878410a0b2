"""
Carries out a plan: what was shown is done, once, or nothing is written.

1. The holds are read again, on the connection that writes: the view from which the plan was
   shown may be old, and a follower that is cut off does not know it at once.
2. The plan is made again from them. If it stands already, nothing is written, whatever was
   agreed to: the same form was sent twice, or another operator did the same.
3. If it is not what was agreed to, by its digest, nothing is written either.
"""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from safeconsumer.group.documents import hold_document
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.operator import Operator
from safeconsumer.group.partitions import names
from safeconsumer.group.plan import Cluster, Lift, Plan, Wish, plan_of
from safeconsumer.group.view import View
from safeconsumer.group.wire import ControlKey
from safeconsumer.holds.hold import OPERATOR


class PlanChangedError(Exception):
    """
    Nothing was written: the plan is not the one that was agreed to.

    Attributes:
        plan: the plan as it would be now.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__("the holds have changed meanwhile. Nothing was changed")
        self.plan = plan


@frozen(kw_only=True)
class Done:
    """
    A plan that was carried out.

    Attributes:
        plan: the plan, as it was made right before the write.
        acknowledged: what was written; empty if it was done already.
    """

    plan: Plan
    acknowledged: tuple[HoldRecord, ...]

    @property
    def was_held(self) -> frozenset[ControlKey]:
        """The lifted holds that were on the topic, or kept by members after it was lost."""
        there = {(one.owner, one.key.scope) for one in self.plan.own}
        there |= {(one.owner, one.scope) for one in self.plan.kept}
        return frozenset(
            one.key
            for one in self.plan.changes
            if (OPERATOR + one.key.owner, one.key.scope) in there
        )

    def document(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        plan = self.plan
        if isinstance(plan.wish, Lift):
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
                "still_held": list(map(hold_document, plan.others)),
            }
        return {
            "is_done_already": plan.is_done,
            "held": list(map(hold_document, self.acknowledged)),
            "unchanged": list(map(hold_document, plan.unchanged)),
            "renewed": list(map(hold_document, plan.renewed)),
            "replaced": list(map(hold_document, plan.replaced)),
            "covers": names(plan.covers),
            "also_held": list(map(hold_document, plan.others)),
        }


def carry_out(
    operator: Operator,
    view: View,
    wish: Wish,
    cluster: Cluster,
    agrees: Callable[[Plan], bool],
) -> Done:
    """
    Write what a wish asks for; each change is acknowledged by all replicas on return.

    Args:
        operator: the connection.
        view: the group as it was shown.
        wish: the wish.
        cluster: answers which groups and topics there are.
        agrees: tells whether the plan is what was agreed to; called right before the
            write, and what it raises prevents that.

    Raises:
        PlanChangedError: it is not what was agreed to.
        HoldSettingError: a hold cannot be extended any more.
        ControlWriteError: a change was not acknowledged; running it again is safe.
        KafkaError: the broker does not answer, or refuses; nothing was written.
    """
    plan = plan_of(read_again(operator, view), wish, cluster)
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
    # The view may be a follower's, which counts on its own how often the topic was made.
    incarnation = operator.board.incarnation
    return evolve(view, holds=holds, times=times, incarnation=incarnation)
