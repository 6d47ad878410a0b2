"""
W10: no handler begins on a record of a held partition.

If a handler had begun when the hold came into force, the entry that reports its start
may be written after the hold. The hold's entry lists the offsets that handlers were
working on: for each of these records, and for no other record, one start may follow.
The holds topic has the times of the group's holds, as for G2.
"""

from collections.abc import Iterator

from safeconsumer.audit.case import Case
from safeconsumer.audit.findings import Finding
from safeconsumer.audit.rules.rule import Rule, Unjudged
from safeconsumer.audit.rules.under_group_holds import under_group_holds, unknown_holds
from safeconsumer.audit.rules.under_own_holds import under_own_holds


def _across(case: Case) -> Iterator[Finding | Unjudged]:
    yield from under_own_holds(case, "W10")
    yield from under_group_holds(case, "W10")
    if case.is_working and (why := unknown_holds(case)):
        yield "W10", why


RULE = Rule(check="W10", across=_across)
