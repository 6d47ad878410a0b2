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
from tests.audit.bad import TP, Fleet
from tests.audit.telling import Telling


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
    assert (done.exit_code, done.output) == (0, "clean: 1 journal, 1 partition\n")
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


def test_what_could_not_be_judged_is_named_and_is_not_clean(tmp_path: Path) -> None:
    """
    Status 2; leaving the check out is said as well.
    """
    told = Telling().assigned(TP).poll(TP, 0, 5).pause("orders").resume("orders")
    folder = written(tmp_path / "fleet", [told.poll(TP, 5, 7)])
    done = run(folder, "--report", tmp_path / "report")
    assert done.exit_code == 2
    assert "S7  orders:0 of g  could not be judged: a does not say" in done.output
    rows = [json.loads(one) for one in (tmp_path / "report").read_text().splitlines()]
    assert [row["check"] for row in rows if row["unjudged"]] == ["S7"]
    done = run(folder, "--without", "S7")
    said = "clean: 1 journal, 1 partition, without S7\n"
    assert (done.exit_code, done.output) == (0, said)


def test_an_operators_hold_needs_an_operators_journal(tmp_path: Path) -> None:
    """
    Members heard of a hold; since when it bound new owners nobody says.
    """
    told = Telling().assigned(TP).then("hold", scope="orders", owner="operator:eve")
    told.then("lift", scope="orders", owner="operator:eve").poll(TP, 0, 2)
    done = run(written(tmp_path / "without", [told]))
    assert (done.exit_code, "G2  orders:0 of g  could not be" in done.output) == (2, 1)
    operator = Telling("operator", group="", at=1000)
    said = {"scope": "orders", "owner": "eve", "group": "g"}
    operator.then("group-hold", **said).then("group-lift", **said)
    assert run(written(tmp_path / "with", [told, operator])).exit_code == 0


def test_what_may_stand_in_a_broken_journal_is_no_violation(tmp_path: Path) -> None:
    """
    Status 2: who delivered what is missing may have written it there.
    """
    folder = written(tmp_path, bad.s2())
    assert run(folder).exit_code == 1
    (folder / "x.journal").write_text('{"journal": 9}\n')
    done = run(folder)
    assert (done.exit_code, "S2  orders:0" in done.output) == (2, True)
    assert "could not tell" in done.output
    folder = written(tmp_path / "proven", bad.s1())
    (folder / "x.journal").write_text('{"journal": 9}\n')
    assert run(folder).exit_code == 1


def test_two_groups_are_judged_apart(tmp_path: Path) -> None:
    """
    Two correct ones are clean; a loss is named with its group.
    """
    one = Telling("a", group="one").assigned(TP).poll(TP, 0, 100).commit(TP, 100)
    two = Telling("b", group="two", at=1010).assigned(TP).poll(TP, 0, 100)
    folder = written(tmp_path, [one, two.commit(TP, 100)])
    assert run(folder).exit_code == 0
    lost = Telling("c", group="two", at=1020).assigned(TP, generation=2)
    written(tmp_path, [one, two, lost.poll(TP, 105, 110)])
    done = run(folder)
    assert (done.exit_code, "S2  orders:0 of two  1 x" in done.output) == (1, True)
    assert "(by offsets)" in done.output
