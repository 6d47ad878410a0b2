"""Holds as a program places them at random, with either client."""

import re
from typing import Any

from attrs import frozen

from tests.system.soak.settings import TOPICS

OWNERS = ("app", "maintenance", "alice")
_LEVELS = {"partition": 8, "topic": 6, "pattern": 4, "consumer": 2}
_PATTERNS = ("soak-.*", "soak-(orders|returns)", ".*-audit")
_AT_ONCE = 2

Target = Any  # a TopicPartition, a topic, a pattern; None: the whole consumer


def covers(target, tp):
    if target is None:
        return True
    if isinstance(target, str):
        return bool(tp.topic == target)
    if isinstance(target, re.Pattern):
        return target.fullmatch(tp.topic) is not None
    return bool(tp == target)


class Stock:
    """
    What a program does that has no holds: it pauses what is assigned and meant.

    It keeps its own book of what should be quiet, so that it never lifts one wish with
    another; what it cannot do is be there when partitions come and go.
    """

    def __init__(self, consumer):
        self._consumer = consumer
        self._wishes = set()

    def __getattr__(self, name):
        return getattr(self._consumer, name)

    def pause(self, *targets, owner):
        self._wishes.update((target, owner) for target in targets)
        self._consumer.pause(*self._meant(targets))

    def resume(self, *named, owner):
        targets = tuple(None if one == "@all" else one for one in named)
        self._wishes -= {(target, owner) for target in targets}
        self._consumer.resume(
            *(
                tp
                for tp in self._meant(targets)
                if not any(covers(target, tp) for target, _ in self._wishes)
            )
        )

    def pause_all(self, *, owner):
        self.pause(None, owner=owner)

    def resume_all(self, *, owner):
        self.resume(None, owner=owner)

    def _meant(self, targets):
        return [
            tp
            for tp in self._consumer.assignment()
            if any(covers(target, tp) for target in targets)
        ]


@frozen
class _Placed:
    target: Target
    owner: str
    lift_at: float


class Holder:
    """Places and lifts holds of all levels and owners, a few at a time."""

    def __init__(self, consumer, chance, *, expires):
        self._consumer = consumer
        self._chance = chance
        self._expires = expires
        self._placed = []
        self._next = 0.0

    def turn(self, now):
        """Lift what is due, and place something now and then."""
        for one in [one for one in self._placed if one.lift_at <= now]:
            self._lift(one)
        if now >= self._next:
            self._next = now + self._chance.uniform(0.5, 4.0)
            if len(self._placed) < _AT_ONCE:
                self._place(now)

    def lift_all(self):
        for one in list(self._placed):
            self._lift(one)

    def _place(self, now):
        chance = self._chance
        target, owner = self._drawn(), chance.choice(OWNERS)
        one = _Placed(target, owner, now + chance.uniform(0.3, 6.0))
        there = {(other.target, other.owner) for other in self._placed}
        if (target, owner) in there or target == ():
            return
        limit = {}
        if self._expires and chance.random() < 0.2:
            limit["for_"] = chance.uniform(0.3, 3.0)
        self._placed.append(one)
        self._call("pause", one, **limit)

    def _lift(self, one):
        self._placed.remove(one)
        self._call("resume", one)

    def _call(self, op, one, **more):
        if one.target is None and op == "pause":
            self._consumer.pause_all(owner=one.owner, **more)
        elif one.target is None:  # not resume_all(): other holds of the owner stay
            self._consumer.resume("@all", owner=one.owner)
        else:
            call = getattr(self._consumer, op)
            call(one.target, owner=one.owner, **more)

    def _drawn(self):
        chance = self._chance
        level = chance.choices(list(_LEVELS), list(_LEVELS.values()))[0]
        if level == "partition":
            owned = sorted(self._consumer.assignment())
            return chance.choice(owned) if owned else ()
        if level == "topic":
            return chance.choice(TOPICS)
        if level == "pattern":
            return re.compile(chance.choice(_PATTERNS))
        return None
