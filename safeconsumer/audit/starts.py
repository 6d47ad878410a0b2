"""
Compares where ownerships began with what had been committed, for A4 and A6.

It also judges commits for A5 that need the entries of other members.

Members are on several hosts, so the group's generations decide which of two ownerships
was earlier, not clocks: a broker accepts commits of a generation only until the next
one has begun. If no generation is known, clocks are compared, and events within the
allowance may have happened in either order: a start is wrong only if it is wrong in
both orders.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, groupby

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
        may_be_anew: whether the group counts its generations from the start again, and
            reads from its very beginning: its commits may be gone, as they are when a
            group is deleted. That looks the same as a group that lost them.
    """

    epoch: Epoch
    before: Epoch | None
    low: int
    high: int
    delivered: int
    was_anothers: bool = False
    may_be_anew: bool = False


def basis_of(epochs: Iterable[Epoch]) -> Basis:
    """Return the evidence for which of a case's ownerships was earlier."""
    epochs = list(epochs)
    if len({one.member for one in epochs}) <= 1:
        return Basis.ORDER
    assigned = [one for one in epochs if one.was_assigned]
    is_known = assigned and all(one.is_numbered for one in assigned)
    return Basis.GENERATIONS if is_known else Basis.CLOCKS


def _basis_of(start: Start, basis: Basis) -> Basis:
    # One process's journal proves that nobody else had the partition in between if it
    # was given back at once; otherwise all journals are needed.
    before, epoch = start.before, start.epoch
    if basis is not Basis.ORDER:
        return basis
    if before is not None and before.owned_since == epoch.owned_since:
        return basis
    return Basis.GENERATIONS if epoch.is_numbered else Basis.CLOCKS


def starts_of(
    epochs: Sequence[Epoch], strays: Sequence[Commits], skew: float
) -> list[Start]:
    """
    Return the ownerships before which something is known to be committed.

    Args:
        epochs: all ownerships; those of each member in order.
        strays: commits of members that never had the partition.
        skew: seconds by which clocks may differ.
    """
    if basis_of(epochs) is Basis.CLOCKS:
        return list(_by_clocks(epochs, strays, skew))
    return list(_by_generations(epochs, strays, skew))


def wrong_starts(
    case: Address, starts: Iterable[Start], basis: Basis
) -> Iterator[Finding]:
    """Yield ownerships that began after or before the committed offset (A4, A6)."""
    for start in starts:
        epoch = start.epoch
        if not epoch.runs or epoch.was_sought or _is_kept(start):
            continue
        if start.may_be_anew:
            continue
        at = epoch.runs[0].start
        if at > start.high:
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
        if epoch.sure is None or not epoch.was_assigned or start.may_be_anew:
            continue
        least, most = epoch.sure
        if least < start.low:
            said = f"committed {least}, {start.low} was committed before"
            yield _finding("A5", case, epoch, least, said, _basis_of(start, basis))
        elif not epoch.runs and most > max(start.high, _kept_end(start)):
            said = f"committed {most}, {start.high} was, and nothing came since"
            yield _finding("A5", case, epoch, most, said, _basis_of(start, basis))


def _kept_end(start: Start) -> int:
    before = start.before
    if before is None or before.member != start.epoch.member or before.was_lost:
        return -1
    return -1 if start.was_anothers else before.runs[-1].end


def _is_kept(start: Start) -> bool:
    # A partition that a rebalance gives back continues at its position, committed or
    # not. After a loss its work may have been dropped.
    return _kept_end(start) == start.epoch.runs[0].start


@define
class _Known:
    """The known state of everything earlier."""

    low: int | None = None
    most: int = -1
    delivered: int = -1
    before: Epoch | None = None

    def start(self, epoch: Epoch, maybe: Iterable[Commits]) -> Start | None:
        """Return the start of an ownership; None if nothing is known to be committed."""
        if self.low is None or not (epoch.runs or epoch.sure):
            return None
        low, high = self.low, self.most
        for commits in maybe:
            least = commits.least
            low = low if least is None else min(low, least)
            high = max(high, commits.most)
        return Start(epoch, self.before, low, high, self.delivered)

    def ran(self, epoch: Epoch) -> None:
        """Add the deliveries of an ownership."""
        if epoch.runs:
            self.before = epoch
            self.delivered = max(self.delivered, *(run.end for run in epoch.runs))


# ---------------------------------------------------------------- by generations


@define
class _Rank:
    """Ownerships that began in one generation."""

    epochs: list[Epoch] = field(factory=list)


def _by_generations(
    epochs: Sequence[Epoch], strays: Sequence[Commits], skew: float
) -> Iterator[Start]:
    assigned = [one for one in epochs if one.was_assigned]
    is_alone = len({one.member for one in epochs}) <= 1
    # The journal of one process gives the order, whatever the generations were.
    ranks = [_Rank([one]) for one in assigned] if is_alone else _ranked(assigned, skew)
    loose = [one.commits for one in epochs if not one.was_assigned]
    known = _Known()
    first: int | None = None  # the lowest offset at which an earlier one began
    # Whose the earlier ones were: all, and those since records came last.
    ever: set[str] = set()
    since: set[str] = set()
    for number, rank in enumerate(ranks):
        lasts: dict[str, int] = {}
        for epoch in rank.epochs:
            others = [one for one in rank.epochs if one.member != epoch.member]
            maybe = [*strays, *loose, *(one.commits for one in others)]
            maybe += _later(ranks, number, epoch, skew)
            own = _Known(
                low=lasts.get(epoch.member, known.low),
                most=known.most,
                delivered=known.delivered,
                before=known.before,
            )
            start = own.start(epoch, maybe)
            if start is not None:
                before = ranks[number - 1] if number else None
                yield evolve(
                    start,
                    was_anothers=_was_anothers(
                        start, ever if start.before in rank.epochs else since
                    ),
                    may_be_anew=_may_be_anew(start, before, first),
                )
            known.ran(epoch)
            known.most = max(known.most, epoch.commits.most)
            lowest = epoch.commits.lowest(own.low)
            if lowest is not None and epoch.commits.offset:
                lasts[epoch.member] = lowest
        known.low = min(lasts.values(), default=known.low)
        members = {one.member for one in rank.epochs}
        ever |= members
        since = set() if known.before in rank.epochs else since | members
        begins = [one.runs[0].start for one in rank.epochs if one.runs]
        if begins:
            first = min(begins) if first is None else min(first, *begins)


def _was_anothers(start: Start, members: set[str]) -> bool:
    return start.before is not None and bool(members - {start.epoch.member})


def _may_be_anew(start: Start, before: _Rank | None, first: int | None) -> bool:
    if before is None or not start.epoch.runs or not start.epoch.is_numbered:
        return False
    generation = start.epoch.generation or 0
    is_smaller = all((one.generation or 0) > generation for one in before.epochs)
    least = -1 if first is None else first
    return is_smaller and start.epoch.runs[0].start <= least


def _later(
    ranks: Sequence[_Rank], number: int, epoch: Epoch, skew: float
) -> Iterator[Commits]:
    # A member that was frozen or cut off may continue in a generation that is over,
    # and read what later ones committed until its first record came, until it learns
    # this: no client can know (contract, N). It cannot commit there.
    if epoch.has_committed:
        return
    until = epoch.delivered_at + skew
    for later in range(number + 1, len(ranks)):
        begun = [one for one in ranks[later].epochs if one.at <= until]
        if not begun:
            return
        for one in begun:
            yield one.commits.until(until)


def _ranked(epochs: Sequence[Epoch], skew: float) -> Sequence[_Rank]:
    # A group that was deleted counts from one again: then a commit of a smaller
    # generation was accepted after all known ownerships of larger ones had ended.
    era = 0
    over: dict[int, float] = {}  # by generation, in this era
    known: list[int] = []  # those generations, sorted: nearly always it is the largest
    placed: list[tuple[tuple[int, int], Epoch]] = []
    for epoch in sorted(epochs, key=lambda one: one.at):
        generation = -1 if epoch.generation is None else epoch.generation
        larger = [over[one] for one in known[bisect_right(known, generation) :]]
        if larger and epoch.has_committed and epoch.at > max(larger) + skew:
            era, over, known = era + 1, {}, []
        if generation not in over:
            insort(known, generation)
        over[generation] = max(over.get(generation, epoch.over), epoch.over)
        placed.append(((era, generation), epoch))
    placed.sort(key=lambda two: two[0])
    return [
        _Rank([epoch for _, epoch in several])
        for _, several in groupby(placed, key=lambda two: two[0])
    ]


# ---------------------------------------------------------------- by clocks


@frozen(order=True)
class _Commit:
    at: float
    number: int
    member: str
    offset: int
    is_sure: bool


def _by_clocks(
    epochs: Sequence[Epoch], strays: Sequence[Commits], skew: float
) -> Iterator[Start]:
    commits = sorted(_commits(epochs, strays))
    times = [one.at for one in commits]
    most = [-1, *accumulate((one.offset for one in commits), max)]
    known = _Known()
    for epoch in sorted(epochs, key=lambda one: one.at):
        sure = bisect_right(times, epoch.at - skew)
        perhaps = bisect_right(times, epoch.at + skew)
        near = commits[sure:perhaps]
        own = [one for one in near if one.member == epoch.member and one.at <= epoch.at]
        older = (commits[at] for at in range(sure - 1, -1, -1))
        lasts = _lasts(chain(reversed(own), older), skew)
        known.low = min((one.offset for one in lasts), default=None)
        known.most = max((most[sure], *(one.offset for one in own)))
        start = known.start(epoch, [_as_commits(near)])
        if start is not None:
            yield start
        known.ran(epoch)


def _commits(epochs: Sequence[Epoch], strays: Sequence[Commits]) -> Iterator[_Commit]:
    several = [*((one.member, one.commits) for one in epochs)]
    several += [("", one) for one in strays]
    number = 0
    for member, commits in several:
        for at, offset, is_sure in commits:
            number += 1
            yield _Commit(at, number, member, offset, is_sure)


def _lasts(newest_first: Iterable[_Commit], skew: float) -> list[_Commit]:
    # The commits that may have been the last one: one of each member, without those
    # that are older than another by more than the allowance.
    found: dict[str, _Commit] = {}
    newest: float | None = None
    for one in newest_first:
        if newest is not None and one.at <= newest - skew:
            break
        if one.is_sure:
            newest = one.at if newest is None else newest
            found.setdefault(one.member, one)
    return list(found.values())


def _as_commits(near: Iterable[_Commit]) -> Commits:
    found = Commits()
    for one in near:
        found.add(one.at, one.offset, is_sure=one.is_sure)
    return found


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
