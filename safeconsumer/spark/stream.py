"""
One running stream: what it obeys, and what was planned last.
"""

import time
from collections.abc import Callable, MutableMapping
from typing import Protocol

from safeconsumer.errors import HoldsUnreadableError
from safeconsumer.events import consumer as core_events
from safeconsumer.holds.explain import hold_line
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.state import LedgerState
from safeconsumer.spark import events, offsets
from safeconsumer.spark.decision import Known, Plan
from safeconsumer.spark.options import SourceOptions

Facts = MutableMapping[str, str]

_NOTHING = ""


class Follower(Protocol):
    """
    Knows holds that are kept elsewhere.
    """

    def state(self) -> LedgerState:
        """
        Return what is known now, without waiting.

        Raises:
            HoldsUnreadableError: nothing can be told.
        """

    def fresh(self) -> LedgerState:
        """
        Return what was acknowledged anywhere before this call; may wait.

        Raises:
            HoldsUnreadableError: that cannot be told in time.
        """

    def close(self) -> None:
        """
        End its threads and clients.
        """


class Watch(Protocol):
    """
    Looks after what is held while nobody reads it.
    """

    def look_at(self, frozen: offsets.Offsets) -> None:
        """
        Take note of the held partitions, each with the offset to be read next.
        """

    def losses(self) -> tuple[str, ...]:
        """
        Return one line per held partition whose next record is gone.
        """

    def close(self) -> None:
        """
        End its threads and clients.
        """


class Stream:
    """
    Answers the two questions of each plan.

    Thread rules: :meth:`plan` and :meth:`freeze` on one thread at a time; the others on
    any.

    Args:
        name: names it among the session's streams.
        options: what it was asked to obey.
        ledgers: holds that are kept in this process, the notebook's first.
        followers: holds that are kept elsewhere.
        watch: looks after what is held, or None.
        wall: gives seconds since the epoch.
    """

    def __init__(  # noqa: PLR0913 - what a stream is made of
        self,
        name: str,
        options: SourceOptions,
        *,
        ledgers: tuple[PauseLedger, ...],
        followers: tuple[Follower, ...] = (),
        watch: Watch | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._options = options
        self._ledgers = ledgers
        self._followers = followers
        self._watch = watch
        self._wall = wall
        self._plan = Plan(start={}, latest={})
        self._troubles: tuple[str, ...] = ()
        self._told: tuple[object, ...] = ((), (), ())
        self._told_losses: tuple[str, ...] = ()

    def plan(self, facts: Facts) -> str:
        """
        Say from where the official limiter shall plan; return why it cannot be done.
        """
        start = offsets.parse(facts["start"])
        latest = offsets.parse(facts["latest"])
        known = self._known(lambda one: one.fresh())
        self._troubles = known.troubles
        self._plan = Plan(
            start=start, latest=latest, held=known.held({*start, *latest})
        )
        facts["from"] = offsets.render(self._plan.pretended())
        return self._refusal()

    def freeze(self, facts: Facts) -> str:
        """
        Say at which offsets the batch ends; nobody who paused meanwhile is overlooked.
        """
        end = offsets.parse(facts["end"])
        before = self._plan
        now = self._known(lambda one: one.state())
        # A hold that was lifted meanwhile counts for this batch, and so does trouble.
        troubles = tuple(dict.fromkeys((*self._troubles, *now.troubles)))
        known = Known(states=now.states, troubles=troubles)
        # For a rate limit the official source looks partitions up anew: there may be
        # more of them than the plan began with.
        seen = {*before.start, *before.latest, *end}
        held = {**known.held(seen), **before.held}
        self._plan = Plan(start=before.start, latest=before.latest, held=held)
        facts["end"] = offsets.render(self._plan.frozen(end))
        self._report(facts, troubles)
        if self._watch is not None:
            self._watch.look_at({tp: before.start.get(tp, 0) for tp in held})
        return _NOTHING

    def holds(self) -> tuple[Hold, ...]:
        """
        Return every hold that is known, placed for this stream or for all.
        """
        known = self._known(lambda one: one.state())
        return tuple(hold for state in known.states for hold in state)

    def held(self) -> dict[TopicPartition, int]:
        """
        Return the partitions that the batch planned last left alone, with their lag.
        """
        return self._plan.lags()

    def close(self) -> None:
        """
        End what runs for this stream.
        """
        for follower in self._followers:
            follower.close()
        if self._watch is not None:
            self._watch.close()

    # ------------------------------------------------------------ inside

    def _known(self, ask: Callable[[Follower], LedgerState]) -> Known:
        # Elsewhere first: it may wait, and what is near is looked at after that.
        states: list[LedgerState] = []
        troubles: list[str] = []
        for follower in self._followers:
            try:
                states.append(ask(follower))
            except HoldsUnreadableError as error:
                troubles.append(str(error))
        states.extend(ledger.view().state for ledger in self._ledgers)
        return Known(states=tuple(states), troubles=tuple(troubles))

    def _refusal(self) -> str:
        lost = {
            f"{tp[0]}:{tp[1]}": why for tp, why in sorted(self._plan.losses().items())
        }
        losses = tuple(f"{name}: {why}" for name, why in lost.items())
        if self._watch is not None:
            watched = self._watch.losses()
            losses += tuple(
                one for one in watched if one.rpartition(": ")[0] not in lost
            )
        if losses and losses != self._told_losses:
            self._tell(events.HeldDataLost, losses=losses)
        self._told_losses = losses
        if not losses or not self._options.fails_on_loss:
            return _NOTHING
        return (
            f"held data is lost: {'; '.join(losses)}. Start a new checkpoint, or set "
            "failOnDataLoss=false to go on without those records"
        )

    def _report(self, facts: Facts, troubles: tuple[str, ...]) -> None:
        plan = self._plan
        lag = sum(plan.lags().values())
        facts["metric.held"] = offsets.named(plan.held)
        facts["metric.heldPartitions"] = str(len(plan.held))
        facts["metric.heldLag"] = str(lag)
        if troubles:
            facts["metric.heldBecause"] = "; ".join(troubles)
        because = {
            hold.key: hold_line(hold) for holds in plan.held.values() for hold in holds
        }
        partitions = core_events.sorted_partitions(plan.held)
        told = partitions, tuple(because.values()), troubles
        if told != self._told:
            self._tell(
                events.PlanChanged, held=partitions, lag=lag, because=told[1] + troubles
            )
            if troubles:
                self._tell(events.HoldsUnreadable, reasons=troubles)
        self._told = told

    def _tell(self, kind: type[core_events.Event], **fields: object) -> None:
        ledger = self._ledgers[0]
        ledger.emit(kind, stream=self.name, **fields)
        ledger.deliver()
