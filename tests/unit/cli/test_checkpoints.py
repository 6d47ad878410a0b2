"""Tests the output and the exit status of ``safeconsumer audit --checkpoint``."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from safeconsumer.audit.checkpoint import checkpoint_of
from safeconsumer.cli import checkpoints
from tests.harness.audit.checkpoints import log, orders
from tests.harness.audit.command import history_of, rows_of, run, written
from tests.harness.audit.fleets import FLEETS

MOVED = log((1000.0, orders(10)), (2000.0, orders(20)), start=orders(0))
KEPT = log((1000.0, orders(10)), (2000.0, orders(10)), start=orders(0))


def checkpoint(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "metadata").write_text('{"id":"a"}')
    (folder / "offsets" / ".0.crc").write_bytes(b"\xff\0")
    return folder


@pytest.fixture
def audited(tmp_path):
    """Return a function that audits a stream whose group has a held topic."""
    history = tmp_path / "history.json"
    history.write_text(history_of("orders", 1100.0, 5000.0))

    def audit(files, *more, group="g"):
        folder = checkpoint(tmp_path / "c", files)
        given = ("--checkpoint", folder, "--group", group, "--history", history)
        return run(*given, *more)

    return audit


def test_stream_that_moved_a_held_partition_gives_exit_status_1(audited, tmp_path):
    report = tmp_path / "report"
    done = audited(MOVED, "--report", report)
    first, about, last = done.stdout.splitlines()
    folder = tmp_path / "c"
    assert done.exit_code == 1
    assert first.startswith(
        f"S1  orders:0 of g  1 x, first by {folder}: batch 1 was planned at "
    )
    assert "offsets 10 to 19, while operator:eve held orders from" in first
    assert about == f"S1  {folder}: batches 0 to 1, 1 hold of g in that time"
    assert last == "violations: 1 stream, 1 partition"
    (row,) = rows_of(report)
    assert (row["check"], row["offset"], row["is_complete"]) == ("S1", 10, True)


@pytest.mark.parametrize(
    ("start", "end", "count"),
    [(100.0, 900.0, "0 holds"), (2100.0, 5000.0, "0 holds"), (900.0, 1100.0, "1 hold")],
    ids=["before", "after", "starting before"],
)
def test_line_for_a_stream_counts_the_holds_in_force_during_its_batches(
    tmp_path, start, end, count
):
    history = tmp_path / "history.json"
    history.write_text(history_of("orders", start, end))
    folder = checkpoint(tmp_path / "c", KEPT)
    done = run("--checkpoint", folder, "--group", "g", "--history", history)
    assert f"batches 0 to 1, {count} of g in that time" in done.stdout


def test_stream_that_obeyed_gives_exit_status_0(audited, tmp_path):
    done = audited(KEPT)
    about = f"S1  {tmp_path / 'c'}: batches 0 to 1, 1 hold of g in that time\n"
    line = "clean: 1 stream, 1 partition\n"
    assert (done.exit_code, done.stdout) == (0, about + line)


def test_members_and_a_stream_are_audited_with_one_status(audited, tmp_path):
    fleet = written(tmp_path / "fleet", FLEETS["held_and_let_go"]())
    done = audited(KEPT, fleet)
    assert done.exit_code == 0
    assert done.stdout.endswith("clean: 1 journal, 1 stream, 1 partition\n")
    assert audited(MOVED, fleet, "--partition", "orders:0").exit_code == 1


def test_checkpoint_folder_may_be_a_uri(audited, tmp_path):
    uri = checkpoint(tmp_path / "a b", MOVED).as_uri()
    done = audited(KEPT, "--checkpoint", uri)
    assert done.exit_code == 1
    assert done.stdout.endswith("violations: 2 streams, 1 partition\n")


@pytest.mark.parametrize("files", [KEPT, MOVED], ids=["kept", "moved"])
def test_group_without_a_record_on_the_holds_topic_is_not_judged(audited, files):
    """Otherwise a misspelt group would count as clean, because it was never held."""
    done = audited(files, group="gg")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "safeconsumer: the holds topic has no record of the group 'gg'; it has records "
        "of g: give as --group the stream's option holds.group\n"
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param([], "name a JOURNAL, or the --checkpoint", id="no arguments"),
        pytest.param(["--checkpoint", "c"], "go together", id="no group"),
        pytest.param(["j", "--group", "g"], "go together", id="no checkpoint"),
        pytest.param(
            ["--checkpoint", "c", "--group", "g"], "needs --control", id="no history"
        ),
    ],
)
def test_option_without_the_option_that_it_requires_is_refused(
    arguments, reason, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "j").mkdir()
    done = run(*arguments)
    assert done.exit_code == 2
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        pytest.param(["no-such"], "no such folder: no-such", id="no folder"),
        pytest.param(["file"], "no such folder: file", id="a file"),
        pytest.param(
            ["j"],
            "j is no checkpoint of a Spark stream: it has no folder offsets",
            id="no checkpoint",
        ),
        pytest.param(
            ["empty"],
            "empty is no checkpoint that has a batch of Kafka's records",
            id="no batch",
        ),
        pytest.param(
            ["s3a://b/c"], "Spark reads s3a://b/c: give --master", id="remote"
        ),
        pytest.param(
            ["s3a://b/c", "--master", "local[1]"], "this needs pyspark", id="no Spark"
        ),
        pytest.param(["bad"], "0 cannot be read: 'utf-8' codec", id="not UTF-8"),
    ],
)
def test_checkpoint_that_cannot_be_read_gives_exit_status_2_and_no_verdict(
    audited, more, reason, tmp_path, monkeypatch
):
    """The status is 2 even if another stream has a violation."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "j").mkdir()
    (tmp_path / "empty" / "offsets").mkdir(parents=True)
    (checkpoint(tmp_path / "bad", KEPT) / "offsets" / "0").write_bytes(b"\xff")
    for module in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, module, None)
    done = audited(MOVED, "--checkpoint", *more)
    assert (done.exit_code, done.stdout) == (2, "")
    assert reason in done.stderr


class NotThereError(Exception):
    """A stand-in for Spark's error about a missing folder."""

    __module__ = "pyspark.errors.exceptions.captured"


class Reader:
    """A fake ``spark.read`` that returns the files of a checkpoint's offset log."""

    def option(self, *_):
        return self

    def text(self, where, **_):
        if where.endswith("/sources"):
            message = f"[PATH_NOT_FOUND] Path does not exist: {where}"
            raise NotThereError(message)
        return self

    def selectExpr(self, *_):  # noqa: N802 - pyspark's name
        return self

    def collect(self):
        several = MOVED.items()
        return [(f"s3a://b/c/{name}", text) for name, text in several if "off" in name]


def test_spark_reads_a_checkpoint_of_the_python_source_without_a_sources_folder(
    monkeypatch,
):
    """In an object store, empty folders do not exist; Spark refused such checkpoints."""
    spark = SimpleNamespace(read=Reader())
    monkeypatch.setattr(checkpoints, "session", lambda _: nullcontext(spark))
    found = dict(checkpoints._read_by_spark("s3a://b/c", "local[1]"))
    assert sorted(found) == ["s3a://b/c/offsets/0", "s3a://b/c/offsets/1"]
    assert [one.number for one in checkpoint_of("c", found).batches] == [0, 1]
