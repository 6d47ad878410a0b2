"""
The table of results.
"""

import json
from pathlib import Path

from tests.system.soak import report, verdict


def result(consumer: str, **more: object) -> report.Result:
    return {
        "consumer": consumer,
        "minutes": 60.0,
        "violations": dict.fromkeys(report.CHECKS, 0),
        "violations_total": 0,
        "delivered_while_held": {},
        "left": {},
        "crashed": [],
        "cpu_seconds": 1,
        **verdict.figures([]),
        "acknowledged": 0,
        "delivered": 0,
        "ownerships": 0,
        **more,
    }


def test_results_stand_side_by_side() -> None:
    """
    A row for each figure, also where only one of them has it.
    """
    ours = result("ours", acknowledged=1_000_000, faults={"kill": 3})
    stock = result("stock", delivered_while_held={"topic": 7}, left={"orders:1": 131})
    table = list(report.lines([ours, stock]))
    assert table[0] == "| | `ours` | `stock` |"
    assert "| records acknowledged | 1,000,000 | 0 |" in table
    assert "| A1, held by topic | 0 | 7 |" in table
    assert "| not delivered 120 s after the end | 0 | 131 |" in table
    assert "| fault: kill | 3 | 0 |" in table


def test_a_result_from_before_names_checks_as_they_are_called_now(
    tmp_path: Path,
) -> None:
    """
    S1 was A1.
    """
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"violations": {"S1": 3, "L1": 1}}))
    assert report.read(path) == {"violations": {"A1": 3, "L1": 1}}
