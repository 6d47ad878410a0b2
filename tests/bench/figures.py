"""What was measured, and whether it reaches its target."""

import statistics
from collections.abc import Mapping, Sequence

from attrs import field, frozen


@frozen(kw_only=True)
class Figure:
    """
    One figure of one row.

    Attributes:
        row: the row's name, as ``--only`` takes it.
        name: what was measured.
        measured: the result, in ``unit``.
        at_most: the upper end of the target, where it has one.
        at_least: the lower end, where it has one; without both the figure is for
            information.
        rounds: the raw values that the result was made of.
        note: how it was measured, where that is not plain.
    """

    row: str
    name: str
    measured: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    rounds: Mapping[str, Sequence[float]] = field(factory=dict)
    note: str = ""

    @property
    def target(self) -> str | None:
        if self.at_most is None:
            if self.at_least is None:
                return None
            return f">= {self.at_least:g} {self.unit}"
        if self.at_least is None:
            return f"<= {self.at_most:g} {self.unit}"
        return f"{self.at_least:g} to {self.at_most:g} {self.unit}"

    @property
    def passed(self) -> bool | None:
        """Whether the target is reached; None if there is none."""
        if self.target is None:
            return None
        above = self.at_least is None or self.measured >= self.at_least
        return above and (self.at_most is None or self.measured <= self.at_most)

    def as_dict(self) -> dict[str, object]:
        return {
            "row": self.row,
            "name": self.name,
            "target": self.target,
            "measured": self.measured,
            "unit": self.unit,
            "passed": self.passed,
            "rounds": {arm: list(values) for arm, values in self.rounds.items()},
            "note": self.note,
        }


def ratio_of_pairs(over: Sequence[float], under: Sequence[float]) -> float:
    """
    Return the median of the ratios of values that were measured side by side.

    What slows the machine for a while slows both of a pair.
    """
    return statistics.median(
        one / other for one, other in zip(over, under, strict=True)
    )


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that at least so many percent do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]
