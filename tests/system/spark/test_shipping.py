"""What executors are sent, which have nothing of this package."""

import importlib
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
from safeconsumer.audit import distributed
from safeconsumer.audit.results import Settings
lines = [
    b'{"journal":2,"member":"a","group":"g","at":1.0}',
    b'{"n":1,"at":1.1,"e":"deliver","tp":"orders:0","from":0,"next":5,"first":0,'
    b'"last":4,"count":5,"after":0,"asked":1.0}',
]
rows = [dict(process="a", file="x/a.journal", size=999, line=line) for line in lines]
told = list(distributed.take_apart([pyarrow.RecordBatch.from_pylist(rows)]))
needs = {
    row["address"]: row
    for one in distributed.tell_needs(told)
    for row in one.to_pylist()
}
sent = [{**needs[row["address"]], **row} for one in told for row in one.to_pylist()]
sent.sort(key=lambda row: (row["case"], row["member"], row["n"]))
batch = pyarrow.RecordBatch.from_pylist(sent)
for answer in distributed.judge_cases([batch], settings=Settings()):
    print(*answer.column("rows").to_pylist())
print(distributed.__file__)
"""


def test_what_is_sent_is_all_that_judging_needs(tmp_path: Path) -> None:
    """A3: a Python with that, msgspec and pyarrow judges a delivery without ownership."""
    archive = tmp_path / "judge.zip"
    archive_judge(archive)
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("msgspec", "pyarrow"):
        installed = Path(str(importlib.import_module(name).__file__)).parent
        for path in (installed, installed.with_name(f"{name}.libs")):
            if path.exists():
                (bare / path.name).symlink_to(path)
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-I", "-S", "-c", _JUDGING, str(archive), str(bare)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows, where = done.stdout.splitlines()
    assert '"check": "A3", "topic": "orders", "partition": 0, "violations": 1' in rows
    assert where.startswith(str(archive))
