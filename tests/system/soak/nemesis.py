"""Draws faults by a seed, carries them out, heals them, and journals each."""

import random
import time

from attrs import frozen

from tests.system.soak.fleet import FEWEST, MOST

_AT_ONCE = 3
_PAUSE = (2.0, 5.0)  # seconds between two faults


@frozen
class Kind:
    """A kind of fault: its probability, and the seconds until it is healed."""

    weight: int
    seconds: tuple[float, float]


# A broker's start costs much, so its faults are rare; faults that make the group
# rebalance are common.
KINDS = {
    "kill": Kind(12, (0.0, 3.0)),
    "freeze": Kind(11, (1.0, 15.0)),
    "join": Kind(19, (4.0, 15.0)),
    "leave": Kind(19, (0.5, 5.0)),
    "broker_kill": Kind(3, (0.0, 3.0)),
    "broker_freeze": Kind(3, (1.0, 8.0)),
}


@frozen(eq=False)
class Fault:
    """
    A fault that is not healed.

    Attributes:
        steps: a generator: its first step was the harm, the others heal.
    """

    number: int
    target: str
    heal_at: float
    steps: object


class Nemesis:
    """
    Carries out the faults of a seed. Call :meth:`turn` often; it does not wait.

    Thread rules: one thread.

    Attributes:
        total: how many faults there were.
        open: those that are not healed.
    """

    def __init__(self, cluster, fleet, journal, seed):
        self.total = 0
        self.open = []
        self._cluster, self._fleet, self._journal = cluster, fleet, journal
        self._rng = random.Random(f"faults {seed}")  # noqa: S311 - to be repeated
        self._next = time.monotonic() + self._rng.uniform(*_PAUSE)

    def turn(self):
        """Heal the faults that are due, then start the next one if it is time."""
        now = time.monotonic()
        self._heal(now)
        if now < self._next or len(self.open) >= _AT_ONCE:
            return
        # The same draws for each fault, whether it has a target or not.
        weights = [kind.weight for kind in KINDS.values()]
        (kind,) = self._rng.choices(list(KINDS), weights)
        seconds = round(self._rng.uniform(*KINDS[kind].seconds), 2)
        pause, pick = self._rng.uniform(*_PAUSE), self._rng.random()
        targets = self._targets(kind)
        if targets:
            self._next = now + pause
            self._begin(kind, targets[int(pick * len(targets))], seconds)

    def _targets(self, kind):
        busy = {one.target for one in self.open}
        members, brokers = (
            self._fleet.members,
            [one.name for one in self._cluster.nodes],
        )
        if kind.startswith("broker"):
            # One broker at a time: the others have every record.
            is_whole = busy.isdisjoint(brokers) and self._cluster.are_in_sync()
            return brokers if is_whole else []
        if kind == "join":
            return [self._fleet.new_name()] if len(members) < MOST else []
        if kind == "leave" and len(members) <= FEWEST:
            return []
        return sorted(members.keys() - busy)

    def _begin(self, kind, target, seconds):
        self.total += 1
        steps = getattr(self, f"_{kind}")(target)
        next(steps)
        fields = {"kind": kind, "targets": [target], "seconds": seconds}
        self._journal.write("fault", {"id": self.total, **fields})
        self.open.append(Fault(self.total, target, time.monotonic() + seconds, steps))

    def _heal(self, now):
        for one in list(self.open):
            if now >= one.heal_at and next(one.steps, "healed") == "healed":
                self.open.remove(one)
                self._journal.write("heal", {"id": one.number})

    def heal_all(self):
        """Heal all faults, and wait for it."""
        while self.open:
            self._heal(float("inf"))
            time.sleep(0.05)

    # The kinds: the code before the first yield harms, the code after it heals.

    def _kill(self, name):
        self._fleet.kill(name)
        yield
        self._fleet.start(name)

    def _freeze(self, name):
        process = self._fleet.members[name]
        process.freeze()
        yield
        process.thaw()

    def _join(self, name):
        self._fleet.start(name)
        yield
        self._fleet.leave(name)

    def _leave(self, name):
        self._fleet.leave(name)
        yield
        self._fleet.start(name)

    def _broker_kill(self, name):
        node = self._cluster.named(name)
        node.kill()
        yield
        started = self._cluster.later(node.restart)
        while not started.done():
            yield
        started.result()

    def _broker_freeze(self, name):
        node = self._cluster.named(name)
        node.freeze()
        yield
        node.unfreeze()
