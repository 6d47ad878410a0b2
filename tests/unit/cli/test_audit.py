"""Tests the lines, the report and the exit status of ``safeconsumer audit``."""

import errno
import json
import os
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest
from kafka.errors import TopicAuthorizationFailedError

from safeconsumer.audit.results import CHECKS
from safeconsumer.cli import cluster
from safeconsumer.group import described_topics
from safeconsumer.group.topics import Facts
from tests.harness.audit.command import history_of, rows_of, run, written
from tests.harness.audit.fleets import FLEETS, TP
from tests.harness.audit.journals import MemberJournal
from tests.harness.listing import short

CLEAN, LEAKED, LOST = "held_and_let_go", "a1", "a2"


@pytest.fixture
def clean(tmp_path):
    """Return a folder with the journals of a fleet that kept every promise."""
    return written(tmp_path / "fleet", FLEETS[CLEAN]())


# ---------------------------------------------------------------- verdicts


def test_clean_fleet_gives_exit_status_0_and_a_row_for_each_check(tmp_path, clean):
    report = tmp_path / "report"
    done = run(clean, "--report", report)
    assert (done.exit_code, done.output) == (0, "clean: 1 journal, 1 partition\n")
    rows = rows_of(report)
    assert len(rows) == len(CHECKS)
    assert {row["violations"] for row in rows} == {0}


@pytest.mark.parametrize(
    ("fleet", "status", "lines"),
    [
        pytest.param(
            FLEETS[LEAKED](),
            1,
            ["A1  orders:0 of g  1 x, first by a: entry 5", "was held by alice"],
            id="violation with its evidence",
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
            id="only a journal of a producer",
        ),
        pytest.param(
            [
                MemberJournal("worker").assigned(TP).poll(TP, 0, 9).commit(TP, 9),
                MemberJournal("worker", at=2000).poll().poll(TP, 9, 12),
            ],
            2,
            ["another journal of a process with the name worker"],
            id="two processes with one name",
        ),
    ],
)
def test_status_is_1_for_violations_and_2_without_a_verdict(
    tmp_path, fleet, status, lines
):
    done = run(written(tmp_path, fleet))
    assert done.exit_code == status
    for line in lines:
        assert line in done.output


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"journal": 2}\n', "version 2"),
        ('{"journal": null}\n', "version None"),
        ("", "no whole line"),
        ('{"check": "A1"}\n', "x.journal is no journal: its first line has no"),
    ],
    ids=["early version", "no version", "empty", "a report"],
)
def test_unreadable_journal_prevents_a_verdict(clean, text, reason):
    (clean / "x.journal").write_text(text)
    done = run(clean)
    assert done.exit_code == 2
    assert reason in done.output
    assert "could not tell" in done.output


@pytest.mark.contract("S5")
@pytest.mark.parametrize(
    ("journal", "reason"),
    [
        (
            {"journal": 4, "member": "x", "at": 1},
            "x.journal is a journal of version 4; this program reads 5",
        ),
        ({"journal": 9}, "version 9"),
    ],
    ids=["earlier version", "later version"],
)
def test_lost_record_is_not_a_violation_if_an_unread_journal_may_have_it(
    tmp_path, journal, reason
):
    """A record delivered while its partition was held stays a violation."""
    lost = written(tmp_path / "lost", FLEETS[LOST]())
    leaked = written(tmp_path / "leaked", FLEETS[LEAKED]())
    assert (run(lost).exit_code, run(leaked).exit_code) == (1, 1)
    for folder in (lost, leaked):
        (folder / "x.journal").write_text(json.dumps(journal) + "\n")
    done = run(lost)
    assert (done.exit_code, "A2  orders:0" in done.output) == (2, True)
    assert reason in done.output
    assert "could not tell" in done.output
    assert "violations" not in done.output
    assert run(leaked).exit_code == 1


def test_unjudged_check_is_named_and_can_be_excluded(tmp_path):
    folder = written(tmp_path / "fleet", [MemberJournal().assigned(TP).commit(TP, 5)])
    report = tmp_path / "report"
    done = run(folder, "--report", report)
    line = "A5  orders:0 of g  could not be judged: a committed 5, but its position"
    assert (done.exit_code, line in done.output) == (2, True)
    assert [row["check"] for row in rows_of(report) if row["unjudged"]] == ["A5"]
    done = run(folder, *("--without", "W4", "--without", "A5", "--without", "W4"))
    line = "clean: 1 journal, 1 partition, without A5, W4\n"
    assert (done.exit_code, done.output) == (0, line)


# ---------------------------------------------------------------- finding journals


def test_help_explains_the_journal_argument_of_the_usage_line():
    usage, *text = run("--help").stdout.split("\n")
    assert usage.endswith("[OPTIONS] JOURNAL...")
    assert any(line.strip().startswith("JOURNAL is a file") for line in text)


@pytest.mark.parametrize("name", ["", "none"], ids=short)
def test_missing_folder_gives_exit_status_2(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    line = f"safeconsumer: no such file or folder: {name or repr(name)}\n"
    done = run(name)
    assert (done.exit_code, done.output) == (2, line)


def test_folder_without_journals_gives_exit_status_2(tmp_path, clean):
    """The missing journals may be on another host."""
    (tmp_path / "two" / "deeper").mkdir(parents=True)
    done = run(clean, tmp_path / "two")
    assert done.exit_code == 2
    assert f"there is no journal in {tmp_path / 'two'}" in done.output
    assert "could not tell: 1 journal, 1 partition" in done.output


def test_journals_in_nested_folders_are_read_once(clean):
    deeper = clean / "host" / "day"
    deeper.mkdir(parents=True)
    (deeper / "p.journal").write_text(MemberJournal("p").assigned(TP).text())
    alone = run(deeper, clean / "0.journal").output
    assert "2 journals" in alone
    for given in ((clean,), (clean, deeper), (deeper / "p.journal", clean)):
        assert run(*given).output == alone


def test_symlinked_journals_are_read_once(tmp_path, clean):
    given = tmp_path / "logs"
    (given / "inner").mkdir(parents=True)
    for one in clean.iterdir():
        (given / one.name).symlink_to(one)
    (given / "inner" / "0.journal").symlink_to(clean / "0.journal")
    assert run(given).output == run(clean).output


@pytest.mark.parametrize("inside", [False, True], ids=["given", "inside"])
def test_folder_without_list_permission_is_named_and_gives_exit_status_2(
    tmp_path, clean, monkeypatch, inside
):
    theirs = written((clean if inside else tmp_path) / "theirs", FLEETS[LEAKED]())
    listed = os.scandir

    def refused(path):
        if Path(path) == theirs:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refused)
    done = run(clean, *([] if inside else [theirs]))
    line = f"{theirs} cannot be listed" + ": Permission denied" * inside
    assert (done.exit_code, line in done.stderr) == (2, True)


# ---------------------------------------------------------------- allowances


@pytest.mark.parametrize("option", ["--clock-skew", "--patience"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_allowance_must_be_a_finite_number_of_seconds(tmp_path, option, seconds):
    done = run(tmp_path, option, seconds)
    assert (done.exit_code, "0 or more" in done.output) == (2, True)


def test_allowance_may_be_a_duration(tmp_path):
    written(tmp_path, FLEETS[LEAKED]())
    seconds, durations = (
        run(tmp_path, "--patience", patience, "--clock-skew", skew).output
        for patience, skew in (("5", "60.0"), ("5s", "1m"))
    )
    assert seconds == durations
    assert "A1" in seconds


# ---------------------------------------------------------------- control topics


def test_operators_hold_is_judged_only_with_the_records_of_the_control_topics(tmp_path):
    """Journals show that members read a hold, but not when it was in force."""
    journal = (
        MemberJournal().assigned(TP).then("hold", scope="orders", owner="operator:eve")
    )
    journal.then("lift", scope="orders", owner="operator:eve").poll(TP, 0, 2)
    folder = written(tmp_path / "fleet", [journal])
    done = run(folder)
    assert (done.exit_code, "G2  orders:0 of g  could not be" in done.output) == (2, 1)
    history = tmp_path / "history.json"
    for end, status in ((1000.25, 0), (None, 1)):
        history.write_text(history_of("orders", 950.0, end))
        assert run(folder, "--history", history).exit_code == status
    history.write_text("[]")
    refused = run(folder, "--history", history)
    assert (refused.exit_code, "is not output" in refused.stderr) == (2, True)


@pytest.mark.parametrize(("began_at", "status"), [(1000.5, 0), (1050.0, 1)])
def test_handler_started_under_a_hold_is_judged_by_the_control_topics(
    tmp_path, began_at, status
):
    journal = (
        MemberJournal().then("working", order="partition").assigned(TP).poll(TP, 0, 1)
    )
    journal.until(began_at).handle(TP, 0).until(1060)
    journal.then("hold", scope="orders", owner="operator:eve", written=1059.9)
    folder, report = written(tmp_path / "fleet", [journal]), tmp_path / "report"
    history = tmp_path / "history.json"
    history.write_text(history_of("orders", 1001.0, None))
    done = run(folder, "--without", "G2")
    assert (done.exit_code, "W10  orders:0 of g  could not be" in done.output) == (2, 1)
    done = run(folder, "--history", history, "--report", report)
    is_named = "W10  orders:0 of g  1 x" in done.output
    assert (done.exit_code, is_named) == (status, bool(status))
    bases = {row["basis"] for row in rows_of(report) if row["check"] in {"G2", "W10"}}
    assert bases == {"clocks of several hosts, within the allowance"}


@pytest.mark.parametrize(
    ("plain", "options", "is_judged"),
    [
        ({"orders"}, ["--bootstrap", "localhost:1"], False),
        (set(), ["--bootstrap", "localhost:1"], True),
        ({"orders"}, [], True),
    ],
    ids=["not compacted", "compacted", "no cluster on the command line"],
)
def test_offsets_without_records_are_judged_by_the_settings_of_their_topic(
    tmp_path, monkeypatch, plain, options, is_judged
):
    # The command must not query this broker.
    monkeypatch.setenv("SAFECONSUMER_BOOTSTRAP", "localhost:2")
    monkeypatch.setattr(
        "safeconsumer.cli.audit.uncompacted", lambda _, topics: topics & plain
    )
    monkeypatch.setattr("safeconsumer.cli.connection._check_login", lambda _: None)
    journal = (
        MemberJournal().assigned(TP).poll(TP, 0, 20).poll(TP, 20, 30, first=27, count=3)
    )
    done = run(written(tmp_path, [journal]), *options)
    line = "A2  orders:0 of g  could not be judged: offsets 20 to 26 had no record"
    if is_judged:
        line = "A2  orders:0 of g  7 offsets had no record: compaction and transactions"
    assert (done.exit_code, line in done.output) == (0 if is_judged else 2, True)


def test_topic_counts_as_compacted_unless_its_settings_say_otherwise(monkeypatch):
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


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("option", ["--report", "--perfetto"])
def test_unwritable_file_does_not_hide_a_violation(tmp_path, clean, option):
    """The command prints the verdict first, and status 1 always means violations."""
    leaked = written(tmp_path / "leaked", FLEETS[LEAKED]())
    nowhere = tmp_path / "no" / "x"
    done = run(clean, option, nowhere)
    assert (done.exit_code, "clean:" in done.stdout) == (2, True), done.output
    assert "cannot be written" in done.stderr
    done = run(leaked, option, nowhere)
    assert (done.exit_code, "A1  orders:0" in done.stdout) == (1, True)


def test_report_shows_whether_every_journal_was_read(tmp_path, clean):
    report = tmp_path / "report"
    for is_complete in (True, False):
        run(clean, "--report", report)
        assert {row["is_complete"] for row in rows_of(report)} == {is_complete}
        (clean / "x.journal").write_text("broken\n")


def test_trace_has_the_requested_partitions(tmp_path):
    folder = written(tmp_path / "fleet", FLEETS[LEAKED]())
    (folder / "b.journal").write_text(MemberJournal("b").assigned("orders:1").text())
    trace = tmp_path / "trace.json"

    def places():
        events = json.loads(trace.read_text())["traceEvents"]
        rows = [one["args"]["name"] for one in events if one["name"] == "thread_name"]
        return {one.split()[0] for one in rows}

    done = run(folder, "--perfetto", trace)
    assert (done.exit_code, done.output) == (1, run(folder).output)
    assert places() == {"orders:0", "orders:1"}
    run(folder, "--perfetto", trace, "--partition", TP)
    assert places() == {"orders:0"}
    done = run(folder, "--perfetto", trace, "--master", "local[1]")
    assert (done.exit_code, "leave out --master" in done.stderr) == (2, True)


# ---------------------------------------------------------------- partitions


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        ("nowhere:7", "no journal names nowhere:7; they name orders:0"),
        ("order", "no journal names the topic order; they name orders:0"),
        ("re:re:3", "no journal names re:re:3; they name orders:0"),
    ],
)
def test_partition_that_no_journal_names_gives_exit_status_2(clean, partition, reason):
    done = run(clean, "--partition", partition)
    assert (done.exit_code, reason in done.stderr) == (2, True)


def test_error_in_an_empty_folder_says_that_no_journal_names_a_partition(tmp_path):
    done = run(tmp_path, "--partition", TP)
    assert "no journal names orders:0; they name no partition" in done.stderr


def test_topic_selects_all_its_partitions(tmp_path):
    journal = MemberJournal().assigned(TP, "orders:1", "returns:0").pause("orders")
    folder = written(tmp_path, [journal.poll(TP, 0, 2).poll("orders:1", 0, 2)])
    done = run(folder, "--partition", "orders")
    lines = done.stdout.splitlines()
    named = [one.split("  ")[1] for one in lines if one.startswith("A1")]
    assert (done.exit_code, named) == (1, ["orders:0 of g", "orders:1 of g"])
    assert sum(one.startswith("  > ") for one in lines) == 2
    assert lines[-1] == "violations: 1 journal, 2 partitions"


def test_partition_of_a_topic_named_re_is_printed_with_the_prefix_re(tmp_path):
    """Journals name the partition re:3, which ``pause`` would read as a pattern."""
    journal = MemberJournal().assigned("re:3").pause("re").poll("re:3", 0, 2)
    first, *_ = run(written(tmp_path, [journal])).stdout.splitlines()
    assert first.startswith("A1  re:re:3 of g  1 x")


def test_cause_shared_by_several_checks_and_partitions_is_printed_once(tmp_path):
    """Without --control, resets leave four checks of three partitions unjudged."""
    tps = [f"orders:{number}" for number in range(3)]
    journal = MemberJournal().assigned(*tps)
    for tp in tps:
        journal.then("reset", tp=tp, offset=2, owner="operator:eve").poll(tp, 2, 5)
    cause, verdict = run(written(tmp_path, [journal])).stdout.splitlines()
    assert cause.startswith("A2, A4, A5, A6  orders:0 of g and 2 more  could not be")
    assert "judged: members say that operator:eve moved it; only the control" in cause
    assert verdict == "could not tell: 1 journal, 3 partitions"


def test_output_for_many_partitions_has_ten_lines_and_a_summary(tmp_path):
    """The output ends with a summary of unjudged partitions; the report lists each one."""
    tps = [f"orders:{number}" for number in range(1000)]
    held = [f"held:{number}" for number in range(1200)]
    journal = (
        MemberJournal().assigned(*tps, "audit:0").pause("audit:0").poll("audit:0", 0, 2)
    )
    journal.assigned(*held).pause("held")
    for name in held:
        journal.poll(name, 0, 5).poll(name, 5, 7)
    journal.then("hold", scope="orders", owner="operator:eve")
    journal.then("lift", scope="orders", owner="operator:eve").poll(TP, 0, 2)
    journal.then("hold", scope="audit:0", owner="operator:eve")
    folder, report = written(tmp_path / "fleet", [journal]), tmp_path / "report"
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
    rows = rows_of(report)
    assert sum(bool(row["unjudged"]) for row in rows) == 1001
    assert sum(row["violations"] for row in rows) == 2401
