"""The tables of the reference say what the package's metadata say."""

import sys
from typing import Any

import pytest

from tests.unit.docs.prose import ROOT


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401 - a module
    """Lend the module, which stands beside the pages and not in a package."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.delitem(sys.modules, "reference_tables", raising=False)
    import reference_tables  # noqa: PLC0415 - found from here on only

    return reference_tables


def test_what_only_some_pythons_need_says_which(tables: Any) -> None:  # noqa: ANN401
    """Two versions of one package, side by side, would say that both are needed."""
    lines = [
        "attrs>=24.1",
        "pyarrow>=18; (python_version < '3.14') and extra == 'spark'",
        "pyarrow>=22; (python_version >= '3.14') and extra == 'spark'",
        "google-re2>=1.1; extra == 'spark'",
    ]
    (row,) = tables._extras(lines)
    assert row == (
        "| `spark` | `pyarrow>=18` (`python_version < '3.14'`), `pyarrow>=22` "
        "(`python_version >= '3.14'`), `google-re2>=1.1` |"
    )


@pytest.mark.parametrize("extra", ["coverage", "docs", "fuzz", "lint", "mutation"])
def test_what_only_this_projects_own_work_needs_is_left_out(
    tables: Any,  # noqa: ANN401 - a module
    extra: str,
) -> None:
    """Nobody who uses the package installs it."""
    assert list(tables._extras([f"mutmut>=3.8; extra == '{extra}'"])) == []
