"""
Holding streams by hand, from the notebook or program that runs them.
"""

import itertools
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta

from safeconsumer.errors import NotQuietError
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
from safeconsumer.spark import offsets
from safeconsumer.spark.bridge import Bridge, Opener

_LOOK_SECONDS = 0.05
_LOG = LazyHook("safeconsumer.events.log:log_event")


class Controller:
    """
    Holds every ``safekafka`` stream of a session, those started later too.

    A batch whose planning began before :meth:`pause` returned may still read what was
    there; none that is planned later does. Holds placed here live as long as this
    process: those that must survive it belong on the control topics.

    Thread rules: any thread.
    """

    def __init__(
        self,
        open_stream: Opener,
        ledger: PauseLedger,
        named: MutableMapping[str, PauseLedger] | None = None,
    ) -> None:
        self._ledger = ledger
        self._named = {} if named is None else named
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
        query: str | None = None,
    ) -> None:
        """
        Hold partitions from the next batch that is planned.

        Args:
            targets: scopes (``"orders"``, ``"orders:3"``, ``"re:ord.*"``, ``"@all"``),
                ``TopicPartition`` or compiled patterns over whole topic names.
            owner: whose holds they are; two owners never lift each other's.
            reason: for people.
            for_: seconds or a ``timedelta`` after which they end by themselves.
            query: hold only streams of queries of this name (``queryName``).

        Raises:
            ScopeSyntaxError, TargetTypeError, HoldSettingError: nothing is held.
        """
        found = tuple(map(scopes.of, targets))
        self._ledger_of(query).place(
            found,
            owner=checked_placer(owner),
            reason=checked_reason(reason),
            for_=checked_duration(for_),
        )

    def _ledger_of(self, query: str | None) -> PauseLedger:
        if query is None:
            return self._ledger
        if query not in self._named:
            made = PauseLedger((self._ledger.pass_on,), client_id=f"spark {query}")
            self._named.setdefault(query, made)
        return self._named[query]

    def resume(
        self, *targets: object, owner: str = APP, query: str | None = None
    ) -> tuple[Hold, ...]:
        """
        Lift this owner's holds of exactly these targets.

        Args:
            targets: as for :meth:`pause`.
            owner: whose.
            query: of which query's streams, if they were placed for one.

        Returns:
            The holds that still cover them; empty means they flow.
        """
        found = tuple(map(scopes.of, targets))
        whose = checked_owner(owner)
        self._ledger_of(query).remove((scope, whose) for scope in found)
        remaining = {
            hold.key: hold
            for hold in self.holds()
            if any(_overlap(hold.scope, scope) for scope in found)
        }
        return tuple(remaining.values())

    @contextmanager
    def held(
        self, *targets: object, reason: str | None = None, query: str | None = None
    ) -> Iterator[None]:
        """
        Hold for a block, under an owner of its own.
        """
        owner = f"block-{next(self._blocks)}"
        self.pause(*targets, owner=owner, reason=reason, query=query)
        try:
            yield
        finally:
            self.resume(*targets, owner=owner, query=query)

    def wait_quiet(self, *targets: object, timeout: float = 60.0) -> None:
        """
        Wait until no stream of this session reads what is held, nor will.

        A batch that was planned before a hold may go on for as long as it takes. What
        the hold is on is quiet when no such batch runs any more.

        Args:
            targets: as for :meth:`pause`; without any, all that is held.
            timeout: seconds.

        Raises:
            NotQuietError: time is over; says what is read, by which query, and why.
        """
        found = tuple(map(scopes.of, targets))
        deadline = time.monotonic() + timeout
        while loud := self._loud(found):
            if time.monotonic() > deadline:
                message = f"not quiet after {timeout:g} s: {'; '.join(loud)}"
                raise NotQuietError(message)
            time.sleep(_LOOK_SECONDS)

    def _loud(self, found: tuple[Scope, ...]) -> list[str]:
        said = []
        for stream in self._bridge.streams():
            by_why: dict[str, list[TopicPartition]] = {}
            for tp, why in stream.loud(found).items():
                by_why.setdefault(why, []).append(tp)
            query = stream.watched.now().query or f"stream {stream.name}"
            for why, them in by_why.items():
                there = offsets.named(tp for tp in them if tp[0])
                said.append(f"{query}: {there}{', ' if there else ''}{why}")
        return said

    def holds(self) -> tuple[Hold, ...]:
        """
        Return every hold: placed here, and known to any running stream.
        """
        found = {hold.key: hold for hold in self._ledger.view().state}
        for ledger in tuple(self._named.values()):
            found.update({hold.key: hold for hold in ledger.view().state})
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
