"""Compares the ledger with a model of the contract over random histories."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeconsumer import events
from safeconsumer.holds.hold import APP, Hold, Lifetime
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.scope import Everything, Partition, Pattern, Topic
from safeconsumer.holds.view import Holds
from tests.harness.holds.lab import LedgerLab, assign_to, handed
from tests.unit.holds.naive import NEVER, PLAIN, NaiveLedger, Terms, covers
from tests.unit.holds.strategies import (
    PARTITIONS,
    assignments,
    known_scopes,
    lifetimes,
    limits,
    owners,
    quick,
    reasons,
    single_scopes,
)

_RANK = (Partition, Topic, Pattern, Everything)


class Both:
    """A ledger and its naive model; both execute each step, and then are compared."""

    def __init__(self, *, is_watched):
        self.lab, self.naive = LedgerLab(), NaiveLedger()
        self.naive.now = self.lab.clock.now
        self.gained = {}
        self.naive.is_watched = is_watched
        if is_watched:
            self.lab.ledger.watch(self.gained.update)
        self.unseen = 0.0
        self.snapshots = [{}]
        self.views = []
        self.reported = {}  # the holds in force according to the events

    # ------------------------------------------------------------ steps

    def place(  # noqa: PLR0913, PLR0917 - pause() has these arguments
        self, scopes, owner, reason, for_, lifetime, snapshot=None
    ):
        if lifetime is PLAIN and owner != APP:
            lifetime = Lifetime.UNTIL_RESUMED
        named = [] if snapshot is None else [(one, snapshot) for one in scopes]
        self.lab.ledger.place(
            scopes,
            owner=owner,
            reason=reason,
            for_=for_,
            lifetime=lifetime,
            named=named,
        )
        until = NEVER if for_ is None else self.naive.now + for_
        terms = Terms(lifetime, reason, until)
        if scopes:
            self.naive.place(scopes, owner, terms, snapshot)

    def place_handed(self, back, chosen, for_, *, topics_of):
        """Pause partitions that ``assignment()`` returned now or earlier, or their topics."""
        snapshot = self.snapshots[-1 - back % len(self.snapshots)]
        names = {one.topic for one in chosen if topics_of}
        scopes = [
            one for one in handed(snapshot) if one in chosen or one.topic in names
        ]
        self.place(scopes, APP, None, for_, PLAIN, snapshot)

    def remove(self, scopes, owner, *, by_application=True):
        named = [(one, owner) for one in scopes]
        by_application = by_application and owner == APP
        self.lab.ledger.remove(named, by_application=by_application)
        self.naive.remove(named, by_application=by_application)

    def remove_owner(self, owner):
        self.lab.ledger.remove_owner(owner)
        self.naive.remove_owner(owner)

    def pass_time(self, seconds):
        self.lab.clock.now += seconds
        self.naive.expire(self.lab.clock.now)

    def pass_time_before_the_next(self, seconds):
        self.unseen = seconds

    def assign(self, new, cause):
        if cause.is_passing:
            new = [tp for tp in new if tp in self.naive.assigned]
        if cause is Cause.UNSUBSCRIBED or (cause is Cause.ASSIGNED and not new):
            new, cause = [], Cause.UNSUBSCRIBED
        if cause is Cause.CLOSED:
            new = []
        assign_to(self.lab.ledger, new, cause)
        self.naive.assign(set(new), cause)
        assigned = self.lab.ledger.view().assigned
        self.snapshots.append({name: frozenset(tps) for name, tps in assigned.items()})

    def poll(self):
        if self.naive.in_call:
            self.lab.ledger.end_call()
            self.naive.end()
        else:
            self.naive.begin()
            is_gating = self.lab.ledger.begin_call()
            assert is_gating == (self.naive.gating is not None)

    def subscription_changed(self):
        self.lab.ledger.subscription_changed()
        self.naive.subscription_changed()

    def read(self):
        self.lab.ledger.open_gates(self.gained)
        self.naive.unread = set()

    # ------------------------------------------------------------ comparing

    def step(self, step):
        before, seen = self.naive.quiet(), len(self.lab.log.events)
        owned = self.lab.ledger.owned()
        self.lab.clock.now += self.unseen  # the ledger's step first reads the clock
        self.naive.expire(self.lab.clock.now)
        self.unseen = 0.0
        step(self)
        ledger, naive = self.lab.ledger, self.naive
        view = ledger.view()
        ledger.deliver()
        assert _terms_of(view.holds) == naive.holds
        assert view.quiet == naive.quiet() == ledger.quiet()
        # ``__next__`` uses ``settled`` to avoid reading the clock.
        expires = ledger.seconds_to_next_expiry() < math.inf
        assert ledger.settled == (None if expires else view.quiet)
        assert set(view.gates) == naive.gated | naive.unread
        assert set(view.partitions()) == naive.assigned
        for tp in PARTITIONS:
            covering = view.holds.covering(tp)
            assert {one.key for one in covering} == naive.covering(tp)
            assert view.holds.covers(tp) == bool(covering)
            ranks = [_RANK.index(type(one.scope)) for one in covering]
            assert ranks == sorted(ranks)  # narrowest first
        self.views.append((view, naive.holds.copy(), naive.quiet()))
        self._check_events(self.lab.log.events[seen:], before, dict(owned))

    def _check_events(self, new, before, owned):
        # P14: the events report exactly the changes, in their order.
        now = self.lab.ledger.owned()
        kept = {tp for tp in owned if owned[tp] == now.get(tp)}
        quiet = set(before)
        for event in new:
            became, flows = getattr(event, "quiet", ()), getattr(event, "flowing", ())
            assert not quiet.intersection(became)
            quiet.update(became)
            assert quiet.issuperset(flows)
            quiet.difference_update(flows)
            if isinstance(event, events.HoldsPlaced):
                self.reported |= _terms_of(event.holds)
            elif isinstance(
                event, events.HoldsRemoved | events.HoldsExpired | events.HoldsEnded
            ):
                for hold in event.holds:
                    del self.reported[hold.key]
        assert self.reported == self.naive.holds
        assert quiet & kept == self.naive.quiet() & kept


def _terms_of(several):
    return {
        one.key: Terms(
            one.lifetime, one.reason, NEVER if one.deadline is None else one.deadline
        )
        for one in several
    }


def _step(name, *args, **more):
    def call(both):
        getattr(both, name)(*args, **more)

    call.__qualname__ = f"{name}({args}, {more})"
    return call


def _steps(name, *args, **more):
    return st.builds(_step, st.just(name), *args, **more)


_some = st.lists(known_scopes, max_size=3, unique=True)
_singles = st.lists(single_scopes, min_size=1, max_size=4, unique=True)
_handed = _steps(
    "place_handed",
    st.sampled_from((0, 0, 0, 1, 2)),
    _singles,
    limits,
    topics_of=st.booleans(),
)
_resumes = _steps("remove", _some, st.just(APP))

steps = st.one_of(
    _handed,
    _handed,
    _steps("place", _some, owners, reasons, limits, lifetimes),
    _steps("place", _singles, st.just(APP), reasons, limits, st.just(PLAIN)),
    _resumes,
    _steps("remove", _some, owners, by_application=st.booleans()),
    _steps("remove_owner", owners),
    _steps("pass_time", st.integers(1, 4).map(float)),
    _steps("pass_time_before_the_next", st.integers(1, 4).map(float)),
    _steps("assign", assignments, st.sampled_from(Cause)),
    _steps("assign", assignments, st.just(Cause.JOINED)),
    _steps("assign", st.just([]), st.sampled_from([Cause.PASSING, Cause.LOST])),
    _steps("poll"),
    _steps("poll"),
    _steps("subscription_changed"),
    _steps("read"),
)


@pytest.mark.contract("P2", "P3", "P6", "P7", "P14")
@settings(max_examples=400, deadline=None)
@given(several=st.lists(steps, max_size=14), is_watched=st.booleans())
def test_ledger_equals_the_naive_model_after_every_step(several, *, is_watched):
    """Holds, quiet partitions, gates and events are equal, and old views never change."""
    check_history(several, is_watched=is_watched)


@pytest.mark.nightly
@settings(max_examples=5_000, deadline=None)
@given(several=st.lists(steps, max_size=20), is_watched=st.booleans())
def test_ledger_equals_the_naive_model_over_long_histories(several, *, is_watched):
    check_history(several, is_watched=is_watched)


def check_history(several, *, is_watched):
    both = Both(is_watched=is_watched)
    for step in several:
        both.step(step)
    for view, held, quiet in both.views:
        assert _terms_of(view.holds) == held
        assert view.quiet == quiet


@quick
@given(st.lists(known_scopes, max_size=8, unique=True), known_scopes)
def test_overlapping_finds_holds_with_equal_narrower_and_wider_scopes(placed, scope):
    """``overlapping`` finds a pattern for another pattern only if their texts are equal."""
    found = {one.scope for one in Holds(map(_held, placed)).overlapping(scope)}
    assert set(placed).intersection({scope, Everything()}) <= found
    for one in placed:
        covered = {tp for tp in PARTITIONS if covers(one, tp)}
        meets = any(covers(scope, tp) for tp in covered)
        if not isinstance(one, Pattern) or not isinstance(scope, Pattern):
            assert not meets or one in found


def _held(scope):
    return Hold(scope=scope)
