"""
The audit on executors that have nothing of this package, and share only a path.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from safeconsumer.audit.checker import Settings
from safeconsumer.cli.journals import papers
from safeconsumer.spark.auditing import archive_judge
from tests.audit import bad
from tests.spark.test_packs import packed, written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

# A driver that has the package; its executors look for modules where it is not: their
# Python begins in a folder that hides it, so that an installed one is no help either.
_DRIVER = """
import json, os, sys
from pyspark.sql import SparkSession
from safeconsumer.audit.checker import Settings
from safeconsumer.errors import SafeConsumerError
from safeconsumer.spark.auditing import SparkPacks, shipped

pack, bare, is_sent = sys.argv[1], sys.argv[2], sys.argv[3] == "sent"
del os.environ["PYTHONPATH"]
settings = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executorEnv.PYTHONPATH": bare,
    "spark.sql.shuffle.partitions": "2",
}
builder = SparkSession.builder.master("local-cluster[2,1,1024]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
try:
    found = SparkPacks(spark, [pack])
    if is_sent:
        with shipped(spark):
            rows, _ = found.judged(Settings())
    else:
        rows, _ = found.judged(Settings())
    print(json.dumps([row.as_dict() for row in rows]))
except SafeConsumerError as error:
    print(type(error).__name__, error)
"""

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
    """
    S3: a Python with nothing but that and pyarrow judges a delivery without ownership.
    """
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
    assert (check, where.startswith(str(archive))) == ("S3", True)


# What stands in the way of every module of an installed package.
_HIDES = "raise ModuleNotFoundError(\"No module named 'safeconsumer'\")\n"


@pytest.mark.parametrize("how", ["sent", "not sent"])
def test_executors_that_have_nothing_of_it(tmp_path: Path, how: str) -> None:
    """
    The driver sends what judging needs; without that one sentence says what to do.
    """
    folder = written(tmp_path / "fleet", bad.s1())
    packed(folder, tmp_path / "pack")
    bare = tmp_path / "bare"
    (bare / "safeconsumer").mkdir(parents=True)
    (bare / "safeconsumer" / "__init__.py").write_text(_HIDES)
    arguments = [f"file:{tmp_path / 'pack'}", str(bare), how]
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", _DRIVER, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    if how == "sent":
        rows, _ = papers([folder]).judged(Settings())
        assert json.loads(done.stdout) == [row.as_dict() for row in rows]
    else:
        expected = "SparkSetupError an executor has no safeconsumer: install it"
        assert done.stdout.startswith(expected), done.stdout
