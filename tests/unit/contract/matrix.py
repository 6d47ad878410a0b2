"""
Reads which test proves which promise of ``design/contract.md``.

A test says it by ``@pytest.mark.contract("P7")``, or several ids. It is read from the
sources, so that it is the same with any broker, and without one.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
CONTRACT = ROOT / "design" / "contract.md"

# Promises of a speed: a test on a busy machine would prove nothing, so they are
# measured by hand, and the figures are in design/benchmarks.md.
MEASURED: Mapping[str, str] = {
    "P15": "The time per record is measured: `python -m tests.bench overhead`.",
    "S6": "It is measured, and no test asserts it: `python -m tests.bench spark`.",
}

_PROMISE = re.compile(r"^### ([A-Z]\d+): (.+)$", re.MULTILINE)


def promises() -> dict[str, str]:
    """Return each promise's id and title, in the order of the page."""
    return dict(_PROMISE.findall(CONTRACT.read_text(encoding="utf-8")))


@cache
def proofs() -> dict[str, list[str]]:
    """Return the tests of each id that a test names, as pytest calls them."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for name, ids in _marked(tree):
            for one in ids:
                test = f"{file.relative_to(ROOT).as_posix()}::{name}"
                found.setdefault(one, []).append(test)
    return found


def _marked(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for one in node.decorator_list:
            is_call = isinstance(one, ast.Call)
            if is_call and ast.unparse(one.func) == "pytest.mark.contract":
                yield node.name, [ast.literal_eval(value) for value in one.args]


_HEAD = """# The contract and its tests

Each promise of [the contract](design/contract.md), and the tests that are marked as proofs of it. Others prove parts of it, too.

| id | promise | tests |
|---|---|---|
"""  # noqa: E501 - one sentence, one line


def page() -> str:
    """Return the matrix as a page."""
    tests = proofs()
    rows = []
    for one, title in promises().items():
        said = [f"`{name}`" for name in tests.get(one, ())]
        said += [MEASURED[one]] if one in MEASURED else []
        rows.append(f"| {one} | {title} | {'<br>'.join(said)} |")
    return _HEAD + "\n".join(rows) + "\n"
