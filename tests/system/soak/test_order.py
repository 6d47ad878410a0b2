"""Order over all workers: found where it is broken, and only there."""

import json
from pathlib import Path

from tests.harness.audit.telling import Telling
from tests.system.soak.order import overtaken
from tests.system.soak.run import judge

TP = "orders:0"


def test_repeats_by_the_next_worker_are_in_order() -> None:
    """What was done and not committed comes again; lanes overtake each other."""
    one = Telling("a").handle(TP, 0, 1).begin(TP, 5, "=other").begin(TP, 2)
    two = Telling("b", at=2000).handle(TP, 1).handle(TP, 2, ok=False)
    two.complete(TP, 2, "dead-letter").handle(TP, 3)
    assert overtaken([one.journal(), two.journal()]) == []


def test_what_a_program_without_handlers_committed_is_complete() -> None:
    """It took over a partition whose worker was killed in the middle of a record."""
    one = Telling("a").handle(TP, 0).begin(TP, 1)
    plain = Telling("b", at=2000).poll(TP, 1, 3).commit(TP, 3)
    two = Telling("c", at=3000).handle(TP, 3)
    assert overtaken([one.journal(), two.journal()]) == ["c, entry 1: 3 before 1"]
    assert overtaken([one.journal(), plain.journal(), two.journal()]) == []


def test_a_record_begun_before_one_that_nobody_has_completed_is_found() -> None:
    """However long afterwards that is done."""
    one = Telling("a").handle(TP, 0).handle(TP, 1, ok=False)
    two = Telling("b", at=2000).handle(TP, 2).handle(TP, 1)
    assert overtaken([one.journal(), two.journal()]) == ["b, entry 1: 2 before 1"]


def test_a_soak_in_which_one_worker_overtook_another_is_no_clean_one(
    tmp_path: Path,
) -> None:
    """The audit of each worker finds nothing; the times of both do."""
    folder = tmp_path / "journals"
    folder.mkdir()
    one = Telling("a").assigned(TP).poll(TP, 0, 2).handle(TP, 0)
    two = Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 2, 3).handle(TP, 2)
    for name, telling in {"a": one.begin(TP, 1), "b": two}.items():
        (folder / f"{name}.journal").write_text(telling.text())
    earlier = {"crashed": [], "stuck": [], "left": {}}
    (tmp_path / "result.json").write_text(json.dumps(earlier))
    result = judge(tmp_path)
    assert result["overtaken"] == ["b, entry 3: 2 before 1"]
    assert result["violations_total"] == 1 + sum(result["violations"].values())
    assert result["status"] == 1
