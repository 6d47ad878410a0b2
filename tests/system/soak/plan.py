"""What the nemesis will do: faults drawn by a seed, before anybody knows what there is."""

import random

from attrs import frozen

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
