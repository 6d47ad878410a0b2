"""Answers the questions of one running stream's plans, and remembers the last plan."""

import time
from collections.abc import Callable, Collection, Mapping

from attrs import evolve

from safeconsumer.errors.base import HeldDataLostError, HoldsUnreadableError
from safeconsumer.events.base import Event, sorted_partitions
from safeconsumer.holds.explain import hold_line
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Everything, Scope, TopicPartition
from safeconsumer.holds.view import Holds
from safeconsumer.spark import events, offsets
from safeconsumer.spark.activity import Watched, query_name
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.decision import Known, Plan
from safeconsumer.spark.options import SourceOptions

Facts = Mapping[str, str]

# The owner, with the stream's name, of holds that stand for unreadable ones.
UNREADABLE = "unreadable:"
_UNTOLD = "it is held only for as long as it cannot be told what is held"


class Stream:
    """
    Answers the questions of each plan, in the words of ``design/spark.md``.

    Thread rules: :meth:`plan`, :meth:`share` and :meth:`freeze` on one thread at a
    time; the others on any.

    Args:
        name: the stream's name among those of the session.
        options: the stream's options.
        ledgers: holds that are kept in this process, the notebook's first.
        follower: reads the control topics, or None.
        wall: returns seconds since the epoch.

    Attributes:
        watched: the stream's present activity.
        on_change: called after the activity may have changed.
        on_close: called when the stream closes.
    """

    def __init__(
        self,
        name: str,
        options: SourceOptions,
        *,
        ledgers: tuple[PauseLedger, ...],
        follower: ControlFollower | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._options = options
        self._ledgers = ledgers
        self._follower = follower
        self._wall = wall
        self._plan = self._planned = Plan(start={}, latest={})
        self._known_before = Known()
        self._troubles: tuple[str, ...] = ()  # of the last plan
        self._told: tuple[object, ...] = ((), (), ())
        self._told_losses: tuple[str, ...] = ()
        self.watched = Watched()
        self.on_change: Callable[[], object] = _nothing
        self.on_close: Callable[[], object] = _nothing

    def plan(self, facts: Facts) -> Facts:
        """
        Read every hold, as fresh as possible; answer whether one covers the stream.

        Raises:
            HoldsUnreadableError: the holds cannot be read, and the run ends by itself.
        """
        start = offsets.parse(facts["start"])
        self.watched.begin(query_name(facts.get("batch", "")), start)
        self._known_before = self._known(lambda one: one.fresh())
        self._troubles = self._known_before.troubles
        _refuse_undecided(facts, self._known_before.troubles)
        held = self._known_before.held(start)
        self._plan = Plan(start=start, latest=start, held=held)
        return {"held": "yes" if held else "no"}

    def share(self, facts: Facts) -> Facts:
        """Return starts for the official limiter, which ends its plan at ``latest``."""
        latest = offsets.parse(facts["latest"])
        held = self._known_before.held({*self._plan.start, *latest})
        self._plan = evolve(self._plan, latest=latest, held=held)
        return {"from": offsets.render(self._plan.pretended())}

    def freeze(self, facts: Facts) -> Facts:
        """
        Return the offsets at which the batch ends, obeying pauses made meanwhile.

        Raises:
            HeldDataLostError: held partitions have lost records, and that fails the
            query.
            HoldsUnreadableError: as :meth:`plan`.
        """
        end = offsets.parse(facts["end"])
        # The latest offsets that the official source has just found may have more
        # partitions than those that the plan began with.
        latest = {**end, **offsets.parse(facts["latest"])}
        before, now = self._known_before, self._known(lambda one: one.state())
        # A hold that was lifted meanwhile counts for this batch, and so does a trouble.
        troubles = tuple(dict.fromkeys((*before.troubles, *now.troubles)))
        self._troubles = troubles
        _refuse_undecided(facts, troubles)
        known = Known(states=now.states, troubles=troubles)
        seen = {*self._plan.start, *latest}
        held = {**known.held(seen), **before.held(seen)}
        self._plan = Plan(start=self._plan.start, latest=latest, held=held)
        self._judge_losses()
        frozen = self._plan.frozen(end)
        said = {"end": offsets.render(frozen), **self._report(troubles)}
        self._planned = self._plan
        self.watched.planned(self._plan.start, frozen)
        self.on_change()
        return said

    def again(self, facts: Facts) -> Facts:
        """Note that a batch that was planned before a restart runs again, in full."""
        start, end = offsets.parse(facts["start"]), offsets.parse(facts["end"])
        self.watched.begin(query_name(facts.get("batch", "")), start)
        self.watched.planned(start, end)
        self.on_change()
        return {}

    def ended(self, _: Facts) -> Facts:
        """Note that the last planned batch has run."""
        self.watched.ended()
        self.on_change()
        return {}

    def holds(self) -> tuple[Hold, ...]:
        """
        Return every known hold.

        If its last plan, or this call, could not read its holds, there is one more for
        each reason: it holds everything, and nobody can lift it.
        """
        known = self._known(lambda one: one.state())
        troubles = dict.fromkeys((*self._troubles, *known.troubles))
        found = [hold for state in known.states for hold in state]
        return (*found, *(self._unreadable(one) for one in troubles))

    def _unreadable(self, why: str) -> Hold:
        return Hold(
            scope=Everything(),
            owner=f"{UNREADABLE}{self.name}",
            reason=why,
            placed_at=self._wall(),
        )

    def held(self) -> dict[TopicPartition, int]:
        """Return the partitions that the last planned batch left out, with their lag."""
        return self._planned.lags()

    def covers(self, tp: TopicPartition) -> bool:
        """Tell whether a known hold covers a partition; it reads nothing."""
        return bool(self._known(lambda one: one.state()).covering(tp))

    def loud(self, scopes: Collection[Scope]) -> dict[TopicPartition, str]:
        """
        Return the partitions of which it may deliver records, each with the reason.

        Args:
            scopes: the scopes to check; without any, the held partitions, which are
                all of them where it is not known what is held.
        """
        known = self._known(lambda one: one.state())
        activity = self.watched.now()  # after the holds: it may only have grown since
        if not activity.is_planned:
            return {("", 0): "it has not planned a batch yet"}
        is_untold = bool(known.troubles or self._troubles)
        found = {}
        for tp in sorted(activity.partitions):
            is_held = bool(known.covering(tp))
            is_meant = any(one.covers(tp) for one in scopes) if scopes else is_held
            if not is_meant and (scopes or not is_untold):
                continue
            if not (is_held or is_untold):
                found[tp] = "it is not held"
            elif activity.may_read(tp):
                found[tp] = "a batch that was planned before may still read it"
            elif not is_held:
                found[tp] = _UNTOLD
        return found

    def close(self) -> None:
        """Give back what it has of others."""
        self.on_close()

    # ------------------------------------------------------------ inside

    def _known(self, ask: Callable[[ControlFollower], Holds]) -> Known:
        # The control topics come first: this process is read after the wait for them.
        states: list[Holds] = []
        troubles: list[str] = []
        if self._follower is not None:
            try:
                states.append(ask(self._follower))
            except HoldsUnreadableError as error:
                troubles.append(str(error))
        states.extend(ledger.view().holds for ledger in self._ledgers)
        return Known(states=tuple(states), troubles=tuple(troubles))

    def _judge_losses(self) -> None:
        losses = tuple(
            f"{tp[0]}:{tp[1]}: {why}" for tp, why in sorted(self._plan.losses().items())
        )
        if losses and losses != self._told_losses:
            self._tell(events.HeldDataLost, losses=losses)
        self._told_losses = losses
        if losses and self._options.fails_on_loss:
            message = (
                f"held data is lost: {'; '.join(losses)}. Start a new checkpoint, or "
                "set failOnDataLoss=false to go on without those records"
            )
            raise HeldDataLostError(message)

    def _report(self, troubles: tuple[str, ...]) -> dict[str, str]:
        plan = self._plan
        lag = sum(plan.lags().values())
        said = {
            "metric.held": offsets.named(plan.held),
            "metric.heldPartitions": str(len(plan.held)),
            "metric.heldLag": str(lag),
        }
        if plan.held:
            said["description"] = f"held: {said['metric.held']}, {lag} behind"
        if troubles:
            said["metric.heldBecause"] = "; ".join(troubles)
        because = {
            hold.key: hold_line(hold) for holds in plan.held.values() for hold in holds
        }
        partitions = sorted_partitions(plan.held)
        told = partitions, tuple(because.values()), troubles
        if told != self._told:
            self._tell(
                events.PlanChanged,
                held=partitions,
                lag_at_plan=lag,
                because=told[1] + troubles,
            )
            if troubles:
                self._tell(events.HoldsUnreadable, reasons=troubles)
        self._told = told
        return said

    def _tell(self, kind: type[Event], **fields: object) -> None:
        ledger = self._ledgers[0]
        ledger.emit(kind, stream=self.name, **fields)
        ledger.deliver()


def _refuse_undecided(facts: Facts, troubles: tuple[str, ...]) -> None:
    # A running query holds everything until the holds can be read; a run that ends by
    # itself would otherwise end successfully without having read anything.
    if troubles and facts.get("ends") == "yes":
        message = (
            "the holds cannot be read, so this run may not read, and it would "
            f"end as if there were nothing: {'; '.join(troubles)}"
        )
        raise HoldsUnreadableError(message)


def _nothing() -> None:
    """Do nothing; stands in until a function is set."""
