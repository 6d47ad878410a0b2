"""
Compares where ownerships began with what the broker answered, for A4 and A6.

A member writes what the broker says is committed, with the note of that commit: the
journal, and its newest entry when the commit was asked for. So the order of ownerships
needs no clocks and no generations, and a journal that is missing is known by its name.
"""

from collections.abc import Iterator

from attrs import frozen

from safeconsumer.audit.case import Case, Epoch
from safeconsumer.audit.facts import Began
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.rules.rule import Unjudged


@frozen
class Start:
    """
    An ownership that began where the broker, or the member itself, had left off.

    Attributes:
        epoch: the ownership.
        began: its first position.
        answered: the committed offset that the broker had answered; -1 for none.
    """

    epoch: Epoch
    began: Began
    answered: int

    @property
    def offset(self) -> int:
        """Where it began."""
        return self.began.offset


def starts(case: Case) -> Iterator[Start]:
    """Yield the ownerships of which it is known where they were to begin."""
    if case.incomparable:
        return
    for epoch in case.epochs:
        began = epoch.began
        if began is None or began.how in {"seek", "reset"} or began.offset == began.kept:
            continue
        if began.answered is not None:
            yield Start(epoch, began, began.answered)


def author(note: str) -> tuple[str, int]:
    """Return the journal that a commit names, and its entry; "" if it names none."""
    name, mark, number = note.rpartition("#")
    return (name, int(number)) if mark and number.isdecimal() else ("", -1)


def delivered_before(case: Case, start: Start) -> int:
    """Return the position up to which records had come before the commit at a begin."""
    name, number = author(start.began.by)
    part = case.parts.get(name)
    place = None if part is None else part.commits.find(start.answered, number)
    if part is not None and place is not None:
        return part.commits.came[place]
    return -1


def unknown_commits(case: Case) -> Iterator[Unjudged]:
    """Yield the checks that need a commit that no journal has, and why."""
    for start in starts(case):
        for why in _unknown(case, start):
            yield from ((check, why) for check in ("A2", "A4", "A6"))
    has_commits = any(one.commits.asked for one in case.parts.values())
    if not (case.address.group and has_commits):
        return
    for epoch in case.epochs:
        began = epoch.began
        if began is None or began.answered is not None:
            continue
        if began.how in {"broker", "records"} and began.offset != began.kept:
            why = f"the journal of {epoch.member} lacks the broker's answer"
            yield from ((check, why) for check in ("A4", "A6"))


def _unknown(case: Case, start: Start) -> Iterator[str]:
    if start.answered < 0:
        return
    name, number = author(start.began.by)
    said = f"{start.epoch.member} began where {start.answered} was committed"
    if not name:
        if not (_is_known(case, start.answered) or [*case.unseen()]):
            yield (
                f"{said}, by nobody with a journal: an operator, or another client, "
                "moved the group"
            )
        return
    reader = case.group.readers.get(name)
    if reader is None:
        yield f"{said} by {name}, whose journal is missing"
    elif reader.end < number:
        yield f"{said} by {name}, whose journal ends before entry {number}"
    elif name not in case.parts or (
        case.parts[name].commits.find(start.answered, number) is None
    ):
        yield f"{said} by {name} in entry {number}, whose journal has no such commit"


def _is_known(case: Case, offset: int) -> bool:
    return any(offset in one.commits.offset for one in case.parts.values())


def found_at_begin(
    check: str, case: Case, start: Start, offset: int, evidence: str
) -> Finding:
    """Return what is wrong with a begin."""
    return Finding(
        check=check,
        case=case.address,
        member=start.epoch.member,
        offset=offset,
        evidence=evidence,
        basis=Basis.ORDER,
        at=start.epoch.delivered_at,
    )
