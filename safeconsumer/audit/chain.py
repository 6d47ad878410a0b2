"""
Compares where ownerships began with what the broker answered, for A4 and A6.

A commit names the journal whose member made it, and whoever begins at a commit has the
broker's answer in its own journal. So each ownership is judged by that answer, and the
answer by the journal that it names: no clock, no generation and no order of journals
says which of two members was earlier. A journal that is named and not there is missing.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from heapq import nlargest

from attrs import evolve, frozen

from safeconsumer.audit.findings import Address, Basis, Finding
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.tracks import Track

_NOTE = re.compile(r"(.+)#(\d{1,18})", re.DOTALL)

# The checks that the entries of a journal that is missing could have changed.
_OF_ALL = ("A2", "A4", "A6")

Members = Mapping[str, Track]


@frozen(slots=False)
class Made:
    """
    The commits that the journals of a case have.

    Attributes:
        members: what each member did.
        targets: the offsets to which operators asked to move the group.
    """

    members: Members
    targets: frozenset[int]

    @cached_property
    def offsets(self) -> frozenset[int]:
        """What may be committed by one of them."""
        several = self.members.values()
        return frozenset(made.offset for one in several for made in one.all_commits)

    @cached_property
    def _highest(self) -> list[tuple[int, str]]:
        found = (
            (max((made.offset for made in one.all_commits), default=-1), name)
            for name, one in self.members.items()
        )
        return nlargest(2, found)

    def most_of_others(self, member: str) -> int:
        """Return the highest offset that others may have committed; -1 if there is none."""
        return next((most for most, name in self._highest if name != member), -1)

    def may_be_of_a_producer(self, offset: int) -> bool:
        """Return whether a member, for which a producer commits, had got that far."""
        return any(
            offset <= max(own.end for own in one.epochs)
            for one in self.members.values()
            if one.is_blind and one.epochs
        )


@frozen
class Named:
    """An ownership, the journal that its commit names, and how far that one was."""

    epoch: Epoch
    member: str
    entry: int


def wrong_starts(
    case: Address, members: Members, targets: frozenset[int]
) -> Iterator[Finding | tuple[str, str]]:
    """
    Yield ownerships that began after or before the committed offset (A4, A6).

    Or the checks that are not judged, and why: a journal is missing, or a commit that
    no journal has moved the group.

    Args:
        case: the group and the partition.
        members: what each member did.
        targets: the offsets to which operators asked to move the group.
    """
    made = Made(members, targets)
    for track in members.values():
        before: Epoch | None = None
        for epoch in track.epochs:
            if epoch.was_assigned and case.group:
                yield from _without_answer(case, epoch, before, made)
                yield from _off_its_answer(case, epoch)
                yield from _of_other_journals(case, epoch, made)
            before = epoch
    yield from _forgotten(members)


def _off_its_answer(case: Address, epoch: Epoch) -> Iterator[Finding]:
    # One journal has both, so nothing that others did excuses it.
    answer, at = epoch.answer, epoch.began_at
    if answer is None or answer.offset is None or at is None or epoch.is_chosen:
        return
    yield from _compared(case, epoch, answer.offset, answer.offset)


def _without_answer(
    case: Address, epoch: Epoch, before: Epoch | None, made: Made
) -> Iterator[Finding | tuple[str, str]]:
    # Only a partition that a rebalance gives back continues at its position.
    at = epoch.began_at
    if at is None or epoch.answer is not None or epoch.is_chosen:
        return
    last = None if before is None else before.commits.last
    if before is not None and epoch.owned_since == before.owned_since:
        if last is not None:
            kept = before.runs[-1].end if before.runs else last.offset
            yield from _compared(case, epoch, last.offset, max(kept, last.offset))
        return
    own = -1 if last is None else last.offset
    most = max(own, made.most_of_others(epoch.member))
    if most < 0:
        return
    low = most if at > most else own
    wrong = [*_compared(case, epoch, low, most)]
    yield from (evolve(one, basis=Basis.OFFSETS) for one in wrong)
    if not wrong:
        why = f"the journal of {epoch.member} lacks what was committed where it began"
        yield from (("A4", why), ("A6", why))


def _compared(case: Address, epoch: Epoch, low: int, high: int) -> Iterator[Finding]:
    at = epoch.began_at or 0
    if at > high:
        said = f"an ownership began at {at}, {low} was committed"
        yield _finding("A4", case, epoch, low, said, Basis.ORDER)
    elif at < low:
        said = f"began again at {at}, {low} was committed"
        yield _finding("A6", case, epoch, at, said, Basis.ORDER)


def _of_other_journals(
    case: Address, epoch: Epoch, made: Made
) -> Iterator[Finding | tuple[str, str]]:
    answer = epoch.answer
    if answer is None or answer.offset is None:
        return
    found = _NOTE.fullmatch(answer.note)
    if found is None:
        why = _moved(epoch, answer.offset, made)
        yield from ((check, why) for check in _OF_ALL if why)
        return
    named = Named(epoch, found[1], int(found[2]))
    maker = made.members.get(named.member)
    if maker is None or maker.last_entry < named.entry:
        why = f"the journal of {named.member} is missing"
        if maker is not None:
            why += f" from entry {maker.last_entry} on"
        why += f": entry {answer.entry} of {epoch.member} begins where it committed"
        yield from ((check, why) for check in _OF_ALL)
        return
    yield from _of_its_maker(case, named, answer.offset, maker)


def _of_its_maker(
    case: Address, named: Named, offset: int, maker: Track
) -> Iterator[Finding]:
    # The broker answers with the last commit: what was asked for once that one had been
    # answered cannot have been done before.
    made, own = maker.epoch_at(named.entry), named.epoch
    commits = maker.commits.strays if made is None else made.commits
    if any(one.offset == offset and one.entry <= named.entry for one in commits):
        return
    said = f"began at {offset}, which {named.member} committed in entry {named.entry}"
    last = commits.last
    if last is None or last.entry <= named.entry:
        said = f"{said}: its journal has no such commit"
        yield _finding("A4", case, own, offset, said, Basis.COMMITS)
    elif made is not None and (made.is_numbered or own.member == made.member):
        check = "A6" if offset < last.offset else "A4"
        said = f"{said}, and {last.offset} in entry {last.entry} after that"
        at = min(offset, last.offset)
        yield _finding(check, case, own, at, said, Basis.COMMITS)


def _moved(epoch: Epoch, offset: int, made: Made) -> str:
    # Why it is not known whose commit without a name it was; "" if it may be of a
    # program with metadata of its own, or of a producer's transaction.
    if offset in made.offsets or made.may_be_of_a_producer(offset):
        return ""
    by = "a tool, or a member without a journal"
    if offset in made.targets:
        by = "reset-offsets, as an operator's hold says"
    return (
        f"the group was moved to {offset} by a commit that no journal has ({by}), as "
        f"{epoch.member} found when it began"
    )


def _forgotten(members: Members) -> Iterator[tuple[str, str]]:
    # The first commits of two ownerships that both found nothing committed.
    first = [
        epoch
        for one in members.values()
        for epoch in one.epochs
        if epoch.has_committed and epoch.answer and epoch.answer.offset is None
    ]
    if len(first) > 1:
        names = f"{first[0].member} and {first[1].member}"
        why = (
            f"{names} both found nothing committed, and committed: the group's offsets "
            "were deleted in between"
        )
        yield from ((check, why) for check in _OF_ALL)


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
