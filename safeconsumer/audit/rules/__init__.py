"""The rules of the audit; each module defines one rule."""

from collections.abc import Sequence

from safeconsumer.audit.rules import a1, a2, a3, a4, a5, a6, g2, w4, w5, w7, w10
from safeconsumer.audit.rules.rule import Rule

RULES: Sequence[Rule] = tuple(
    one.RULE for one in (a1, a2, a3, a4, a5, a6, g2, w4, w5, w7, w10)
)
