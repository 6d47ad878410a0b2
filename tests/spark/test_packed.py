"""
Journals kept as Parquet, for which pyarrow is needed: the same verdict.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from safeconsumer.audit.checker import check
from safeconsumer.audit.stream import opened, pack
from safeconsumer.errors import JournalError
from tests.audit.bad import BAD, GOOD
from tests.audit.telling import Telling
from tests.audit.test_stream import run, written
from tests.bench import auditing

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("make", [*BAD, *GOOD], ids=lambda make: make.__name__)
def test_what_is_packed_gives_the_same_verdict(
    tmp_path: Path, make: Callable[[], list[Telling]]
) -> None:
    """As the journal that it was packed from."""
    told = make()
    expected = check([one.journal() for one in told])
    packed = []
    for path in written(tmp_path, *told):
        packed.append(path.with_suffix(".parquet"))
        pack(opened(path), packed[-1])
    assert check(map(opened, packed)) == expected


@pytest.mark.parametrize("content", [b"PAR1 no", b""])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="cannot be read") as caught:
        opened(path)
    assert "a.parquet" in str(caught.value)
    ended = run(path)
    assert (ended.exit_code, "a.parquet" in ended.stderr) == (2, True)


def test_parquet_that_is_no_journal_is_named(tmp_path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 - only where it is installed
    from pyarrow import parquet  # noqa: PLC0415 - only where it is installed

    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(JournalError, match="version None"):
        opened(path)


def test_packing_keeps_what_the_audit_reads(tmp_path: Path) -> None:
    """In a seventh of the room; what is broken is not packed."""
    folder, packed = tmp_path / "journals", tmp_path / "packed"
    folder.mkdir()
    auditing.write(folder, 500_000, 50)
    assert run(folder, "--pack", packed).exit_code == 0
    ended = run(packed)
    assert (ended.exit_code, ended.stdout) == (0, "clean: 2 journals, 8 partitions\n")
    sizes = [sum(one.stat().st_size for one in at.iterdir()) for at in (folder, packed)]
    assert sizes[1] * 7 < sizes[0]
    (folder / "broken.journal").write_text("garbage\n")
    refused = run(folder, "--pack", tmp_path / "other")
    assert (refused.exit_code, "not packed" in refused.stderr) == (2, True)
