# ruff: noqa: T201  what it prints is what it is for
"""
Prints how much of each package the tests ran; fails below a share.

``python -m tests.harness.coverage_table FILE --least 95`` with the file of
``coverage json``. A share is coverage's own: of statements and branches together. It is
rounded down, so that what is printed is never more than what was reached.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

_WORST = 15


@frozen
class Share:
    """
    What there is to run, and what ran.

    Attributes:
        statements: lines that can run, by statements.
        branches: ways that an ``if``, a loop or a ``case`` can go on.
        ran: how many of both ran.
    """

    statements: int = 0
    branches: int = 0
    ran: int = 0

    @property
    def percent(self) -> float:
        """The share that ran; 100 where there is nothing to run."""
        there = self.statements + self.branches
        return 100 * self.ran / there if there else 100.0

    def __add__(self, other: "Share") -> "Share":
        return Share(
            self.statements + other.statements,
            self.branches + other.branches,
            self.ran + other.ran,
        )


def modules(report: Mapping[str, Any]) -> dict[str, Share]:
    """Return the share of each file of a report of ``coverage json --branch``."""
    shares = {}
    for name, about in report["files"].items():
        counts = about["summary"]
        shares[name] = Share(
            counts["num_statements"],
            counts["num_branches"],
            counts["covered_lines"] + counts["covered_branches"],
        )
    return shares


def packages(shares: Mapping[str, Share]) -> dict[str, Share]:
    """Add up files by the package under the root; the root's own files are a row, too."""
    found: dict[str, Share] = {}
    for name in sorted(shares):
        parts = Path(name).parts
        row = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
        found[row] = found.get(row, Share()) + shares[name]
    return found


def table(rows: Iterable[tuple[str, Share]]) -> str:
    """Return lines with the name, what there is and the share that ran."""
    lines = [f"{'':44} statements branches  not run   share"]
    for name, share in rows:
        missed = share.statements + share.branches - share.ran
        lines.append(
            f"{name:44} {share.statements:10} {share.branches:8} {missed:8}"
            f" {_rounded_down(share.percent)}"
        )
    return "\n".join(lines)


def _rounded_down(percent: float) -> str:
    return f"{math.floor(10 * percent) / 10:5.1f} %"


def main(arguments: list[str] | None = None) -> int:
    """Print the tables; 0 if the total is the share that is wanted or more, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--least", type=float, default=0, help="per cent, of the total")
    options = parser.parse_args(arguments)
    report = json.loads(options.file.read_text("utf-8"))
    shares = modules(report)
    if not shares:
        print("nothing was measured")
        return 1
    total = sum(shares.values(), Share())
    print(table([*packages(shares).items(), ("all", total)]))
    worst = sorted(shares.items(), key=lambda one: (one[1].percent, one[0]))[:_WORST]
    print(f"\nThe {len(worst)} modules of which least ran:")
    print(table(worst))
    if total.percent < options.least:
        print(f"\n{_rounded_down(total.percent)} ran, {options.least:g} % are wanted")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
