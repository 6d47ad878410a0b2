"""``safeconsumer audit --checkpoint``: its lines, its report and its exit status."""

import json
import sys

import pytest

from tests.harness.audit.fleets import FLEETS
from tests.unit.audit.test_checkpoint import log, orders
from tests.unit.cli.test_audit import history_of, run, written

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
    """Run the command with a stream, and the history of a hold of its topic."""
    history = tmp_path / "history.json"
    history.write_text(history_of("orders", 1100.0, 5000.0))

    def audit(files, *more):
        folder = checkpoint(tmp_path / "c", files)
        given = ("--checkpoint", folder, "--group", "g", "--history", history)
        return run(*given, *more)

    return audit


def test_a_stream_that_moved_a_held_partition(audited, tmp_path):
    """Status 1; the report has the row of its partition."""
    report = tmp_path / "report"
    done = audited(MOVED, "--report", report)
    first, about, last = done.stdout.splitlines()
    folder = tmp_path / "c"
    assert done.exit_code == 1
    assert first.startswith(
        f"S1  orders:0 of g  1 x, first by {folder}: batch 1 was planned at "
    )
    assert "offsets 10 to 19, while operator:eve held orders from" in first
    assert about == f"S1  {folder}: batches 0 to 1, 1 hold of g meanwhile"
    assert last == "violations: 1 stream, 1 partition"
    (row,) = map(json.loads, report.read_text().splitlines())
    assert (row["check"], row["offset"], row["is_complete"]) == ("S1", 10, True)


def test_a_stream_that_obeyed(audited, tmp_path):
    done = audited(KEPT)
    about = f"S1  {tmp_path / 'c'}: batches 0 to 1, 1 hold of g meanwhile\n"
    assert (done.exit_code, done.stdout) == (
        0,
        f"{about}clean: 1 stream, 1 partition\n",
    )


def test_members_and_a_stream_together(audited, tmp_path):
    """One status for all."""
    fleet = written(tmp_path / "fleet", FLEETS["held_and_let_go"]())
    done = audited(KEPT, fleet)
    assert done.exit_code == 0
    assert done.stdout.endswith("clean: 1 journal, 1 stream, 1 partition\n")
    assert audited(MOVED, fleet, "--partition", "orders:0").exit_code == 1


def test_a_folder_may_be_a_uri(audited, tmp_path):
    uri = checkpoint(tmp_path / "a b", MOVED).as_uri()
    done = audited(KEPT, "--checkpoint", uri)
    assert done.exit_code == 1
    assert done.stdout.endswith("violations: 2 streams, 1 partition\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param([], "name a JOURNAL, or the --checkpoint", id="nothing"),
        pytest.param(["--checkpoint", "c"], "go together", id="no group"),
        pytest.param(["j", "--group", "g"], "go together", id="no checkpoint"),
        pytest.param(
            ["--checkpoint", "c", "--group", "g"], "needs --control", id="no history"
        ),
    ],
)
def test_an_option_that_lacks_another(arguments, said, tmp_path, monkeypatch):
    """Status 2: nothing is judged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "j").mkdir()
    done = run(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        pytest.param(["no-such"], "no-such is no checkpoint", id="no folder"),
        pytest.param(
            ["s3a://b/c"], "Spark reads s3a://b/c: give --master", id="remote"
        ),
        pytest.param(
            ["s3a://b/c", "--master", "local[1]"], "this needs pyspark", id="no Spark"
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_read(audited, more, said, monkeypatch):
    """Status 2, also where another stream is guilty: the command names what to mend."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    done = audited(MOVED, "--checkpoint", *more)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_bytes_that_are_no_text(audited, tmp_path):
    folder = checkpoint(tmp_path / "bad", KEPT)
    (folder / "offsets" / "0").write_bytes(b"\xff")
    done = audited(KEPT, "--checkpoint", folder)
    assert done.exit_code == 2
    assert "0 cannot be read: 'utf-8' codec" in done.stderr
