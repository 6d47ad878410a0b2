"""The table of rows is complete, and tells the truth."""

import ast
import re
from collections import defaultdict
from pathlib import Path

from tests.broker.regression.rows import ROWS

MEASURED = [*map(str, range(1, 19)), "14a"]
CARRIED_OVER = [f"R{number}" for number in range(1, 33)]


def told() -> dict[str, set[str]]:
    """Return the tests by the rows that their docstrings name."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = (ast.get_docstring(node) or "").strip()
                named = re.match(r"Rows? ([^:]+):", text)
                for row in re.findall(r"R?\d+a?", named.group(1)) if named else ():
                    found[row].add(f"{file.stem}::{node.name}")
    return found


def test_no_row_is_missing() -> None:
    """Every row that was measured or carried over has a test."""
    assert sorted(ROWS) == sorted([*MEASURED, *CARRIED_OVER])
    assert [row for row, entry in ROWS.items() if not entry.tests] == []


def test_the_table_says_what_the_tests_say() -> None:
    """Each test that the table names exists and names the row, and the other way round."""
    assert {row: set(entry.tests) for row, entry in ROWS.items()} == dict(told())
