"""Finds commands that no test of the row for ``cli`` in CONTRIBUTING calls."""

import re
import shlex

from safeconsumer.cli.commands import WHERE
from tests.harness.docs.pages import ROOT

_ROW = re.compile(r"^\| `safeconsumer/cli` \| `pytest ([^`]+)`", re.MULTILINE)


def findings():
    """Yield each command that the folders of the row do not call."""
    row = _ROW.search((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    if row is None:
        yield "CONTRIBUTING.md: has no row for safeconsumer/cli"
    else:
        yield from faults(row[1])


def faults(folders):
    """Yield the commands that are in no string of these folders' tests."""
    text = "\n".join(
        file.read_text("utf-8")
        for folder in shlex.split(folders)
        for file in ROOT.glob(f"{folder}/**/*.py")
    )
    for name, where in WHERE.items():
        if not re.search(rf'"{name}[" ]', text):
            module = where.partition(".")[0]
            yield f"CONTRIBUTING.md: no test for cli/{module}.py calls {name!r}"
