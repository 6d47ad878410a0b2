"""Tests the audit as a Spark job on raw journals, and queries of journals as tables."""

import json
import os
import random
import sys
from contextlib import nullcontext

import pytest
from attrs import evolve
from click.testing import CliRunner

from safeconsumer import spark as safe
from safeconsumer.audit.control import Control
from safeconsumer.audit.loading import load
from safeconsumer.audit.results import Settings
from safeconsumer.cli import spark_session
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.errors import JournalError, SparkSetupError
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.spark.auditing import SparkJournals, _error_of
from safeconsumer.spark.reading import SCHEMA
from tests.harness.audit.command import history_of, written
from tests.harness.audit.fleets import BAD, FLEETS, GOOD, TP
from tests.harness.audit.journals import MemberJournal, control_in
from tests.harness.docs.pages import ROOT, blocks
from tests.harness.processes import ran_python
from tests.harness.spark import connector

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


def fleets(folder):
    """Write all fleets and 20 random fleets, each with its own topic; return their holds."""
    folder.mkdir()
    spans = []
    makes = [make() for make in (*BAD, *GOOD)]
    makes += [drawn(random.Random(seed)) for seed in range(20)]  # noqa: S311 - no secret
    for number, fleet in enumerate(makes):
        control = control_in(fleet)
        for span in () if control is None else control.spans:
            scope = span.scope.replace("orders", f"orders{number}")
            spans.append(evolve(span, scope=scope))
        for place, journal in enumerate(fleet):
            text = journal.text().replace("orders", f"orders{number}")
            text = text.replace('"member": "', f'"member": "{number}-{place}-', 1)
            (folder / f"{number}-{place}.journal").write_text(text)
    return Control(spans=tuple(spans))


def drawn(chance):
    """Return journals of members that make random calls, and may break promises."""
    tps = [f"orders:{number}" for number in range(3)]
    fleet = [MemberJournal(name, at=1000 + chance.random()) for name in "ab"]
    at = dict.fromkeys(tps, 0)
    for generation in range(1, 5):
        for member in fleet:
            mine = [tp for tp in tps if chance.random() < 0.6]
            member.assigned(*mine, generation=generation)
            for tp in mine * 2:
                begin = max(0, at[tp] + chance.choice([0, 0, 0, 0, -2, 1]))
                at[tp] = begin + chance.randint(1, 5)
                match chance.randrange(6):
                    case 0:
                        member.pause(chance.choice([tp, "orders"]), owner="eve")
                    case 1:
                        member.resume(chance.choice([tp, "orders"]), owner="eve")
                    case 2:
                        member.commit(tp, begin + chance.randint(0, 3))
                    case _:
                        member.poll(tp, begin, at[tp])
            member.revoked(*mine, generation=generation)
    producer = MemberJournal("p", "")
    for tp in tps:
        producer.then("acked", tp=tp, first=0, last=max(at[tp], 1))
    return [*fleet, producer]


def test_audit_on_spark_gives_the_rows_of_an_audit_in_one_process(tmp_path, spark):
    """S5: on Spark, the rows for all fleets and the number of journals are the same."""
    folder = tmp_path / "fleets"
    control = fleets(folder)
    with SparkJournals(spark, [f"file:{folder}/"]) as found:
        for settings in (Settings(control=control), Settings(is_drained=True)):
            expected = load([folder]).judged(settings)
            assert found.judged(settings) == expected
        assert len(found) == len(load([folder]))
        assert found.partitions() == load([folder]).partitions()
    rows, _ = expected
    at_random = {row.topic for row in rows if row.violations and row.partition}
    assert len(at_random) > 10, "random fleets also break promises"


def test_audit_on_spark_treats_parts_copies_and_broken_journals_as_the_plain_audit(
    tmp_path, spark
):
    """The audit names the unreadable journals, and judges all others."""
    folder = tmp_path / "fleet"
    kept = JournalWriter(folder, member="a", group="g", part_bytes=1)
    for partition in range(5):
        kept.write("assigned", {"partitions": [f"orders:{partition}"], "generation": 1})
    kept.close()
    parts = sorted(folder.glob("*.journal"))
    (folder / "copy").mkdir()
    (folder / "copy" / parts[1].name).write_bytes(parts[1].read_bytes())
    cut = MemberJournal("cut").assigned(TP).poll(TP, 0, 5).text()
    (folder / "cut.journal").write_text(f'{cut}{{"n":')
    # both paths name this journal
    given = [str(folder), str(folder / "cut.journal")]
    whole = load([folder]).judged(Settings())
    with SparkJournals(spark, given) as found:
        assert (found.judged(Settings()), len(found)) == (whole, 2)
    (folder / "broken.journal").write_text("broken\n")
    (folder / "worse.journal").write_text(cut.replace('"tp"', "tp").replace("cut", "x"))
    (folder / "twice.journal").write_text(
        MemberJournal("cut", at=3).assigned(TP).text()
    )
    parts[3].unlink()
    (tmp_path / "nothing").mkdir()
    rows, troubles = load([folder, tmp_path / "nothing"]).judged(Settings())
    with SparkJournals(spark, [str(folder), str(tmp_path / "nothing")]) as found:
        judged, reasons = found.judged(Settings())
        assert len(found) == len(load([folder]))
    assert judged == rows
    assert sorted(one.replace("file:/", "/") for one in reasons) == sorted(troubles)
    assert len(reasons) == 5


def test_audit_on_spark_judges_the_drivers_journals_together_with_the_files(
    tmp_path, spark
):
    """A2: a journal in the driver that lists the topic's records proves a loss."""
    one = MemberJournal().assigned(TP).poll(TP, 0, 4).revoked(TP)
    one.assigned(TP, generation=2).poll(TP, 6, 10)
    folder = written(tmp_path / "fleet", [one])
    journal = MemberJournal("the topic", "").then("kept", tp=TP, first=2)
    more = [journal.then("acked", tp=TP, first=2, last=9).journal()]
    with SparkJournals(spark, [str(folder)]) as found:
        for settings in (Settings(), Settings(is_drained=True)):
            rows, _ = found.judged(settings, more)
            assert rows == load([folder]).judged(settings, more)[0]
    assert [row.check for row in rows if row.violations] == ["A2"]


def test_journals_can_be_queried_as_tables(tmp_path, spark):
    journal = MemberJournal("a").assigned(TP, "audit:0").poll(TP, 0, 5).commit(TP, 5)
    journal.pause("orders", owner="eve").poll(TP, 5, 7).resume("orders", owner="eve")
    journal.pause(TP, lifetime="plain").poll()
    journal.then("lift", scope=TP, owner="app", since=journal.at, why="resume").resume(
        TP
    )
    journal.revoked(TP).then("lost", partitions=[])
    written(tmp_path, [journal])
    entries = safe.journals(spark, f"{tmp_path}/*.journal")
    expected = spark.createDataFrame([], SCHEMA).schema
    assert [(one.name, one.dataType) for one in entries.schema] == [
        (one.name, one.dataType) for one in expected
    ]
    assert entries.count() == journal.text().count("\n") - 1
    assert {row.group for row in entries.collect()} == {"g"}
    safe.views(spark, str(tmp_path))

    def ask(text):
        return [tuple(row) for row in spark.sql(text).collect()]

    assert ask("select topic, partition, first, last from deliveries order by n") == [
        ("orders", 0, 0, 4),
        ("orders", 0, 5, 6),
    ]
    owned = (
        "select topic, generation, end, until > since from ownerships order by topic"
    )
    assert ask(owned) == [("audit", 1, None, None), ("orders", 1, "revoked", True)]
    held = "select scope, owner, end, until > since from holds order by n"
    assert ask(held) == [
        ("orders", "eve", "resume", True),
        (TP, "app", "resume", True),
    ]
    assert ask("select partition, offset, ok from commits") == [(0, 5, True)]
    wrong = "select check, violations, offset from findings where violations > 0"
    assert ask(wrong) == [("A1", 1, 5)]
    journal = MemberJournal("b").begin_all(TP, 0, 2).end(TP, 0, ok=False, done=[0])
    own = written(tmp_path / "worker", [journal.then("dropped", tp=TP, before=5)])
    handled = safe.journals(spark, str(own)).where("e != 'clock'").orderBy("n")
    assert [
        tuple(row) for row in handled.select("batch", "done", "before").collect()
    ] == [
        ([0, 2], None, None),
        (None, [0], None),
        (None, None, 5),
    ]


def test_audit_on_spark_judges_holds_of_a_group_by_a_history_file(tmp_path, spark):
    """G2: the times of the holds come from the output of ``safeconsumer history -o json``."""
    journal = (
        MemberJournal().assigned(TP).then("hold", scope="orders", owner="operator:eve")
    )
    journal.then("lift", scope="orders", owner="operator:eve").poll(TP, 0, 2)
    folder = written(tmp_path / "fleet", [journal])
    history = tmp_path / "history.json"

    def found(**given):
        safe.views(spark, str(folder), **given)  # registers the result of findings()
        rows = spark.sql("select * from findings where check = 'G2'")
        return [(row.violations, row.unjudged == "") for row in rows.collect()]

    assert found() == [(0, False)]
    for end, violations in ((1000.25, 0), (None, 1)):
        history.write_text(history_of("orders", 950.0, end))
        assert found(history=history) == [(violations, True)]
    assert found(settings=Settings(patience=90.0), history=history) == [(0, True)]
    history.write_text("[]")
    with pytest.raises(JournalError, match=f"{history} is not output"):
        found(history=str(history))
    with pytest.raises(JournalError, match="the history cannot be read"):
        found(history=tmp_path / "none.json")


def test_examples_for_the_audit_on_spark_print_the_pages_output(
    tmp_path, spark, capsys
):
    """One example queries tables; another reads each new part once, and judges all parts."""
    page = ROOT / "docs" / "how-to" / "audit-on-spark.md"
    asked, job = (one.code for one in blocks(page) if one.language == "python")
    folder = written(tmp_path / "journals", FLEETS["a1"]())
    exec(asked.replace("/lake", str(tmp_path)), {})  # noqa: S102 - our own text
    shown = capsys.readouterr().out
    assert "|     a|orders|        0|      7|" in shown
    assert "orders was held by alice" in shown
    for number in range(2):
        text = FLEETS["a1"]()[0].text().replace('"member": "', f'"member": "{number}')
        (folder / f"more{number}.journal").write_text(text)
        exec(job.replace("/lake", str(tmp_path)), {})  # noqa: S102 - our own text
        found = spark.read.parquet(f"{tmp_path}/findings").where("check = 'A1'")
        assert [row.violations for row in found.collect()] == [number + 2]
    whole = safe.journals(spark, str(folder)).drop("file").collect()
    entries = spark.read.parquet(f"{tmp_path}/entries").drop("file").collect()
    assert sorted(map(str, entries)) == sorted(map(str, whole))
    assert len(entries) > 10


@pytest.mark.parametrize("is_python_set", [True, False])
def test_executors_run_the_programs_python_only_if_it_is_set(
    tmp_path, *, is_python_set
):
    """Without the page's setting PATH's python3 runs; an error names its missing package."""
    page = ROOT / "docs" / "how-to" / "audit-on-spark.md"
    asked = next(one.code for one in blocks(page) if one.language == "python")
    asked = asked.replace("/lake", str(tmp_path))
    if not is_python_set:
        asked = asked.replace("os.environ", "dict()")
    written(tmp_path / "journals", FLEETS["a1"]())
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    settings = {name: os.environ[name] for name in os.environ if "PYSPARK" not in name}
    env = {**settings, "PATH": f"{bare.parent}:{settings['PATH']}"}
    done = ran_python("-c", asked, timeout=200, env=env)
    if is_python_set:
        assert "orders was held by alice" in done.stdout, done.stderr[-3000:]
        return
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("safeconsumer.errors.SparkSetupError: an executor has no ")
    assert "PYSPARK_PYTHON" in last


def test_builder_makes_executors_run_the_current_python_by_default(monkeypatch):
    """If the environment already has a value for PYSPARK_PYTHON, the value stays."""
    monkeypatch.setenv("PYSPARK_PYTHON", "another")
    safe.builder(connector.folder())
    assert os.environ["PYSPARK_PYTHON"] == "another"
    monkeypatch.delenv("PYSPARK_PYTHON")
    safe.builder(connector.folder())
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("{}/none", "no such file or folder"),
        ("{}", "there is no journal in"),
        ("s3a://bucket/journals", "S3AFileSystem"),
        ("nowhere://x/journals", "no filesystem for nowhere:"),
        ("hdfs://127.0.0.1:1/journals", "cannot be read"),
    ],
)
def test_unreadable_path_of_journals_is_reported_in_one_line(
    tmp_path, spark, name, reasons
):
    """The message has no Java traceback."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    # By default Hadoop retries ten times.
    hadoop.set("ipc.client.connect.max.retries", "0")
    with pytest.raises((JournalError, SparkSetupError), match=reasons) as caught:
        safe.findings(spark, name.format(tmp_path))
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 700


def test_missing_package_or_wrong_python_of_an_executor_is_reported_in_a_sentence():
    text = (
        "Job aborted\n  File worker.py, line 1\nModuleNotFoundError: "
        "No module named 'safeconsumer'\n"
    )
    reasons = _error_of("x", text)
    assert isinstance(reasons, SparkSetupError)
    assert str(reasons).startswith("an executor has no safeconsumer: install it")
    text = (
        "Job aborted\nPySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker "
        "has different version: 3.12 than that in driver: 3.11, PySpark cannot run\n"
    )
    reasons = _error_of("x", text)
    assert isinstance(reasons, SparkSetupError)
    assert str(reasons).startswith(
        "Python in worker has different version: 3.12 than that in driver: 3.11. "
    )


def test_failed_start_of_spark_is_reported_in_one_line(tmp_path):
    command = ("-m", "safeconsumer", "audit", tmp_path, "--master", "foo")
    done = ran_python(*command, timeout=120)
    assert done.returncode == 2, done.stderr[-3000:]
    assert "safeconsumer: Spark did not start: [JAVA_GATEWAY_EXITED]" in done.stderr


@pytest.mark.parametrize("make", [FLEETS["a1"]])
def test_audit_command_prints_the_same_with_spark_and_without(
    tmp_path, spark, monkeypatch, make
):
    monkeypatch.setattr(spark_session, "session", lambda _: nullcontext(spark))
    fleet = [*make(), MemberJournal("x").assigned("orders:1").poll("orders:1", 0, 3)]
    folder = written(tmp_path / "fleet", fleet)
    report = tmp_path / "report"
    more = ("--partition", TP, "--report", report)
    here, rows = run(folder, *more), report.read_text()
    there = run(folder, *more, "--master", "local[2]")
    assert (there.exit_code, there.stdout) == (here.exit_code, here.stdout)
    assert "\n  > " in there.stdout
    assert report.read_text() == rows
    assert json.loads(rows.splitlines()[0])["is_complete"]


def run(*arguments):
    return CliRunner().invoke(safeconsumer, ["audit", *map(str, arguments)])
