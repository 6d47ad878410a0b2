"""
Compares where ownerships began with what had been committed, for A4 and A6.

It also judges commits for A5 that need the entries of other members.

Members are on several hosts, so the group's generations decide which of two ownerships
was earlier, not clocks: a broker accepts commits of a generation only until the next
one has begun. Where a generation is not known these checks are not judged.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from attrs import define, evolve, field, frozen

from safeconsumer.audit.findings import Address, Basis, Finding
from safeconsumer.audit.ownerships import Commits, Epoch


@frozen
class Start:
    """
    An ownership, and the offsets that may have been committed when it began.

    Attributes:
        epoch: the ownership.
        before: the last one before it in which records came; None if there was none.
        low: the lowest offset that may have been committed last.
        high: the highest offset that may have been.
        delivered: the offset after everything that had been delivered.
        was_anothers: whether another member had it since the one before.
    """

    epoch: Epoch
    before: Epoch | None
    low: int
    high: int
    delivered: int
    was_anothers: bool = False


def basis_of(epochs: Iterable[Epoch]) -> Basis:
    """Return the evidence for which of a case's ownerships was earlier."""
    is_alone = len({one.member for one in epochs}) <= 1
    return Basis.ORDER if is_alone else Basis.GENERATIONS


def unordered(epochs: Iterable[Epoch], strays: Iterable[Commits], skew: float) -> str:
    """
    Return why it is not known which of several members' ownerships was earlier.

    Args:
        epochs: all ownerships; those of each member in order.
        strays: commits of members that never had the partition.
        skew: seconds by which clocks may differ.

    Returns:
        The reason; "" if the order is known, or if nobody has committed anything.
    """
    epochs = [one for one in epochs if one.was_assigned]
    if len({one.member for one in epochs}) <= 1:
        return ""
    if not any(one.offset for one in (*strays, *(one.commits for one in epochs))):
        return ""
    for one in epochs:
        if not one.is_numbered:
            return f"the journal of {one.member} does not name the group's generations"
    for rank in _ranks(epochs):
        committed = {one.member for one in rank if one.has_committed}
        if committed and len({one.member for one in rank}) > 1:
            return (
                f"several members had it in generation {rank[0].generation}: a static "
                "member that starts again keeps its generation"
            )
    # A group that was deleted counts from one again, and has lost its commits.
    over = math.inf
    for rank in reversed(_ranks(epochs)):
        for one in rank:
            if one.has_committed and one.at > over + skew:
                return (
                    f"{one.member} committed in generation {one.generation} when larger "
                    "ones were over: the group was deleted and made again, or a clock "
                    "is wrong"
                )
        ended = max(one.over for one in rank)
        over = ended if over == math.inf else max(over, ended)
    return ""


def wrong_starts(
    case: Address, starts: Iterable[Start], basis: Basis
) -> Iterator[Finding]:
    """Yield ownerships that began after or before the committed offset (A4, A6)."""
    for start in starts:
        epoch = start.epoch
        if not epoch.runs or epoch.was_sought or _is_kept(start):
            continue
        at = epoch.runs[0].start
        stood = at if epoch.began_at is None else epoch.began_at
        if at > start.high and stood > start.high:
            said = f"an ownership began at {at}, {start.low} was committed"
            yield _finding("A4", case, epoch, start.low, said, _basis_of(start, basis))
        elif at < start.low and at < start.delivered:
            said = f"began again at {at}, {start.low} was committed"
            yield _finding("A6", case, epoch, at, said, _basis_of(start, basis))


def wrong_commits(
    case: Address, starts: Iterable[Start], basis: Basis
) -> Iterator[Finding]:
    """Yield commits below the committed offset, or above it without a delivery (A5)."""
    for start in starts:
        epoch = start.epoch
        if epoch.sure is None or not epoch.was_assigned:
            continue
        least, most = epoch.sure
        if least < start.low:
            said = f"committed {least}, {start.low} was committed before"
            yield _finding("A5", case, epoch, least, said, _basis_of(start, basis))
        elif not epoch.runs and most > max(
            start.high, _kept_end(start), *epoch.deleted.ends
        ):
            said = f"committed {most}, {start.high} was, and nothing came since"
            yield _finding("A5", case, epoch, most, said, _basis_of(start, basis))


def _basis_of(start: Start, basis: Basis) -> Basis:
    # One process's journal proves that nobody else had the partition in between if it
    # was given back at once; otherwise all journals are needed.
    before, epoch = start.before, start.epoch
    if before is not None and before.owned_since == epoch.owned_since:
        return basis
    return Basis.GENERATIONS


def _kept_end(start: Start) -> int:
    before = start.before
    if before is None or before.member != start.epoch.member or before.was_lost:
        return -1
    return -1 if start.was_anothers else before.runs[-1].end


def _is_kept(start: Start) -> bool:
    # A partition that a rebalance gives back continues at its position, committed or
    # not. After a loss its work may have been dropped.
    return _kept_end(start) == start.epoch.runs[0].start


# ---------------------------------------------------------------- generations


@frozen
class _Range:
    """The lowest and the highest offset of some commits."""

    least: int | None = None
    most: int = -1

    def joined(self, several: Iterable[Commits]) -> "_Range":
        least, most = self.least, self.most
        for one in several:
            sure = one.least
            least = (
                sure if least is None else min(least, least if sure is None else sure)
            )
            most = max(most, one.most)
        return _Range(least, most)


@define
class _Known:
    """The known state of everything earlier."""

    low: int | None = None
    most: int = -1
    delivered: int = -1
    before: Epoch | None = None
    # Whose the earlier ones were: all, and those since records came last.
    ever: set[str] = field(factory=set)
    since: set[str] = field(factory=set)

    def start(self, epoch: Epoch, maybe: _Range, rank: Sequence[Epoch]) -> Start | None:
        """Return the start of an ownership; None if nothing is known to be committed."""
        if self.low is None or not (epoch.runs or epoch.sure):
            return None
        owners = self.ever if self.before in rank else self.since
        return Start(
            epoch,
            self.before,
            self.low if maybe.least is None else min(self.low, maybe.least),
            max(self.most, maybe.most),
            self.delivered,
            was_anothers=self.before is not None and bool(owners - {epoch.member}),
        )

    def ran(self, epoch: Epoch) -> None:
        """Add the deliveries and commits of an ownership."""
        if epoch.runs:
            self.before = epoch
            self.delivered = max(self.delivered, *(run.end for run in epoch.runs))
        before = -1 if epoch.was_reset and epoch.has_committed else self.most
        self.most = max(before, epoch.commits.most)

    def over(self, rank: Sequence[Epoch], lasts: Iterable[int]) -> None:
        """Add what is known once a generation is over."""
        self.low = min(lasts, default=self.low)
        members = {one.member for one in rank}
        self.ever |= members
        self.since = set() if self.before in rank else self.since | members


def starts_of(epochs: Sequence[Epoch], strays: Sequence[Commits]) -> Iterator[Start]:
    """
    Yield the ownerships before which something is known to be committed.

    Args:
        epochs: all ownerships, in an order that is known (:func:`unordered`); those of
            each member in order.
        strays: commits of members that never had the partition.
    """
    is_alone = basis_of(epochs) is Basis.ORDER
    ranks = _ranks([one for one in epochs if one.was_assigned])
    loose = [*strays, *(one.commits for one in epochs if not one.was_assigned)]
    # What may have been committed in any later generation.
    later = [_Range().joined(loose)]
    for rank in reversed(ranks):
        later.append(later[-1].joined(one.commits for one in rank))
    later.reverse()
    known = _Known()
    for number, rank in enumerate(ranks):
        lasts: dict[str, int] = {}
        for epoch in rank:
            # A member that was frozen or cut off may continue in a generation that is
            # over, and read what later ones committed, until it learns this: no client
            # can know (contract, N). It cannot commit there, and loses its partitions.
            is_in_time = is_alone or epoch.has_committed or epoch.was_revoked
            maybe = later[-1] if is_in_time else later[number + 1]
            others = (one.commits for one in rank if one.member != epoch.member)
            own = evolve(known, low=lasts.get(epoch.member, known.low))
            start = own.start(epoch, maybe.joined(others), rank)
            if start is not None:
                yield start
            known.ran(epoch)
            lowest = epoch.commits.lowest(own.low)
            if lowest is not None and epoch.commits.offset:
                lasts[epoch.member] = lowest
        known.over(rank, lasts.values())


def _ranks(epochs: Sequence[Epoch]) -> list[list[Epoch]]:
    # The journal of one process gives the order, whatever the generations were.
    if len({one.member for one in epochs}) <= 1:
        return [[one] for one in epochs]
    ranked = sorted(epochs, key=attrgetter("generation"))
    return [list(own) for _, own in groupby(ranked, key=attrgetter("generation"))]


def _finding(  # noqa: PLR0913, PLR0917 - one parameter per field
    check: str, case: Address, epoch: Epoch, offset: int, evidence: str, basis: Basis
) -> Finding:
    return Finding(
        check=check,
        case=case,
        member=epoch.member,
        offset=offset,
        evidence=evidence,
        basis=basis,
        at=epoch.delivered_at,
    )
