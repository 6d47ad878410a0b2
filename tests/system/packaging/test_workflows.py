"""The workflows of the forge: what they name is what pyproject.toml promises."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"


def test_every_python_that_is_promised_is_tried() -> None:
    """Those of the classifiers, in the matrix of the embedded broker."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [one.rpartition(" :: ")[2] for one in project["classifiers"]]
    promised = [name for name in names if re.fullmatch(r"3\.\d+", name)]
    text = (WORKFLOWS / "tests.yml").read_text("utf-8")
    tried = re.search(r"embedded:.*?python: \[(.*?)\]", text, re.DOTALL)
    assert tried is not None
    assert re.findall(r"3\.\d+", tried[1]) == promised


@pytest.mark.parametrize("file", sorted(WORKFLOWS.iterdir()), ids=lambda one: one.name)
def test_the_programs_that_it_calls_are_here(file: Path) -> None:
    """A module that moved would be found by a night, or by a release, that fails."""
    text = file.read_text("utf-8")
    modules = re.findall(r"python -m (tests[\w.]*)", text)
    scripts = re.findall(r"(\.ci/\w+)", text)
    for name in modules:
        folder = ROOT / name.replace(".", "/")
        assert folder.with_suffix(".py").exists() or (folder / "__main__.py").exists()
    assert all((ROOT / name).exists() for name in scripts)
