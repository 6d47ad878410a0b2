"""
Every module and name that the package imports from kafka-python exists.

The test looks up each name without importing the package, as an import would stop at the
first missing name. The nightly run against another kafka-python lists every missing name.
"""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import safeconsumer
from tests.harness.listing import short

(PACKAGE,) = map(Path, safeconsumer.__path__)
IMPORT = re.compile(
    r"^ *(from kafka\b\S* import (\([^)]*\)|.*)|import kafka\b.*)", re.MULTILINE
)


def imported():
    """Return each module and name that the package imports from kafka-python."""
    texts = (path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    found = set()
    # Parsing whole modules would add half a second to the collection of each pytest worker.
    statements = (one[1] for text in texts for one in IMPORT.finditer(text))
    for node in ast.parse("\n".join(statements)).body:
        if isinstance(node, ast.ImportFrom):
            found |= {(node.module, alias.name) for alias in node.names}
        else:
            found |= {(alias.name, "__name__") for alias in node.names}
    return {each for each in found if f"{each[0]}.".startswith("kafka.")}


@pytest.mark.parametrize(("module", "name"), sorted(imported()), ids=short)
def test_imported_name_of_kafka_python_exists(module, name):
    if not hasattr(import_module(module), name):
        import_module(f"{module}.{name}")
