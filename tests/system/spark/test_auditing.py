"""The audit as a Spark job, over packs."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from safeconsumer.audit.checker import Settings
from safeconsumer.audit.packs import FACTS, JOURNALS
from safeconsumer.audit.stream import opened
from safeconsumer.cli import sparking
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.journals import papers
from safeconsumer.errors import JournalError, SparkSetupError
from safeconsumer.spark.auditing import SparkPacks, _said
from tests.harness.audit import bad
from tests.harness.audit.bad import BAD, GOOD, TP, Fleet
from tests.harness.audit.telling import Telling
from tests.system.audit.test_packs import packed, written

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def everything(folder: Path) -> Path:
    """Return journals of every bad and every good fleet, each with its topic."""
    folder.mkdir()
    for number, make in enumerate((*BAD, *GOOD)):
        for place, told in enumerate(make()):
            text = told.text().replace("orders", f"orders{number}")
            text = text.replace('"member": "', f'"member": "{number}-{place}-', 1)
            (folder / f"{number}-{place}.journal").write_text(text)
    return folder


def test_spark_judges_as_the_reference_does(tmp_path: Path, spark: Any) -> None:  # noqa: ANN401 - pyspark's
    """S5: the same rows for every bad and every good fleet, in the same order."""
    folder = everything(tmp_path / "fleets")
    packed(folder, tmp_path / "pack")
    found = SparkPacks(spark, [str(tmp_path / "pack")])
    for how in ("file:{}", "file://{}", "{}/"):
        again = SparkPacks(spark, [how.format(tmp_path / "pack")])
        assert again.partitions() == found.partitions()
    drained = Settings(is_drained=True)
    assert found.judged(drained) == papers([folder]).judged(drained)
    rows, troubles = found.judged(Settings())
    assert (rows, troubles) == papers([folder]).judged(Settings())
    broken = {row.topic: row.check for row in rows if row.violations}
    assert broken == {
        f"orders{number}": make.__name__.partition("_")[0].upper()
        for number, make in enumerate(BAD)
    }


def test_what_is_made_meanwhile_is_judged_with_the_packs(
    tmp_path: Path,
    spark: Any,  # noqa: ANN401 - pyspark's
) -> None:
    """A2: what the topic really has, which is read here and not packed."""
    one = Telling().assigned(TP).poll(TP, 0, 4).revoked(TP)
    one.assigned(TP, generation=2).poll(TP, 6, 10)
    folder = written(tmp_path / "fleet", [one])
    packed(folder, tmp_path / "pack")
    told = Telling("the topic", "").then("kept", tp=TP, first=2)
    topic = written(tmp_path / "topic", [told.then("acked", tp=TP, first=2, last=9)])
    more = [opened(topic / "0.journal")]
    found = SparkPacks(spark, [str(tmp_path / "pack")])
    assert found.partitions() == {("orders", 0)}
    rows, _ = found.judged(Settings(), more)  # type: ignore[arg-type]  # any source
    assert rows == papers([folder]).judged(Settings(), more)[0]  # type: ignore[arg-type]  # any source
    assert [row.check for row in rows if row.violations] == ["A2", "A3"][: len(more)]
    drained = Settings(is_drained=True)
    rows, _ = found.judged(drained, more)  # type: ignore[arg-type]  # any source
    assert rows == papers([folder]).judged(drained, more)[0]  # type: ignore[arg-type]  # any source
    assert not any(row.unjudged for row in rows)


def run(monkeypatch: pytest.MonkeyPatch, spark: Any, *arguments: object) -> Result:  # noqa: ANN401 - pyspark's
    monkeypatch.setattr(spark, "stop", lambda: None)  # others work with it
    command = ["audit", "--master", "local[2]", *map(str, arguments)]
    return CliRunner().invoke(safeconsumer, command)


def _lent(spark: Any) -> Any:  # noqa: ANN401 - pyspark's
    from contextlib import nullcontext  # noqa: PLC0415

    return nullcontext(spark)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("{}/none", "no pack is there"),
        ("{}/fleet", "no pack is there"),
        ("s3a://bucket/pack", "S3AFileSystem"),
        ("nowhere://x/pack", "no filesystem for nowhere:"),
        ("hdfs://127.0.0.1:1/pack", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    tmp_path: Path,
    spark: Any,  # noqa: ANN401 - pyspark's
    name: str,
    said: str,
) -> None:
    """Never a traceback of Java's."""
    written(tmp_path / "fleet", bad.a1())
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("ipc.client.connect.max.retries", "0")  # it would try ten times
    with pytest.raises((JournalError, SparkSetupError), match=said) as caught:
        SparkPacks(spark, [name.format(tmp_path)])
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("lost", ["facts", "index"])
def test_what_a_pack_has_lost_is_said(
    tmp_path: Path,
    spark: Any,  # noqa: ANN401 - pyspark's
    lost: str,
) -> None:
    folder, pack = tmp_path / "fleet", tmp_path / "pack"
    written(folder, [Telling().assigned(TP, "audit:0").poll(TP, 0, 5)])
    written(tmp_path / "more", [Telling("b").assigned("more:0")])
    packed(folder, pack)
    index = list((pack / JOURNALS).iterdir())
    packed(tmp_path / "more", pack)
    facts = sorted((pack / FACTS).rglob("*.parquet"))
    for path in index if lost == "index" else facts[:1]:
        path.unlink()
    with pytest.raises(JournalError, match="the pack has"):
        SparkPacks(spark, [str(pack)])


def test_a_packing_that_was_ended_and_done_again(
    tmp_path: Path,
    spark: Any,  # noqa: ANN401 - pyspark's
) -> None:
    """What went on counts once, however often it is packed, and in however many packs."""
    folder = tmp_path / "fleet"
    told = Telling().assigned(TP).poll(TP, 0, 5)
    packed(written(folder, [told]), tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    packed(written(folder, [told.poll(TP, 5, 9)]), tmp_path / "two")
    for names in (["two"], ["one", "two"]):
        found = SparkPacks(spark, [str(tmp_path / name) for name in names])
        rows, troubles = found.judged(Settings())
        assert not [row for row in rows if row.violations]
        assert (len(found), troubles) == (1, ())
    assert fleet_is_clean([tmp_path / "one", tmp_path / "two"])


def fleet_is_clean(given: Sequence[Path]) -> bool:
    rows, troubles = papers(given).judged(Settings())
    return bool(rows) and not troubles and not any(row.violations for row in rows)


def test_an_executor_without_something_is_one_sentence() -> None:
    """Whatever stands around it."""
    text = (
        "Job aborted\n  File worker.py, line 1\nModuleNotFoundError: "
        "No module named 'safeconsumer'\n"
    )
    said = _said("x", text)
    assert isinstance(said, SparkSetupError)
    assert str(said).startswith("an executor has no safeconsumer: install it")


def test_packing_and_judging_on_spark_are_two_steps(tmp_path: Path) -> None:
    folder = written(tmp_path / "fleet", bad.a1())
    arguments = ["audit", str(folder), "--pack", str(tmp_path / "p"), "--master", "x"]
    done = CliRunner().invoke(safeconsumer, arguments)
    assert (done.exit_code, "two steps" in done.stderr) == (2, True)


def test_a_spark_that_does_not_start_is_said_in_a_line(tmp_path: Path) -> None:
    """That the master is wrong is no defect of the command."""
    command = [sys.executable, "-m", "safeconsumer", "audit", str(tmp_path)]
    done = subprocess.run(  # noqa: S603 - our own command line
        [*command, "--master", "foo"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr[-3000:]
    assert "safeconsumer: Spark did not start: [JAVA_GATEWAY_EXITED]" in done.stderr


@pytest.mark.parametrize("make", [bad.a1, bad.g2_of_a_command, bad.a2])
def test_what_journals_say_around_a_violation_is_shown(
    tmp_path: Path,
    spark: Any,  # noqa: ANN401 - pyspark's
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[], Fleet],
) -> None:
    """As without Spark, and of the partition that is asked for."""
    monkeypatch.setattr(sparking, "session", lambda *_: _lent(spark))
    fleet = [*make(), Telling("x").assigned("orders:1").poll("orders:1", 0, 3)]
    packed(written(tmp_path / "fleet", fleet), tmp_path / "pack")
    only = ("--partition", TP)
    here = CliRunner().invoke(safeconsumer, ["audit", str(tmp_path / "pack"), *only])
    done = run(monkeypatch, spark, tmp_path / "pack", *only)
    assert (done.exit_code, done.stdout) == (here.exit_code, here.stdout)
    assert "\n  > " in done.stdout
    assert "orders:1" not in done.stdout
