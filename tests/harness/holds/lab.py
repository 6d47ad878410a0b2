"""Makes a ledger whose clock is set by a test, and logs the ledger's events."""

from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import APP, Lifetime
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.scope import Partition

A, B, C = ("orders", 0), ("orders", 1), ("audit", 0)
ORDERS = scopes.topic("orders")
AUDIT = scopes.topic("audit")
ALL = scopes.Everything()


class Clock:
    """
    A clock that a test sets.

    Attributes:
        now: the current time, in seconds.
        on_look: a function that is called whenever the clock is read.
    """

    def __init__(self):
        self.now = 1000.0
        self.on_look = None

    def __call__(self):
        if self.on_look is not None:
            self.on_look()
        return self.now


class EventLog:
    """A hook that stores all events it receives."""

    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)

    def of(self, kind):
        return [one for one in self.events if isinstance(one, kind)]

    def only(self, kind):
        """Return the only event of a kind; fail if there are none or several."""
        found = self.of(kind)
        message = f"{len(found)} {kind.__name__}, not one, among {self.names()}"
        assert len(found) == 1, message
        return found[0]

    def names(self):
        return [one.name for one in self.events]


def assign_to(ledger, partitions, cause=Cause.JOINED):
    """Assign partitions; partitions that stay assigned keep their ownership."""
    owned = ledger.owned()
    ledger.assign({tp: owned.get(tp, object()) for tp in partitions}, cause)


def is_locked(ledger):
    """Return whether any thread holds the ledger's lock."""
    return repr(ledger._lock).startswith("<locked")  # ``locked()`` needs Python 3.14


def handed(snapshot):
    """Return all partitions in a result of ``assignment()`` as scopes."""
    return [Partition(*tp) for tps in snapshot.values() for tp in sorted(tps)]


class LedgerLab:
    """One ledger with a clock, a log of its events, and optional further hooks."""

    def __init__(self, *hooks, owns=()):
        self.clock, self.log = Clock(), EventLog()
        self.ledger = PauseLedger(
            (self.log, *hooks),
            client_id="c",
            group_id="g",
            clock=self.clock,
            wall=lambda: 1.0,
        )
        self._assigned = None
        self._snapshot = {}
        self.assign(*owns)

    def assign(self, *partitions, cause=Cause.JOINED):
        assign_to(self.ledger, partitions, cause)
        self.ledger.deliver()

    def hold(self, *scopes, owner="app", **more):
        self.ledger.place(scopes, owner=owner, **more)

    def lift(self, *scopes, owner="app"):
        self.ledger.remove([(scope, owner) for scope in scopes])

    def pause(self, *scopes, snapshot=None, **more):
        """Place a plain pause; ``snapshot`` is a result of ``assignment()``."""
        named = [] if snapshot is None else [(one, snapshot) for one in scopes]
        self.hold(*scopes, lifetime=Lifetime.PLAIN, named=named, **more)

    def resume(self, *scopes):
        """Lift holds as the application's ``resume`` does."""
        keys = [(scope, APP) for scope in scopes]
        self.ledger.remove(keys, by_application=True)

    def assignment(self):
        """Return the assigned partitions by topic, as ``assignment()`` would."""
        assigned = self.ledger.view().assigned
        if self._assigned is not assigned:
            self._assigned = assigned
            self._snapshot = {topic: frozenset(tps) for topic, tps in assigned.items()}
        return self._snapshot

    def quiet(self):
        return set(self.ledger.quiet())

    def poll(self, *assignments):
        """
        Change the assignment to each of these in turn, all within one ``poll``.

        Returns:
            For each change, the partitions that were quiet after it.
        """
        self.ledger.begin_call()
        seen = []
        for one in assignments:
            assign_to(self.ledger, one)
            seen.append(self.quiet())
        self.ledger.end_call()
        self.ledger.deliver()
        return seen
