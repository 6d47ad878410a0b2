"""Defines a rule of the audit."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import field, frozen

from safeconsumer.audit.case import Case
from safeconsumer.audit.facts import Fact
from safeconsumer.audit.findings import Basis, Finding

Unjudged = tuple[str, str]
"""
A check that cannot be judged, and why.
"""

Broken = tuple[int | None, str]
"""
The first offset concerned, and the evidence.
"""


@frozen(kw_only=True)
class Rule:
    """
    A rule: a check, and what it reads.

    Attributes:
        check: its name.
        basis: the evidence on which a clean result rests.
        of: by kind of fact, what yields how a fact of one process breaks it.
        across: yields what all facts of a case break, and what is not judged.
        left_open: returns why there may be more than was found; "" if there is not.
    """

    check: str
    basis: Basis = Basis.ORDER
    of: Mapping[type[Fact], Callable[[Any], Iterable[Broken]]] = field(factory=dict)
    across: Callable[[Case], Iterable[Finding | Unjudged]] = lambda _: ()
    left_open: Callable[[Case], str] = lambda _: ""
