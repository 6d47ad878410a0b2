"""
``safeconsumer audit``: its lines, its report and its exit status.
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from safeconsumer.audit.checker import CHECKS
from safeconsumer.cli.commands import safeconsumer
from tests.audit import bad
from tests.audit.bad import Fleet


def written(folder: Path, fleet: Fleet) -> Path:
    folder.mkdir(exist_ok=True)
    for number, told in enumerate(fleet):
        (folder / f"{number}.journal").write_text(told.text())
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(safeconsumer, ["audit", *map(str, arguments)])


def test_a_clean_fleet(tmp_path: Path) -> None:
    """
    Status 0, and one row per check and partition in the report.
    """
    report = tmp_path / "report"
    folder = written(tmp_path / "fleet", bad.held_and_let_go())
    done = run(folder, "--report", report)
    assert (done.exit_code, done.output) == (0, "clean: 1 journals, 1 partitions\n")
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(rows) == len(CHECKS)
    assert {row["violations"] for row in rows} == {0}


def test_a_violation_is_named_with_its_evidence(tmp_path: Path) -> None:
    """
    Status 1.
    """
    done = run(written(tmp_path, bad.s1()))
    assert done.exit_code == 1
    assert "S1  orders:0 of g  1 x, first by a: entry 8" in done.output
    assert "orders was held by alice" in done.output


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"journal": 2}\n', "version 2"), ("", "no whole line")],
)
def test_a_journal_that_cannot_be_read(tmp_path: Path, text: str, said: str) -> None:
    """
    Status 2: what is not seen proves nothing, however clean the rest.
    """
    folder = written(tmp_path, bad.held_and_let_go())
    (folder / "x.journal").write_text(text)
    done = run(folder)
    assert done.exit_code == 2
    assert said in done.output
    assert "could not tell" in done.output


def test_an_empty_folder_proves_nothing(tmp_path: Path) -> None:
    """
    Status 2.
    """
    assert run(tmp_path).exit_code == 2
