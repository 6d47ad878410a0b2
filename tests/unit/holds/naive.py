"""
What the contract says of holds, whole pauses and gates (P2-P7), in sets scanned in full.

It shares names and scopes with the ledger it judges, and no rule.
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
    """Tell whether a scope covers a partition, from the definition."""
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
class Wish:
    """What is known of a hold besides its scope and owner."""

    lifetime: Lifetime
    reason: str | None
    until: float
    beneath: "Wish | None" = field(default=None, eq=False)


@define
class Named:
    """What was named, since a poll began, of all that one ``assignment()`` returned."""

    snapshot: Snapshot
    said: dict[TopicPartition, Any]


class NaiveLedger:
    """Holds, assignment and gates of one consumer; every question looks at all of them."""

    def __init__(self):
        self.now = 0.0
        self.holds = {}
        self.assigned = set()
        self.named = []
        # Away since the membership was lost: the next join decides.
        self.undecided = set()
        self.in_call = False
        # The holds that a poll found everything quiet by, less what was lifted since.
        self.stood = None
        self.gated = set()
        self.is_watched = False
        self.unread = set()

    # ------------------------------------------------------------ questions

    def covering(self, tp):
        return {key for key in self.holds if covers(key[0], tp)}

    def quiet(self):
        held = {tp for tp in self.assigned if self.covering(tp)}
        return held | self.gated | self.unread

    def wholes(self):
        return {str(scope) for scope, owner in self.holds if owner == WHOLE}

    def _away(self):
        # Plain pauses of what is not assigned.
        return {
            (scope, owner)
            for (scope, owner), wish in self.holds.items()
            if wish.lifetime is PLAIN
            and owner == APP
            and not any(covers(scope, tp) for tp in self.assigned)
        }

    # ------------------------------------------------------------ holds

    def place(self, scopes, owner, wish, handed=None):
        scopes = list(scopes)
        for scope in scopes:
            is_single = isinstance(scope, Partition)
            strict = Lifetime.UNTIL_RESUMED if wish.lifetime is PLAIN else wish.lifetime
            lifetime = wish.lifetime if is_single else strict
            self._put((scope, owner), evolve(wish, lifetime=lifetime))
        if handed is None:
            return
        note = next((one for one in self.named if one.snapshot is handed), None)
        if note is None:
            self.named.append(note := Named(handed, {}))
        tps = {
            (one.topic, one.partition) for one in scopes if isinstance(one, Partition)
        }
        note.said |= dict.fromkeys(tps, evolve(wish, lifetime=PLAIN))
        for topic in {tp[0] for tp in tps}:
            for one in self.named:
                everything = one.snapshot.get(topic, set())
                if not everything or not everything <= one.said.keys():
                    continue
                first = min(
                    (one.said[tp] for tp in everything), key=lambda it: it.until
                )
                if first.until <= self.now:
                    continue
                key = Topic(topic), WHOLE
                if everything <= tps or key not in self.holds:
                    self._put(key, first)
                break

    def _put(self, key, wish):
        known = self.holds.get(key)
        if known is not None and wish.lifetime is PLAIN and known.lifetime is not PLAIN:
            # A plain pause never weakens a strict one, and it is obeyed itself.
            is_longer = wish.until > known.until
            if known.lifetime is Lifetime.WHILE_ASSIGNED:
                longer = wish if is_longer else known
                self.holds[key] = evolve(longer, lifetime=PLAIN)
            elif is_longer:
                self.holds[key] = evolve(wish, beneath=known)
            return
        if wish.lifetime is PLAIN and known is not None:
            wish = evolve(wish, beneath=known.beneath)
        self.holds[key] = wish

    def _over(self, key):
        # A hold has ended by itself: a strict one that it was placed over is in force.
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
                for tp in list(note.said):
                    if (Partition(*tp), APP) in ending:
                        del note.said[tp]
            whole = {key for key in self.holds if key[1] == WHOLE}
            ending = named | whole | self._away()
            if not self.assigned and self.stood is not None:
                self.stood = {key for key in self.stood if key[1] not in {APP, WHOLE}}
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
        due = {key for key, wish in self.holds.items() if wish.until <= now}
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
        if cause is Cause.CLOSED:  # operators' holds are not among these
            self.holds = {}
        for key in [key for key in self.holds if self._ends(key, gone, new, cause)]:
            self._over(key)
        is_passing = cause.is_passing
        self.undecided = self.undecided | gone if is_passing else set()
        self.assigned = new
        self.gated -= gone
        self.unread -= gone
        if self.in_call and self.stood is not None:
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
        return bool(new) or has_been  # a join of nothing decides of nothing else

    # ------------------------------------------------------------ polls and gates

    def begin(self):
        self.in_call, self.named = True, []
        if self.assigned:
            by = [self.covering(tp) for tp in self.assigned]
            self.stood = set().union(*by) if all(by) else None

    def end(self):
        self.in_call, self.gated = False, set()

    def choose_anew(self):
        if not self.assigned and not self.in_call:
            self.stood = None

    def _lifted(self, keys):
        # Gates stand in for holds; when all of these are lifted they open. If only one
        # owner's are left, this owner opens what it names.
        if self.stood is None:
            return
        self.stood -= keys
        if not self.stood:
            self.stood, self.gated = None, set()
            return
        owners = {owner for _, owner in self.stood}
        if len(owners) == 1:
            spoken = [scope for scope, owner in keys if owner in owners]
            self.gated -= {tp for tp in self.gated for one in spoken if covers(one, tp)}
