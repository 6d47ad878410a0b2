"""Defines the measured figures and their targets, and reports both."""

import contextlib
import datetime as dt
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata

from attrs import asdict, field, frozen

_DISTRIBUTIONS = (
    *("safeconsumer", "kafka-python", "attrs", "crc32c", "structlog"),
    *("aiokafka", "confluent-kafka", "cramjam"),
)

Values = Mapping[str, Sequence[float]]
"""The values of each variant, one per lap; values at the same index form a pair."""


@frozen
class Figure:
    """
    A measured value and its unit; ``--only`` selects figures by their ``row``.

    Either bound of the target may be None; a figure without bounds is only informative.
    ``rounds`` has the raw values, and ``note`` explains how they were measured.
    """

    row: str
    name: str
    measured: float
    unit: str
    at_most: float | None = field(default=None, kw_only=True)
    at_least: float | None = field(default=None, kw_only=True)
    rounds: Values = field(factory=dict, kw_only=True)
    note: str = field(default="", kw_only=True)
    # The quartiles of the values; ``measured`` is their median.
    spread: Sequence[float] = field(factory=tuple, kw_only=True)

    @property
    def target(self):
        ends = ((">=", self.at_least), ("<=", self.at_most))
        limits = [
            f"{sign} {end:g} {self.unit}" for sign, end in ends if end is not None
        ]
        return ", ".join(limits) or None

    @property
    def passed(self):
        """Whether the figure reaches its target; None if the figure has no target."""
        if self.target is None:
            return None
        above = self.at_least is None or self.measured >= self.at_least
        return above and (self.at_most is None or self.measured <= self.at_most)


def ratio(  # noqa: PLR0913 - a comparison has two sides, a name and a target
    row, name, taken, over, under, *, at_most=None, at_least=None, scale=1.0, note=""
):
    """
    Return the median of the ratios between two variants' paired values.

    Both values of a pair are measured at about the same time, so a phase in which the
    machine is slow affects both. The report shows the raw values multiplied by
    ``scale``.
    """
    pairs = zip(taken[over], taken[under], strict=True)
    ratios = [one / other for one, other in pairs]
    return Figure(
        row,
        name,
        statistics.median(ratios),
        "x",
        at_most=at_most,
        at_least=at_least,
        rounds={
            variant: [round(value * scale, 3) for value in taken[variant]]
            for variant in (over, under)
        },
        note=note,
        spread=_middle(ratios),
    )


def median(  # noqa: PLR0913 - one for each field of a figure
    row, name, values, unit, *, at_most=None, note=""
):
    return Figure(
        row,
        name,
        statistics.median(values),
        unit,
        at_most=at_most,
        rounds={"": values},
        note=note,
        spread=_middle(values),
    )


def _middle(values):
    if len(values) == 1:
        return (values[0], values[0])
    first, _, last = statistics.quantiles(values, n=4, method="inclusive")
    return (first, last)


def percentiles(row, name, values, targets, note=""):
    """Yield a figure for each percentile in ``targets``; the values are milliseconds."""
    for percent, at_most in targets.items():
        yield Figure(
            row,
            f"{name}, p{percent}",
            percentile(values, percent),
            "ms",
            at_most=at_most,
            rounds={"ms": values},
            note=note,
        )


def percentile(values, percent):
    """Return the smallest value that at least ``percent`` % of the values do not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]


# ---------------------------------------------------------------- regressions

_ALLOWED = 0.02


def judged(row, name, values, rounds):
    """
    Compare the cost of ``now`` with the cost of ``before``; less is better.

    ``now`` may cost at most 2 % more, or twice the random difference if that is larger.
    The random difference is the one between ``now`` and ``now again`` in the round in
    which the two differ most. It is computed for each round, because all laps of a round
    share the same processes and so the random effects of these processes.
    """
    again, now = values["now again"], values["now"]
    pairs = [one / other for one, other in zip(again, now, strict=True)]
    length = len(pairs) // rounds
    chance = max(
        abs(statistics.median(pairs[at : at + length]) - 1)
        for at in range(0, rounds * length, length)
    )
    at_most = round(1 + max(_ALLOWED, 2 * chance), 4)
    note = f"the same code twice: up to {chance:.1%} in a round"
    return ratio(row, name, values, "now", "before", at_most=at_most, note=note)


def sentences(figures):
    """Yield a sentence for each figure of a report."""
    for one in figures:
        more, allowed = one["measured"] - 1, one["at_most"] - 1
        change = f"{abs(more):.1%} {'more' if more > 0 else 'less'} than before"
        text = f"{one['row']}: {one['name']} is {change}"
        if not one["passed"]:
            yield f"{text}, a regression: {allowed:.1%} could be chance."
        elif abs(more) > allowed:
            yield f"{text}."
        else:
            yield f"{text}, which could be chance."


# ---------------------------------------------------------------- the report


def measured(stage, rows, only=()):
    """Measure all rows, or only some; return the report as JSON values."""
    start = time.monotonic()
    figures = []
    for name, row in rows.items():
        if not only or name in only:
            figures.extend(row(stage))
            tell(f"{name}: {time.monotonic() - start:.1f} s")
    tell(_table(figures))
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.system(),
            "architecture": platform.machine(),
        },
        "versions": {"python": platform.python_version(), **dict(_installed())},
        "broker": stage.broker.kind,
        "seconds": round(time.monotonic() - start, 1),
        "figures": [
            {**asdict(one), "target": one.target, "passed": one.passed}
            for one in figures
        ],
    }


def tell(text):
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _installed():
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def _table(figures):
    judged = {True: "ok", False: "MISSED", None: ""}
    rows = [("row", "figure", "target", "measured", "half of the laps", "")]
    for one in figures:
        result = f"{one.measured:.4g} {one.unit}"
        spread = " to ".join(f"{end:.4g}" for end in one.spread)
        verdict = judged[one.passed]
        rows.append((one.row, one.name, one.target or "-", result, spread, verdict))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
