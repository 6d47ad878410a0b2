"""Hurts, and heals: faults as they were drawn, a few at a time, each told in a journal."""

import random
import time
from concurrent.futures import Future

from attrs import define, frozen

from tests.system.soak.faults import Fault

_AT_ONCE = 3

# How likely each kind is. What costs a broker's start is rare; what makes the group
# rebalance is common.
WEIGHTS = {
    "kill": 12,
    "freeze": 11,
    "join": 19,
    "leave": 19,
    "broker-kill": 3,
    "broker-freeze": 3,
}

_PAUSE = (2.0, 5.0)
_SECONDS = {
    "kill": (0.0, 3.0),
    "freeze": (1.0, 15.0),
    "join": (4.0, 15.0),
    "leave": (0.5, 5.0),
    "broker-kill": (0.0, 3.0),
    "broker-freeze": (1.0, 8.0),
}


@frozen(kw_only=True)
class Draw:
    number: int  # counted from 1
    pause: float  # seconds after the one before
    kind: str  # which fault
    seconds: float  # how long it lasts, 0 if it is over at once
    pick: float  # from 0 to 1: which of the targets there will be

    def of(self, targets):
        """Return one of the targets; None if there is none."""
        return targets[int(self.pick * len(targets))] if targets else None


def draws(seed):
    """Yield faults for ever, the same for the same seed."""
    chance = random.Random(f"faults {seed}")  # noqa: S311 - to be repeated, not secret
    number = 0
    while True:
        number += 1
        kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        yield Draw(
            number=number,
            pause=round(chance.uniform(*_PAUSE), 2),
            kind=kind,
            seconds=round(chance.uniform(*_SECONDS.get(kind, (0.0, 0.0))), 2),
            pick=chance.random(),
        )


@define
class _Open:
    number: int
    fault: Fault
    heal_at: float
    healing: "Future[object] | None" = None


class Nemesis:
    """
    Carries out the plan of a seed. Call :meth:`turn` often; it does not wait.

    Thread rules: one thread.
    """

    def __init__(self, stage, journal, seed, now):
        self._stage = stage
        self._journal = journal
        self._plan = draws(seed)
        self._draw = next(self._plan)
        self._next = now + self._draw.pause
        self._open = []
        self.faults = {}  # how many there were, by kind

    @property
    def total(self):
        return sum(self.faults.values())

    def turn(self, now):
        """Heal what is due, then do the next fault if it is time."""
        self._heal(now)
        if now < self._next or len(self._open) >= _AT_ONCE:
            return
        draw, self._draw = self._draw, next(self._plan)
        self._next = now + self._draw.pause
        fault = self._stage.begin(draw)
        if fault is None:
            # Nothing to hurt in this way: another one is due at once.
            self._next = now
            return
        self._begin(draw, fault, now)

    def _begin(self, draw, fault, now):
        self.faults[draw.kind] = self.faults.get(draw.kind, 0) + 1
        self._stage.busy.add(fault.target)
        said = {"kind": draw.kind, "targets": [fault.target], "seconds": draw.seconds}
        self._journal.write("fault", {"id": draw.number, **said})
        self._open.append(_Open(draw.number, fault, now + draw.seconds))

    def _heal(self, now):
        for one in list(self._open):
            if one.healing is not None:
                if one.healing.done():
                    one.healing.result()
                    self._healed(one)
            elif now >= one.heal_at:
                self._begin_to_heal(one)

    def _begin_to_heal(self, one):
        if one.fault.is_slow:
            one.healing = self._stage.cluster.later(one.fault.heal)
        else:
            one.fault.heal()
            self._healed(one)

    def _healed(self, one):
        self._open.remove(one)
        self._stage.busy.discard(one.fault.target)
        self._journal.write("heal", {"id": one.number})

    def heal_all(self):
        """Take back everything that is not healed yet, and wait for it."""
        while self._open:
            self._heal(float("inf"))
            time.sleep(0.05)
