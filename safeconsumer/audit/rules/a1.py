"""
A1: no record is delivered by a poll that was called while its partition was held.

A pause that returns on another thread while a poll is on its way stops the next one.
Numbers of entries of one process are compared, without clocks.
"""

from functools import partial

from safeconsumer.audit.rules.rule import Rule
from safeconsumer.audit.rules.under_own_holds import under_own_holds

RULE = Rule(check="A1", across=partial(under_own_holds, check="A1"))
