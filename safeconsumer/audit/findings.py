"""
What the judge finds, and by which evidence.
"""

from enum import StrEnum

from attrs import frozen

from safeconsumer.audit.facts import Address


class Basis(StrEnum):
    """
    What a finding rests on; the value says it to people.
    """

    ORDER = "the order of one process's entries"
    OFFSETS = "offsets"
    GENERATIONS = "the group's generations"
    TIME = "the clock of one process"
    CLOCKS = "clocks of several hosts, within the allowance"


@frozen(kw_only=True)
class Finding:
    """
    One promise that was broken.

    Attributes:
        check: which, one of :data:`safeconsumer.audit.checker.CHECKS`.
        case: in which group, on which partition.
        member: by whom; "" if by the fleet together.
        offset: the first offset concerned, or None.
        evidence: what the journal says, in one sentence.
        basis: what it rests on.
        at: when, seconds since the epoch; None if no moment can be named.
        entry: the number of the entry that shows it; None if it takes several.
    """

    check: str
    case: Address
    member: str
    offset: int | None
    evidence: str
    basis: Basis
    at: float | None = None
    entry: int | None = None
