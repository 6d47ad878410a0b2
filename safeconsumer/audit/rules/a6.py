"""
A6: what comes twice had not been committed.

An ownership does not begin below the committed offset: A4 compares where it begins.
"""

from safeconsumer.audit.findings import Basis
from safeconsumer.audit.rules.rule import Rule

RULE = Rule(check="A6", basis=Basis.COMMITS)
