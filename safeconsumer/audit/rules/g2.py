"""
G2: no record is delivered while the partition is held for the group.

The holds topic shows when the partition was held, by the broker's clock. An ownership
that began after some member had read the hold must obey the hold from its first record
on; all other ownerships must obey it within ``--patience`` of the hold's start.
"""

from collections.abc import Iterator

from safeconsumer.audit.case import Case
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.rules.rule import Rule, Unjudged
from safeconsumer.audit.rules.under_group_holds import under_group_holds, unknown_holds


def _across(case: Case) -> Iterator[Finding | Unjudged]:
    yield from under_group_holds(case, "G2")
    if why := unknown_holds(case):
        yield "G2", why


RULE = Rule(check="G2", basis=Basis.CLOCKS, across=_across)
