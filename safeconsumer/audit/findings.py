"""Defines the judge's findings and the evidence on which they rest."""

from enum import StrEnum

from attrs import frozen

from safeconsumer.audit.facts import Address


class Basis(StrEnum):
    """The evidence on which a finding rests; the value describes it for people."""

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
        check: the check, one of :data:`safeconsumer.audit.checker.CHECKS`.
        case: the group and the partition.
        member: the member that broke it; "" for several members together.
        offset: the first offset concerned, or None.
        evidence: the evidence of the journal, in one sentence.
        basis: the kind of evidence.
        at: when it happened, seconds since the epoch; None if no moment is known.
        entry: the number of the entry that shows it; None if several entries do.
    """

    check: str
    case: Address
    member: str
    offset: int | None
    evidence: str
    basis: Basis
    at: float | None = None
    entry: int | None = None
