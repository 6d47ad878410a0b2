"""
Importing this enters all cases, in the order of the table.
"""

from tests.conformance.cases import alone, groups, lost, subscriptions, wide
from tests.conformance.registry import CASES

PARTS = tuple(module.PART for module in (alone, groups, lost, subscriptions, wide))

__all__ = ["CASES", "PARTS"]
