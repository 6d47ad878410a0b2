"""The table of coverage: what it adds up, and when it fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness import coverage_table
from tests.harness.coverage_table import Share


def counts(statements: int, branches: int, lines_ran: int, ways: int) -> dict[str, Any]:
    summary = {
        "num_statements": statements,
        "num_branches": branches,
        "covered_lines": lines_ran,
        "covered_branches": ways,
    }
    return {"summary": summary}


def written(folder: Path, **files: dict[str, Any]) -> str:
    named = {f"{name.replace('__', '/')}.py": one for name, one in files.items()}
    file = folder / "coverage.json"
    file.write_text(json.dumps({"files": named}))
    return str(file)


def test_files_are_added_up_by_the_package_under_the_root() -> None:
    """Deeper packages count for the one under the root; the root's own files are a row."""
    shares = {
        "safeconsumer/errors.py": Share(10, 2, 12),
        "safeconsumer/_kafka/structs.py": Share(4, 0, 4),
        "safeconsumer/_kafka/handover/marks.py": Share(6, 4, 8),
    }
    assert coverage_table.packages(shares) == {
        "safeconsumer": Share(10, 2, 12),
        "safeconsumer/_kafka": Share(10, 4, 12),
    }


def test_statements_and_branches_count_alike() -> None:
    report = {"files": {"safeconsumer/a.py": counts(6, 4, 5, 1)}}
    shares = coverage_table.modules(report)
    assert shares == {"safeconsumer/a.py": Share(6, 4, 6)}
    assert shares["safeconsumer/a.py"].percent == 60


def test_a_file_without_statements_is_whole() -> None:
    assert Share().percent == 100


@pytest.mark.parametrize(("least", "status"), [(95, 0), (95.1, 1), (0, 0)])
def test_it_fails_below_the_share_that_is_wanted(
    tmp_path: Path, least: float, status: int
) -> None:
    file = written(tmp_path, safeconsumer__a=counts(100, 100, 95, 95))
    assert coverage_table.main([file, "--least", str(least)]) == status


def test_a_share_just_below_is_not_rounded_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that says 95.0 % and fails for 95 would be a riddle."""
    file = written(tmp_path, safeconsumer__a=counts(10_000, 0, 9_499, 0))
    assert coverage_table.main([file, "--least", "95"]) == 1
    assert " 94.9 % ran, 95 % are wanted" in capsys.readouterr().out


def test_where_nothing_was_measured_it_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert coverage_table.main([written(tmp_path), "--least", "95"]) == 1
    assert capsys.readouterr().out == "nothing was measured\n"


def test_each_package_and_the_total_have_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(
        tmp_path,
        safeconsumer__holds__state=counts(10, 10, 10, 9),
        safeconsumer__errors=counts(5, 0, 5, 0),
    )
    assert coverage_table.main([file]) == 0
    printed = capsys.readouterr().out.splitlines()
    found = {line.split()[0]: line.split()[1:] for line in printed[1:4]}
    assert found == {
        "safeconsumer": ["5", "0", "0", "100.0", "%"],
        "safeconsumer/holds": ["10", "10", "1", "95.0", "%"],
        "all": ["15", "10", "1", "96.0", "%"],
    }
    assert printed[7].split()[0] == "safeconsumer/holds/state.py"
