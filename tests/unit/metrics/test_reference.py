"""The reference page is what the table says."""

from pathlib import Path

import pytest

from safeconsumer.metrics import reference

PAGE = Path(__file__).parents[3] / "design" / "metrics.md"


def test_the_page_is_of_this_table() -> None:
    """Else: python -m safeconsumer.metrics.reference --write design/metrics.md."""
    assert PAGE.read_text("utf-8") == reference.page()


def test_it_is_written_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command."""
    reference.main(["--write", str(tmp_path / "page.md")])
    assert (tmp_path / "page.md").read_text("utf-8") == reference.page()
    reference.main([])
    assert capsys.readouterr().out == reference.page()
