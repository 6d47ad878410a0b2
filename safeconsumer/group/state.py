"""Keeps what the holds topic says about one group, and turns it into holds."""

import threading
from collections.abc import Collection, Iterable

from attrs import evolve

from safeconsumer.group import events as control_events
from safeconsumer.group import patterns
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.facts import HoldRecord, targets_of
from safeconsumer.group.fold import Fold, Written
from safeconsumer.group.wire import ControlKey
from safeconsumer.holds.hold import OPERATOR, Hold, HoldKey
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.resets import Resets, Targets
from safeconsumer.holds.scope import Scope

# Seconds between two log lines about unreadable records, however many come.
_TELL_SKIPPED_EVERY = 10.0


class ControlState:
    """
    Folds control records, and makes the ledger's holds of them.

    Records come in the topic's order; of several of one key the last counts.

    Args:
        group: the consumer group.
        ledger: the ledger.
        skew: seconds by which holds are lifted late.
        clock: the broker's clock, as far as it is known.
        resets: keeps where the group is moved; None: this member moves nothing.

    Thread rules: any thread; one lock, outside the ledger's. Events wait for the
    ledger's ``deliver()``.
    """

    def __init__(
        self,
        group: str,
        ledger: PauseLedger,
        skew: float,
        clock: BrokerClock | None = None,
        resets: Resets | None = None,
    ) -> None:
        self._resets = resets
        self._clock = clock or BrokerClock(is_told=False)
        self._clock.on_change = self.tell_time
        self._group = group
        self._ledger = ledger
        self._skew = skew
        self._lock = threading.Lock()
        self._fold = Fold(group)
        self._untold = 0
        self._told_at = -_TELL_SKIPPED_EVERY
        self.skipped = 0

    def absorb(self, topic: str, records: Iterable[Written]) -> None:
        """Take over the next records of the holds topic, whose name events have."""
        with self._lock:
            fresh, skipped = self._fold.take(records)
            self.skipped += skipped
            self._untold += skipped
            self._follow(fresh)
            self._tell_skipped(topic)

    def begin_again(self) -> None:
        """Note that the topic was created again: its offsets start over, the holds stay."""
        with self._lock:
            self._fold.begin_again()
            self._follow(())

    def kept(self) -> tuple[Hold, ...]:
        """
        Return the holds in force that were on the topic before it was created again.

        The reason of one says so if offsets were to be moved under it.
        """
        with self._lock:
            lost = {
                self._key(one): one.hold is not None and one.hold.reset is not None
                for one in self._fold.holds()
                if self._fold.is_outlived(one)
            }
        if not lost:
            return ()
        return tuple(
            evolve(one, reason=_forgotten(one.reason)) if lost[one.key] else one
            for one in self._ledger.view().holds
            if one.key in lost
        )

    def count(self) -> int:
        """Return how many holds of the group are in force."""
        return sum(hold.is_remote for hold in self._ledger.view().holds)

    # ------------------------------------------------------------ telling

    def _tell_skipped(self, topic: str) -> None:
        now, _ = self._ledger.now()
        if not self._untold or now - self._told_at < _TELL_SKIPPED_EVERY:
            return
        self._told_at = now
        self._ledger.emit(
            control_events.ControlRecordsSkipped, topic=topic, records=self._untold
        )
        self._untold = 0

    # ------------------------------------------------------------ applying

    def _follow(self, records: Collection[HoldRecord]) -> None:
        if self._resets is None:
            self._apply(records)
            return
        wanted = self._targets()
        self._resets.end(wanted)
        self._apply(records)
        self._resets.begin(wanted)

    def _targets(self) -> Targets:
        # Of a topic that was created again the holds are kept. Whether they were lifted
        # meanwhile, and what was committed then, is not known: nothing is moved.
        return targets_of(
            one for one in self._fold.holds() if not self._fold.is_outlived(one)
        )

    def _apply(self, records: Iterable[HoldRecord]) -> None:
        place: list[Hold] = []
        remove: list[HoldKey] = []
        moment = self._ledger.now()
        for one in records:
            key = self._scope_and_owner(one.key, tell=one.hold is not None)
            hold = self._hold(key, one, moment)
            if hold is None or is_over(hold, moment):
                remove.append(key)
            else:
                place.append(hold)
        if place or remove:
            self._ledger.follow(place, remove)

    def _hold(
        self, key: HoldKey, one: HoldRecord, moment: tuple[float, float]
    ) -> Hold | None:
        body = one.hold
        if body is None:
            return None
        now, at = self._clock.time(moment), one.at
        if at is None:
            # It begins when it is read: late, never early.
            now = at = moment[1]
        expires_at = None if body.ttl_ms is None else at + body.ttl_ms / 1000
        deadline = None  # where the broker's time is unknown no hold may expire
        if expires_at is not None and now is not None:
            deadline = moment[0] + (expires_at + self._skew - now)
        scope, owner = key
        return Hold(
            scope=scope,
            owner=owner,
            reason=body.reason,
            placed_at=at if body.since_ms is None else body.since_ms / 1000,
            expires_at=expires_at,
            deadline=deadline,
            record=(one.at, one.offset),
        )

    def tell_time(self) -> None:
        """
        Let holds expire by what is known now of the broker's clock.

        This includes holds that had expired by an earlier estimate, and have not.
        """
        with self._lock:
            moment = self._ledger.now()
            there = {hold.key for hold in self._ledger.view().holds if hold.is_remote}
            timed = [
                hold
                for one in self._fold.holds()
                if one.hold is not None
                and one.hold.ttl_ms is not None
                and one.at is not None
                and (hold := self._hold(self._key(one), one, moment)) is not None
            ]
            self._ledger.move(hold for hold in timed if hold.key in there)
            place = [
                hold
                for hold in timed
                if hold.key not in there and not is_over(hold, moment)
            ]
            if place:
                self._ledger.follow(place, ())

    def _key(self, one: HoldRecord) -> HoldKey:
        return self._scope_and_owner(one.key, tell=False)

    def _scope_and_owner(self, key: ControlKey, *, tell: bool) -> tuple[Scope, str]:
        owner = OPERATOR + key.owner
        read = patterns.read_key(key)
        is_new = patterns.read(key.scope) is None or bool(key.extra)
        if is_new:
            # A kind of scope of a later version, under a name that no other record has,
            # so that only its own tombstone lifts it.
            owner = " ".join((owner, key.scope, *key.extra))
        if read.trouble is not None and tell:
            hold = f"{read.scope} {owner}"
            event = control_events.ControlNotUnderstood
            self._ledger.emit(event, hold=hold, why=read.trouble)
        if not is_new and key != ControlKey(key.group, key.owner, str(read.scope)):
            # It is of a later version, or written differently: another key, another
            # hold.
            owner = f"{owner} {key.scope} of version {key.version}"
        return read.scope, owner


def _forgotten(reason: str | None) -> str:
    # In front: reports cut what is long.
    return f"(its reset is forgotten: ask for it again) {reason or ''}".rstrip()


def is_over(hold: Hold, moment: tuple[float, float]) -> bool:
    """Tell whether a hold's deadline has passed."""
    return hold.deadline is not None and hold.deadline <= moment[0]
