"""Turns the control records about one group into holds in the ledger."""

import threading
from collections.abc import Collection, Iterable

from attrs import evolve

from safeconsumer.group import events as control_events
from safeconsumer.group import patterns
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.facts import HoldRecord, targets_of
from safeconsumer.group.fold import Fold, RawRecord
from safeconsumer.group.wire import ControlKey
from safeconsumer.holds.hold import OPERATOR, Hold, HoldKey
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.resets import Resets, Targets
from safeconsumer.holds.scope import Scope

# The minimum seconds between two events about unreadable records.
_REPORT_SKIPPED_EVERY = 10.0
# Seconds after which an expired hold's record is forgotten. Until then, a correction of
# the broker's time can bring the hold back.
_KEPT_AFTER_END = 3600.0
# Seconds between two clean-ups of expired holds.
_FORGET_EVERY = 60.0


class ControlState:
    """
    Keeps the latest control record of each hold, and places the holds in the ledger.

    Records arrive in the topic's order; for each key, the last record decides.

    Args:
        group: the consumer group.
        ledger: the ledger.
        skew: the seconds after its expiry at which a hold is lifted.
        clock: the estimate of the broker's time.
        resets: stores the targets of resets; None if this member does not carry out
            resets.

    Thread rules: any thread may use this; its lock is taken before the ledger's. The
    events are delivered by the ledger's ``deliver()``.
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
        self._clock = clock or BrokerClock(is_reporting=False)
        self._clock.on_change = self.apply_broker_time
        self._group = group
        self._ledger = ledger
        self._skew = skew
        self._lock = threading.Lock()
        self._fold = Fold(group)
        self._unreported = 0
        self._reported_at = -_REPORT_SKIPPED_EVERY
        self._forgot_at = -_FORGET_EVERY
        self.skipped = 0

    def absorb(self, topic: str, records: Iterable[RawRecord]) -> None:
        """Apply the next records from the holds topic, which events call ``topic``."""
        with self._lock:
            fresh, skipped = self._fold.take(records)
            self.skipped += skipped
            self._unreported += skipped
            self._follow(fresh)
            self._report_skipped(topic)
            moment = self._ledger.now()
            if moment[0] - self._forgot_at >= _FORGET_EVERY:
                self._forget_expired(moment)

    def topic_recreated(self) -> None:
        """Record that the topic was recreated; its offsets start over, and the holds stay."""
        with self._lock:
            self._fold.topic_recreated()
            self._follow(())

    def kept(self) -> tuple[Hold, ...]:
        """
        Return the holds in force that were on the topic before it was recreated.

        If such a hold had a reset, which is now forgotten, the hold's reason says so.
        """
        with self._lock:
            lost = {
                self._key(one): one.hold is not None and one.hold.reset is not None
                for one in self._fold.holds()
                if self._fold.is_from_earlier_topic(one)
            }
        if not lost:
            return ()
        return tuple(
            evolve(one, reason=_forgotten(one.reason)) if lost[one.key] else one
            for one in self._ledger.view().holds
            if one.key in lost
        )

    def count(self) -> int:
        """Return how many of the group's holds are in force."""
        return sum(hold.is_remote for hold in self._ledger.view().holds)

    # ------------------------------------------------------------ reporting

    def _report_skipped(self, topic: str) -> None:
        now, _ = self._ledger.now()
        if not self._unreported or now - self._reported_at < _REPORT_SKIPPED_EVERY:
            return
        self._reported_at = now
        self._ledger.emit(
            control_events.ControlRecordsSkipped, topic=topic, records=self._unreported
        )
        self._unreported = 0

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
        # Members keep the holds from before the topic was recreated, but not their
        # resets: the members cannot know whether these holds have been lifted since, or
        # which offsets were committed.
        return targets_of(
            one
            for one in self._fold.resets()
            if not self._fold.is_from_earlier_topic(one)
        )

    def _forget_expired(self, moment: tuple[float, float]) -> None:
        # Expired holds are forgotten because no tombstone is written for them, and a
        # program may use a new owner for each job. A forgotten hold cannot come back,
        # so both the broker's time and ours must be past its expiry: either clock may
        # be wrong by days.
        self._forgot_at = moment[0]
        now = self._clock.time(moment)
        if now is None:
            return
        at = min(now, moment[1]) - self._skew
        self._fold.forget_expired(at - _KEPT_AFTER_END)

    def _apply(self, records: Iterable[HoldRecord]) -> None:
        place: list[Hold] = []
        remove: list[HoldKey] = []
        moment = self._ledger.now()
        for one in records:
            key = self._scope_and_owner(one.key, emit=one.hold is not None)
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
            # Without a record timestamp, the duration counts from when the record was
            # read, so that the hold ends late, never early.
            now = at = moment[1]
        expires_at = None if body.ttl_ms is None else at + body.ttl_ms / 1000
        deadline = None  # no hold expires while the broker's time is unknown
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

    def apply_broker_time(self) -> None:
        """
        Recompute the deadlines of holds from the current estimate of the broker's time.

        A hold that had expired by an earlier estimate is placed again if the new
        estimate is before its expiry.
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
            self._forget_expired(moment)

    def _key(self, one: HoldRecord) -> HoldKey:
        return self._scope_and_owner(one.key, emit=False)

    def _scope_and_owner(self, key: ControlKey, *, emit: bool) -> tuple[Scope, str]:
        owner = OPERATOR + key.owner
        read = patterns.read_key(key)
        is_new = patterns.read(key.scope) is None or bool(key.extra)
        if is_new:
            # A later version wrote the scope. The owner's name is made unique to this
            # key, so that only this key's own tombstone lifts the hold.
            owner = " ".join((owner, key.scope, *key.extra))
        if read.trouble is not None and emit:
            hold = f"{read.scope} {owner}"
            event = control_events.ControlNotUnderstood
            self._ledger.emit(event, hold=hold, why=read.trouble)
        if not is_new and key != ControlKey(key.group, key.owner, str(read.scope)):
            # A key from a later version, or with a different spelling, identifies a
            # different hold.
            owner = f"{owner} {key.scope} of version {key.version}"
        return read.scope, owner


def _forgotten(reason: str | None) -> str:
    # The note comes first, because reports truncate long lines.
    return f"(its reset is forgotten: request it again) {reason or ''}".rstrip()


def is_over(hold: Hold, moment: tuple[float, float]) -> bool:
    """Return whether a hold's deadline has passed."""
    return hold.deadline is not None and hold.deadline <= moment[0]
