"""
Holding streams by hand, from the notebook or program that runs them.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from safeconsumer.events.dispatch import Hook, LazyHook
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.explain import hold_line
from safeconsumer.holds.hold import (
    APP,
    Hold,
    checked_duration,
    checked_owner,
    checked_placer,
    checked_reason,
)
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Scope, TopicPartition
from safeconsumer.spark.bridge import Bridge, Opener

_LOG = LazyHook("safeconsumer.events.log:log_event")


class Controller:
    """
    Holds every ``safekafka`` stream of a session, those started later too.

    A batch whose planning began before :meth:`pause` returned may still read what was
    there; none that is planned later does. Holds placed here live as long as this
    process: those that must survive it belong on the control topics.

    Thread rules: any thread.
    """

    def __init__(self, open_stream: Opener, ledger: PauseLedger) -> None:
        self._ledger = ledger
        self._bridge = Bridge(open_stream)
        self._blocks = itertools.count(1)

    @property
    def bridge(self) -> Bridge:
        """
        What Java calls.
        """
        return self._bridge

    def pause(
        self,
        *targets: object,
        owner: str = APP,
        reason: str | None = None,
        for_: float | timedelta | None = None,
    ) -> None:
        """
        Hold partitions from the next batch that is planned.

        Args:
            targets: scopes (``"orders"``, ``"orders:3"``, ``"re:ord.*"``, ``"@all"``),
                ``TopicPartition`` or compiled patterns over whole topic names.
            owner: whose holds they are; two owners never lift each other's.
            reason: for people.
            for_: seconds or a ``timedelta`` after which they end by themselves.

        Raises:
            ScopeSyntaxError, TargetTypeError, HoldSettingError: nothing is held.
        """
        found = tuple(map(scopes.of, targets))
        self._ledger.place(
            found,
            owner=checked_placer(owner),
            reason=checked_reason(reason),
            for_=checked_duration(for_),
        )

    def resume(self, *targets: object, owner: str = APP) -> tuple[Hold, ...]:
        """
        Lift this owner's holds of exactly these targets.

        Returns:
            The holds that still cover them; empty means they flow.
        """
        found = tuple(map(scopes.of, targets))
        whose = checked_owner(owner)
        self._ledger.remove((scope, whose) for scope in found)
        remaining = {
            hold.key: hold
            for hold in self.holds()
            if any(_overlap(hold.scope, scope) for scope in found)
        }
        return tuple(remaining.values())

    @contextmanager
    def held(self, *targets: object, reason: str | None = None) -> Iterator[None]:
        """
        Hold for a block, under an owner of its own.
        """
        owner = f"block-{next(self._blocks)}"
        self.pause(*targets, owner=owner, reason=reason)
        try:
            yield
        finally:
            self.resume(*targets, owner=owner)

    def holds(self) -> tuple[Hold, ...]:
        """
        Return every hold: placed here, and known to any running stream.
        """
        found = {hold.key: hold for hold in self._ledger.view().state}
        for stream in self._bridge.streams():
            found.update({hold.key: hold for hold in stream.holds()})
        return tuple(found.values())

    def explain(self, target: object) -> tuple[str, ...]:
        """
        Return one line per hold that covers a partition or topic: who, why, until when.
        """
        wanted = scopes.of(target)
        return tuple(
            hold_line(hold) for hold in self.holds() if _overlap(hold.scope, wanted)
        )

    def lag(self) -> dict[TopicPartition, int]:
        """
        Return the partitions that the batches planned last left alone, with their lag.

        Of two streams that read one partition the greater lag counts.
        """
        lags: dict[TopicPartition, int] = {}
        for stream in self._bridge.streams():
            for tp, lag in stream.held().items():
                lags[tp] = max(lag, lags.get(tp, 0))
        return lags


def ledger(hooks: tuple[Hook, ...] | None = None) -> PauseLedger:
    """
    Make a place for holds of this process; events go to structlog unless told else.
    """
    return PauseLedger((_LOG,) if hooks is None else hooks, client_id="spark")


def _overlap(one: Scope, other: Scope) -> bool:
    match one, other:
        case (scopes.Partition() as partition, _):
            return other.covers((partition.topic, partition.partition))
        case (_, scopes.Partition() as partition):
            return one.covers((partition.topic, partition.partition))
        case (scopes.Topic() as topic, _):
            return other.covers((topic.topic, 0))
        case (_, scopes.Topic() as topic):
            return one.covers((topic.topic, 0))
    return one == other or scopes.Everything() in (one, other)
