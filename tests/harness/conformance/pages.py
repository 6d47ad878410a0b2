"""Puts the tables where people read them, between marks that stay."""

from pathlib import Path

from tests.harness.conformance import report
from tests.harness.conformance.results import Results

_ROOT = Path(__file__).parents[3]
DESIGN = _ROOT / "design" / "conformance.md"
README = _ROOT / "README.md"


def write(results: Results) -> None:
    """Write the tables, the conditions, the remarks and the choices."""
    design = DESIGN.read_text("utf-8")
    for name, text in (
        ("conditions", report.conditions(results)),
        ("table", report.full_table(results)),
        ("remarks", report.remarks(results)),
        ("choices", report.choices()),
    ):
        design = put(design, name, text)
    DESIGN.write_text(design, "utf-8")
    stamp = f"{report.stamp(results)}; {results.runs} runs."
    short = f"{report.short_table(results)}\n\n{stamp}"
    README.write_text(put(README.read_text("utf-8"), "conformance", short), "utf-8")


def put(page: str, name: str, text: str, by: str = "tests.broker.conformance") -> str:
    """Return the page with this text between the marks of that name."""
    first, last = marks(name, by)
    before, found, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not found or not end:
        message = f"the page lacks {first} or {last} after it"
        raise ValueError(message)
    return f"{before}{first}\n{text}\n{last}{after}"


def marks(name: str, by: str) -> tuple[str, str]:
    """Return the lines around what a program writes."""
    return (
        f"<!-- {name}: by python -m {by} --write -->",
        f"<!-- {name} -->",
    )
