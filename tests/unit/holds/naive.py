"""
A naive model of holds, whole pauses and gates (P2-P7), which scans its sets in full.

The model shares names and scopes with the tested ledger, but no rules.
"""

import re
from typing import Any

from attrs import define, evolve, field, frozen

from safeconsumer.holds.hold import APP, WHOLE, Lifetime
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.plain import Snapshot
from safeconsumer.holds.scope import (
    Everything,
    Partition,
    Pattern,
    Topic,
    TopicPartition,
)

NEVER = float("inf")
PLAIN = Lifetime.PLAIN


def covers(scope, tp):
    """Return whether a scope covers a partition, directly from the definition."""
    match scope:
        case Partition(topic, number):
            return (topic, number) == tp
        case Topic(topic):
            return topic == tp[0]
        case Pattern(text):
            return re.fullmatch(text, tp[0]) is not None
        case Everything():
            return True


@frozen
class Terms:
    """The properties of a hold besides its scope and owner."""

    lifetime: Lifetime
    reason: str | None
    until: float
    beneath: "Terms | None" = field(default=None, eq=False)


@define
class Named:
    """The partitions from one result of ``assignment()`` that were paused in this poll."""

    snapshot: Snapshot
    paused: dict[TopicPartition, Any]


class NaiveLedger:
    """One consumer's holds, assignment and gates; every query scans them in full."""

    def __init__(self):
        self.now = 0.0
        self.holds = {}
        self.assigned = set()
        self.named = []
        # Partitions given up or lost since the last completed join.
        self.undecided = set()
        self.in_call = False
        # The holds that kept every partition quiet when the poll began, except those that
        # were lifted later.
        self.gating = None
        self.gated = set()
        self.is_watched = False
        self.unread = set()

    # ------------------------------------------------------------ queries

    def covering(self, tp):
        return {key for key in self.holds if covers(key[0], tp)}

    def quiet(self):
        held = {tp for tp in self.assigned if self.covering(tp)}
        return held | self.gated | self.unread

    def wholes(self):
        return {str(scope) for scope, owner in self.holds if owner == WHOLE}

    def _away(self):
        # Plain pauses of unassigned partitions.
        return {
            (scope, owner)
            for (scope, owner), terms in self.holds.items()
            if terms.lifetime is PLAIN
            and owner == APP
            and not any(covers(scope, tp) for tp in self.assigned)
        }

    # ------------------------------------------------------------ holds

    def place(self, scopes, owner, terms, handed=None):
        scopes = list(scopes)
        for scope in scopes:
            is_single = isinstance(scope, Partition)
            strict = (
                Lifetime.UNTIL_RESUMED if terms.lifetime is PLAIN else terms.lifetime
            )
            lifetime = terms.lifetime if is_single else strict
            self._put((scope, owner), evolve(terms, lifetime=lifetime))
        if handed is None:
            return
        note = next((one for one in self.named if one.snapshot is handed), None)
        if note is None:
            self.named.append(note := Named(handed, {}))
        tps = {
            (one.topic, one.partition) for one in scopes if isinstance(one, Partition)
        }
        note.paused |= dict.fromkeys(tps, evolve(terms, lifetime=PLAIN))
        for topic in {tp[0] for tp in tps}:
            for one in self.named:
                everything = one.snapshot.get(topic, set())
                if not everything or not everything <= one.paused.keys():
                    continue
                first = min(
                    (one.paused[tp] for tp in everything), key=lambda it: it.until
                )
                if first.until <= self.now:
                    continue
                key = Topic(topic), WHOLE
                if everything <= tps or key not in self.holds:
                    self._put(key, first)
                break

    def _put(self, key, terms):
        known = self.holds.get(key)
        if (
            known is not None
            and terms.lifetime is PLAIN
            and known.lifetime is not PLAIN
        ):
            # A plain pause weakens no hold of another lifetime; both stay in force.
            is_longer = terms.until > known.until
            if known.lifetime is Lifetime.WHILE_ASSIGNED:
                longer = terms if is_longer else known
                self.holds[key] = evolve(longer, lifetime=PLAIN)
            elif is_longer:
                self.holds[key] = evolve(terms, beneath=known)
            return
        if terms.lifetime is PLAIN and known is not None:
            terms = evolve(terms, beneath=known.beneath)
        self.holds[key] = terms

    def _over(self, key):
        # The newer hold has expired, so the hold beneath it is in force again.
        strict = self.holds.pop(key).beneath
        if strict is not None and strict.until > self.now:
            self.holds[key] = strict

    def remove(self, keys, *, by_application):
        named = ending = set(keys)
        by_application = by_application or any(key[1] == WHOLE for key in ending)
        if by_application:
            if not ending:
                self.named = []
            for note in self.named:
                for tp in list(note.paused):
                    if (Partition(*tp), APP) in ending:
                        del note.paused[tp]
            whole = {key for key in self.holds if key[1] == WHOLE}
            ending = named | whole | self._away()
            if not self.assigned and self.gating is not None:
                self.gating = {key for key in self.gating if key[1] not in {APP, WHOLE}}
        for key in named:
            self.holds.pop(key, None)
        for key in ending - named:
            self._over(key)
        self._lifted(ending)

    def remove_owner(self, owner):
        keys = {key for key in self.holds if key[1] == owner}
        self.remove(keys, by_application=owner == APP)

    def expire(self, now):
        self.now = now
        due = {key for key, terms in self.holds.items() if terms.until <= now}
        over = {str(scope) for scope, owner in due if owner == WHOLE}
        ended = {
            (scope, owner)
            for scope, owner in self._away() - due
            if isinstance(scope, Partition)
            and scope.topic in over
            and (scope.topic, scope.partition) not in self.undecided
        }
        for key in due | ended:
            self._over(key)
        self._lifted(due)

    # ------------------------------------------------------------ the assignment

    def assign(self, new, cause):
        gone, gained = self.assigned - new, new - self.assigned
        if cause is Cause.CLOSED:  # operators' holds stay, but this model has none
            self.holds = {}
        for key in [key for key in self.holds if self._ends(key, gone, new, cause)]:
            self._over(key)
        is_passing = cause.is_passing
        self.undecided = self.undecided | gone if is_passing else set()
        self.assigned = new
        self.gated -= gone
        self.unread -= gone
        if self.in_call and self.gating is not None:
            self.gated |= gained
        if self.is_watched:
            self.unread |= gained

    def _ends(self, key, gone, new, cause):
        scope, owner = key
        by_hand = cause in {Cause.ASSIGNED, Cause.UNSUBSCRIBED}
        lifetime = self.holds[key].lifetime
        is_here = any(covers(scope, tp) for tp in new)
        if owner == WHOLE:
            return by_hand
        if lifetime is Lifetime.WHILE_ASSIGNED:
            return any(covers(scope, tp) for tp in gone) and not is_here
        if lifetime is Lifetime.UNTIL_RESUMED or cause.is_passing:
            return False
        assert isinstance(scope, Partition)
        if cause is Cause.UNSUBSCRIBED:
            return True
        if is_here or (scope.topic in self.wholes() and not by_hand):
            return False
        has_been = (scope.topic, scope.partition) in gone | self.undecided
        # A join that assigns no partition does not end the other pauses.
        return bool(new) or has_been

    # ------------------------------------------------------------ polls and gates

    def begin(self):
        self.in_call, self.named = True, []
        if self.assigned:
            by = [self.covering(tp) for tp in self.assigned]
            self.gating = set().union(*by) if all(by) else None

    def end(self):
        self.in_call, self.gated = False, set()

    def subscription_changed(self):
        if not self.assigned and not self.in_call:
            self.gating = None

    def _lifted(self, keys):
        # Gates open once all the holds that they replace are lifted. If only one owner's
        # holds remain, a lift by that owner opens the gates of the partitions it names.
        if self.gating is None:
            return
        self.gating -= keys
        if not self.gating:
            self.gating, self.gated = None, set()
            return
        owners = {owner for _, owner in self.gating}
        if len(owners) == 1:
            named_scopes = [scope for scope, owner in keys if owner in owners]
            self.gated -= {
                tp for tp in self.gated for one in named_scopes if covers(one, tp)
            }
