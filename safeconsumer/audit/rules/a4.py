"""
A4: within an ownership no record is skipped, and none is delivered again.

Within an ownership each delivery begins at the position. An ownership begins at the
committed offset in the broker's answer, or where the member left off if a rebalance
gave the partition back. A seek of the program, or an operator's reset that the holds
topic confirms, may choose another offset. A reset by the client's reset policy is only
the client's own claim: if it moves the position back, A4 is not judged. An ownership
that begins below the committed offset is a finding of A6.
"""

from collections.abc import Iterator, Sequence

from safeconsumer.audit.case import Case, Part
from safeconsumer.audit.control import Control
from safeconsumer.audit.entries import Reset
from safeconsumer.audit.facts import AutoReset, Delivered
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.rules.begins import wrong_begins
from safeconsumer.audit.rules.rule import Broken, Rule, Unjudged

# The checks that an operator's reset affects.
_OF_RESETS = ("A2", "A4", "A5", "A6")


def _delivered(fact: Delivered) -> Iterator[Broken]:
    if not fact.is_peek and fact.stood is not None and fact.start < fact.stood:
        yield fact.start, f"went back to {fact.start}; {fact.stood} was next"


def _across(case: Case) -> Iterator[Finding | Unjudged]:
    yield from wrong_begins(case)
    for part in case.parts.values():
        for jump in part.auto_resets:
            if jump.end < jump.start and not jump.is_sought:
                yield "A4", auto_reset_text(part.member, jump)
        for reset in part.resets:
            yield from _confirmed(case, part, reset)


def auto_reset_text(member: str, jump: AutoReset) -> str:
    """Return a sentence which says that the client has reset a position."""
    where = f"from {jump.start} to {jump.end}"
    return f"{member} says in entry {jump.n} that the position was reset {where}"


def _confirmed(case: Case, part: Part, reset: Reset) -> Iterator[Finding | Unjudged]:
    # A member's claim that an operator moved its position counts only if the holds
    # topic confirms it.
    control, group = case.control, case.address.group or ""
    target = group, reset.owner, f"{case.address.topic}:{case.address.partition}"
    spans = () if control is None else control.targets.get((*target, reset.offset), ())
    if spans:
        if not control or control.trouble or _may_stand(case, part, reset, spans):
            return
        why = (
            f"{part.member} says in entry {reset.n} that {reset.owner} moved it to "
            f"{reset.offset}; a hold of that owner has this target, but not at that time"
        )
        yield from ((check, why) for check in _OF_RESETS)
        return
    if control is not None and _has_all(control, case, reset.at):
        evidence = (
            f"no hold of {reset.owner} moves it to this offset, although its journal "
            "says so"
        )
        yield Finding.of_entry("A4", part.member, reset, reset.offset, evidence)
        return
    # The reason is the same for all partitions that a hold moves, so it is printed once.
    why = (
        f"members say that {reset.owner} moved it; only the control topics can confirm "
        "that (--control, or --history FILE)"
    )
    yield from ((check, why) for check in _OF_RESETS)


def _may_stand(
    case: Case, part: Part, reset: Reset, spans: Sequence[tuple[float, float]]
) -> bool:
    # A member obeys a hold until it has read that the hold was lifted.
    clock, skew = case.clocks[part.member], case.settings.clock_skew
    first, last = clock.earliest(reset.at), clock.latest(reset.at)
    late = case.settings.patience + skew
    return any(start - skew <= last and first <= end + late for start, end in spans)


def _has_all(control: Control, case: Case, at: float) -> bool:
    skew = case.settings.clock_skew
    is_known = not control.trouble and at >= control.since + skew
    return is_known and not control.may_lack(at, skew)


RULE = Rule(check="A4", basis=Basis.COMMITS, of={Delivered: _delivered}, across=_across)
