"""What executors are sent, which have nothing of this package."""

import subprocess
import sys
from pathlib import Path

import pytest

from safeconsumer.spark.auditing import archive_judge

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

_JUDGING = """
import sys
sys.path[:0] = sys.argv[1:]
import pyarrow
from safeconsumer.audit import batched
from safeconsumer.audit.checker import Settings
from safeconsumer.audit.facts import Address
said = '{"tp":"orders:0","from":0,"next":5,"first":0,"last":4,"count":5}'
row = dict(case=0, member="a", n=1, at=1.0, e="deliver", fields=said, called=1, polls=0)
batch = pyarrow.RecordBatch.from_pylist([row])
case = Address("g", "orders", 0)
(answer,) = batched.judged([batch], cases=[case], settings=Settings())
rows = batched.rows_in(answer.column("rows").to_pylist()[0])
print(*(one.check for one in rows if one.violations), batched.__file__)
"""


def test_what_is_sent_is_all_that_judging_needs(tmp_path: Path) -> None:
    """A3: a Python with nothing but that and pyarrow judges a delivery without ownership."""
    import pyarrow as pa  # noqa: PLC0415 - only where it is installed

    archive = tmp_path / "judge.zip"
    archive_judge(archive)
    bare = tmp_path / "bare"
    bare.mkdir()
    installed = Path(pa.__file__).parent
    for path in (installed, installed.with_name("pyarrow.libs")):
        if path.exists():
            (bare / path.name).symlink_to(path)
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-I", "-S", "-c", _JUDGING, str(archive), str(bare)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    check, where = done.stdout.split()
    assert (check, where.startswith(str(archive))) == ("A3", True)
