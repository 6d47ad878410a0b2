"""Answers what the source asks about each batch of a stream, and keeps the last plan."""

import time
from collections.abc import Callable, Collection, Mapping

from safeconsumer.errors.base import HeldDataLostError, HoldsUnreadableError
from safeconsumer.events.base import Event, sorted_partitions
from safeconsumer.holds.explain import counted, hold_line
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Everything, Scope, TopicPartition, partition_text
from safeconsumer.holds.view import Holds
from safeconsumer.spark import events, offsets
from safeconsumer.spark.activity import ActivityTracker, batch_of, query_name
from safeconsumer.spark.control import ControlFollower
from safeconsumer.spark.decision import KnownHolds, Plan
from safeconsumer.spark.options import SourceOptions
from safeconsumer.spark.retention import Retention
from safeconsumer.spark.skipping import Skipping, Skips

Facts = Mapping[str, str]

# A hold that replaces unreadable holds has this prefix and the stream's name as owner.
UNREADABLE = "unreadable:"
_UNKNOWN_HOLDS = "it is held only because the holds cannot be read"
_MADE_AGAIN = "its topic was deleted and recreated while it was held"


class Stream:
    """
    Answers the source's questions about each batch, as ``design/spark.md`` lists them.

    Thread rules: :meth:`plan`, :meth:`freeze` and :meth:`again` must run on one thread
    at a time; the other methods may run on any thread.

    Args:
        name: the stream's name, unique in the session.
        options: the stream's options.
        ledgers: the ledgers of holds in this process; the first one has the notebook's
            holds.
        follower: reads the control topics, or None.
        skipping: decides which offsets are skipped, or None.
        retention: watches held partitions, or None.
        wall: returns seconds since the epoch.

    Attributes:
        activity: the stream's current activity.
        on_change: called after the activity may have changed.
        on_end: called with the end offsets of a batch when the batch has ended.
        on_close: called when the stream closes.
    """

    def __init__(  # noqa: PLR0913 - a stream has these parts
        self,
        name: str,
        options: SourceOptions,
        *,
        ledgers: tuple[PauseLedger, ...],
        follower: ControlFollower | None = None,
        skipping: Skipping | None = None,
        retention: Retention | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._options = options
        self._ledgers = ledgers
        self._follower = follower
        self._skipping = skipping
        self._retention = retention
        self._wall = wall
        self._plan = self._planned = Plan(start={}, latest={})
        self._known_before = KnownHolds()
        self._troubles: tuple[str, ...] = ()  # of the last plan
        self._reported: tuple[object, ...] = ((), (), ())
        self._reported_losses: tuple[str, ...] = ()
        self._skips: Skips = {}
        self._reported_skips: Skips = {}
        self._ends: offsets.Offsets = {}  # of the last planned batch
        self.activity = ActivityTracker()
        self.on_change: Callable[[], object] = lambda: None
        self.on_end: Callable[[offsets.Offsets], object] = lambda _: None
        self.on_close: Callable[[], object] = lambda: None

    def plan(self, facts: Facts) -> Facts:
        """
        Read every hold, and return the offsets at which a batch ends.

        If there is a limit and a partition is held, return start offsets instead. The
        caller's limiter computes end offsets from them, and passes these to
        :meth:`freeze`.

        Raises:
            HeldDataLostError: held partitions have lost records, and a loss must fail
                the query.
            HoldsUnreadableError: the holds cannot be read, and the run stops on its
                own.
        """
        start, latest = offsets.parse(facts["start"]), _latest(facts)
        self.activity.begin(query_name(facts.get("batch", "")), start)
        known = self._known_before = self._known(lambda one: one.current_holds())
        self._skips = self._skipped(facts, start, latest)
        limit = facts.get("limit", "none")
        is_set_back = bool(self._skips) or bool(known.held({*start, *latest}))
        if limit == "none" or (limit == "maximum" and not is_set_back):
            return self._decided(facts, start, known)
        self._refuse_undecided(facts, known)
        plan = self._planned_now(start, latest, known)
        self._plan = Plan(start=start, latest=start)
        return {"from": offsets.render(plan.starts_for_limiter())}

    def freeze(self, facts: Facts) -> Facts:
        """
        Return the offsets at which a batch ends; also obey holds placed after the plan.

        Raises:
            HeldDataLostError: as :meth:`plan`.
            HoldsUnreadableError: as :meth:`plan`.
        """
        before, now = self._known_before, self._known(lambda one: one.known_holds())
        # Holds that were lifted after the plan still count for this batch, and so do
        # the failures to read holds.
        troubles = tuple(dict.fromkeys((*before.troubles, *now.troubles)))
        states = (*now.states, *before.states)
        known = KnownHolds(states=states, troubles=troubles)
        return self._decided(facts, self._plan.start, known)

    def _decided(
        self, facts: Facts, start: offsets.Offsets, known: KnownHolds
    ) -> Facts:
        end = offsets.parse(facts["end"])
        self._refuse_undecided(facts, known)
        self._plan = self._planned_now(start, _latest(facts), known)
        self._judge_losses()
        adjusted = self._plan.adjusted_end(end)
        answer = {"end": offsets.render(adjusted), **self._report(known.troubles)}
        if self._skips:
            answer["start"] = offsets.render({**start, **self._plan.skips})
        self._planned = self._plan
        self._ends = adjusted
        self.activity.planned({**start, **self._plan.skips}, adjusted)
        self.on_change()
        return answer

    def _planned_now(
        self, start: offsets.Offsets, latest: offsets.Offsets, known: KnownHolds
    ) -> Plan:
        return Plan(
            start=start,
            latest=latest,
            held=known.held({*start, *latest}),
            skips={tp: one.to for tp, one in self._skips.items()},
        )

    def _refuse_undecided(self, facts: Facts, known: KnownHolds) -> None:
        # A query that does not stop on its own holds everything until the holds can be
        # read. A run with once or availableNow must fail, because it would end
        # successfully without having read a record.
        self._troubles = known.troubles
        if known.troubles and facts.get("ends") == "yes":
            message = (
                "the holds cannot be read, so this run may not read, and would end "
                f"as if there were no records: {'; '.join(known.troubles)}"
            )
            raise HoldsUnreadableError(message)

    def again(self, facts: Facts) -> Facts:
        """
        Record that a batch that was planned before a restart is running again, in full.

        Returns:
            The offsets at which the batch starts, if it skips offsets.
        """
        start, end = offsets.parse(facts["start"]), offsets.parse(facts["end"])
        self.activity.begin(query_name(facts.get("batch", "")), start)
        skips: Skips = {}
        batch = batch_of(facts.get("batch", ""))
        if self._skipping is not None and batch is not None:
            skips = self._skipping.again(batch, start, end)
        self._report_skips(skips)
        starts = {**start, **{tp: one.to for tp, one in skips.items()}}
        self._ends = end
        self.activity.planned(starts, end)
        self.on_change()
        if not skips:
            return {}
        return {"start": offsets.render(starts), **_skipped_metric(skips)}

    def ended(self, _: Facts) -> Facts:
        """Record that the last planned batch has ended."""
        self.activity.ended()
        self.on_change()
        self.on_end(self._ends)
        return {}

    def _skipped(
        self, facts: Facts, start: offsets.Offsets, latest: offsets.Offsets
    ) -> Skips:
        batch = batch_of(facts.get("batch", ""))
        if self._skipping is None or batch is None:
            return {}
        skips = self._skipping.planned(batch, start, latest)
        if self._skipping.refused:
            self.emit(events.SkipRefused, reasons=self._skipping.refused)
        self._report_skips(skips)
        return skips

    def _report_skips(self, skips: Skips) -> None:
        new = tuple(
            str(one) for tp, one in skips.items() if one != self._reported_skips.get(tp)
        )
        if new:
            self.emit(events.OffsetsSkipped, skipped=new)
        self._reported_skips = skips

    def holds(self) -> tuple[Hold, ...]:
        """
        Return every known hold.

        For each reason why the stream's last plan, or this call, could not read its
        holds, the result has a hold of everything, which no owner can lift.
        """
        known = self._known(lambda one: one.known_holds())
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
        """Return whether a known hold covers a partition; send no request."""
        return bool(self._known(lambda one: one.known_holds()).covering(tp))

    def not_quiet(self, scopes: Collection[Scope]) -> dict[TopicPartition, str]:
        """
        Return the partitions whose records may still be delivered, with the reasons.

        Args:
            scopes: the scopes to check; if empty, check the held partitions, which are
                all partitions if the holds cannot be read.
        """
        known = self._known(lambda one: one.known_holds())
        # read the activity after the holds, so that no batch that was planned without
        # them is missed
        activity = self.activity.now()
        if not activity.is_planned:
            return {("", 0): "it has not planned a batch yet"}
        is_unknown = bool(known.troubles or self._troubles)
        found = {}
        for tp in sorted(activity.partitions):
            is_held = bool(known.covering(tp))
            is_meant = any(one.covers(tp) for one in scopes) if scopes else is_held
            if not is_meant and (scopes or not is_unknown):
                continue
            if not (is_held or is_unknown):
                found[tp] = "it is not held"
            elif activity.may_read(tp):
                found[tp] = "a batch that was planned before may still read it"
            elif not is_held:
                found[tp] = _UNKNOWN_HOLDS
        return found

    def close(self) -> None:
        """Release the clients and threads that the stream shares or owns."""
        self.on_close()

    # ------------------------------------------------------------ inside

    def _known(self, ask: Callable[[ControlFollower], Holds]) -> KnownHolds:
        # Read the control topics first, because that may wait; the holds of this
        # process are then read after the wait.
        states: list[Holds] = []
        troubles: list[str] = []
        if self._follower is not None:
            try:
                states.append(ask(self._follower))
            except HoldsUnreadableError as error:
                troubles.append(str(error))
        states.extend(ledger.view().holds for ledger in self._ledgers)
        return KnownHolds(states=tuple(states), troubles=tuple(troubles))

    def _judge_losses(self) -> None:
        found = {**self._deleted(), **self._plan.losses()}
        losses = tuple(
            f"{partition_text(*tp)}: {why}" for tp, why in sorted(found.items())
        )
        if losses and losses != self._reported_losses:
            self.emit(events.HeldDataLost, losses=losses)
        self._reported_losses = losses
        if self._plan.losses() and self._options.fails_on_loss:
            message = (
                f"held data is lost: {'; '.join(losses)}. Start a new checkpoint, skip "
                "to an offset that exists (Controller.skip), or set "
                "failOnDataLoss=false to continue without those records"
            )
            raise HeldDataLostError(message)

    def _deleted(self) -> dict[TopicPartition, str]:
        if self._retention is None:
            return {}
        plan = self._plan
        self._retention.refresh(plan.held, plan.skips)
        starts = {tp: plan.next_of(tp) for tp in plan.held}
        found = {
            tp: f"the {counted(count, 'record')} from offset {starts[tp]} on "
            f"{'is' if count == 1 else 'are'} deleted already"
            for tp, count in self._retention.deleted(starts).items()
        }
        return {**found, **dict.fromkeys(self._retention.made_again(), _MADE_AGAIN)}

    def _report(self, troubles: tuple[str, ...]) -> dict[str, str]:
        plan = self._plan
        lag = sum(plan.lags().values())
        answer = {
            "metric.held": offsets.named(plan.held),
            "metric.heldPartitions": str(len(plan.held)),
            "metric.heldLag": str(lag),
        }
        if plan.held:
            answer["description"] = f"held: {answer['metric.held']}, {lag} behind"
        if self._reported_losses:
            answer["metric.heldLost"] = "; ".join(self._reported_losses)
        if self._skips:
            answer.update(_skipped_metric(self._skips))
        if self._skipping is not None:
            requests = {
                "metric.skipRefused": "; ".join(self._skipping.refused),
                "metric.skipWaiting": "; ".join(self._skipping.waiting()),
            }
            answer.update({name: text for name, text in requests.items() if text})
        if troubles:
            answer["metric.heldBecause"] = "; ".join(troubles)
        because = {
            hold.key: hold_line(hold) for holds in plan.held.values() for hold in holds
        }
        partitions = sorted_partitions(plan.held)
        reported = partitions, tuple(because.values()), troubles
        if reported != self._reported:
            self.emit(
                events.PlanChanged,
                held=partitions,
                lag_at_plan=lag,
                because=reported[1] + troubles,
            )
            if troubles:
                self.emit(events.HoldsUnreadable, reasons=troubles)
        self._reported = reported
        return answer

    def emit(self, kind: type[Event], **fields: object) -> None:
        """Emit an event of this stream."""
        ledger = self._ledgers[0]
        ledger.emit(kind, stream=self.name, **fields)
        ledger.deliver()


def _latest(facts: Facts) -> dict[TopicPartition, int]:
    # The end offsets that the official source has just found may include partitions
    # that were not known when the plan started.
    return {**offsets.parse(facts["end"]), **offsets.parse(facts["latest"])}


def _skipped_metric(skips: Skips) -> dict[str, str]:
    return {"metric.skipped": "; ".join(map(str, skips.values()))}
