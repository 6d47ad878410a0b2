"""Plants faults in the product, each of which the judge must find."""

from contextlib import contextmanager

import pytest

from safeconsumer import SafeConsumer
from safeconsumer._kafka.hold_calls import HoldCalls
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import partition
from safeconsumer.holds.table import Table
from safeconsumer.worker import client, queue


def stale_answers_are_delivered(patch):
    """P9: fetch responses of an ended ownership are delivered in the next ownership."""
    patch.setattr(PauseSafeFetcher, "_is_stale", lambda _, state, __: state is None)


def pauses_end_with_their_partition(patch):
    """P6: a revoked partition loses its pauses, as in kafka-python."""
    apply = LedgerSubscription._apply_assignment

    def forgetful(self, *given, **more):
        before = set(self.assignment)
        apply(self, *given, **more)
        owners = {hold.owner for hold in self.ledger.view().holds}
        for tp in before - set(self.assignment):
            scope = partition(tp.topic, tp.partition)
            self.ledger.remove((scope, owner) for owner in owners)

    patch.setattr(LedgerSubscription, "_apply_assignment", forgetful)


def holds_count_from_the_next_poll(patch):
    """P1: a poll reads the holds when it starts, not after its last wait."""
    poll, quiet = SafeConsumer.poll, LedgerSubscription.quiet

    def early(self, *given, **more):
        self._subscription.seen_early = self._subscription.ledger.quiet()
        try:
            return poll(self, *given, **more)
        finally:
            self._subscription.seen_early = None

    def seen(self):
        early_view = getattr(self, "seen_early", None)
        return quiet(self) if early_view is None else early_view

    patch.setattr(SafeConsumer, "poll", early)
    patch.setattr(LedgerSubscription, "quiet", seen)
    patch.setattr(LedgerSubscription, "pin", lambda _: None)


def a_kept_partition_begins_again(patch):
    """P8: after a rebalance a kept partition starts at its committed offset."""
    apply = LedgerSubscription._apply_assignment

    def forgetting(self, partitions, **more):
        partitions = list(partitions)
        for tp in list(self.assignment)[:1]:
            if tp in partitions and self.assignment[tp].position is not None:
                self.assignment[tp]._position = None
        apply(self, partitions, **more)

    patch.setattr(LedgerSubscription, "_apply_assignment", forgetting)


def wide_holds_cover_no_gained_partition(patch):
    """P7: a partition that a poll gains is not quiet until that poll ends."""
    apply, poll = LedgerSubscription._apply_assignment, SafeConsumer.poll

    def uncovered(self, *given, **more):
        before = set(self.assignment)
        apply(self, *given, **more)
        self.ledger.fresh = {*getattr(self.ledger, "fresh", ())}
        self.ledger.fresh |= set(self.assignment) - before

    def polled(self, *given, **more):
        try:
            return poll(self, *given, **more)
        finally:
            self._subscription.ledger.fresh = set()

    quiet = PauseLedger.quiet

    def without_fresh(self):
        return quiet(self).difference(getattr(self, "fresh", ()))

    patch.setattr(LedgerSubscription, "_apply_assignment", uncovered)
    patch.setattr(SafeConsumer, "poll", polled)
    patch.setattr(PauseLedger, "quiet", without_fresh)


def records_that_a_late_hold_takes_back_are_lost(patch):
    """P8: records that a poll has read before a hold are not put back or fetched again."""

    def forget(_, __, state):
        state.before = None

    patch.setattr(PauseSafeFetcher, "_put_back", forget)


def holds_expire_early(patch):
    """P3: a timed hold ends after nine tenths of its time."""
    place = HoldCalls.place

    def shorter(self, *given, **how):
        if how["for_"] is not None:
            how["for_"] *= 0.9
        place(self, *given, **how)

    patch.setattr(HoldCalls, "place", shorter)


def held_partitions_are_fetched(patch):
    """P11: fetches include held partitions."""

    def every(self):
        return [tp for tp, one in self.assignment.items() if one.is_fetchable()]

    patch.setattr(LedgerSubscription, "fetchable_partitions", every)


def commits_include_a_record_that_is_not_delivered(patch):
    """P8: a commit includes one record more than was delivered."""
    consumed = LedgerSubscription.all_consumed_offsets

    def further(self):
        found = consumed(self)
        return {tp: at._replace(offset=at.offset + 1) for tp, at in found.items()}

    patch.setattr(LedgerSubscription, "all_consumed_offsets", further)


def new_owners_wait_for_no_group_hold(patch):
    """G2: an assigned partition is delivered before the control topics are read."""
    gating = Table.gating

    def open_at_once(self, what, **_):
        return gating(self, what, is_watched=False)

    patch.setattr(Table, "gating", open_at_once)


def owners_obey_no_group_hold(patch):
    """G1: no consumer applies the holds of the control topics."""
    patch.setattr(PauseLedger, "follow", lambda *_, **__: None)


def a_worker_commits_one_too_many(patch):
    """W4: a commit is one record ahead of the handled records."""
    offsets = client._offsets

    def ahead(marks):
        return {
            tp: one._replace(offset=one.offset + 1)
            for tp, one in offsets(marks).items()
        }

    patch.setattr(client, "_offsets", ahead)


def a_worker_handles_a_held_record(patch):
    """W10: a queued record is handled although a hold covers it by then."""
    patch.setattr(queue, "covers", lambda view, tp: not view.owns(tp))


OF_CONSUMERS, OF_GROUPS, OF_WORKERS = "consumers", "groups", "workers"
_KINDS = {
    OF_CONSUMERS: (
        stale_answers_are_delivered,
        pauses_end_with_their_partition,
        holds_count_from_the_next_poll,
        a_kept_partition_begins_again,
        wide_holds_cover_no_gained_partition,
        records_that_a_late_hold_takes_back_are_lost,
        holds_expire_early,
        held_partitions_are_fetched,
        commits_include_a_record_that_is_not_delivered,
    ),
    OF_GROUPS: (new_owners_wait_for_no_group_hold, owners_obey_no_group_hold),
    OF_WORKERS: (a_worker_commits_one_too_many, a_worker_handles_a_held_record),
}
PLANTS = {
    plant.__name__: (plant, kind) for kind, plants in _KINDS.items() for plant in plants
}


@contextmanager
def planted(name):
    """Break the product for the length of a block; None breaks nothing."""
    with pytest.MonkeyPatch.context() as patch:
        if name is not None:
            plant, _ = PLANTS[name]
            plant(patch)
        yield
