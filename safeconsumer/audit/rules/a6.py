"""
A6: a record is delivered a second time only if it had not been committed.

An ownership does not begin below the committed offset; A4 judges a start above it.
"""

from safeconsumer.audit.findings import Basis
from safeconsumer.audit.rules.rule import Rule

RULE = Rule(check="A6", basis=Basis.COMMITS)
