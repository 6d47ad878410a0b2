"""
Every module and name that the package imports from kafka-python exists.

The test looks each name up without importing the package, as an import would stop at the
first missing name. The nightly run against another kafka-python names all of them.
"""

import ast
from importlib import import_module
from pathlib import Path

import pytest

import safeconsumer
from tests.harness.listing import short

(PACKAGE,) = map(Path, safeconsumer.__path__)


def imported():
    """Return each module, and each name of it, that the package imports from kafka-python."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                found |= {(node.module or "", alias.name) for alias in node.names}
            elif isinstance(node, ast.Import):
                found |= {(alias.name, "__name__") for alias in node.names}
    return {each for each in found if f"{each[0]}.".startswith("kafka.")}


@pytest.mark.parametrize(("module", "name"), sorted(imported()), ids=short)
def test_imported_name_of_kafka_python_exists(module, name):
    if not hasattr(import_module(module), name):
        import_module(f"{module}.{name}")
