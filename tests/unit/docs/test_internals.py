"""The page about internals names files, classes and methods that there are."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.docs.prose import ROOT

PAGE = (ROOT / "design" / "internals.md").read_text("utf-8")
PACKAGE = ROOT / "safeconsumer"


def classes() -> dict[str, set[str]]:
    """Return the classes of the package, and the names in each."""
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(_names(node))
    return found


def _names(node: ast.ClassDef) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            yield one.name
        elif isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self":
            yield one.attr
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id


def test_methods_that_it_names_are_there() -> None:
    """Also those that are named behind a method of the same class, as `_safe_lift` is."""
    known = classes()
    code = " ".join(re.findall(r"`([^`\n]+)`", PAGE))
    named = set(re.findall(r"\b([A-Z]\w+)\.([a-z_]\w*)", code))
    named |= {
        (owner, other)
        for owner, other in re.findall(r"`([A-Z]\w+)\.\w+`, `(_\w+)`", PAGE)
    }
    ours = [one for one in named if one[0] in known]
    assert len(ours) > 20
    lost = [f"{owner}.{name}" for owner, name in ours if name not in known[owner]]
    assert lost == []


def test_files_that_it_names_are_there() -> None:
    """A name without a folder stands behind one of the same folder."""
    lost, count = [], 0
    for line in PAGE.splitlines():
        cell, folder = line.split("|")[1] if line.startswith("| ") else "", Path()
        for name in re.findall(r"`([\w/]+\.py)`", cell):
            file = Path(name) if "/" in name else folder / name
            folder, count = file.parent, count + 1
            if not (PACKAGE / file).is_file():
                lost.append(str(file))
    assert count > 50
    assert lost == []
