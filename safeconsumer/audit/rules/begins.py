"""
Compares where ownerships began with what the broker answered, for A4 and A6.

A commit names the journal whose member made it, and its newest entry by then. A member
that begins at a commit has the broker's answer in its own journal. So each ownership is
judged by that answer, and the answer by the journal that it names: no clock, no
generation and no order of journals says which of two members was earlier. A journal that
is named and not there is missing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from attrs import evolve

from safeconsumer.audit.case import Case, Epoch, Part
from safeconsumer.audit.facts import Began
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.rules.rule import Unjudged

_NOTE = re.compile(r"(.+)#(\d{1,18})", re.DOTALL)

# The checks that the entries of a journal that is missing could have changed.
OF_ALL = ("A2", "A4", "A6")


@lru_cache(maxsize=1)
def wrong_begins(case: Case) -> Sequence[Finding | Unjudged]:
    """
    Return ownerships that began after or before the committed offset (A4, A6).

    Or the checks that are not judged, and why: a journal is missing, or a commit that
    no journal has moved the group. Several rules ask in turn for one case.
    """
    if not case.address.group or case.incomparable:
        return ()
    return tuple(_wrong(case))


def _wrong(case: Case) -> Iterator[Finding | Unjudged]:
    for part in case.parts.values():
        before: Epoch | None = None
        for epoch in part.epochs:
            began = epoch.began
            if epoch.n and began is not None:
                yield from _at_begin(case, part, epoch, began, before)
            before = epoch
    yield from _forgotten(case)


def _at_begin(
    case: Case, part: Part, epoch: Epoch, began: Began, before: Epoch | None
) -> Iterator[Finding | Unjudged]:
    if began.answered is None:
        if not epoch.was_sought:
            yield from _without_answer(case, part, epoch, before)
        return
    if began.answered < 0:
        return
    if (
        not epoch.was_sought
    ):  # one journal has both, so nothing that others did excuses it
        yield from _compared(case, epoch, began.answered, began.answered)
    yield from _of_other_journals(case, epoch, began)


def _without_answer(
    case: Case, part: Part, epoch: Epoch, before: Epoch | None
) -> Iterator[Finding | Unjudged]:
    # Only a partition that a rebalance gives back continues at its position.
    last = None if before is None else part.commits.last(before.n)
    if before is not None and epoch.owned_since == before.owned_since:
        if last is not None:
            kept = before.runs.ends[-1] if before.runs else last.offset
            yield from _compared(case, epoch, last.offset, max(kept, last.offset))
        return
    own = -1 if last is None else last.offset
    most = max(own, case.most_of_others(epoch.member))
    if most < 0:
        return
    wrong = [*_compared(case, epoch, most if _began(epoch) > most else own, most)]
    yield from (evolve(one, basis=Basis.OFFSETS) for one in wrong)
    if not wrong:
        why = f"the journal of {epoch.member} lacks what was committed where it began"
        yield from (("A4", why), ("A6", why))


def _began(epoch: Epoch) -> int:
    return 0 if epoch.began is None else epoch.began.offset


def _compared(case: Case, epoch: Epoch, low: int, high: int) -> Iterator[Finding]:
    at = _began(epoch)
    if at > high:
        said = f"an ownership began at {at}, {low} was committed"
        yield _finding("A4", case, epoch, low, said)
    elif at < low:
        said = f"began again at {at}, {low} was committed"
        yield _finding("A6", case, epoch, at, said)


def _of_other_journals(
    case: Case, epoch: Epoch, began: Began
) -> Iterator[Finding | Unjudged]:
    found = _NOTE.fullmatch(began.by)
    offset = began.answered or 0
    if found is None:
        why = _moved(case, epoch, began)
        yield from ((check, why) for check in OF_ALL if why)
        return
    name, entry = found[1], int(found[2])
    reader = case.group.readers.get(name)
    if reader is None or reader.end < entry:
        why = f"the journal of {name} is missing"
        if reader is not None:
            why += f" from entry {reader.end} on"
        why += f": entry {began.asked} of {epoch.member} begins where it committed"
        yield from ((check, why) for check in OF_ALL)
        return
    yield from _of_its_maker(case, epoch, offset, case.parts.get(name), (name, entry))


def _of_its_maker(
    case: Case, epoch: Epoch, offset: int, maker: Part | None, place: tuple[str, int]
) -> Iterator[Finding]:
    # The broker answers with the last commit: what was asked for once that one had been
    # answered cannot have been done before.
    name, entry = place
    said = f"began at {offset}, which {name} committed in entry {entry}"
    made = None if maker is None else maker.epoch_at(entry)
    own = 0 if made is None else made.n
    commits = () if maker is None else maker.commits.of(own)
    if any(one.offset == offset and one.call <= entry for one in commits):
        return
    last = None if maker is None else maker.commits.last(own)
    if last is None or last.call <= entry:
        said = f"{said}: its journal has no such commit"
        yield _finding("A4", case, epoch, offset, said, Basis.COMMITS)
    elif made is not None and (made.is_numbered or epoch.member == made.member):
        check = "A6" if offset < last.offset else "A4"
        said = f"{said}, and {last.offset} in entry {last.call} after that"
        at = min(offset, last.offset)
        yield _finding(check, case, epoch, at, said, Basis.COMMITS)


def _moved(case: Case, epoch: Epoch, began: Began) -> str:
    # Why it is not known whose commit without a name it was; "" if it may be of a
    # program with metadata of its own, or of a producer's transaction. A commit without
    # any metadata is no consumer's with a journal, whatever offset it has.
    offset = began.answered or 0
    is_in_a_journal = began.by and offset in case.offsets
    if is_in_a_journal or offset <= case.most_of_producers:
        return ""
    by = "a tool, a member without a journal, or one whose broker refuses its name"
    if offset in case.targets:
        by = "reset-offsets, as an operator's hold says"
    return (
        f"the group was moved to {offset} by a commit that no journal has ({by}), as "
        f"{epoch.member} found when it began"
    )


def _forgotten(case: Case) -> Iterator[Unjudged]:
    # The first commits of two ownerships that both found nothing committed.
    first = [one for one in case.epochs if one.has_committed and _found_nothing(one)]
    if len(first) > 1:
        names = f"{first[0].member} and {first[1].member}"
        why = (
            f"{names} both found nothing committed, and committed: the group's offsets "
            "were deleted in between"
        )
        yield from ((check, why) for check in OF_ALL)


def _found_nothing(epoch: Epoch) -> bool:
    return epoch.began is not None and epoch.began.answered == -1


def of_check(check: str, found: Iterable[Finding | Unjudged]) -> Iterator[Finding]:
    """Yield the findings of a check."""
    for one in found:
        if isinstance(one, Finding) and one.check == check:
            yield one


def _finding(  # noqa: PLR0913, PLR0917 - one parameter per field
    check: str,
    case: Case,
    epoch: Epoch,
    offset: int,
    evidence: str,
    basis: Basis = Basis.ORDER,
) -> Finding:
    return Finding(
        check=check,
        case=case.address,
        member=epoch.member,
        offset=offset,
        evidence=evidence,
        basis=basis,
        at=epoch.delivered_at,
    )
