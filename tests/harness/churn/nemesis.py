"""Draws random calls and faults for a group for some time, and then repairs everything."""

from math import inf


class Nemesis:
    """
    Draws random calls and faults; a subclass for each world carries them out.

    In the simulated world all seconds are virtual. Each method in ``weights()`` carries
    out one call or fault.

    Attributes:
        rng: the generator of all random draws.
        members: the running members that have not been stopped.
        leaving: the members that have been stopped but may still run.
        operator: the operator that holds the group, or None.
        faults: the number of faults so far, if the world counts them.
        every: the mean time between two events.
        at_first: the number of members at the start.
        fewest: the minimum number of members: with so few, no member leaves or is
            killed.
        most: the largest number of members.
        owners: the owners of holds.
        limits: the durations of holds; None for no limit.
        blocks: the durations of ``with`` blocks that hold a scope.
        naps: the durations for which a program does not poll.
        freezes: the durations for which a process is frozen.
        brokers: the number of brokers.
        failures: the ways in which a broker can fail.
        failing: the durations of broker failures.
        group_scopes: the scopes of the operator's holds.
    """

    operator = None
    faults = 0
    at_first = fewest = 1
    brokers = 3

    def __init__(self, rng):
        self.rng = rng
        self.members, self.leaving = [], []

    def run(self, seconds, faults=inf):
        """Draw events until the seconds or the faults are used up; then repair everything."""
        end = self.now + seconds
        weights = self.weights()
        for _ in range(self.at_first):
            self.join()
        while self.now < end and self.faults < faults:
            self.sleep(self.rng.expovariate(1 / self.every))
            self.forget_ended()
            (event,) = self.rng.choices(list(weights), list(weights.values()))
            (event if self.members else self.join)()
        self._repair()

    def _repair(self):
        """Heal all faults, and let all members and the operator lift their holds."""
        self.heal()
        for one in [*self.members, *self.leaving]:
            one.is_calm = True
        if self.operator is not None:
            self.operator.call("lift_all")
        self.forget_ended()
        self.join()
        for one in self.members:
            self.calm(one)

    def one(self):
        return self.rng.choice(self.members)

    # Members that join and leave

    def join(self):
        if len(self.members) < self.most:
            self.members.append(self.started())

    def leave(self):
        if len(self.members) > self.fewest:
            one = self.one()
            self.members.remove(one)
            self.leaving.append(one)
            self.stop(one)

    def kill(self):
        if len(self.members) > self.fewest:
            one = self.one()
            self.members.remove(one)
            self.end_at_once(one)

    def freeze(self):
        self.freeze_for(self.one(), self.rng.choice(self.freezes))

    # Calls of programs

    def within(self, one, method, *given):
        """Let a member make a call, either on another thread or between two polls."""
        if not one.is_worker and self.rng.random() < 0.5:
            one.call(method, *given)
        else:
            one.call_beside(method, *given)

    def pause(self):
        """Place a hold for a random owner, perhaps with a time limit."""
        one, owner, scope = self.one(), self.rng.choice(self.owners), self.scope()
        seconds = self.rng.choice(self.limits)
        if not one.is_calm:
            self.within(one, "pause", owner, scope, seconds)

    def resume(self):
        one = self.one()
        if one.holds:
            self.within(one, "resume", *self.rng.choice(one.holds))

    def held(self):
        """Hold a scope in a ``with`` block on another thread."""
        one, scope = self.one(), self.scope()
        one.call_beside("hold_for_a_block", scope, self.rng.choice(self.blocks))

    def nap(self):
        """Delay a member's next poll, perhaps beyond max.poll.interval.ms."""
        one, seconds = self.one(), self.rng.choice(self.naps)
        one.call("nap", seconds)

    # The operator and the brokers

    def group_hold(self):
        self.operator.call("hold", self.rng.choice(self.group_scopes))

    def group_lift(self):
        self.operator.call("lift_all")

    def broker_fails(self):
        """Let a broker fail for a while, unless another broker is failing already."""
        # Draw the values even if they are not used: the state of real brokers depends
        # on the machine, but the sequence of draws must not.
        number = self.rng.randint(1, self.brokers)
        how, seconds = self.rng.choice(self.failures), self.rng.choice(self.failing)
        if self.are_brokers_well():
            self.fail_broker(number, how, seconds)
