"""
What the control topics say about one group, and turning it into holds.
"""

import threading
from collections.abc import Iterable, Mapping

from attrs import field, frozen

from safeconsumer.events import group as control_events
from safeconsumer.group import patterns, wire
from safeconsumer.group.wire import ControlHold, ControlKey
from safeconsumer.holds.hold import GROUP, OPERATOR, Hold, HoldKey
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.merge import Register, changed
from safeconsumer.holds.scope import Everything, Scope

# One line about unreadable records in so many seconds, however many come.
_TELL_SKIPPED_EVERY = 10.0

# A record may carry no time: old clients wrote such, and a producer may ask for it.
NO_TIME_MS = -1

_NEVER_HEARD = Register((-1, -1), is_held=False)

# Topic and key as it was written: there is one way to write it.
_SourceKey = tuple[str, bytes]

# What was read, with what its bytes mean, so that they are decoded once.
_News = dict[_SourceKey, tuple[Register, ControlKey, ControlHold | None]]


@frozen
class Written:
    """
    A record of a control topic, as far as it matters; its time may be NO_TIME_MS.
    """

    key: bytes | None
    value: bytes | None
    offset: int
    at_ms: int


@frozen
class _Change:
    place: list[Hold] = field(factory=list)
    remove: list[HoldKey] = field(factory=list)


class ControlState:
    """
    Folds control records into registers, and registers into the ledger's holds.

    Of several records of one key the last in the topic's order counts, whatever the
    order in which they are heard here: a member hears its own writes twice.

    Thread rules: any thread; one lock, outside the ledger's. Events wait for the
    ledger's ``deliver()``.
    """

    def __init__(
        self, group: str, ledger: PauseLedger, sources: Mapping[str, str], skew: float
    ) -> None:
        self._group = group
        self._ledger = ledger
        self._sources = sources  # topic to owner prefix
        self._skew = skew
        self._lock = threading.Lock()
        self._registers: dict[_SourceKey, Register] = {}
        self._incarnations = dict.fromkeys(sources, 0)
        self._untold: dict[str, int] = {}
        self._told_at = -_TELL_SKIPPED_EVERY
        self.skipped = 0

    @staticmethod
    def sources(operator_topic: str, group_topic: str) -> dict[str, str]:
        """
        Return whose holds each topic has.
        """
        return {operator_topic: OPERATOR, group_topic: GROUP}

    def absorb(self, topic: str, records: Iterable[Written]) -> None:
        """
        Take over records of one topic; those heard already change nothing.
        """
        with self._lock:
            news: _News = {}
            bodies: dict[bytes, ControlHold | None] = {}
            for record in records:
                self._read(topic, record, news, bodies)
            registers = {key: register for key, (register, *_) in news.items()}
            fresh = changed(self._registers, registers)
            self._registers.update(fresh)
            self._apply({key: news[key] for key in fresh})
            self._tell_skipped()

    def restore(self, topic: str, keys: Iterable[ControlKey]) -> None:
        """
        Make the ledger obey again what was heard last, after something else was tried.
        """
        with self._lock:
            heard: _News = {}
            for key in keys:
                written = topic, wire.encode_key(key)
                register = self._registers.get(written, _NEVER_HEARD)
                body = wire.decode_hold(register.body) if register.is_held else None
                heard[written] = register, key, body
            self._apply(heard)

    def begin_again(self, topic: str) -> None:
        """
        Note that the topic was made anew: its offsets start over, ours stay in force.
        """
        with self._lock:
            self._incarnations[topic] += 1

    def count(self) -> int:
        """
        Return how many operator and group holds are in force.
        """
        return sum(hold.is_remote for hold in self._ledger.view().state)

    # ------------------------------------------------------------ reading

    def _read(
        self,
        topic: str,
        record: Written,
        news: _News,
        bodies: dict[bytes, ControlHold | None],
    ) -> None:
        key = wire.decode_key(record.key)
        if key is None:
            self._skip(topic)
            return
        if key.group != self._group:
            return
        if key.version <= wire.VERSION and patterns.read(key.scope) is None:
            self._skip(topic)
            return
        body = None
        if record.value is not None:
            # One command's records have one value: ten thousand are decoded once.
            if record.value not in bodies:
                bodies[record.value] = wire.decode_hold(record.value)
            body = bodies[record.value]
        if record.value is not None and body is None:
            self._skip(topic)
            return
        register = Register(
            stamp=(self._incarnations[topic], record.offset),
            is_held=record.value is not None,
            at_ms=record.at_ms,
            body=record.value or b"",
        )
        written = topic, record.key or b""
        known = news.get(written)
        if known is None or known[0] < register:
            news[written] = register, key, body

    def _skip(self, topic: str) -> None:
        self.skipped += 1
        self._untold[topic] = self._untold.get(topic, 0) + 1

    def _tell_skipped(self) -> None:
        now, _ = self._ledger.now()
        if not self._untold or now - self._told_at < _TELL_SKIPPED_EVERY:
            return
        self._told_at = now
        for topic, records in self._untold.items():
            self._ledger.emit(
                control_events.ControlRecordsSkipped, topic=topic, records=records
            )
        self._untold.clear()

    # ------------------------------------------------------------ applying

    def _apply(self, fresh: _News) -> None:
        change = _Change()
        moment = self._ledger.now()
        for (topic, _), (register, key, body) in fresh.items():
            found = self._scope_and_owner(topic, key, tell=register.is_held)
            hold = None
            if body is not None:
                # Without a time it begins when it is heard: late, never early.
                is_timeless = register.at_ms == NO_TIME_MS
                at = moment[1] if is_timeless else register.at_ms / 1000
                hold = as_hold(found, body, at, moment, self._skew)
            if hold is None:
                change.remove.append(found)
            else:
                change.place.append(hold)
        if change.place or change.remove:
            self._ledger.follow(change.place, change.remove)

    def _scope_and_owner(
        self, topic: str, key: ControlKey, *, tell: bool
    ) -> tuple[Scope, str]:
        owner = self._sources[topic] + key.owner
        read = patterns.read(key.scope)
        if read is not None and not key.extra:
            if read.trouble is not None and tell:
                self._tell_not_understood(str(read.scope), owner, read.trouble)
            if key == ControlKey(key.group, key.owner, str(read.scope)):
                return read.scope, owner
            # Of a later version, or written in another way: another key, another hold.
            return read.scope, f"{owner} {key.scope} of version {key.version}"
        # A kind of scope that is still to be invented: it covers everything, under a
        # name that no other record has, so that only its own tombstone lifts it.
        owner = " ".join((owner, key.scope, *key.extra))
        if tell:
            why = f"its key has version {key.version}"
            self._tell_not_understood("@all", owner, why)
        return Everything(), owner

    def _tell_not_understood(self, scope: str, owner: str, why: str) -> None:
        self._ledger.emit(
            control_events.ControlNotUnderstood, hold=f"{scope} {owner}", why=why
        )


def as_hold(
    key: HoldKey,
    body: ControlHold,
    at: float,
    moment: tuple[float, float],
    skew: float,
) -> Hold | None:
    """
    Return the hold that a record asks for; None if its time is over.

    Args:
        key: scope and owner.
        body: what the record says.
        at: the broker's time of the record, seconds since the epoch.
        moment: now, on the monotonic clock and on this machine's wall clock.
        skew: seconds that the two wall clocks may differ; the hold ends so much later.
    """
    now, wall = moment
    scope, owner = key
    expires_at = None if body.ttl_ms is None else at + body.ttl_ms / 1000
    deadline = None if expires_at is None else now + (expires_at + skew - wall)
    if deadline is not None and deadline <= now:
        return None
    return Hold(
        scope=scope,
        owner=owner,
        reason=body.reason,
        placed_at=at,
        expires_at=expires_at,
        deadline=deadline,
    )
