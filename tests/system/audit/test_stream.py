"""Tests that the audit needs constant memory, and shows the entries around a violation."""

import tracemalloc

from safeconsumer.audit.judge import Judge
from safeconsumer.audit.results import Settings
from safeconsumer.audit.stream import sources
from tests.bench import auditing
from tests.harness.audit.command import run
from tests.harness.audit.fleets import TP
from tests.harness.audit.journals import MemberJournal


def written(folder, *member):
    paths = []
    for number, one in enumerate(member):
        path = folder / f"{number}.journal"
        path.write_text(one.text())
        paths.append(path)
    return paths


def test_audit_memory_does_not_grow_with_the_journal(tmp_path):
    """Five times as many polls need almost the same memory, because they form one run."""
    peaks = []
    for polls in (1_000, 5_000):
        folder = tmp_path / str(polls)
        folder.mkdir()
        auditing.write(folder, 500 * polls, 500)
        tracemalloc.start()
        for journal in sources({one.name: one for one in folder.iterdir()})[0]:
            Judge(Settings()).read(journal)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def test_option_partition_shows_the_entries_around_each_violation(tmp_path):
    """The output marks the entry that proves the violation, and shows others around it."""
    member = (
        MemberJournal().assigned(TP, "audit:0").poll("audit:0", 0, 9).poll(TP, 0, 5)
    )
    member.resume()  # without targets, as in resume(*paused()) while nothing is paused
    member.pause("orders", owner="alice").poll(TP, 5, 7).poll("audit:0", 11, 12)
    written(tmp_path, member)
    ended = run(tmp_path, "--partition", TP)
    assert ended.exit_code == 1
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("A1  orders:0 of g  1 x, first by a: entry 8")
    (marked,) = [one for one in lines if one.startswith("  > ")]
    assert "8  " in marked
    assert "deliver  tp=orders:0" in marked
    assert any("pause" in one and "alice" in one for one in lines)
    assert lines[-1] == "violations: 1 journal, 1 partition"
    assert "A3  audit:0" in run(tmp_path).stdout


def test_option_partition_rejects_a_malformed_partition(tmp_path):
    written(tmp_path, MemberJournal().assigned(TP))
    ended = run(tmp_path, "--partition", "orders:all")
    assert (ended.exit_code, "such as orders:3" in ended.stderr) == (2, True)
