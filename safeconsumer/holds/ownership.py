"""Numbers ownerships, and finds what a new assignment changed."""

from collections.abc import Iterable, Mapping

from attrs import field, frozen

from safeconsumer.holds.scope import TopicPartition
from safeconsumer.holds.view import PauseView

PartitionsOf = frozenset[TopicPartition]


@frozen
class Ownership:
    """
    The owned partitions, each with the epoch in which its ownership began.

    An epoch is never used twice, so requests of an earlier ownership of the same
    partition can be distinguished from those of this one.
    """

    epochs: Mapping[TopicPartition, int] = field(factory=dict)
    next_epoch: int = 1


@frozen
class Reassignment:
    """
    What a new assignment changed.

    Attributes:
        kept: owned before and after, without a gap.
        gained: owned from now on.
        departed: no longer owned.
    """

    kept: PartitionsOf = frozenset()
    gained: PartitionsOf = frozenset()
    departed: PartitionsOf = frozenset()


def reassign(
    ownership: Ownership, assignment: Iterable[TopicPartition]
) -> tuple[Ownership, Reassignment]:
    """
    Move to a new assignment.

    Kept partitions keep their epoch, gained ones get a new one.
    """
    after = tuple(dict.fromkeys(assignment))
    before = ownership.epochs
    epoch = ownership.next_epoch
    gained = frozenset(tp for tp in after if tp not in before)
    if not gained and len(after) == len(before):
        return ownership, Reassignment(kept=frozenset(before))
    change = Reassignment(
        kept=frozenset(tp for tp in after if tp in before),
        gained=gained,
        departed=frozenset(before).difference(after),
    )
    epochs = {tp: before.get(tp, epoch) for tp in after}
    return Ownership(epochs, epoch + bool(gained)), change


@frozen
class Snapshot:
    """
    What was owned and quiet when a join was prepared.

    Attributes:
        version: the ledger's version at that moment.
        epochs: the owned partitions with their epochs.
        quiet: the owned partitions that a hold or a gate covered.
        held: the quiet partitions that a hold covered; a gate opens by itself.
    """

    version: int
    epochs: Mapping[TopicPartition, int]
    quiet: PartitionsOf
    held: PartitionsOf


def snapshot(view: PauseView, ownership: Ownership) -> Snapshot:
    """Remember the state that must be the same again when the join completes."""
    quiet = frozenset(view.quiet)
    gated = quiet.intersection(view.gates)
    held = quiet - frozenset(tp for tp in gated if not view.state.covers(tp))
    return Snapshot(view.state.version, ownership.epochs, quiet, held)


@frozen
class Outcome:
    """
    How a join ended, compared with the state when it was prepared.

    Attributes:
        kept: owned without a gap.
        gained: owned now, but not before, or with a gap between.
        revoked: no longer owned, given up in a regular rebalance.
        lost: taken away while the membership was lost, regained or not.
        woken: kept and held before, flowing now, though no hold was lifted: a
            defect of this package.
    """

    kept: PartitionsOf
    gained: PartitionsOf
    revoked: PartitionsOf
    lost: PartitionsOf
    woken: PartitionsOf


def compare(
    before: Snapshot, view: PauseView, ownership: Ownership, lost: PartitionsOf
) -> Outcome:
    """Find what a completed join changed, and whether a pause was forgotten."""
    now = ownership.epochs
    kept = frozenset(tp for tp in now if before.epochs.get(tp) == now[tp])
    gone = frozenset(tp for tp in before.epochs if tp not in now)
    unasked = view.state.version == before.version
    return Outcome(
        kept=kept,
        gained=frozenset(now) - kept,
        revoked=gone - lost,
        lost=lost,
        woken=frozenset(tp for tp in kept & before.held if tp not in view.quiet)
        if unasked
        else frozenset(),
    )
