"""Results side by side: ``python -m tests.system.soak.report RESULT.json ...``."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from safeconsumer.audit.checker import CHECKS, FORMER_NAMES

_MEANINGS = {
    "A1": "delivered while held",
    "A2": "lost",
    "A3": "gaps, and deliveries without ownership",
    "A4": "went back, or began after what was committed",
    "A5": "committed and not delivered",
    "A6": "committed and delivered again",
    "A7": "`paused()` says otherwise than the holds",
    "A8": "parked data beyond its bound",
    "L1": "a resume that did not resume in 60 s",
    "G2": "delivered in spite of a group hold before the ownership",
    "W4": "committed and not complete",
    "W5": "not handled, or twice in one ownership",
    "W7": "handled out of order",
    "W10": "begun while held",
}
_LEVELS = ("partition", "topic", "pattern", "everything")
Result = dict[str, Any]


def _row(what: str, cell: Callable[[Result], object], results: list[Result]) -> str:
    cells = (
        f"{one:,}" if isinstance(one, int) else str(one) for one in map(cell, results)
    )
    return f"| {what} | {' | '.join(cells)} |"


def _left(result: Result) -> int:
    return sum(result["left"].values())


def _check(name: str) -> Callable[[Result], object]:
    return lambda one: one["violations"].get(name, "-")  # it had no such check then


def _overtaken(result: Result) -> object:
    return len(result["overtaken"]) if "overtaken" in result else "-"


def _level(name: str) -> Callable[[Result], object]:
    return lambda one: one["delivered_while_held"].get(name, 0)


def _fault(name: str) -> Callable[[Result], object]:
    return lambda one: one["faults"].get(name, 0)


def _fleet(result: Result) -> str:
    said = f"`{result['consumer']}`"
    if result.get("assignor", "range") != "range":
        said += f", {result['assignor']}"
    may_work = result["consumer"].startswith("safeconsumer.")
    is_plain = may_work and result.get("workers") == 0
    return f"{said}, plain loops" if is_plain else said


def lines(results: list[Result]) -> Iterable[str]:
    """Yield a table: a column for each result, a row for each figure."""
    yield f"| | {' | '.join(map(_fleet, results))} |"
    yield "|---|" + "---|" * len(results)
    rows: list[tuple[str, Callable[[Result], object]]] = [
        ("minutes of faults", lambda one: one["minutes"]),
        ("records acknowledged", lambda one: one["acknowledged"]),
        ("records delivered", lambda one: one["delivered"]),
        ("faults", lambda one: one["faults_total"]),
        ("rebalances (generations)", lambda one: one["rebalances"]),
        ("ownerships that began", lambda one: one["ownerships"]),
        ("pauses that were resumed", lambda one: one["pairs"]),
        ("group holds", lambda one: one.get("group_holds", 0)),
        ("**violations**", lambda one: one["violations_total"]),
    ]
    rows += [(f"{name}: {_MEANINGS[name]}", _check(name)) for name in CHECKS]
    rows += [("begun before an earlier one was complete anywhere", _overtaken)]
    rows += [(f"A1, held by {level}", _level(level)) for level in _LEVELS]
    rows += [
        ("not delivered after 120 s without any", _left),
        ("members that ended by themselves", lambda one: len(one["crashed"])),
        ("members that did not leave in 40 s", lambda one: len(one["stuck"])),
        ("CPU, seconds", lambda one: one["cpu_seconds"]),
    ]
    for kind in sorted({kind for one in results for kind in one["faults"]}):
        rows.append((f"fault: {kind}", _fault(kind)))
    for what, cell in rows:
        yield _row(what, cell, results)


def read(path: Path) -> Result:
    """Return a result; one of old names the checks as they were called then."""
    result: Result = json.loads(path.read_text())
    found = result["violations"]
    result["violations"] = {FORMER_NAMES.get(name, name): found[name] for name in found}
    return result


def main() -> None:
    """Print the table of the results that are named."""
    results = [read(Path(one)) for one in sys.argv[1:]]
    sys.stdout.write("\n".join(lines(results)) + "\n")


if __name__ == "__main__":
    main()
