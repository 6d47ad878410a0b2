"""The reference page is what the table says."""

from pathlib import Path

import pytest

from safeconsumer.metrics import METRICS, reference, table
from safeconsumer.metrics.table import name_of

PAGE = Path(__file__).parents[3] / "design" / "metrics.md"


def test_the_page_is_of_this_table() -> None:
    """Else: python -m safeconsumer.metrics.reference --write design/metrics.md."""
    assert PAGE.read_text("utf-8") == reference.page()


def test_every_metric_is_on_it_once() -> None:
    """Each source has its section."""
    page = reference.page()
    assert all(page.count(f"| `{one.full_name}` |") == 1 for one in METRICS)


def test_instruments_are_on_it() -> None:
    """Of what OpenTelemetry gets, and of nothing else."""
    page = reference.page()
    named = {one.name for one in METRICS if f"| `{name_of(one)}" in page}
    wanted = table.of("consumer", "control", "worker", "spark")
    assert named == {one.name for one in wanted}


def test_it_is_written_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command."""
    reference.main(["--write", str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text("utf-8") == reference.page()
    reference.main([])
    assert capsys.readouterr().out == reference.page()
