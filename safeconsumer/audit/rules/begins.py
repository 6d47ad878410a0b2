"""
Compares the first position of each ownership with the broker's answer (A4, A6).

The metadata of a commit names the journal of the member that made the commit, and the
newest entry of that journal. A member that begins at a committed offset writes the
broker's answer into its own journal. So the rule compares each ownership's position
with that answer, and the answer with the journal that it names. The rule needs no
clock, generation or order of journals to decide which of two members was earlier. A
journal counts as missing if a commit names the journal but the judge did not get it.
"""

import re
from collections.abc import Iterator, Sequence

from attrs import evolve

from safeconsumer.audit.case import Case, Epoch, Part
from safeconsumer.audit.facts import Committed, Positioned
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.rules.rule import Unjudged
from safeconsumer.journal.format import NOTE

_NOTE = re.compile(NOTE + r"(.+)#(\d{1,18})", re.DOTALL)

# The checks that depend on the entries of a missing journal.
OF_ALL = ("A2", "A4", "A6")


def wrong_begins(case: Case) -> Iterator[Finding | Unjudged]:
    """
    Yield ownerships that began above or below the committed offset (A4, A6).

    Also yield the checks that cannot be judged because a journal is missing, or because
    a commit that is in no journal moved the group, each with the reason.
    """
    if case.incomparable:
        return
    for part in case.parts.values():
        before: Epoch | None = None
        for epoch in part.epochs:
            began = epoch.began
            if epoch.owned.n and began is not None:
                yield from _at_begin(case, part, epoch, began, before)
            before = epoch
    yield from _of_one_commit(case)
    yield from _without_commit(case)


def _at_begin(
    case: Case, part: Part, epoch: Epoch, began: Positioned, before: Epoch | None
) -> Iterator[Finding | Unjudged]:
    if began.answered is None:
        if not epoch.was_sought:
            yield from _without_answer(case, part, epoch, before)
        return
    if began.answered < 0:
        return
    # one journal contains both offsets, so no other member's action excuses a
    # difference
    if not epoch.was_sought:
        yield from _compared(epoch, began.answered, began.answered)
    yield from _of_other_journals(case, epoch, began)


def _without_answer(
    case: Case, part: Part, epoch: Epoch, before: Epoch | None
) -> Iterator[Finding | Unjudged]:
    # Only a partition that a rebalance gives back may continue at its position.
    last = None if before is None else part.commits.last(before.owned.n)
    if before is not None and epoch.owned_since == before.owned_since:
        if last is not None:
            kept = before.runs.ends[-1] if before.runs else last.offset
            yield from _compared(epoch, last.offset, max(kept, last.offset))
        return
    own = -1 if last is None else last.offset
    most = max(own, case.most_of_others(epoch.member))
    if most < 0:
        return
    wrong = [*_compared(epoch, most if _began(epoch) > most else own, most)]
    yield from (evolve(one, basis=Basis.OFFSETS) for one in wrong)
    if not wrong:
        why = f"the journal of {epoch.member} lacks the committed offset at which it began"
        yield from (("A4", why), ("A6", why))


def _began(epoch: Epoch) -> int:
    return 0 if epoch.began is None else epoch.began.offset


def _compared(epoch: Epoch, low: int, high: int) -> Iterator[Finding]:
    at = _began(epoch)
    if at > high:
        evidence = f"an ownership began at {at}, {low} was committed"
        yield _finding("A4", epoch, low, evidence)
    elif at < low:
        evidence = f"began again at {at}, {low} was committed"
        yield _finding("A6", epoch, at, evidence)


def _of_other_journals(
    case: Case, epoch: Epoch, began: Positioned
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
    yield from _of_its_maker(epoch, offset, case.parts.get(name), (name, entry))


def _of_its_maker(
    epoch: Epoch, offset: int, maker: Part | None, place: tuple[str, int]
) -> Iterator[Finding]:
    # The broker returns the last commit: after it has acknowledged a later commit of
    # the same ownership, it cannot return this commit.
    name, entry = place
    evidence = f"began at {offset}, which {name} committed in entry {entry}"
    made = None if maker is None else maker.epoch_at(entry)
    own = 0 if made is None else made.owned.n
    commits = () if maker is None else maker.commits.of(own)
    if any(one.offset == offset and one.call <= entry for one in commits):
        return
    last = None if maker is None else maker.commits.last(own)
    if last is None or last.call <= entry:
        evidence = f"{evidence}: its journal has no such commit"
        yield _finding("A4", epoch, offset, evidence, Basis.COMMITS)
    elif made is not None and (made.is_numbered or epoch.member == made.member):
        check = "A6" if offset < last.offset else "A4"
        evidence = f"{evidence}, and {last.offset} in entry {last.call} after that"
        at = min(offset, last.offset)
        yield _finding(check, epoch, at, evidence, Basis.COMMITS)


def _moved(case: Case, epoch: Epoch, began: Positioned) -> str:
    # Return why it is unknown who made a commit that names no journal; "" if a program
    # with its own metadata, or a producer's transaction, may have made it. A consumer
    # with a journal commits without metadata only if the broker refuses the metadata.
    offset = began.answered or 0
    is_in_a_journal = began.by and offset in case.offsets
    if is_in_a_journal or offset <= case.most_of_producers:
        return ""
    by = "a tool, a member without a journal, or one whose broker refuses its name"
    if offset in case.targets:
        by = "reset-offsets, as an operator's hold shows"
    return (
        f"a commit that is in no journal ({by}) moved the group to {offset}, as "
        f"{epoch.member} found when it began"
    )


def _of_one_commit(case: Case) -> Iterator[Finding | Unjudged]:
    # The broker returns the last commit: if several ownerships begin at the same
    # commit, none of them had committed when the others requested the committed offset.
    sharing: dict[tuple[int | None, str], list[Epoch]] = {}
    for one in case.epochs:
        began = one.began
        if one.owned.n and began is not None and _NOTE.fullmatch(began.by):
            sharing.setdefault((began.answered, began.by), []).append(one)
    for several in sharing.values():
        further = [(one, tuple(_further(case, one))) for one in several]
        moved = [(one, commits) for one, commits in further if commits]
        for epoch in several:
            if not epoch.was_sought:
                yield from _stale(case, epoch, moved)


def _further(case: Case, epoch: Epoch) -> Iterator[Committed]:
    # The commits of an ownership that differ from the commit at which it began.
    if (began := epoch.began) is None:
        return
    for one in case.parts[epoch.member].commits.of(epoch.owned.n):
        is_own = one.is_done and one.is_owned and one.call > began.asked
        if is_own and one.offset != began.answered:
            yield one


def _stale(
    case: Case, epoch: Epoch, moved: Sequence[tuple[Epoch, Sequence[Committed]]]
) -> Iterator[Finding | Unjudged]:
    at, note = (epoch.began.answered or 0, epoch.began.by) if epoch.began else (0, "")
    began = f"{epoch.member} began at the commit {note}"
    has_moved = any(one is epoch for one, _ in moved)
    for other, commits in moved:
        made = next((one for one in commits if _was_before(other, one, epoch)), None)
        why = ""
        if made is not None:
            if by := _copied_by(case, epoch):
                why = f"{began}, whose metadata {by} may have copied"
            else:
                evidence = f"began at {at}, the commit {note}: {other.member} had"
                evidence = f"{evidence} committed {made.offset} after that"
                check = "A6" if at < made.offset else "A4"
                low = min(at, made.offset)
                yield _finding(check, epoch, low, evidence, Basis.COMMITS)
                return
        elif has_moved and other is not epoch and not _is_earlier(epoch, other):
            why = f"{began}, and so did {other.member}: no entry shows which was first"
        yield from ((check, why) for check in ("A4", "A6") if why)


def _is_earlier(one: Epoch, other: Epoch) -> bool:
    if one.member == other.member:
        return one.owned.n < other.owned.n
    is_numbered = one.is_numbered and other.is_numbered
    return is_numbered and (one.owned.generation or 0) < (other.owned.generation or 0)


def _was_before(owner: Epoch, made: Committed, epoch: Epoch) -> bool:
    # Return whether a commit was complete when an ownership requested the committed
    # offset. The broker refuses commits of past generations.
    asked = 0 if epoch.began is None else epoch.began.asked
    is_answered = owner.member != epoch.member or made.n < asked
    return _is_earlier(owner, epoch) and is_answered


def _copied_by(case: Case, epoch: Epoch) -> str:
    # Return another member that also committed the offset at which an ownership began,
    # perhaps with the same metadata; "" if there is none.
    began = epoch.began
    found = None if began is None else _NOTE.fullmatch(began.by)
    if began is None or found is None:
        return ""
    maker, entry = found[1], int(found[2])
    part = case.parts.get(maker)
    made = None if part is None else part.epoch_at(entry)
    known = {(epoch.member, epoch.owned.n), (maker, made.owned.n if made else 0)}
    for name, one in case.parts.items():
        for commit in one.commits:
            if commit.offset == began.answered and (name, commit.own or 0) not in known:
                return name
    return ""


def _without_commit(case: Case) -> Iterator[Unjudged]:
    # Yield the checks that are not judged because an ownership found no committed
    # offset although a member had committed.
    nothing = [one for one in case.epochs if _found_nothing(one)]
    first = _first_commits(case) if nothing else []
    why = ""
    for epoch in nothing:
        for owner, made in first:
            if not epoch.was_sought and _was_before(owner, made, epoch):
                why = (
                    f"{epoch.member} found no committed offset, and {owner.member} had "
                    f"committed {made.offset} before: the group's offsets were deleted "
                    "in between, or the client did not read them"
                )
    both = [one.member for one in nothing if one.has_committed]
    if not why and len(both) > 1:
        why = (
            f"{both[0]} and {both[1]} both found no committed offset, and committed: "
            "the group's offsets were deleted in between, or neither had committed when the "
            "other began"
        )
    yield from ((check, why) for check in OF_ALL if why)


def _first_commits(case: Case) -> list[tuple[Epoch, Committed]]:
    # Return the first commit of each member, with its ownership.
    several = (
        next(
            (
                (epoch, one)
                for epoch in part.epochs
                for one in part.commits.of(epoch.owned.n)
                if one.is_done and one.is_owned
            ),
            None,
        )
        for part in case.parts.values()
    )
    return [one for one in several if one is not None]


def _found_nothing(epoch: Epoch) -> bool:
    return epoch.began is not None and epoch.began.answered == -1


def _finding(
    check: str, epoch: Epoch, offset: int, evidence: str, basis: Basis = Basis.ORDER
) -> Finding:
    return Finding(
        check=check,
        member=epoch.member,
        offset=offset,
        evidence=evidence,
        basis=basis,
        at=epoch.delivered_at,
    )
