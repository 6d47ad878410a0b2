"""
A5: an owner commits only delivered records, and never a lower offset than before.

A commit is compared with the position and the ownership at its call, however late its
answer arrives, and only acknowledged commits count. After a seek an earlier offset may
be committed again. A lower offset does not count as going back if no record lies
between the two offsets, as after a transaction's marker. An ownership must not commit
an offset below the committed offset at which it began.
"""

from collections.abc import Iterator

from attrs import evolve

from safeconsumer.audit.case import Case
from safeconsumer.audit.facts import Committed
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.rules.rule import Broken, Rule, Unjudged

_NOT_OWNED = "committed without owning it"


def _is_behind(fact: Committed) -> str:
    # Return why a committed offset is wrong; "" if it is right.
    if not fact.is_done or fact.is_before:
        return ""
    offset, stood = fact.offset, fact.stood
    if stood is not None and offset > stood:
        return f"committed {offset}, delivered only up to {stood}"
    if offset < fact.floor:
        return f"committed {offset}, all before {fact.floor} was committed before"
    return ""


def _committed(fact: Committed) -> Iterator[Broken]:
    if why := _is_behind(fact):
        yield fact.offset, why
    elif fact.is_done and not fact.is_owned and fact.departed_in is None:
        yield fact.offset, _NOT_OWNED


def _across(case: Case) -> Iterator[Finding | Unjudged]:
    # A cooperative rebalance revokes a partition in one generation and assigns it in
    # the next. In between no member owns the partition, so its old owner may still
    # commit.
    given = {one.owned.generation for one in case.epochs}
    for name, part in case.parts.items():
        for fact in part.late:
            if fact.departed_in in given and not _is_behind(fact):
                found = Finding.of_entry("A5", name, fact, fact.offset, _NOT_OWNED)
                yield evolve(found, basis=Basis.GENERATIONS)
        for fact in part.unplaced:
            if fact.offset and not _is_behind(fact):
                why = (
                    f"{name} committed {fact.offset}, but its position then is unknown"
                )
                yield "A5", why


RULE = Rule(check="A5", of={Committed: _committed}, across=_across)
