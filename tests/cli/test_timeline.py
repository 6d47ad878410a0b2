"""
The command ``safeconsumer timeline``.
"""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from safeconsumer.cli.commands import safeconsumer
from tests.audit import bad
from tests.cli.test_audit import written


def run(*arguments: object) -> Result:
    return CliRunner().invoke(safeconsumer, ["timeline", *map(str, arguments)])


def test_a_folder_becomes_a_picture(tmp_path: Path) -> None:
    """
    Status 0, also with violations: to judge is the audit's.
    """
    out = tmp_path / "out.svg"
    done = run(written(tmp_path / "fleet", bad.s1()), "-o", out, "--title", "Stock")
    said = f"{out}: 1 partitions, 1 journals, 1 violations\n"
    assert (done.exit_code, done.output) == (0, said)
    assert "Stock" in (ET.parse(out).getroot()[0].text or "")  # noqa: S314 - our own


def test_it_can_be_a_page(tmp_path: Path) -> None:
    """
    By the ending of its name.
    """
    out = tmp_path / "out.html"
    assert run(written(tmp_path / "fleet", bad.s1()), "-o", out).exit_code == 0
    assert out.read_text("utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "out.png"), "must end in .svg or .html"),
        (("-o", "out.svg", "--partition", "orders"), "write topic:number"),
        (("-o", "out.svg", "--partition", "a b:1"), "not a topic name"),
        (("-o", "out.svg", "--from", "soon"), "no duration"),
        (("-o", "out.svg", "--from", "1h"), "the journals last"),
        (("-o", "out.svg", "--topic", "nope"), "no such partition"),
        (("-o", "no/such/folder/out.svg"), "No such file"),
        ((), "Missing option"),
    ],
)
def test_what_cannot_be_drawn_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    """
    Status 2, no picture, no traceback.
    """
    monkeypatch.chdir(tmp_path)
    done = run(written(tmp_path / "fleet", bad.s1()), *arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert not list(tmp_path.glob("out.*"))


def test_a_broken_journal_is_missing_from_the_picture(tmp_path: Path) -> None:
    """
    Status 2; the others are drawn, and the picture says that it is not complete.
    """
    folder = written(tmp_path / "fleet", bad.held_and_let_go())
    (folder / "x.journal").write_text('{"journal": 2}\n')
    done = run(folder, "-o", tmp_path / "out.svg")
    assert done.exit_code == 2
    assert "version 2" in done.output
    assert "not complete: 1 journal" in (tmp_path / "out.svg").read_text("utf-8")


def test_an_empty_folder(tmp_path: Path) -> None:
    """
    Status 2.
    """
    done = run(tmp_path, "-o", tmp_path / "out.svg")
    assert (done.exit_code, "no entries" in done.output) == (2, True)
