"""Finds pages and scripts that name missing files, modules or methods."""

import ast
import re
from pathlib import Path

from tests.harness.docs.pages import PAGES, ROOT

_PACKAGE = ROOT / "safeconsumer"
_ARCHITECTURE = ROOT / "design" / "architecture.md"


def findings():
    """Yield a fault for each missing file or method that a page or a script names."""
    design = sorted((ROOT / "design").glob("*.md"))
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", *design):
        for name in links(page, page.read_text("utf-8")):
            yield f"{page.relative_to(ROOT)}: there is no {name}"
    named = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "pyproject.toml"]
    named += design
    named += [one for one in (ROOT / ".ci").iterdir() if one.is_file()]
    named += (ROOT / ".github").rglob("*.yml")
    for file in named:
        for name in lost(file.read_text("utf-8")):
            yield f"{file.relative_to(ROOT)}: there is no {name}"
    page = _ARCHITECTURE.read_text("utf-8")
    for name in (*_lost_files(page), *_lost_methods(page)):
        yield f"design/architecture.md: there is no {name}"
    contract = (ROOT / "design" / "contract.md").read_text("utf-8")
    for promise in re.findall(r"^### (P\d+)", contract, re.MULTILINE):
        if f"\n| {promise} " not in page:
            yield f"design/architecture.md: no place of {promise}"


def links(page, text):
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if "generated/" not in link and not (page.parent / link).exists():
            yield link


def lost(text):
    """Yield each named path of a test or script, and each named module, that is missing."""
    for name in re.findall(r"(?<![\w/.-])((?:tests|design|\.ci)/[\w/.-]*\w)", text):
        if not any(ROOT.glob(f"{name}*")):  # test_{one,other}.py
            yield name
    folders = "unit|sim|broker|system|harness|bench"
    for name in re.findall(rf"`((?:{folders})/[\w/]+)(?:\.py)?(?:::\w+)?`", text):
        if not any((ROOT / "tests").glob(f"{name}*")):
            yield f"tests/{name}"
    for name in re.findall(r"python3? -m (tests[\w.]*\w)", text):
        folder = ROOT / name.replace(".", "/")
        if not any(
            one.exists() for one in (folder.with_suffix(".py"), folder / "__main__.py")
        ):
            yield name


def _lost_files(page):
    """Yield missing files; a bare file name belongs to the folder of the previous name."""
    for line in page.splitlines():
        cell, folder = line.split("|")[1] if line.startswith("| ") else "", Path()
        for name in re.findall(r"`([\w/]+\.py)`", cell):
            file = Path(name) if "/" in name else folder / name
            folder = file.parent
            if not (_PACKAGE / file).is_file():
                yield str(file)


def _lost_methods(page):
    """Yield missing methods; in a list of methods only the first method names the class."""
    known = _classes()
    code = " ".join(re.findall(r"`([^`\n]+)`", page))
    named = re.findall(r"\b([A-Z]\w+)\.([a-z_]\w*)", code)
    named += re.findall(r"`([A-Z]\w+)\.\w+`, `(_\w+)`", page)
    for owner, name in named:
        if owner in known and name not in known[owner]:
            yield f"{owner}.{name}"


def _classes():
    """Return the package's classes, each with the names of its members."""
    found = {}
    for file in _PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(_members(node))
    return found


def _members(node):
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            yield one.name
        elif isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self":
            yield one.attr
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            yield one.target.id
