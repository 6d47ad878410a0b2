"""
A1: no record is delivered by a poll that was called while its partition was held.

If ``pause`` returns on another thread during a poll, it takes effect in the next poll.
The rule compares numbers of entries of one process, without clocks.
"""

from functools import partial

from safeconsumer.audit.rules.rule import Rule
from safeconsumer.audit.rules.under_own_holds import under_own_holds

RULE = Rule(check="A1", across=partial(under_own_holds, check="A1"))
