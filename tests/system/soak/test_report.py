"""The table of results."""

import json
from pathlib import Path

from tests.harness.audit.telling import Telling
from tests.system.soak import report, verdict
from tests.system.soak.run import judge


def result(consumer: str, **more: object) -> report.Result:
    return {
        "consumer": consumer,
        "minutes": 60.0,
        "violations": dict.fromkeys(report.CHECKS, 0),
        "violations_total": 0,
        "delivered_while_held": {},
        "left": {},
        "crashed": [],
        "stuck": [],
        "cpu_seconds": 1,
        **verdict.figures([]),
        "acknowledged": 0,
        "delivered": 0,
        "ownerships": 0,
        **more,
    }


def test_a_column_names_its_fleet() -> None:
    """It names the assignor, and plain loops where there could have been workers."""
    ours = {"workers": 0, "assignor": "cooperative"}
    both = result("safeconsumer.SafeConsumer", **ours), result("stock", workers=0)
    (head, *_) = report.lines(list(both))
    assert (
        head == "| | `safeconsumer.SafeConsumer`, cooperative, plain loops | `stock` |"
    )


def test_results_stand_side_by_side() -> None:
    """A row for each figure, also where only one of them has it."""
    ours = result("ours", acknowledged=1_000_000, faults={"kill": 3})
    stock = result("stock", delivered_while_held={"topic": 7}, left={"orders:1": 131})
    table = list(report.lines([ours, stock]))
    assert table[0] == "| | `ours` | `stock` |"
    assert "| records acknowledged | 1,000,000 | 0 |" in table
    assert "| A1, held by topic | 0 | 7 |" in table
    assert "| not delivered after 120 s without any | 0 | 131 |" in table
    assert "| fault: kill | 3 | 0 |" in table


def test_a_check_that_a_result_lacks_is_no_zero() -> None:
    """It was made before there was such a check."""
    old = result("old", violations=dict.fromkeys(("A1", "A7"), 3))
    table = list(report.lines([result("new"), old]))
    assert "| A7: `paused()` says otherwise than the holds | 0 | 3 |" in table
    assert "| W4: committed and not complete | 0 | - |" in table


def test_an_earlier_soak_is_judged_again(tmp_path: Path) -> None:
    """By the checker of today; what it ran with stays."""
    folder = tmp_path / "journals"
    folder.mkdir()
    bad = Telling("a").assigned("orders:1").pause("orders").poll("orders:1", 0, 3)
    (folder / "a.journal").write_text(bad.text())
    (tmp_path / "result.json").write_text(
        json.dumps(result("ours", violations_total=0, seed=8, status=0))
    )
    again = judge(tmp_path)
    assert again["violations"]["A1"] == again["violations_total"] == 1
    assert again["status"] == 1
    assert again["seed"] == 8
    assert json.loads((tmp_path / "result.json").read_text()) == again
    assert len((tmp_path / "violations.jsonl").read_text().splitlines()) == 1


def test_a_result_from_before_names_checks_as_they_are_called_now(
    tmp_path: Path,
) -> None:
    """S1 was A1."""
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"violations": {"S1": 3, "L1": 1}}))
    assert report.read(path) == {"violations": {"A1": 3, "L1": 1}}
