"""Defines a rule of the audit."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import field, frozen

from safeconsumer.audit.case import Case
from safeconsumer.audit.facts import Fact
from safeconsumer.audit.findings import Basis, Finding

Unjudged = tuple[str, str]
"""
A check that cannot be judged, and the reason.
"""

Broken = tuple[int | None, str]
"""
The first offset concerned, and the evidence.
"""


@frozen(kw_only=True)
class Rule:
    """
    A check, and the functions that find its violations.

    Attributes:
        check: the name of the check.
        basis: the evidence on which a clean result rests.
        of: for each kind of fact, a function that yields the violations which one such
            fact proves.
        across: yields the violations that only all facts of a case together prove, and
            the checks that cannot be judged.
        left_open: returns the reason why there may be more violations than were found;
            "" if there cannot be more.
    """

    check: str
    basis: Basis = Basis.ORDER
    of: Mapping[type[Fact], Callable[[Any], Iterable[Broken]]] = field(factory=dict)
    across: Callable[[Case], Iterable[Finding | Unjudged]] = lambda _: ()
    left_open: Callable[[Case], str] = lambda _: ""
