"""The command ``safeconsumer timeline``."""

import sys

import pytest
from click.testing import CliRunner

from safeconsumer.cli.commands import safeconsumer
from tests.harness.audit import bad
from tests.harness.listing import short
from tests.unit.cli.test_audit import written


def run(*arguments):
    return CliRunner().invoke(safeconsumer, ["timeline", *map(str, arguments)])


def test_a_folder_becomes_a_picture(tmp_path):
    out = tmp_path / "out.svg"
    done = run(written(tmp_path / "fleet", bad.FLEETS["a1"]()), "-o", out)
    said = f"{out}: 1 partition, 1 journal, 1 violation\n"
    assert (done.exit_code, done.output) == (0, said)


@pytest.mark.parametrize(
    ("name", "begin"), [("out.HTML", b"<!DOCTYPE html>"), ("out.png", b"\x89PNG")]
)
def test_it_can_be_a_page_or_an_image(tmp_path, name, begin):
    out = tmp_path / name
    assert (
        run(written(tmp_path / "fleet", bad.FLEETS["a1"]()), "-o", out).exit_code == 0
    )
    assert out.read_bytes().startswith(begin)


def test_without_the_extra_the_install_line_is_said(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "safeconsumer.audit.timeline.page", raising=False)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    folder = written(tmp_path / "fleet", bad.FLEETS["a1"]())
    (folder / "0.journal").write_text("broken")
    done = run(folder, "-o", tmp_path / "out.svg")
    said = "a timeline needs vl-convert: pip install 'safeconsumer[audit]'"
    assert (done.exit_code, said in done.output) == (2, True)
    assert "broken" not in done.output
    assert not (tmp_path / "out.svg").exists()


def test_a_name_that_no_journal_has_is_an_error(tmp_path):
    """Also beside some that one has: a misspelt name must not look like silence."""
    folder, out = written(tmp_path / "fleet", bad.FLEETS["a1"]()), tmp_path / "out.svg"
    there = ("--partition", "orders", "--partition", bad.TP, "--group", "g")
    assert run(folder, "-o", out, *there).stderr == ""
    out.unlink()
    more = ("--partition", "order", "--partition", "orders:7", "--group", "gg")
    done = run(folder, "-o", out, *there, *more)
    assert (done.exit_code, out.exists()) == (2, False)
    assert done.stderr == (
        "safeconsumer: no journal names the group gg, the topic order, orders:7; they "
        "name orders:0 of group g\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "out.pdf"), "must end in .svg, .png or .html"),
        (("-o", "out.svg", "--partition", "orders:x"), "write topic:number"),
        (("-o", "out.svg", "--partition", "a b:1"), "not a topic name"),
        (("-o", "out.svg", "--from", "soon"), "not a duration"),
        (("-o", "out.svg", "--from", "1h"), "the journals last"),
        (("-o", "out.svg", "--partition", "nope"), "no journal names the topic nope"),
        (("-o", "no/such/folder/out.svg"), "there is no folder"),
        ((), "Missing option"),
    ],
    ids=short,
)
def test_what_cannot_be_drawn_is_said(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    done = run(written(tmp_path / "fleet", bad.FLEETS["a1"]()), *arguments)
    assert done.exit_code == 2
    assert said in done.output
    assert not list(tmp_path.glob("out.*"))


def test_a_broken_journal_is_missing_from_the_picture(tmp_path):
    folder = written(tmp_path / "fleet", bad.FLEETS["held_and_let_go"]())
    (folder / "x.journal").write_text('{"journal": 2}\n')
    done = run(folder, "-o", tmp_path / "out.svg")
    assert done.exit_code == 2
    assert "version 2" in done.output
    picture = (tmp_path / "out.svg").read_text("utf-8")
    assert "not complete: journals are missing or broken" in picture
    (folder / "x.journal").unlink()
    (tmp_path / "empty").mkdir()
    done = run(folder, tmp_path / "empty", "-o", tmp_path / "out.svg")
    assert done.exit_code == 2
    picture = (tmp_path / "out.svg").read_text("utf-8")
    assert "not complete: journals are missing or broken" in picture
