"""
A6: what comes twice had not been committed.

An ownership does not begin below the committed offset.
"""

from collections.abc import Iterator

from safeconsumer.audit.case import Case
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.rules.begins import of_check, wrong_begins
from safeconsumer.audit.rules.rule import Rule, Unjudged


def _across(case: Case) -> Iterator[Finding | Unjudged]:
    yield from of_check("A6", wrong_begins(case))


RULE = Rule(check="A6", basis=Basis.COMMITS, across=_across)
