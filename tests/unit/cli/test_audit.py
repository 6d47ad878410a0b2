"""``safeconsumer audit``: its lines, its report and its exit status."""

import errno
import json
import os
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
from click.testing import CliRunner
from kafka.errors import TopicAuthorizationFailedError

from safeconsumer.audit.results import CHECKS
from safeconsumer.cli import cluster
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.group import described_topics
from safeconsumer.group.topics import Facts
from tests.harness.audit.fleets import FLEETS, TP
from tests.harness.audit.journals import MemberJournal
from tests.harness.listing import short


def written(folder, fleet):
    folder.mkdir(exist_ok=True)
    for number, told in enumerate(fleet):
        (folder / f"{number}.journal").write_text(told.text())
    return folder


def run(*arguments):
    return CliRunner().invoke(safeconsumer, ["audit", *map(str, arguments)])


def test_a_clean_fleet(tmp_path):
    """Status 0, and one row per check and partition in the report."""
    report = tmp_path / "report"
    folder = written(tmp_path / "fleet", FLEETS["held_and_let_go"]())
    done = run(folder, "--report", report)
    assert (done.exit_code, done.output) == (0, "clean: 1 journal, 1 partition\n")
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(rows) == len(CHECKS)
    assert {row["violations"] for row in rows} == {0}


@pytest.mark.parametrize(
    ("fleet", "status", "said"),
    [
        pytest.param(
            FLEETS["a1"](),
            1,
            ["A1  orders:0 of g  1 x, first by a: entry 5", "was held by alice"],
            id="a violation has its evidence",
        ),
        pytest.param([], 2, ["there is no journal in"], id="no journal"),
        pytest.param(
            [MemberJournal("a").then("call", op="poll", id=1)],
            2,
            [
                "could not tell: 1 journal, 0 partitions\n",
                "no journal names a partition",
            ],
            id="no partition was ever assigned",
        ),
        pytest.param(
            [MemberJournal("p", group="").then("acked", tp=TP, first=0, last=99)],
            2,
            ["A2  orders:0  could not be"],
            id="only a producer wrote one",
        ),
        pytest.param(
            [
                MemberJournal("worker").assigned(TP).poll(TP, 0, 9).commit(TP, 9),
                MemberJournal("worker", at=2000).poll().poll(TP, 9, 12),
            ],
            2,
            ["another journal of a process with the name worker"],
            id="two processes have one name",
        ),
    ],
)
def test_a_verdict_and_its_reason(tmp_path, fleet, status, said):
    """Status 1 is for violations alone, 2 for what proves nothing."""
    done = run(written(tmp_path, fleet))
    assert done.exit_code == status
    for one in said:
        assert one in done.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"journal": 2}\n', "version 2"),
        ('{"journal": null}\n', "version None"),
        ("", "no whole line"),
        ('{"check": "A1"}\n', "x.journal is no journal: its first line has no"),
    ],
)
def test_a_journal_that_cannot_be_read(tmp_path, text, said):
    """Status 2: what is not seen proves nothing, however clean the rest."""
    folder = written(tmp_path, FLEETS["held_and_let_go"]())
    (folder / "x.journal").write_text(text)
    done = run(folder)
    assert done.exit_code == 2
    assert said in done.output
    assert "could not tell" in done.output


@pytest.mark.contract("S5")
def test_a_journal_of_an_earlier_version_excuses_what_it_may_have(tmp_path):
    """After a rolling restart both lie side by side; A2 might be in the other one."""
    folder = written(tmp_path, FLEETS["a2"]())
    assert run(folder).exit_code == 1
    (folder / "old.journal").write_text('{"journal": 4, "member": "x", "at": 1}\n')
    done = run(folder)
    assert done.exit_code == 2
    assert "old.journal is a journal of version 4; this program reads 5" in done.output
    assert "violations" not in done.output


def test_the_help_explains_the_journals_by_their_name_in_the_usage():
    usage, *text = run("--help").stdout.split("\n")
    assert usage.endswith("[OPTIONS] JOURNAL...")
    assert any(line.strip().startswith("JOURNAL is a file") for line in text)


@pytest.mark.parametrize("name", ["", "none"], ids=short)
def test_a_folder_that_is_missing_is_no_verdict(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    said = f"safeconsumer: no such file or folder: {name or repr(name)}\n"
    done = run(name)
    assert (done.exit_code, done.output) == (2, said)


def test_a_folder_without_journals_is_no_proof(tmp_path):
    """Status 2: they may lie on another host."""
    folder = written(tmp_path / "one", FLEETS["held_and_let_go"]())
    written(tmp_path / "two", []).joinpath("deeper").mkdir()
    done = run(folder, tmp_path / "two")
    assert done.exit_code == 2
    assert f"there is no journal in {tmp_path / 'two'}" in done.output
    assert "could not tell: 1 journal, 1 partition" in done.output


def test_journals_in_folders_of_a_folder_are_read(tmp_path):
    """However deep they lie, and once, though their folder is given beside it."""
    folder = written(tmp_path / "fleet", FLEETS["held_and_let_go"]())
    deeper = folder / "host" / "day"
    deeper.mkdir(parents=True)
    (deeper / "p.journal").write_text(MemberJournal("p").assigned(TP).text())
    alone = run(deeper, folder / "0.journal").output
    assert "2 journals" in alone
    for given in ((folder,), (folder, deeper), (deeper / "p.journal", folder)):
        assert run(*given).output == alone


def test_journals_behind_links_are_read(tmp_path):
    """The folder of the links was given; where the files really are does not matter."""
    real = written(tmp_path / "fleet", FLEETS["held_and_let_go"]())
    given = tmp_path / "logs"
    given.mkdir()
    for one in real.iterdir():
        (given / one.name).symlink_to(one)
    assert run(given).output == run(real).output
    inner = given / "inner"
    inner.mkdir()
    (inner / "0.journal").symlink_to(real / "0.journal")
    assert run(given).output == run(real).output


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_an_allowance_is_a_number_of_seconds(tmp_path, seconds):
    """Neither below zero nor without end: with those everything is clean, or wrong."""
    written(tmp_path, FLEETS["a1"]())
    for option in ("--clock-skew", "--patience"):
        done = run(tmp_path, option, seconds)
        assert (done.exit_code, "0 or more" in done.output) == (2, True)


def test_an_allowance_may_be_a_duration(tmp_path):
    """Every other option of time takes one; a number of seconds as before."""
    written(tmp_path, FLEETS["a1"]())
    same = [
        run(tmp_path, "--patience", patience, "--clock-skew", skew).output
        for patience, skew in (("5", "60.0"), ("5s", "1m"))
    ]
    assert same[0] == same[1]
    assert "A1" in same[0]


def test_what_could_not_be_judged_is_named_and_is_not_clean(tmp_path):
    """Status 2; leaving the check out is said as well."""
    folder = written(tmp_path / "fleet", [MemberJournal().assigned(TP).commit(TP, 5)])
    done = run(folder, "--report", tmp_path / "report")
    assert done.exit_code == 2
    assert (
        "A5  orders:0 of g  could not be judged: a committed 5, but its position"
        in done.output
    )
    rows = [json.loads(one) for one in (tmp_path / "report").read_text().splitlines()]
    assert [row["check"] for row in rows if row["unjudged"]] == ["A5"]
    done = run(folder, *("--without", "W4", "--without", "A5", "--without", "W4"))
    said = "clean: 1 journal, 1 partition, without A5, W4\n"
    assert (done.exit_code, done.output) == (0, said)


def test_an_operators_hold_needs_the_control_topics(tmp_path):
    """Members read of a hold; when it was in force no journal says."""
    told = (
        MemberJournal().assigned(TP).then("hold", scope="orders", owner="operator:eve")
    )
    told.then("lift", scope="orders", owner="operator:eve").poll(TP, 0, 2)
    folder = written(tmp_path / "fleet", [told])
    done = run(folder)
    assert (done.exit_code, "G2  orders:0 of g  could not be" in done.output) == (2, 1)
    history = tmp_path / "history.json"
    for end, status in ((1000.25, 0), (None, 1)):
        history.write_text(history_of("orders", 950.0, end))
        assert run(folder, "--history", history).exit_code == status
    history.write_text("[]")
    refused = run(folder, "--history", history)
    assert (refused.exit_code, "is not what" in refused.stderr) == (2, True)


@pytest.mark.parametrize(("began_at", "status"), [(1000.5, 0), (1050.0, 1)])
def test_a_workers_start_under_a_hold_that_it_reads_late(tmp_path, began_at, status):
    """W10: it is acquitted, or convicted, by the control topics alone."""
    told = (
        MemberJournal().then("working", order="partition").assigned(TP).poll(TP, 0, 1)
    )
    told.until(began_at).handle(TP, 0).until(1060)
    told.then("hold", scope="orders", owner="operator:eve", written=1059.9)
    folder, report = written(tmp_path / "fleet", [told]), tmp_path / "report"
    (tmp_path / "history.json").write_text(history_of("orders", 1001.0, None))
    done = run(folder, "--without", "G2", "--report", report)
    assert (done.exit_code, "W10  orders:0 of g  could not be" in done.output) == (2, 1)
    judged = run(folder, "--history", tmp_path / "history.json", "--report", report)
    assert (judged.exit_code, "W10  orders:0 of g  1 x" in judged.output) == (
        status,
        bool(status),
    )
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    (basis,) = {row["basis"] for row in rows if row["check"] in {"G2", "W10"}}
    assert basis == "clocks of several hosts, within the allowance"


@pytest.mark.parametrize(
    ("plain", "options", "status"),
    [
        ({"orders"}, ["--bootstrap", "localhost:1"], 2),
        (set(), ["--bootstrap", "localhost:1"], 0),
        ({"orders"}, [], 0),
    ],
    ids=short,
)
def test_a_hole_of_records_is_judged_by_the_topics_settings(
    tmp_path, monkeypatch, plain, options, status
):
    """Nobody is asked but the cluster that the command line names."""
    monkeypatch.setenv("SAFECONSUMER_BOOTSTRAP", "localhost:2")
    monkeypatch.setattr(
        "safeconsumer.cli.audit.uncompacted", lambda _, topics: topics & plain
    )
    told = (
        MemberJournal().assigned(TP).poll(TP, 0, 20).poll(TP, 20, 30, first=27, count=3)
    )
    monkeypatch.setattr("safeconsumer.cli.connection._check_login", lambda _: None)
    done = run(written(tmp_path, [told]), *options)
    said = "A2  orders:0 of g  7 offsets had no record: compaction and transactions"
    if status:
        said = "A2  orders:0 of g  could not be judged: offsets 20 to 26 had no record"
    assert (done.exit_code, said in done.output) == (status, True), done.output


def test_which_topics_are_not_compacted_is_asked_of_the_broker(monkeypatch):
    """Where it refuses to say, or says nothing, a topic counts as compacted."""
    facts = [
        Facts("plain", 1, {"cleanup.policy": "delete"}),
        Facts("packed", 1, {"cleanup.policy": "compact"}),
        Facts("both", 1, {"cleanup.policy": "compact,delete"}),
        Facts("hidden", 1, None),
    ]
    monkeypatch.setattr(cluster.clients, "admin", lambda _: MagicMock())
    monkeypatch.setattr(described_topics, "describe", lambda *_: facts)
    names = [one.name for one in facts]
    assert cluster.uncompacted({}, names) == {"plain"}
    refused = Mock(side_effect=TopicAuthorizationFailedError)
    monkeypatch.setattr(described_topics, "describe", refused)
    assert cluster.uncompacted({}, names) == frozenset()


def history_of(scope, start, end):
    """Return what ``safeconsumer history -o json`` prints of one hold."""
    topic = {"topic": "holds", "complete_since": 900.0}
    record = {"group": "g", "owner": "eve", "scope": scope}
    record |= {"covers": scope, "at": start, "is_held": True, "expires_at": end}
    document = {
        "group": None,
        "topics": [{**topic, "timestamp_type": "LogAppendTime"}],
        "records": [record],
    }
    return json.dumps(document)


def test_what_may_stand_in_a_broken_journal_is_no_violation(tmp_path):
    """Status 2: who delivered what is missing may have written it there."""
    folder = written(tmp_path, FLEETS["a2"]())
    assert run(folder).exit_code == 1
    (folder / "x.journal").write_text('{"journal": 9}\n')
    done = run(folder)
    assert (done.exit_code, "A2  orders:0" in done.output) == (2, True)
    assert "could not tell" in done.output
    folder = written(tmp_path / "proven", FLEETS["a1"]())
    (folder / "x.journal").write_text('{"journal": 9}\n')
    assert run(folder).exit_code == 1


@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_that_may_not_be_listed_is_not_empty(tmp_path, monkeypatch, *, inside):
    """Status 2, and it is named, given or inside one that is; another user's, or gone."""
    good = written(tmp_path / "mine", FLEETS["held_and_let_go"]())
    theirs = written((good if inside else tmp_path) / "theirs", FLEETS["a1"]())
    listed = os.scandir

    def refused(path):
        if Path(path) == theirs:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refused)
    done = run(good, *([] if inside else [theirs]))
    said = f"{theirs} cannot be listed" + ": Permission denied" * inside
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_what_cannot_be_written_is_no_violation_and_hides_none(tmp_path):
    """The verdict comes first; 1 is for violations alone."""
    good = written(tmp_path / "good", FLEETS["held_and_let_go"]())
    wrong = written(tmp_path / "wrong", FLEETS["a1"]())
    (tmp_path / "file").write_text("")
    nowhere = tmp_path / "no" / "x"
    for more in (
        ("--report", nowhere),
        ("--report", tmp_path),
        ("--perfetto", nowhere),
    ):
        done = run(good, *more)
        assert (done.exit_code, "clean:" in done.stdout) == (2, True), done.output
        assert "cannot be written" in done.stderr
        done = run(wrong, *more)
        assert (done.exit_code, "A1  orders:0" in done.stdout) == (1, True)
    assert run("x" * 300).exit_code == 2


def test_a_report_says_whether_all_was_read(tmp_path):
    """Whoever reads the rows alone must not take them for clean."""
    folder = written(tmp_path / "fleet", FLEETS["held_and_let_go"]())
    for is_complete in (True, False):
        run(folder, "--report", tmp_path / "report")
        lines = (tmp_path / "report").read_text().splitlines()
        assert {json.loads(one)["is_complete"] for one in lines} == {is_complete}
        (folder / "x.journal").write_text("broken\n")


def test_a_trace_is_written_of_what_is_judged(tmp_path):
    """Of the partition that was asked for; the verdict is the same."""
    folder = written(tmp_path / "fleet", FLEETS["a1"]())
    (folder / "b.journal").write_text(MemberJournal("b").assigned("orders:1").text())
    trace = tmp_path / "trace.json"
    done = run(folder, "--perfetto", trace)
    assert (done.exit_code, done.output) == (1, run(folder).output)
    assert {"orders:0", "orders:1"} == places(trace)
    run(folder, "--perfetto", trace, "--partition", TP)
    assert places(trace) == {"orders:0"}
    done = run(folder, "--perfetto", trace, "--master", "local[1]")
    assert (done.exit_code, "leave out --master" in done.stderr) == (2, True)


def places(trace):
    """Return the partitions of which a trace has rows."""
    events = json.loads(trace.read_text())["traceEvents"]
    rows = [one["args"]["name"] for one in events if one["name"] == "thread_name"]
    return {one.split()[0] for one in rows}


def test_a_partition_that_is_nowhere_is_said(tmp_path):
    """Status 2 with the reason; and which there are."""
    folder = written(tmp_path / "fleet", FLEETS["held_and_let_go"]())
    done = run(folder, "--partition", "nowhere:7")
    assert done.exit_code == 2
    assert "no journal names nowhere:7; they name orders:0" in done.stderr
    done = run(folder, "--partition", TP)
    assert (done.exit_code, done.stderr) == (0, "")
    (tmp_path / "empty").mkdir()
    done = run(tmp_path / "empty", "--partition", TP)
    assert "no journal names orders:0; they name no partition" in done.stderr


def test_a_topic_is_all_its_partitions(tmp_path):
    told = MemberJournal().assigned(TP, "orders:1", "returns:0").pause("orders")
    folder = written(tmp_path, [told.poll(TP, 0, 2).poll("orders:1", 0, 2)])
    done = run(folder, "--partition", "orders")
    lines = done.stdout.splitlines()
    named = [one.split("  ")[1] for one in lines if one.startswith("A1")]
    assert (done.exit_code, named) == (1, ["orders:0 of g", "orders:1 of g"])
    assert sum(one.startswith("  > ") for one in lines) == 2
    assert lines[-1] == "violations: 1 journal, 2 partitions"
    done = run(folder, "--partition", "order")
    assert "no journal names the topic order; they name orders:0, " in done.stderr
    assert done.exit_code == 2


def test_a_reason_of_several_checks_and_partitions_is_printed_once(tmp_path):
    """A reset without --control: four checks of three partitions have one cause."""
    tps = [f"orders:{number}" for number in range(3)]
    told = MemberJournal().assigned(*tps)
    for tp in tps:
        told.then("reset", tp=tp, offset=2, owner="operator:eve").poll(tp, 2, 5)
    cause, verdict = run(written(tmp_path, [told])).stdout.splitlines()
    assert cause.startswith("A2, A4, A5, A6  orders:0 of g and 2 more  could not be")
    assert "judged: members say that operator:eve moved it; only the control" in cause
    assert verdict == "could not tell: 1 journal, 3 partitions"


def test_a_reason_of_many_partitions_is_said_once(tmp_path):
    """
    Behind the violations, which it must not hide; the report has every row.

    So has it of violations, of which the first ten partitions have a line each.
    """
    tps = [f"orders:{number}" for number in range(1000)]
    held = [f"held:{number}" for number in range(1200)]
    told = (
        MemberJournal().assigned(*tps, "audit:0").pause("audit:0").poll("audit:0", 0, 2)
    )
    told.assigned(*held).pause("held")
    for name in held:
        told.poll(name, 0, 5).poll(name, 5, 7)
    told.then("hold", scope="orders", owner="operator:eve")
    told.then("lift", scope="orders", owner="operator:eve").poll(TP, 0, 2)
    told.then("hold", scope="audit:0", owner="operator:eve")
    folder, report = written(tmp_path / "fleet", [told]), tmp_path / "report"
    done = run(folder, "--report", report)
    lines = done.stdout.splitlines()
    assert lines[9].startswith("A1  held:8 of g  2 x, first by a: entry")
    assert [one.split("  ")[:2] for one in lines if "held:" not in one] == [
        ["A1", "audit:0 of g"],
        ["A1", "2,382 x in 1,191 more partitions (--report has them all)"],
        ["G2", "audit:0 of g"],
        ["G2", "orders:0 of g and 999 more"],
        ["violations: 1 journal, 2,201 partitions"],
    ]
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    assert sum(bool(row["unjudged"]) for row in rows) == 1001
    assert sum(row["violations"] for row in rows) == 2401
