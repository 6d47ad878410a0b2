"""
A6: what comes twice had not been committed.

An ownership does not begin below the committed offset, where records had come by then.
Without records the log may have ended there.
"""

from collections.abc import Iterator

from safeconsumer.audit.case import Case
from safeconsumer.audit.findings import Finding
from safeconsumer.audit.rules.begins import delivered_before, found_at_begin, starts
from safeconsumer.audit.rules.rule import Rule, Unjudged


def _across(case: Case) -> Iterator[Finding | Unjudged]:
    for start in starts(case):
        at = start.offset
        if at < start.answered and at < delivered_before(case, start):
            said = f"began again at {at}, {start.answered} was committed"
            yield found_at_begin("A6", case, start, at, said)


RULE = Rule(check="A6", across=_across)
