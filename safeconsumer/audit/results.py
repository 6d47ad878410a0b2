"""Defines the judge's settings and results."""

from collections.abc import Iterator, Mapping
from itertools import chain

from attrs import field, frozen

from safeconsumer.audit.clocks import BrokerTime
from safeconsumer.audit.control import Control
from safeconsumer.audit.findings import Address, Basis, Finding
from safeconsumer.audit.group_holds import Bounds

CHECKS = (
    *("A1", "A2", "A3", "A4", "A5", "A6", "G2"),
    *("W4", "W5", "W7", "W10"),
)


@frozen(kw_only=True)
class Settings:
    """
    The judge's settings.

    Attributes:
        patience: the maximum number of seconds until members that already own the
            partition obey a hold of the group (G2, W10).
        clock_skew: seconds by which the clocks of two members, or of a member and a
            broker, may differ; with 0 a clock without measurements proves nothing.
        is_drained: whether all acknowledged records should have been delivered, and
            also handled if there are workers.
        control: the content of the control topics; None if they were not read.
        uncompacted: topics whose settings show that they are not compacted, so that an
            offset without a record needs a reason.
    """

    patience: float = 5.0
    clock_skew: float = 0.0
    is_drained: bool = False
    control: Control | None = None
    uncompacted: frozenset[str] = frozenset()


@frozen(kw_only=True)
class Result:
    """
    The findings about one case.

    Attributes:
        case: the consumer group and the partition.
        findings: every broken promise; further violations by the same member are stored
            in the first finding.
        group_holds: the periods in which the partition was held for the group.
        clocks: converts each member's times to the broker's clock.
        bases: the kind of evidence for each check.
        unjudged: the checks that could not be judged, each with the reason.
        unrecorded: if the written records are unknown, the number of offsets that
            positions passed although no member got a record for them.
    """

    case: Address
    findings: tuple[Finding, ...]
    group_holds: tuple[Bounds, ...] = ()
    clocks: Mapping[str, BrokerTime] = field(factory=dict)
    bases: Mapping[str, Basis] = field(factory=dict)
    unjudged: Mapping[str, str] = field(factory=dict)
    unrecorded: int = 0

    @property
    def every(self) -> Iterator[Finding]:
        """Yield each violation as a separate finding."""
        return chain.from_iterable(one.each for one in self.findings)
