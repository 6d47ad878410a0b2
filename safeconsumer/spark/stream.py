"""
One running stream: what it obeys, and what was planned last.
"""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from attrs import evolve

from safeconsumer.errors import HeldDataLostError, HoldsUnreadableError
from safeconsumer.events import consumer as core_events
from safeconsumer.holds.explain import hold_line
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.state import LedgerState
from safeconsumer.spark import events, offsets
from safeconsumer.spark.decision import Known, Plan
from safeconsumer.spark.options import SourceOptions

Facts = Mapping[str, str]


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
    Answers the questions of each plan, in the words of ``design/0063-deciders.md``.

    Thread rules: :meth:`plan`, :meth:`share` and :meth:`freeze` on one thread at a
    time; the others on any.

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
        self._known_before = Known()
        self._told: tuple[object, ...] = ((), (), ())
        self._told_losses: tuple[str, ...] = ()

    def plan(self, facts: Facts) -> Facts:
        """
        Look at every hold, as fresh as it can be had; say if one covers what is read.
        """
        start = offsets.parse(facts["start"])
        self._known_before = self._known(lambda one: one.fresh())
        held = self._known_before.held(start)
        self._plan = Plan(start=start, latest=start, held=held)
        return {"held": "yes" if held else "no"}

    def share(self, facts: Facts) -> Facts:
        """
        Say from where the official limiter shall plan, which ends at ``latest``.
        """
        latest = offsets.parse(facts["latest"])
        held = self._known_before.held({*self._plan.start, *latest})
        self._plan = evolve(self._plan, latest=latest, held=held)
        return {"from": offsets.render(self._plan.pretended())}

    def freeze(self, facts: Facts) -> Facts:
        """
        Say at which offsets the batch ends; nobody who paused meanwhile is overlooked.

        Raises:
            HeldDataLostError: what is held has lost records, and that fails the query.
        """
        end = offsets.parse(facts["end"])
        # The latest that the official source has just found may be of more partitions
        # than those that the plan began with.
        latest = {**end, **offsets.parse(facts["latest"])}
        before, now = self._known_before, self._known(lambda one: one.state())
        # A hold that was lifted meanwhile counts for this batch, and so does trouble.
        troubles = tuple(dict.fromkeys((*before.troubles, *now.troubles)))
        known = Known(states=now.states, troubles=troubles)
        seen = {*self._plan.start, *latest}
        held = {**known.held(seen), **before.held(seen)}
        self._plan = Plan(start=self._plan.start, latest=latest, held=held)
        if self._watch is not None:
            self._watch.look_at({tp: self._plan.start.get(tp, 0) for tp in held})
        self._judge_losses()
        return {
            "end": offsets.render(self._plan.frozen(end)),
            **self._report(troubles),
        }

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

    def _judge_losses(self) -> None:
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
        partitions = core_events.sorted_partitions(plan.held)
        told = partitions, tuple(because.values()), troubles
        if told != self._told:
            self._tell(
                events.PlanChanged, held=partitions, lag=lag, because=told[1] + troubles
            )
            if troubles:
                self._tell(events.HoldsUnreadable, reasons=troubles)
        self._told = told
        return said

    def _tell(self, kind: type[core_events.Event], **fields: object) -> None:
        ledger = self._ledgers[0]
        ledger.emit(kind, stream=self.name, **fields)
        ledger.deliver()
